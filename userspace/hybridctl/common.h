/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What several commands do. */
#ifndef HYBRIDCTL_COMMON_H
#define HYBRIDCTL_COMMON_H

#include "inventory.h"
#include "options.h"

struct hybrid_ephemeral;

/*
 * One tool at a time changes things: take the lock, waiting for who has it, and keep
 * it until exit.  Returns 0 or an exit code: HYBRID_BUSY if one of the signals comes that
 * hold_signals() holds.
 */
int lock_tools(void);

/*
 * For a command that writes superblocks: read all members, which may take long, then take the lock
 * and find out what is active.  Announcements are not enough for it: they have no keys, and name
 * devices that are dead.  Returns 0 or an exit code; free @inv either way.
 */
int lock_with_members(struct hybrid_inventory *inv);

/* For a long wait.  What was found out under the lock may be wrong after it. */
void unlock_tools(void);

/* From here on SIGINT and SIGTERM wait, so that no step is left half done. */
void hold_signals(void);
/* ... until here, where nothing is half done. */
void release_signals(void);

/*
 * A member that was found before is opened for writing, and read again.  Nobody else has it open but
 * @user, a device that maps it and does not write its superblocks; 0: none.  Returns 0, with *now as it
 * stands there, or an exit code: HYBRID_BADDEV if it is another member now, or in another role.  Close
 * @dev either way.
 */
int open_again(struct hybrid_device *dev, const struct hybrid_member *known, dev_t user,
	       struct hybrid_member *now);

/* ... HYBRID_BUSY if anything of its superblock has changed. */
int open_unchanged(struct hybrid_device *dev, const struct hybrid_member *known, dev_t user,
		   struct hybrid_member *now);

/*
 * Show what would be destroyed on the devices and let the user agree: in words
 * on a terminal, else by --yes, with --wipe-signatures if there is anything.
 * Members of ours are refused unless --force.  Returns 0 or an exit code.
 */
int confirm_format(const struct command_line *cl, const struct hybrid_device * const *devs,
		   unsigned int nr);

/* Where nothing was announced, only what is active is known: say so, and who knows more. */
void explain_unknown(const struct hybrid_inventory *inv);

/*
 * For a command whose first argument names something active, of these @kinds: find it and call @fn.
 * Returns 0 or an exit code.
 */
int with_active(const struct command_line *cl, unsigned int kinds,
		int (*fn)(const struct command_line *cl, const struct hybrid_inventory *inv,
			  struct hybrid_node *node));

/* Ask @question; "yes" agrees.  --yes agrees; no terminal: refused. */
int confirm(const struct command_line *cl, const char *question);

/* Mode and cutoff of a pool's entry, as they stand on the origin for its next cache. */
struct hybrid_volume_settings settings_of(const struct hybrid_volume_line *entry);

/* The parameters of its table, with these paths or numbers of the devices. */
void volume_params(char params[HYBRID_PARAMS_MAX], const struct hybrid_volume_line *entry,
		   const char *pool, const char *origin);
void kernel_params(char params[HYBRID_PARAMS_MAX], const struct hybrid_volume_line *entry,
		   dev_t pool, dev_t origin);

/*
 * What the kernel makes of an entry that is being grown, when it opens the volume on an origin of that
 * size: its table must be as long.
 */
uint64_t length_on(const struct hybrid_volume_line *entry, dev_t origin);

/* Bring up a volume of an active pool on an origin.  Returns 0 or an exit code. */
int start_volume(const struct hybrid_volume_line *entry, dev_t pool, dev_t origin);

/*
 * Show the volume of an origin whose cache device is missing: nobody can write to it, and what was
 * lost with the cache fails.  Nothing is written.  Returns 0 or an exit code.
 */
int start_readonly(const struct hybrid_member *origin);

/* For --test: the dmsetup command that start_pool() stands for. */
void print_pool_command(const struct hybrid_sb *sb, const char *cache);

/* Bring up a pool. @devno: the new device. */
int start_pool(const struct hybrid_sb *sb, dev_t cache, dev_t *devno);

/*
 * A pool in the making, for create and replace-cache.  The steps in this order.
 */
struct new_pool {
	struct hybrid_device cache;
	struct hybrid_cache_plan plan;
	bool written, discarded;	/* what was on the device is no longer whole */
};

/*
 * Sizes, and the device opened for checks; @e: of a device that comes up blank, as hybrid.conf
 * says, or NULL.  hybrid_cache_plan() of @plan comes next.
 */
int new_pool_parse(struct new_pool *np, const struct command_line *cl, const char *name,
		   const char *policy, const struct hybrid_ephemeral *e);
/* --discard: without the lock. */
int new_pool_discard(const struct command_line *cl, struct new_pool *np);
int new_pool_write(struct new_pool *np);
void undo_pool_write(struct new_pool *np);
void print_pool_test(const struct new_pool *np, bool discard);

/* What another cache has left on an origin that import takes over, in place. */
struct other_cache {
	const char *type;		/* what libblkid calls it */
	uint64_t sector;		/* of its superblock */
	void *block;			/* ... and that, a metadata block */
	uint64_t data_sector;
	uint8_t identity[16];		/* of the origin without it: hybrid_uuid_of_identity() */
};

/* create, of the data behind what another cache has left there (NULL: nothing). */
int create_volume(const struct command_line *cl, const struct other_cache *other);

