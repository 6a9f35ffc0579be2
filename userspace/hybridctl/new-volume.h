/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A volume in the making: the steps that create, attach and activate share. */
#ifndef HYBRIDCTL_NEW_VOLUME_H
#define HYBRIDCTL_NEW_VOLUME_H

#include "common.h"

/* The superblock that another cache has left on an origin that import takes over, in place. */
struct other_cache {
	const char *type;		/* as libblkid calls it */
	uint64_t sector;		/* of its superblock */
	void *block;			/* the metadata block with the superblock */
	uint64_t data_sector;
	struct hybrid_identities identities;	/* of the origin */
};

/*
 * A volume in the making, for create and attach.  Call the steps in this order.  Each undoes itself
 * on failure, and the undo_ functions undo it later.
 */
struct new_volume {
	struct hybrid_volume_line entry;
	struct hybrid_device origin;
	struct hybrid_origin_plan plan;
	const char *pool_name;
	dev_t pool;			/* the pool's device */
	dev_t fast;			/* the pool's device, or the cache device of a new one */
	dev_t cache;			/* the cache device */
	const char *disk;		/* create_check(): shows the disks of the origin; else NULL */
	bool ephemeral;			/* --ephemeral was given */
	const struct other_cache *other;	/* import: goes before the volume starts; else NULL */
	const uint8_t *follows;		/* UUID of the lost pool that this one replaces; else NULL */
	bool force;			/* --force was given */
	bool live;			/* the volume's device exists, in use or not, and stays */
	bool kept;			/* the origin's data stays: it has no cache yet, or follows */
	bool unknown;			/* the origin is the pool's, but the pool does not know it; it is kept */
	bool mode_given, cutoff_given;	/* false: its last cache's settings count */
	bool written;			/* the old contents of the origin are not whole any more */
	struct hybrid_dm_linear linear;	/* live: the device's present table */
	uint8_t live_uuid[16];		/* live: the UUID in the device's DM_UUID, if it has one */
};

/* Parses names, mode and cutoff, and opens the origin for checks. */
int new_volume_parse(struct new_volume *nv, const struct command_line *cl, const char *name);
/* Decides places, UUIDs and key.  plan.pool_uuid, plan.granule_sectors and entry.id must be set. */
int new_volume_plan(struct new_volume *nv);
/* Whether the origin could be written to.  Writes nothing. */
int new_volume_check_writable(struct new_volume *nv);
/* Writes head and tail of the origin, unless its data stays. */
int new_volume_write(struct new_volume *nv);
void undo_volume_write(struct new_volume *nv);
/* Makes the pool's entry, and pairs the superblocks of an origin that is kept with the pool. */
int new_volume_enter(struct new_volume *nv);
/* The same, and starts the volume's device. */
int new_volume_start(struct new_volume *nv);
void print_volume_test(const struct new_volume *nv);
void new_volume_close(struct new_volume *nv);

#endif
