/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a replacement policy is to the engine.  A policy decides, it never does:
 * it sees no bio, no metadata, no other policy; it knows the blocks of one set
 * by their index, 0 ... set_size - 1.  Adding a policy touches one new file, one
 * line of Kbuild and one row of a test.
 *
 * The engine gives each set set_bytes() of zeroed memory, 8-byte aligned, and
 * calls init once.  All ops but hit run under the set's lock; none may sleep or
 * allocate.  Every index that insert was called for is in the policy until
 * remove is called for it.
 */
#ifndef DM_HYBRID_POLICY_H
#define DM_HYBRID_POLICY_H

#include "core.h"

struct module;

struct hybrid_policy_type {
	const char *name;		/* below HYBRID_POLICY_NAME_SIZE bytes */
	struct module *owner;
	bool admit;			/* false: nothing is ever cached */
	unsigned int version[3];
	struct list_head list;		/* the registry's */

	/* Bytes of state for a set of @set_size blocks, a multiple of 8. */
	size_t (*set_bytes)(u32 set_size);

	void (*init)(void *state, u32 set_size);

	/*
	 * Block @i was read or written.  Without any lock and from any context,
	 * also for a block that is being removed: must stay within the state's
	 * memory, whatever races; writes only when something changes.
	 */
	void (*hit)(void *state, u32 i);

	/*
	 * Block @i was filled, or written for the first time.  @fingerprint, a hash of
	 * its key, is all that a policy knows of what is in it.
	 */
	void (*insert)(void *state, u32 i, u32 fingerprint);

	/* Block @i left the cache; @evicted: not because its data went. */
	void (*remove)(void *state, u32 i, u32 fingerprint, bool evicted);

	/*
	 * Not cached: was it evicted, or asked for, not long ago?  From now on it
	 * was.  NULL: the policy remembers nothing.
	 */
	bool (*ghost_hit)(void *state, u32 fingerprint);

	/*
	 * The block to evict next, of those that usable(@ctx, i) accepts; it
	 * stays in the policy until remove.  -1: there is none, or @scan blocks
	 * were refused.
	 */
	int (*victim)(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx);

	/*
	 * Where block @i stands, as one byte that is kept over a restart: 0 is
	 * evicted first.  load is called after init in any order, before any
	 * other op.
	 */
	u8 (*hint)(void *state, u32 i);
	void (*load)(void *state, u32 i, u8 hint);
};

/* Registry; policy.c in the kernel, the same names in userspace. */
int hybrid_policy_register(struct hybrid_policy_type *type);
void hybrid_policy_unregister(struct hybrid_policy_type *type);

/*
 * Take a reference to the policy called @name, loading its module if need be
 * (may sleep).  NULL: unknown.
 */
const struct hybrid_policy_type *hybrid_policy_get(const char *name);
void hybrid_policy_put(const struct hybrid_policy_type *type);

#endif
