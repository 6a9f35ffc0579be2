/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_CACHE_H
#define SHIM_LINUX_CACHE_H

/* As in a kernel without SMP: structs have no padding, and malloc() aligns enough. */
#define ____cacheline_aligned_in_smp

#endif
