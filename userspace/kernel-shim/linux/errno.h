/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_ERRNO_H
#define SHIM_LINUX_ERRNO_H

#include_next <linux/errno.h>

#endif
