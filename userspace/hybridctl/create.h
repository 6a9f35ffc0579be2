/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The steps of create that attach, replace-cache and import share. */
#ifndef HYBRIDCTL_CREATE_H
#define HYBRIDCTL_CREATE_H

#include "config.h"
#include "new-volume.h"

/* A pool in the making, for create and replace-cache.  Call the steps in this order. */
struct new_pool {
	struct hybrid_device cache;
	struct hybrid_cache_plan plan;
	bool written, discarded;	/* the old contents of the device are not whole any more */
};

/*
 * Parses the sizes, and opens the device for checks.  @e: the line of hybrid.conf for a device that
 * comes up blank, or NULL.  hybrid_cache_plan() of @plan comes next.
 */
int new_pool_parse(struct new_pool *np, const struct command_line *cl, const char *name,
		   const char *policy, const struct hybrid_ephemeral *e);
/* For --discard.  Not to be called under the lock. */
int new_pool_discard(const struct command_line *cl, struct new_pool *np);
int new_pool_write(struct new_pool *np);
void undo_pool_write(struct new_pool *np);
void print_pool_test(const struct new_pool *np, bool discard);

/* Runs create.  @other: the other cache whose superblock stands before the data; NULL: none. */
int create_volume(const struct command_line *cl, const struct other_cache *other);

/*
 * Makes all checks of create, and asks its questions, but changes nothing.  @disk: a device that is on
 * the disks on which the origin will be; its path counts if there is no such device.  Returns 0 or an
 * exit code.
 */
int create_check(const struct command_line *cl, const char *disk);

/*
 * For create, attach and replace-cache, which failed with @r: reports old contents of the devices
 * that undoing could not bring back.  @np, @nv: NULL if there was none.  Returns @r.
 */
int fail_lost(int r, const struct new_pool *np, const struct new_volume *nv);

/*
 * Completes detaches and attaches that were cut short and left an entry in the pool, in the way of
 * the new volume.  Called before anything is written.  @test: only prints that.  Returns 0 or an
 * exit code.
 */
int end_detaches(struct new_volume *nv, bool test);

#endif
