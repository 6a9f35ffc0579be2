/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the kernel glue share: the pool, the volumes, and the parts
 * of a dm table that stand for them.
 *
 * Objects outlive tables.  A pool object is found by the mapped device of its
 * table, a volume object by its id within a pool; a reload finds the same
 * object and binds its table to it at resume.
 *
 * Locks, in this order: a mapped device's suspend lock (of a pool, then of its
 * volumes), hybrid_pool.lock, the list of pools.  The worker takes none of
 * them, so whoever holds hybrid_pool.lock may wait for I/O to the cache device;
 * not to a volume, which may be suspended until the lock is free, nor to an
 * origin, which may never answer: that concerns its volume alone.  A volume is
 * opened and closed by its own table or message (volume.c), with the lock dropped.
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

struct hybrid_pool {
	struct list_head link;		/* with refs and tables: the list's lock */
	unsigned int refs;
	unsigned int tables;		/* pool tables among them */
	struct mapped_device *md;
	dev_t dev;			/* of the cache device */
	u32 block_sectors;
	u32 granule_sectors;
	u8 uuid[HYBRID_UUID_SIZE];

	struct mutex lock;		/* the rest down to io.c's: hybrid_pool_lock() */
	unsigned int noio;		/* of who has it: from before */
	struct block_device *bdev;	/* of the bound table */
	struct pool_table *bound;
	struct hybrid_engine *engine;	/* from the first resume on */
	const struct hybrid_policy_type *policy;	/* the engine's */
	char recorded_policy[HYBRID_POLICY_NAME_SIZE];	/* in the superblock */
	struct hybrid_settings recorded;
	struct list_head volumes;	/* volume_object */
	u32 reported;			/* enum hybrid_state: events.c */
	u32 managed;			/* of them: see there */
	bool loaded;			/* the engine is usable for good */
	bool stopped;			/* by suspend */
	bool running;			/* volumes may resume */
	bool dead;			/* replaced by force: volumes fail I/O */

	/* io.c */
	struct workqueue_struct *volumes_wq;	/* of all volumes' queues */
	struct hybrid_queue queue;	/* its workqueue is also the tick's */
	wait_queue_head_t wait;
	unsigned long passes;		/* of the worker */
	struct delayed_work tick;
	unsigned long flags;

	struct delayed_work look;	/* events.c */
	u32 retired;			/* blocks that the log has named; of the look alone */

	/* pool.c, before a reboot */
	struct list_head reboot_link;
	struct hybrid_waiter reboot_waiter;
	struct completion reboot_done;
};

/* hybrid_pool.flags */
#define HYBRID_POOL_TICKING	0	/* the timer runs */
#define HYBRID_POOL_TICKS	1	/* the timer may run */
#define HYBRID_POOL_FAILED	2	/* the log says so */
#define HYBRID_POOL_REBOOT	3	/* reboot_waiter has been used */

/* Tunables that a table names, bit i of @given: the i-th; the others are not the table's to say. */
struct tunable_words {
	u32 given;
	struct hybrid_config config;
};

/* What a table says of a pool. */
struct pool_args {
	u32 block_sectors;
	bool has_uuid;
	u8 uuid[HYBRID_UUID_SIZE];
	struct tunable_words words;
	const char *policy;		/* in the table's text */
};

/* A pool's line in a table. */
struct pool_table {
	struct dm_target *ti;
	struct hybrid_pool *pool;
	struct dm_dev *dev;
	char policy_name[HYBRID_POLICY_NAME_SIZE];
	const struct hybrid_policy_type *policy;	/* the table's until it is applied */
	bool has_uuid;
	struct tunable_words words;
	bool applied;			/* its values have been the pool's */
};

/* What a table says of a volume. */
struct volume_args {
	u32 id;
	bool has_mode, has_cutoff, inplace;
	u32 mode;			/* HYBRID_MODE_* */
	u64 cutoff;
};

/* A volume in use; hybrid_pool.lock unless noted. */
struct volume_object {
	struct list_head link;
	struct hybrid_pool *pool;
	u32 id;
	struct mapped_device *md;
	struct list_head tables;	/* volume_table.link */
	unsigned int pins;		/* users of md that are no table */
	bool managed;			/* being opened, closed or settled: manage() */
	bool pool_suspended;		/* md is suspended, by the pool */
	bool suspended;			/* in the engine; md's suspend lock */
	bool stopped;			/* md is suspended, by a user; pool->lock */
	struct volume_table *bound;
	struct block_device *origin;	/* of the bound table */
	struct mutex handle_lock;	/* held briefly, to read handle without pool->lock */
	struct hybrid_volume *handle;	/* NULL: not open */
	u32 reported;			/* enum hybrid_state: events.c */
	bool flush_failed;		/* since it was opened: see follows_failed_flush() */
	struct hybrid_queue queue;	/* what waits for the origin, or as its user must */
};

/* A table's hold on its origin, which no other volume of any pool may have. */
struct hybrid_claim {
	struct list_head link;
	dev_t dev;
	struct hybrid_pool *pool;	/* with id: the volume */
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
	u64 data_sector;		/* 0 while the pool's volume table is not known */
	bool applied;
};

extern struct target_type hybrid_pool_target;
extern struct target_type hybrid_volume_target;

/* ---- ctr.c: parsing ------------------------------------------------------- */

/* Name of HYBRID_MODE_@mode; mode called @name, -EINVAL. */
const char *hybrid_mode_name(u32 mode);
int hybrid_mode_parse(const char *name);

/*
 * Set the tunable called @name in @config.  Returns its number, from 0 on; -ENOENT: no such
 * tunable; -EINVAL: its value is out of range, *error says which is not.
 */
