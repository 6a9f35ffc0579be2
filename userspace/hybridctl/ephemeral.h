/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cache devices that come up blank, as the local SSDs of cloud hosts do.  Such a device is named in
 * hybrid.conf and on each of its origins; only where both do it is made a pool anew.
 */
#ifndef HYBRIDCTL_EPHEMERAL_H
#define HYBRIDCTL_EPHEMERAL_H

#include "common.h"
#include "config.h"
#include "health.h"

/* --ephemeral: the line of hybrid.conf for a cache device.  Returns 0 or an exit code. */
int find_ephemeral(dev_t cache, const char *path, const struct hybrid_ephemeral **e);

/* Fill in name, policy and block size of a pool on such a device, of @sectors. */
void plan_ephemeral(struct hybrid_cache_plan *plan, const struct hybrid_ephemeral *e,
		    uint64_t sectors);

/*
 * Complete what the superblock in @nv's plan says of this: that its cache device may come up blank,
 * or that it does not any more.  Refuses writeback.  Returns 0 or an exit code.
 */
int mark_ephemeral(struct new_volume *nv);

/* Writeback of a volume whose origin has that mark: refused. */
int fail_ephemeral_writeback(const char *name);

/*
 * The line of hybrid.conf for the cache device that an origin names, if that has nothing newer: nobody
 * waits for such a device.  NULL: the origin is none of these.
 */
const struct hybrid_ephemeral *ephemeral_of(const struct hybrid_member *origin);

/* One of this host's origins that miss their pool on the device of @e; NULL: there is none. */
const struct hybrid_member *find_origin_without_pool(struct hybrid_inventory *inv,
						     const struct hybrid_ephemeral *e);

/* A device that hybrid.conf names, on which origins miss their pool. */
struct vacancy {
	const struct hybrid_ephemeral *line;
	dev_t devno;			/* 0: it is not here */
	uint8_t pool[16];		/* the pool that one of them had */
	bool blank;
	char why[HYBRID_WHY_MAX];	/* it is not, to follow "it " */
	bool taken;			/* that pool is there, or the one in its place */
};

struct vacancies {
	struct vacancy *v;
	unsigned int nr;
};

/*
 * Find and read those whose volumes @cl means.  Before the lock is taken: it reads devices.
 * Returns 0 or an exit code; free @all either way.
 */
int find_vacancies(struct vacancies *all, const struct command_line *cl,
		   struct hybrid_inventory *inv);

/*
 * Under the lock: make pools of those that are still blank, and enter these in @inv, whose nodes are
 * to be loaded again.  It warns of the others, which are left as they are.  Returns 0, or the exit code of
 * the last that failed.
 */
int fill_vacancies(struct vacancies *all, const struct command_line *cl,
		   struct hybrid_inventory *inv);

/* The nodes of volumes whose pool was made anew: that is their pool. */
void find_followers(struct hybrid_inventory *inv);

/* A volume whose origin does not say yet that the pool, which is active or can be, is its own. */
bool is_follower(const struct hybrid_node *volume);

/*
 * Attach it to its pool: the entry, then the superblock of its origin.  Its table comes next.  Returns 0
 * or an exit code; then it may have no pool any more, and its origin is as it was.
 */
int enter_follower(struct hybrid_node *volume, const struct hybrid_node *pool, dev_t devno);

/* For --test: whether its origin would have a new pool. */
bool will_be_filled(const struct vacancies *all, const struct hybrid_member *origin);

/*
 * The pool in whose place is the one with the UUID @what.  *known: @what is the UUID or the name of a
 * pool that was to be made.
 */
struct hybrid_node *find_filled(const struct vacancies *all, struct hybrid_inventory *inv,
				const char *what, bool *known);

/*
 * For status, of a volume without its pool: what stands in the way of a new one, and what to do.
 * Reads the device.
 */
void explain_vacancy(const struct hybrid_node *volume, struct health *h);

#endif
