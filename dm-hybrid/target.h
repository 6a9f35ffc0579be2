/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the files of the kernel glue: pools, volumes, and their lines in
 * device-mapper tables.
 *
 * Objects outlive tables.  A pool object is found by the mapped device of its
 * table, a volume object by its id within a pool.  A reloaded table finds the same
 * object, and is bound to it at resume.
 *
 * Locks, in this order: a mapped device's suspend lock (of a pool, then of its
 * volumes), hybrid_pool.lock, the lock of the list of pools.  The workers take
 * none of them, so a holder of hybrid_pool.lock may wait for I/O to the cache
 * device.  It must not wait for I/O to a volume, which may be suspended until the
 * lock is free, nor for an origin, which may never answer: only its own volume may
 * wait for it.  So a table or message that opens or closes a volume drops the lock
 * meanwhile (volume.c).
 */
#ifndef DM_HYBRID_TARGET_H
#define DM_HYBRID_TARGET_H

#include <linux/device-mapper.h>
#include <linux/mempool.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "core/engine.h"
#include "version.h"

#define DM_MSG_PREFIX "hybrid"

/* Operations on their way between the engine and the devices: io.c. */
struct hybrid_queue {
	struct hybrid_pool *pool;
	struct workqueue_struct *wq;
	spinlock_t lock;		/* both lists */
	struct list_head todo;		/* to be carried out */
	struct list_head done;		/* ended, the engine is to be told */
	struct work_struct work;
	struct bio_set bios;
	mempool_t transfers;
};

/* A bio of the pool's own, for a direct operation of which there is one at a time. */
struct direct_bio {
	struct hybrid_pool *pool;
	struct hybrid_op *op;
	struct bio_vec vec;
	struct bio bio;
};

struct hybrid_pool {
	struct list_head link;		/* with refs and tables: the list's lock */
	unsigned int refs;
	unsigned int tables;		/* pool tables among them */
	struct mapped_device *md;
	dev_t dev;			/* of the cache device */
	u32 block_sectors;
	u32 granule_sectors;
	u8 uuid[HYBRID_UUID_SIZE];

	struct mutex lock;		/* of the fields down to io.c's: hybrid_pool_lock() */
	unsigned int noio;		/* the saved NOIO flag of the lock's holder */
	struct block_device *bdev;	/* of the bound table */
	struct pool_table *bound;
	struct hybrid_engine *engine;	/* from the first resume on */
	const struct hybrid_policy_type *policy;	/* the engine's */
	char recorded_policy[HYBRID_POLICY_NAME_SIZE];	/* in the superblock */
	struct hybrid_settings recorded;
	struct list_head volumes;	/* volume_object */
	u32 reported;			/* enum hybrid_state: events.c */
	u32 managed;			/* volumes that are managed */
	bool loaded;			/* the engine is complete, and stays */
	bool stopped;			/* by suspend */
	bool running;			/* volumes may resume */
	bool dead;			/* replaced by force: volumes fail I/O */

	/* io.c */
	struct workqueue_struct *volumes_wq;	/* of all volumes' queues */
	struct hybrid_queue queue;	/* its workqueue is also the tick's */
	wait_queue_head_t wait;
	unsigned long passes;		/* of the worker */
	struct direct_bio flush, intent;	/* one of each at a time */
	struct delayed_work tick;
	unsigned long flags;

	struct delayed_work look;	/* events.c */
	u32 retired;			/* retired blocks in the log; look_work() alone uses it */

	/* pool.c, before a reboot */
	struct list_head reboot_link;
	struct hybrid_waiter reboot_waiter;
	struct completion reboot_done;
};

/* hybrid_pool.flags */
#define HYBRID_POOL_TICKING	0	/* the timer runs */
#define HYBRID_POOL_TICKS	1	/* the timer may run */
#define HYBRID_POOL_FAILED	2	/* the failure was logged */
#define HYBRID_POOL_REBOOT	3	/* reboot_waiter has been used */

/* Tunables that a table names (bit i of @given: the i-th).  It leaves all others as they are. */
struct tunable_words {
	u32 given;
	struct hybrid_config config;
};

/* The arguments of a pool in a table. */
struct pool_args {
	u32 block_sectors;
	bool has_uuid;
	u8 uuid[HYBRID_UUID_SIZE];
	struct tunable_words words;
	const char *policy;		/* points into the table's text */
};