int hybrid_tunable_parse(const char *name, const char *value, struct hybrid_config *config,
			 char **error);

/* NULL, or which two tunables contradict each other. */
char *hybrid_tunables_contradict(const struct hybrid_config *config);

/* Tunables that a table names replace those in @config. */
void hybrid_tunables_merge(struct hybrid_config *config, const struct tunable_words *words);

/*
 * Decode the settings in a superblock.  A value out of range is replaced by its default;
 * returns NULL, or the rule that one of them breaks.
 */
const char *hybrid_tunables_recorded(const struct hybrid_settings *settings,
				     struct hybrid_config *config);

/* Name and value of the tunable numbered @i; NULL: there are not that many. */
const char *hybrid_tunable_print(const struct hybrid_config *config, unsigned int i, u32 *value);

/*
 * The arguments after the devices.  Return 0, or -EINVAL and *error says what
 * is wrong with which.
 */
int hybrid_pool_parse(struct dm_arg_set *as, struct pool_args *args, char **error);
int hybrid_volume_parse(struct dm_arg_set *as, struct volume_args *args, char **error);

/* 8-4-4-4-12 hex digits, nothing after them; -EINVAL. */
int hybrid_uuid_parse(const char *text, u8 uuid[HYBRID_UUID_SIZE]);

/* ---- message.c ------------------------------------------------------------ */

/* Messages as in Documentation/dm-hybrid.rst.  May block. */
int hybrid_pool_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			unsigned int maxlen);
int hybrid_volume_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			  unsigned int maxlen);

/* ---- status.c ------------------------------------------------------------- */

/* Write nothing to disk and wait for nothing. */
void hybrid_pool_status_print(struct dm_target *ti, status_type_t type, unsigned int flags,
			      char *result, unsigned int maxlen);
void hybrid_volume_status_print(struct dm_target *ti, status_type_t type, unsigned int flags,
				char *result, unsigned int maxlen);

/* ---- pool.c --------------------------------------------------------------- */

/*
 * The pool that the mapped device at @dev is; takes a reference.  NULL: that
 * device is no pool.
 */
struct hybrid_pool *hybrid_pool_get(dev_t dev);
void hybrid_pool_put(struct hybrid_pool *pool);

/* Memory does not wait for I/O until it is unlocked: that may be to a suspended volume. */
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
 * The policy of the pool becomes @policy, while I/O runs; on success the reference to it is
 * the pool's.  Blocking, under the pool's lock.  -ENOMEM: the policy stays.
 */
int hybrid_pool_set_policy(struct hybrid_pool *pool, const struct hybrid_policy_type *policy);

/*
 * Record in the superblock, for the next activation, what policy and settings the pool has
 * now, if another stands there; durable when this returns 0.  Blocking, under the pool's
 * lock, with the engine loaded.
 */
int hybrid_pool_record(struct hybrid_pool *pool);

/*
 * The same, with the name that the pool is to be activated under; and that it replaces no other
 * pool any more.
 */
int hybrid_pool_rename(struct hybrid_pool *pool, const char *name);

/*
 * Claim an origin, with the rest of @claim filled in; tables of one volume may share it.
 * Returns NULL, or why not: another volume has it, of this pool or another, or it is a
 * cache device.  Nothing can come in between: no pool gets a device that is claimed.
 */
char *hybrid_origin_claim(struct hybrid_claim *claim);
void hybrid_origin_release(struct hybrid_claim *claim);

/* What has to be done before a reboot, and that there is no hibernation: see pool.c. */
int hybrid_notifiers_init(void);
void hybrid_notifiers_exit(void);

/* ---- volume.c ------------------------------------------------------------- */

/*
 * If the table of a volume is suspended, and nothing of it is dirty: close it, so
 * that it can be deleted before anybody resumes.  Should it not be deleted, the next
 * resume opens it again.  Caller holds pool->lock, which is dropped meanwhile.  Returns
 * the error of closing it; -EAGAIN: the pool was suspended in between.
 */
int hybrid_volume_release(struct hybrid_pool *pool, u32 id);

/*
 * If the volume is open: both copies of its origin's superblock get what the pool's entry says of
 * it, durably, while I/O runs.  Caller holds pool->lock, which is dropped meanwhile.
 */
int hybrid_volume_renew(struct hybrid_pool *pool, u32 id);

/*
 * The origin of a volume that is open and suspended has grown: the volume gets the room; a longer
 * table is to follow.  @member_uuid: as of hybrid_volume_grow().  Caller holds pool->lock, which is
 * dropped meanwhile.
 */
int hybrid_volume_extend(struct volume_object *object, const u8 *member_uuid);

/* Whether the engine has the volume open.  Caller holds pool->lock. */
bool hybrid_volume_opened(struct hybrid_pool *pool, u32 id);

/*
 * Wait until no volume of @pool is being opened or closed; caller holds pool->lock, which is
 * dropped meanwhile.
 */
void hybrid_volumes_settle(struct hybrid_pool *pool);

/*
 * Wait until the origin of each open volume of @pool has answered one read, with data or an
 * error; without memory for the read it does not wait.  Caller does not hold pool->lock;
 * blocking.
 */
void hybrid_volumes_wait_for_origins(struct hybrid_pool *pool);

/*
 * Suspend all mapped devices that use volumes of @pool; undo that.  Caller
 * does not hold pool->lock.
 */
void hybrid_volumes_suspend(struct hybrid_pool *pool);
void hybrid_volumes_resume(struct hybrid_pool *pool);

#endif
