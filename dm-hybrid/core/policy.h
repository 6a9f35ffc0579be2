/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between the engine and its replacement policies.  A policy only
 * decides: it sees no bio, no metadata and no other policy, and knows the blocks of
 * one set by their index, 0 ... set_size - 1.  A new policy takes one new file, a line
 * of Kbuild, and a row in each test of all policies.
 */
#ifndef DM_HYBRID_POLICY_H
#define DM_HYBRID_POLICY_H

#include "core.h"

struct module;

/**
 * struct hybrid_policy_type - A replacement policy
 *
 * The engine gives each set @set_bytes of zeroed memory, 8-byte aligned, and calls
 * @init for it once.  No operation may sleep or allocate.  All operations on a set's
 * state run under the set's lock, except @hit, and @init, which runs before any other.
 * Each block for which @insert or @load was called is in the policy until @remove is
 * called for it.
 */
struct hybrid_policy_type {
	/** @name: Name in tables, 1 to HYBRID_POLICY_NAME_SIZE - 1 bytes long. */
	const char *name;
	/** @owner: Module of the policy: THIS_MODULE. */
	struct module *owner;
	/** @admit: False if the policy caches nothing new. */
	bool admit;
	/** @version: Major, minor and patch level of the policy. */
	unsigned int version[3];
	/** @list: Links the policy into the registry. */
	struct list_head list;

	/** @set_bytes: Returns the bytes of state for @set_size blocks, a multiple of 8. */
	size_t (*set_bytes)(u32 set_size);

	/** @init: Initialises the zeroed @state of a set of @set_size blocks. */
	void (*init)(void *state, u32 set_size);

	/**
	 * @hit: Block @i was read or written.  Runs without any lock, in any context, and
	 * also for a block that is being removed.  It stays within the state's memory
	 * in any race with other operations, and writes only when something changes.
	 */
	void (*hit)(void *state, u32 i);

	/**
	 * @insert: Block @i was taken for a fill or a first write, or was taken back after
	 * @remove.  A policy knows the contents of the block only by @fingerprint, a hash
	 * of its key.
	 */
	void (*insert)(void *state, u32 i, u32 fingerprint);

	/** @remove: Block @i leaves the cache.  @evicted is false if its data is gone. */
	void (*remove)(void *state, u32 i, u32 fingerprint, bool evicted);

	/**
	 * @ghost_hit: Returns whether a key that is not cached was evicted, or passed to
	 * this operation, not long ago.  Remembers the key in any case.  NULL if the policy
	 * remembers no such keys.
	 */
	bool (*ghost_hit)(void *state, u32 fingerprint);

	/**
	 * @victim: Returns the block to evict next among the blocks that usable(@ctx, i)
	 * accepts.  The block stays in the policy until @remove.  Returns -1 if there is no
	 * such block, or if @usable has refused @scan blocks.
	 */
	int (*victim)(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx);

	/**
	 * @hint: Returns the place of block @i as one byte: 0 is evicted first.  The engine
	 * gives the byte to @load after a restart, or when another policy takes over.
	 */
	u8 (*hint)(void *state, u32 i);
	/**
	 * @load: Adds block @i in the place that @hint names.  Called for blocks in any
	 * order, after @init and before any other operation.
	 */
	void (*load)(void *state, u32 i, u8 hint);
};

/**
 * hybrid_policy_register() - Adds a policy to the registry
 * @type: the policy, which stays in place until it is unregistered
 *
 * May sleep.  The registry is policy.c in the kernel; userspace has its own, with functions
 * of the same names.
 *
 * Return: 0, -EINVAL if the name is empty or too long, -EEXIST if it is in use.
 */
int hybrid_policy_register(struct hybrid_policy_type *type);

/**
 * hybrid_policy_unregister() - Takes a policy out of the registry
 * @type: the policy, to which no references are left
 *
 * May sleep.
 */
void hybrid_policy_unregister(struct hybrid_policy_type *type);

/**
 * hybrid_policy_get() - Takes a reference to a policy
 * @name: name of the policy
 *
 * Loads the policy's module if necessary.  May sleep.
 *
 * Return: the policy, or NULL if the name is unknown.
 */
const struct hybrid_policy_type *hybrid_policy_get(const char *name);

/**
 * hybrid_policy_put() - Gives back a reference from hybrid_policy_get()
 * @type: the policy
 */
void hybrid_policy_put(const struct hybrid_policy_type *type);

#endif