/*
 * A volume in the making, for create and attach.  The steps in this order; each
 * undoes itself on failure, and the undo_ functions undo it later.
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
	const struct other_cache *other;	/* import: what goes before the volume starts; else NULL */
	const uint8_t *follows;		/* the pool that was lost, in whose place this one is; else NULL */
	bool force;			/* --force was given */
	bool live;			/* the device is there, in use, and goes on */
	bool kept;			/* the origin of a volume without a cache, or that follows: its data stays */
	bool mode_given, cutoff_given;	/* else those of its last cache */
	bool written;			/* what was on the origin is no longer whole */
	struct hybrid_dm_linear linear;	/* live: what it is now */
	uint8_t live_uuid[16];		/* live: of its DM_UUID, if it has one */
};

/*
 * A file system, say, was made for the sectors of the device @used, called @name: those of
 * the device @cache, which the volume gets, must not be larger.  @next: what to do about it.
 */
int check_sectors(dev_t cache, dev_t used, const char *name, const char *next);
/* Refuses writeback in place without --force. */
int check_mode(const struct command_line *cl, bool in_place, uint32_t mode);
/* Names, mode, cutoff, and the origin opened for checks. */
int new_volume_parse(struct new_volume *nv, const struct command_line *cl, const char *name);
/* Places, UUIDs and key; pool_uuid, granule and id must be set in plan. */
int new_volume_plan(struct new_volume *nv);
/* --guard-mbr: what it does to a partition, which is nothing; and with --test. */
void explain_guard(const struct hybrid_device *dev, bool guard);
void print_guard_test(const struct hybrid_device *dev, bool guard);
/* Whether the origin could be written to: nothing is. */
int new_volume_check_writable(struct new_volume *nv);
/* The origin's head and tail. */
int new_volume_write(struct new_volume *nv);
void undo_volume_write(struct new_volume *nv);
/* The pool's entry, and what the origin says if it is kept. */
int new_volume_enter(struct new_volume *nv);
/* ... and the volume's device. */
int new_volume_start(struct new_volume *nv);
void print_volume_test(const struct new_volume *nv);
void new_volume_close(struct new_volume *nv);

/*
 * create, attach and replace-cache failed with @r.  What was undone is gone all the same, where the metadata
 * stood: say so.  @np, @nv: NULL if there was none.  Returns @r.
 */
int fail_lost(int r, const struct new_pool *np, const struct new_volume *nv);

/*
 * attach --live.  The steps: find the device, plan on what it is, and give it the
 * volume's table; if that fails it is as before.  Return 0 or an exit code.
 */
int live_find(struct new_volume *nv);
int live_plan(struct new_volume *nv);
int live_start(const struct new_volume *nv, const char *params);

/*
 * A volume that runs alone, linear and in use or not, and its pool has come: it gets its table.  The
 * kernel finds a nonce that the cache does not know, and begins cold.  Fails: it is as before.
 */
int live_join(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin);

/*
 * The same of one that has the table of another pool still, is suspended, and that pool has released
 * it: linear in between, as an origin is one volume's at a time.  Its superblock names this pool already,
 * which has nothing of it yet; both copies do from then on.
 */
int live_move(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin);

/*
 * A volume in use on its way out of its pool: suspended, unless it is already, if the kernel would have its
 * origin @below as linear.  What comes next must not need it: survive_suspend() was called.
 */
int live_stop(const struct hybrid_volume_line *entry, const char *name, dev_t below, bool suspended);

/*
 * Before a device in use is suspended: whatever we do until it is resumed must not
 * need it, be it for our own pages or for the kernel's memory.
 */
int survive_suspend(void);

/*
 * An entry whose origin is done with the pool, or does not know of it yet: it goes, durably.  Refused
 * by the kernel while it is dirty.  Returns 0 or an exit code.
 */
int forget_entry(const char *pool, uint32_t id, bool tombstone);

/*
 * A pool without volumes is taken down, and its cache device becomes an ordinary one.  Nothing is
 * asked; what destroy refuses without --drop-dirty is refused.  Takes the lock.  Returns 0 or an exit code.
 */
int give_cache_back(const struct command_line *cl, const uint8_t pool[16]);

/*
 * End a detach or an attach that was cut short and that left an entry in the pool, in the way of a new
 * one, before anything is written.  @test: only print that.  Returns 0 or an exit code.
 */
int end_detaches(struct new_volume *nv, bool test);

/* The lowest id that no entry has, and no entry with this name.  0 or exit code. */
int choose_volume_id(const char *pool, const char *name, uint32_t *id);

/*
 * A policy that the kernel has; with @test one that it may have, where there is no kernel
 * with dm-hybrid.  Returns 0 or an exit code.
 */
int check_policy(const char *name, bool test);

/*
 * The device of a pool or volume that is active gets another name, unless it has that already.  Nothing
 * is recorded.  Returns 0 or an exit code.
 */
int rename_device(struct hybrid_node *node, const char *name);

/* A name that a pool or volume may have, and that no dm device has. */
int check_new_name(const char *what, const char *name, bool ask_kernel);

/*
 * How much only the cache has of a pool or volume, active or closed, in bytes: its dirty
 * granules, or where the module is too old to say, its dirty blocks.
 */
uint64_t dirty_bytes(const struct hybrid_node *node);

/*
 * Drain what is active until nothing is dirty, showing progress.  It goes on then, so that
 * nothing becomes dirty again, until drain_cancel().  Cancelled if it fails, or a signal ends it:
 * HYBRID_PARTIAL.
 */
int drain_and_wait(const struct command_line *cl, struct hybrid_node *node);
/* If the device is still there.  Where it cannot be done, a warning says so.  0 or an exit code. */
int drain_cancel(const char *name, const uint8_t uuid[16], bool pool);

#endif