/* A pool's line in a table. */
struct pool_table {
	struct dm_target *ti;
	struct hybrid_pool *pool;
	struct dm_dev *dev;
	char policy_name[HYBRID_POLICY_NAME_SIZE];
	const struct hybrid_policy_type *policy;	/* a reference, the table's until applied */
	bool has_uuid;
	struct tunable_words words;
	bool applied;			/* its values became the pool's, once */
};

/* The arguments of a volume in a table. */
struct volume_args {
	u32 id;
	bool has_mode, has_cutoff, inplace;
	u32 mode;			/* HYBRID_MODE_* */
	u64 cutoff;
};

/* A volume in use.  Under hybrid_pool.lock unless noted. */
struct volume_object {
	struct list_head link;
	struct hybrid_pool *pool;
	u32 id;
	struct mapped_device *md;
	struct list_head tables;	/* volume_table.link */
	unsigned int pins;		/* users of it or its md other than tables */
	bool managed;			/* being opened, closed, renamed, grown ...: manage() */
	bool pool_suspended;		/* md is suspended, by the pool */
	bool suspended;			/* in the engine; under md's suspend lock */
	bool stopped;			/* md is suspended, by a user; under pool->lock */
	struct volume_table *bound;
	struct block_device *origin;	/* of the bound table */
	struct mutex handle_lock;	/* held briefly, to read handle without pool->lock */
	struct hybrid_volume *handle;	/* NULL: not open */
	u32 reported;			/* enum hybrid_state: events.c */
	bool flush_failed;		/* since it was opened: see follows_failed_flush() */
	struct hybrid_queue queue;	/* operations on the origin, and users' bios */
};

/* A table's claim on its origin, which excludes all other volumes of all pools. */
struct hybrid_claim {
	struct list_head link;
	dev_t dev;
	struct hybrid_pool *pool;	/* pool and id name the volume */
	u32 id;
};

/* A volume's line in a table. */
struct volume_table {
	struct list_head link;
	struct hybrid_claim claim;
	struct dm_target *ti;
	struct volume_object *object;
	struct dm_dev *pool_dev;
	struct dm_dev *origin;
	struct volume_args args;
	u64 data_sector;		/* of its data on the origin; 0: the pool did not run yet */
	bool in_force;			/* a resume of it has begun: it is no table only loaded */
	bool applied;			/* it opened the volume: its values became the volume's */
};

extern struct target_type hybrid_pool_target;
extern struct target_type hybrid_volume_target;

/* ---- ctr.c: parsing ------------------------------------------------------- */

/* Returns the name of HYBRID_MODE_@mode; returns the mode called @name, or -EINVAL. */
const char *hybrid_mode_name(u32 mode);
int hybrid_mode_parse(const char *name);

/*
 * Sets the tunable called @name in @config.  Returns its number, from 0 on.  Returns -ENOENT if
 * there is no such tunable, and -EINVAL if its value is out of range: *error names the range.
 */
int hybrid_tunable_parse(const char *name, const char *value, struct hybrid_config *config,
			 char **error);

/* Returns NULL, or a text that names two tunables that contradict each other. */
char *hybrid_tunables_contradict(const struct hybrid_config *config);

/* Copies the tunables that a table names into @config. */
void hybrid_tunables_merge(struct hybrid_config *config, const struct tunable_words *words);

/*
 * Decodes the settings in a superblock.  Replaces values that are out of range, or contradict
 * each other, by their defaults.  Returns NULL, or the rule that one of them breaks.
 */
const char *hybrid_tunables_recorded(const struct hybrid_settings *settings,
				     struct hybrid_config *config);

/* Returns the name of the tunable numbered @i, and its *value; NULL: there are not that many. */
const char *hybrid_tunable_print(const struct hybrid_config *config, unsigned int i, u32 *value);

/*
 * Parse the arguments after the devices.  Return 0, or -EINVAL and an *error that
 * names the wrong argument.
 */
int hybrid_pool_parse(struct dm_arg_set *as, struct pool_args *args, char **error);
int hybrid_volume_parse(struct dm_arg_set *as, struct volume_args *args, char **error);

/* Parses 8-4-4-4-12 hex digits with nothing after them.  Returns 0 or -EINVAL. */
int hybrid_uuid_parse(const char *text, u8 uuid[HYBRID_UUID_SIZE]);

/* ---- message.c ------------------------------------------------------------ */

/* Carry out a message of Documentation/dm-hybrid.rst.  May sleep. */
int hybrid_pool_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			unsigned int maxlen);
int hybrid_volume_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			  unsigned int maxlen);

