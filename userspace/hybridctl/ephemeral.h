/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cache devices that come up blank, as the local SSDs of cloud hosts do.  hybrid.conf names such a
 * device, and so does each of its origins; a new pool is made on it only if both do.
 */
#ifndef HYBRIDCTL_EPHEMERAL_H
#define HYBRIDCTL_EPHEMERAL_H

#include "config.h"
#include "new-volume.h"

/* --ephemeral: finds the line of hybrid.conf for a cache device.  Returns 0 or an exit code. */
int find_ephemeral(dev_t cache, const char *path, const struct hybrid_ephemeral **e);

/* Fills in name, policy and block size of a pool on such a device, which has @sectors. */
void plan_ephemeral(struct hybrid_cache_plan *plan, const struct hybrid_ephemeral *e,
		    uint64_t sectors);

/*
 * Sets or clears the mark in the superblock of @nv's plan: its cache device may come up blank.
 * With the mark, refuses writeback.  Returns 0 or an exit code.
 */
int mark_ephemeral(struct new_volume *nv);

/* Refuses writeback for a volume whose origin has that mark. */
int fail_ephemeral_writeback(const char *name);

/*
 * Returns the line of hybrid.conf for the cache device that an origin names; NULL if there is none,
 * or the cache has newer data.  No activation waits for such a device.
 */
const struct hybrid_ephemeral *ephemeral_of(const struct hybrid_member *origin);

#endif
