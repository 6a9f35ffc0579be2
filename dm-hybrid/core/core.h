/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The pure files get all kernel headers from this one: they include it and each
 * other, and nothing else.  Exceptions are format.h and block-types.h, which need
 * only <linux/types.h>, and policy/module.h.  In userspace the directory
 * userspace/kernel-shim stands in for <linux/...>; no pure file checks where it
 * is compiled.
 */
#ifndef DM_HYBRID_CORE_H
#define DM_HYBRID_CORE_H

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/build_bug.h>
#include <linux/cache.h>
#include <linux/compiler.h>
#include <linux/crc32c.h>
#include <linux/errno.h>
#include <linux/hash.h>
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/overflow.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/seqlock.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/spinlock.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/stringify.h>
#include <linux/types.h>
#include <linux/vmalloc.h>
#include <linux/xxhash.h>
#include <asm/byteorder.h>

#include "format.h"
#include "block-types.h"

#endif
