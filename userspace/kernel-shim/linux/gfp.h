/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_GFP_H
#define SHIM_LINUX_GFP_H

#include <linux/types.h>

#define GFP_KERNEL 0x1U
#define GFP_NOIO 0x2U
#define GFP_NOWAIT 0x4U
#define GFP_ATOMIC 0x8U
#define __GFP_ZERO 0x10U
#define __GFP_NOWARN 0x20U
#define __GFP_NORETRY 0x40U
#define __GFP_NOMEMALLOC 0x80U

#endif
