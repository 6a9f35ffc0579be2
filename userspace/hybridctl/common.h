/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Functions that several commands share. */
#ifndef HYBRIDCTL_COMMON_H
#define HYBRIDCTL_COMMON_H

#include "inventory.h"
#include "options.h"

struct hybrid_ephemeral;

/*
 * Takes the lock, so that one tool at a time makes changes.  Waits while another tool has it, and
 * keeps it until unlock_tools() or exit.  Returns 0 or an exit code: HYBRID_BUSY if SIGHUP, SIGINT
 * or SIGTERM, held by hold_signals(), ends the wait.
 */
int lock_tools(void);

/*
 * For a command that writes superblocks: reads all members, which may take long, then takes the
 * lock and asks device-mapper and the active pools.  Announcements are not enough for it: they have
 * no keys, and name devices that are dead.  Returns 0 or an exit code; free @inv either way.
 */
int lock_with_members(struct hybrid_inventory *inv);

/* For a long wait.  Findings made under the lock may be out of date afterwards. */
void unlock_tools(void);

/* Holds SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGTSTP, so that no step is left half done. */
void hold_signals(void);
/* Releases them, where nothing is half done. */
void release_signals(void);

/*
 * Opens a known member for writing, and reads it again.  The open is exclusive, unless the member
 * is held by @user: a device that maps it and does not write its superblocks, or 0.  Returns 0,
 * with the superblock as it is now in *now, or an exit code: HYBRID_BADDEV if the device is another
 * member by now, or has another role.  Close @dev either way.
 */
int open_again(struct hybrid_device *dev, const struct hybrid_member *known, dev_t user,
	       struct hybrid_member *now);

/* The same, but returns HYBRID_BUSY if anything in the superblock has changed. */
int open_unchanged(struct hybrid_device *dev, const struct hybrid_member *known, dev_t user,
		   struct hybrid_member *now);

/*
 * Lists the data that a format would destroy, and asks the user to agree: in words on a terminal,
 * or by --yes, with --wipe-signatures if anything was found.  Refuses members of dm-hybrid unless
 * they are detached, or --force is given.  Returns 0 or an exit code.
 */
int confirm_format(const struct command_line *cl, const struct hybrid_device * const *devs,
		   unsigned int nr);

/*
 * If nothing was announced, says that only active pools and volumes are known, and which command
 * reads all disks.
 */
void explain_unknown(const struct hybrid_inventory *inv);

/*
 * For a command whose first argument names an active pool or volume, of these @kinds: finds it and
 * calls @fn.  Returns 0 or an exit code.
 */
int with_active(const struct command_line *cl, unsigned int kinds,
		int (*fn)(const struct command_line *cl, const struct hybrid_inventory *inv,
			  struct hybrid_node *node));

/* Asks @question, unless --yes is given; "yes" agrees.  Refuses if there is no terminal. */
int confirm(const struct command_line *cl, const char *question);

/* Returns mode and cutoff of a pool's entry in the form that the origin records for its next cache. */
struct hybrid_volume_settings settings_of(const struct hybrid_volume_line *entry);

/* Build the parameters of a volume's table, with the paths or the numbers of its devices. */
void volume_params(char params[HYBRID_PARAMS_MAX], const struct hybrid_volume_line *entry,
		   const char *pool, const char *origin);
void kernel_params(char params[HYBRID_PARAMS_MAX], const struct hybrid_volume_line *entry,
		   dev_t pool, dev_t origin);

/*
 * Returns the sectors that a volume has once the kernel has opened it on @origin: more than before
 * if it is being grown and the origin has room.  The table must have this length.
 */
uint64_t length_on(const struct hybrid_volume_line *entry, dev_t origin);

/* Brings up a volume of an active pool on an origin.  Returns 0 or an exit code. */
int start_volume(const struct hybrid_volume_line *entry, dev_t pool, dev_t origin);

/*
 * Shows the volume of an origin whose cache device is missing, read-only.  Reads of data that was
 * lost with the cache fail.  Writes nothing to the origin.  Returns 0 or an exit code.
 */
int start_readonly(const struct hybrid_member *origin);

/* For --test: prints the dmsetup command that does the same as start_pool(). */
void print_pool_command(const struct hybrid_sb *sb, const char *cache);

/* Brings up a pool.  @devno: the new device. */
int start_pool(const struct hybrid_sb *sb, dev_t cache, dev_t *devno);

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

/* The superblock that another cache has left on an origin that import takes over, in place. */
struct other_cache {
	const char *type;		/* as libblkid calls it */
	uint64_t sector;		/* of its superblock */
	void *block;			/* the metadata block with the superblock */
	uint64_t data_sector;
	uint8_t identity[16];		/* of the origin without that superblock: hybrid_uuid_of_identity() */
};

/* Runs create.  @other: the other cache whose superblock stands before the data; NULL: none. */
int create_volume(const struct command_line *cl, const struct other_cache *other);

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
	bool ephemeral;			/* --ephemeral was given */
	const struct other_cache *other;	/* import: goes before the volume starts; else NULL */
	const uint8_t *follows;		/* UUID of the lost pool that this one replaces; else NULL */
	bool force;			/* --force was given */
	bool live;			/* the volume's device exists, in use or not, and stays */
	bool kept;			/* the origin's data stays: it has no cache yet, or follows */
	bool mode_given, cutoff_given;	/* false: its last cache's settings count */
	bool written;			/* the old contents of the origin are not whole any more */
	struct hybrid_dm_linear linear;	/* live: the device's present table */
	uint8_t live_uuid[16];		/* live: the UUID in the device's DM_UUID, if it has one */
};

