/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_CACHE_H
#define SHIM_LINUX_CACHE_H

#define SMP_CACHE_BYTES	64
/* As in a kernel for one CPU. */
#define ____cacheline_aligned_in_smp

#endif