/* ---- status.c ------------------------------------------------------------- */

/* Print status and table.  Write nothing to disk and wait for no I/O. */
void hybrid_pool_status_print(struct dm_target *ti, status_type_t type, unsigned int flags,
			      char *result, unsigned int maxlen);
void hybrid_volume_status_print(struct dm_target *ti, status_type_t type, unsigned int flags,
				char *result, unsigned int maxlen);

/* ---- pool.c --------------------------------------------------------------- */

/*
 * Returns the pool whose mapped device is @dev, with a reference, or NULL if the
 * device is no pool.
 */
struct hybrid_pool *hybrid_pool_get(dev_t dev);
void hybrid_pool_put(struct hybrid_pool *pool);

/* Allocations under the lock do not wait for I/O: it may be to a suspended volume. */
static inline void hybrid_pool_lock(struct hybrid_pool *pool)
{
	mutex_lock(&pool->lock);
	pool->noio = memalloc_noio_save();
}

static inline void hybrid_pool_unlock(struct hybrid_pool *pool)
{
	memalloc_noio_restore(pool->noio);
	mutex_unlock(&pool->lock);
}

/*
 * Switches the pool to @policy while I/O runs.  On success the pool takes over the caller's
 * reference to @policy.  Caller holds the pool's lock.  May sleep.  Returns 0, or -ENOMEM: the
 * old policy stays.
 */
int hybrid_pool_set_policy(struct hybrid_pool *pool, const struct hybrid_policy_type *policy);

/*
 * Records the pool's present policy and settings in the superblock for the next activation,
 * unless they are there already; durable when this returns 0.  Caller holds the pool's lock,
 * and the engine is loaded.  May sleep.
 */
int hybrid_pool_record(struct hybrid_pool *pool);

/*
 * Records the same together with the name for the next activation, and ends the replacement of
 * another pool.
 */
int hybrid_pool_rename(struct hybrid_pool *pool, const char *name);

/*
 * Claims an origin, with the rest of @claim filled in.  Tables of one volume may share it.
 * Returns NULL, or the reason for a refusal: another volume of any pool has the origin, or it
 * is a cache device.  No pool gets a device that is claimed.
 */
char *hybrid_origin_claim(struct hybrid_claim *claim);
void hybrid_origin_release(struct hybrid_claim *claim);

/* Notifiers that record pools before a reboot, and refuse hibernation: see pool.c. */
int hybrid_notifiers_init(void);
void hybrid_notifiers_exit(void);

/* ---- volume.c ------------------------------------------------------------- */

/*
 * Closes a volume whose table is suspended, and that has no dirty data, so that it can
 * be deleted before it is resumed.  If it is not deleted, the next resume opens it
 * again.  Caller holds pool->lock, which is dropped meanwhile.  Returns 0, the error of
 * closing it, or -EAGAIN if the pool was suspended meanwhile.
 */
int hybrid_volume_release(struct hybrid_pool *pool, u32 id);

/*
 * Writes the name in the pool's entry of an open volume to both copies of its origin's superblock,
 * durably, while I/O runs.  Caller holds pool->lock, which is dropped meanwhile.
 */
int hybrid_volume_renew(struct hybrid_pool *pool, u32 id);

/*
 * Grows a volume that is open and suspended to the size of its grown origin; a longer table must
 * follow.  @member_uuid: as in hybrid_volume_grow().  Caller holds pool->lock, which is dropped
 * meanwhile.
 */
int hybrid_volume_extend(struct volume_object *object, const u8 *member_uuid);

/* Returns whether the engine has the volume open.  Caller holds pool->lock. */
bool hybrid_volume_opened(struct hybrid_pool *pool, u32 id);

/*
 * Waits until no volume of @pool is being opened or closed.  Caller holds pool->lock; drops
 * the lock while it waits.
 */
void hybrid_volumes_settle(struct hybrid_pool *pool);

/*
 * Waits until the origin of each open volume of @pool has answered one read, with data or an
 * error.  Does not wait if there is no memory for the read.  Caller does not hold pool->lock.
 * May sleep.
 */
void hybrid_volumes_wait_for_origins(struct hybrid_pool *pool);

/*
 * Suspend, and resume, all mapped devices that use volumes of @pool.  Caller
 * does not hold pool->lock.
 */
void hybrid_volumes_suspend(struct hybrid_pool *pool);
void hybrid_volumes_resume(struct hybrid_pool *pool);

#endif
