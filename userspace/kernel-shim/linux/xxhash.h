/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_XXHASH_H
#define SHIM_LINUX_XXHASH_H

#include <linux/types.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>

/* The library uses attributes of these names, and assert.h. */
#pragma push_macro("noinline")
#pragma push_macro("fallthrough")
#pragma push_macro("static_assert")
#undef noinline
#undef fallthrough
#define XXH_INLINE_ALL
#include <xxhash.h>
#pragma pop_macro("static_assert")
#pragma pop_macro("fallthrough")
#pragma pop_macro("noinline")

static inline u64 xxh64(const void *input, size_t length, u64 seed)
{
	return XXH64(input, length, seed);
}

#endif
