/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_FUZZ_LINUX_SCHED_H
#define SHIM_FUZZ_LINUX_SCHED_H

#include_next <linux/sched.h>

#define PF_IO_WORKER	0x1

struct task_struct {
	unsigned int flags;
};

/* Sends no I/O. */
static struct task_struct *const current;

#endif
