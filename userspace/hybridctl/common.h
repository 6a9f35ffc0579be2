/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Functions that several commands share. */
#ifndef HYBRIDCTL_COMMON_H
#define HYBRIDCTL_COMMON_H

#include "inventory.h"
#include "options.h"

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

/* The next step for a member that is refused, most likely because of a copy of it. */
#define NEXT_OF_COPY	"disconnect the copy, or name the right one with hybridctl activate --device"

/* Fails because the origin of a volume is here, but not ok.  Returns HYBRID_BADDEV. */
int fail_refused_origin(const struct hybrid_volume_line *entry, const struct hybrid_member *m);

/* Returns the step that mends an active member of which only one superblock is good. */
#define MEND_MAX	(HYBRID_PATH_MAX + 64)
const char *mend_copies(const struct hybrid_member *m, char buf[MEND_MAX]);

/*
 * Lists the data that a format would destroy, and asks the user to agree: in words on a terminal,
 * or by --yes, with --wipe-signatures if anything was found.  Refuses members of dm-hybrid unless
 * they are detached, or --force is given.  Returns 0 or an exit code.
 */
int confirm_format(const struct command_line *cl, const struct hybrid_device * const *devs,
		   unsigned int nr);

/*
 * Refuses a device on which neither a boot nor activate would look for members: it is inside a
 * volume, or hybrid.conf excludes it.
 */
int check_found_again(const struct hybrid_device *dev);

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

/*
 * Refuses the cache device @cache if its sectors, which the volume gets, are larger than those of
 * the device @used, called @name: its contents, such as a file system, were made for the smaller
 * ones.  @next: advice for the user.
 */
int check_sectors(dev_t cache, dev_t used, const char *name, const char *next);
/* Refuses writeback in place without --force. */
int check_mode(const struct command_line *cl, bool in_place, uint32_t mode);
/* --guard-mbr: tells the user how to mark a partition, which gets no MBR; and for --test. */
void explain_guard(const struct hybrid_device *dev, bool guard);
void print_guard_test(const struct hybrid_device *dev, bool guard);

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
 * Refuses a name that another pool or volume has, active or not, or a member that is refused.  The
 * pool or volume with @uuid may have it, and members on @devs: the devices, up to a 0, that the
 * caller overwrites; NULL: none.
 */
int check_name_unused(const struct hybrid_inventory *inv, enum hybrid_kind kind,
		      const uint8_t uuid[16], const char *name, const dev_t *devs);

/*
 * Returns the bytes of a pool or volume, active or closed, that only the cache has: its dirty
 * granules, or if the module is too old to count these, its dirty blocks.
 */
uint64_t dirty_bytes(const struct hybrid_node *node);

/*
 * Drains an active pool or volume until nothing is dirty, and shows the progress.  The drain then
 * stays on, so that nothing becomes dirty again, until drain_cancel().  Cancels it on failure.
 * Signals end it, even if they were held, and are held when it returns.  Returns 0 or an exit code:
 * HYBRID_PARTIAL if a signal ended it.
 */
int drain_and_wait(const struct command_line *cl, struct hybrid_node *node);
/* Ends the drain if the device still exists, under any name, and warns if that fails.  Returns 0 or an exit code. */
int drain_cancel(const uint8_t uuid[16], bool pool);

#endif