/*
 * Refuses the cache device @cache if its sectors, which the volume gets, are larger than those of
 * the device @used, called @name: its contents, such as a file system, were made for the smaller
 * ones.  @next: advice for the user.
 */
int check_sectors(dev_t cache, dev_t used, const char *name, const char *next);
/* Refuses writeback in place without --force. */
int check_mode(const struct command_line *cl, bool in_place, uint32_t mode);
/* Parses names, mode and cutoff, and opens the origin for checks. */
int new_volume_parse(struct new_volume *nv, const struct command_line *cl, const char *name);
/* Decides places, UUIDs and key.  plan.pool_uuid, plan.granule_sectors and entry.id must be set. */
int new_volume_plan(struct new_volume *nv);
/* --guard-mbr: tells the user how to mark a partition, which gets no MBR; and for --test. */
void explain_guard(const struct hybrid_device *dev, bool guard);
void print_guard_test(const struct hybrid_device *dev, bool guard);
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

/*
 * For create, attach and replace-cache, which failed with @r: reports old contents of the devices
 * that undoing could not bring back.  @np, @nv: NULL if there was none.  Returns @r.
 */
int fail_lost(int r, const struct new_pool *np, const struct new_volume *nv);

/*
 * The steps of attach --live: find the device, plan by its table, and give it the volume's table.
 * If the last one fails, the device is as before.  Return 0 or an exit code.
 */
int live_find(struct new_volume *nv);
int live_plan(struct new_volume *nv);
int live_start(const struct new_volume *nv, const char *params);

/*
 * Gives a volume that runs alone, linear and in use or not, its table when its pool has come.  The
 * kernel finds a nonce that the cache does not know, and begins cold.  On failure, the volume is as
 * before.
 */
int live_join(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin);

/*
 * The same for a suspended volume that still has the table of another pool, and that this other
 * pool has released.  The volume is linear in between, as an origin belongs to one volume at a
 * time.  The origin's superblock names the new pool already, which has cached nothing of it; from
 * then on both copies do.
 */
int live_move(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin);

/*
 * Suspends a volume in use on its way out of its pool, unless it is @suspended already.  Before
 * that, checks that the kernel accepts a linear table of its origin @below, and calls
 * survive_suspend(): the next steps must not need the volume.
 */
int live_stop(const struct hybrid_volume_line *entry, const char *name, dev_t below, bool suspended);

/*
 * Call before a device in use is suspended: until the resume, neither our own pages nor the
 * kernel's memory for our work may depend on the device.
 */
int survive_suspend(void);

/*
 * Removes an entry durably, when the origin no longer uses the pool, or does not name it yet.  The
 * kernel refuses this while the entry is dirty.  Returns 0 or an exit code.
 */
int forget_entry(const char *pool, uint32_t id, bool tombstone);

/*
 * Takes down a pool without volumes, and makes an ordinary device of its cache device.  Asks
 * nothing, and refuses the pools that destroy refuses without --drop-dirty.  Takes the lock.
 * Returns 0 or an exit code.
 */
int give_cache_back(const struct command_line *cl, const uint8_t pool[16]);

/*
 * Completes detaches and attaches that were cut short and left an entry in the pool, in the way of
 * the new volume.  Called before anything is written.  @test: only prints that.  Returns 0 or an
 * exit code.
 */
int end_detaches(struct new_volume *nv, bool test);

/* Finds the lowest free id, and refuses a name that an entry has.  Returns 0 or an exit code. */
int choose_volume_id(const char *pool, const char *name, uint32_t *id);

/*
 * Refuses a policy that the kernel does not have.  @test: there may be no kernel with dm-hybrid, so
 * it is enough that the tools know the policy.  Returns 0 or an exit code.
 */
int check_policy(const char *name, bool test);

/*
 * Renames the device of an active pool or volume, unless it has that name already.  Records
 * nothing.  Returns 0 or an exit code.
 */
int rename_device(struct hybrid_node *node, const char *name);

/* Refuses a name that no pool or volume may have, or that a dm device has. */
int check_new_name(const char *what, const char *name, bool ask_kernel);

/*
 * Returns the bytes of a pool or volume, active or closed, that only the cache has: its dirty
 * granules, or if the module is too old to count these, its dirty blocks.
 */
uint64_t dirty_bytes(const struct hybrid_node *node);

/*
 * Drains an active pool or volume until nothing is dirty, and shows the progress.  The drain then
 * stays on, so that nothing becomes dirty again, until drain_cancel().  Cancels it on failure.
 * Returns 0 or an exit code: HYBRID_PARTIAL if a signal ended it.
 */
int drain_and_wait(const struct command_line *cl, struct hybrid_node *node);
/* Ends the drain if the device still exists, and warns if that fails.  Returns 0 or an exit code. */
int drain_cancel(const char *name, const uint8_t uuid[16], bool pool);

#endif
