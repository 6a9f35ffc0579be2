/* SPDX-License-Identifier: GPL-2.0-or-later */
/* New pools on cache devices that came up blank, and the volumes that get them. */
#ifndef HYBRIDCTL_VACANCIES_H
#define HYBRIDCTL_VACANCIES_H

#include "config.h"
#include "health.h"

/* Returns an origin of this host that misses its pool on the device of @e; NULL: there is none. */
const struct hybrid_member *find_origin_without_pool(struct hybrid_inventory *inv,
						     const struct hybrid_ephemeral *e);

/* A device that hybrid.conf names, on which origins miss their pool. */
struct vacancy {
	const struct hybrid_ephemeral *line;
	dev_t devno;			/* 0: it is not here */
	uint8_t pool[16];		/* the pool that one of these origins had */
	bool blank;
	char why[HYBRID_WHY_MAX];	/* why it is not blank, to follow "it " */
	bool taken;			/* that pool is there, or the one in its place */
};

struct vacancies {
	struct vacancy *v;
	unsigned int nr;
};

/*
 * Finds the vacancies whose volumes @cl means, and reads their devices.  Not to be called under the
 * lock.  Returns 0 or an exit code; free @all either way.
 */
int find_vacancies(struct vacancies *all, const struct command_line *cl,
		   struct hybrid_inventory *inv);

/*
 * Makes pools on the devices that are still blank, and enters the pools in @inv, whose nodes are to
 * be loaded again.  Warns of the other devices, and leaves them as they are.  Caller holds the
 * lock.  Returns 0, or the exit code of the last one that failed.
 */
int fill_vacancies(struct vacancies *all, const struct command_line *cl,
		   struct hybrid_inventory *inv);

/* Sets the pool of each volume whose pool was made anew. */
void find_followers(struct hybrid_inventory *inv);

/* Whether a volume has a new pool, active or ready to be activated, that its origin does not name yet. */
bool is_follower(const struct hybrid_node *volume);

/*
 * Attaches a follower to its new pool: writes the entry, then the superblock of its origin.  Its
 * table comes next.  Returns 0, or an exit code: then the volume has no pool, and its origin is as
 * it was unless a write to it failed.
 */
int enter_follower(struct hybrid_node *volume, const struct hybrid_node *pool, dev_t devno);

/* For --test: whether @origin would get a new pool. */
bool will_be_filled(const struct vacancies *all, const struct hybrid_member *origin);

/*
 * Returns the pool that was made in the place of the one with this UUID.  *known: a pool with this
 * UUID, or of this name, was to be made.
 */
struct hybrid_node *find_filled(const struct vacancies *all, struct hybrid_inventory *inv,
				const char *what, bool *known);

/*
 * For status, of a volume without its pool: tells why it has no new one, and the next action.
 * Reads the device.
 */
void explain_vacancy(const struct hybrid_node *volume, struct health *h);

#endif
