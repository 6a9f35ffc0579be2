/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine decides and does no I/O itself.  Its caller, the kernel glue or the simulator,
 * reports events: an I/O arrived, an operation ended, time passed, an admin made a request.  The
 * engine returns actions, struct hybrid_op on a list.  The caller carries them out after the call,
 * in the order of the list.
 *
 * Context: functions documented as "May sleep" need process context.  All others may be called
 * from any context, interrupts included, on any CPU at the same time; they can do without the
 * memory that they try to allocate.  One tick at a time.
 *
 * Units: sectors of 512 bytes.  A volume's sectors count from its first, an operation's sectors
 * from the start of the device.
 */
#ifndef DM_HYBRID_ENGINE_H
#define DM_HYBRID_ENGINE_H

#include "codec.h"
#include "policy.h"

struct hybrid_engine;
struct hybrid_volume;
struct hybrid_io;
struct hybrid_op;

/* The actions that follow from an event. */
struct hybrid_actions {
	struct list_head list;		/* hybrid_op.link: to be carried out */
	/* The rest is the engine's own, for the event under way: hybrid_engine_settle() */
	struct list_head again;		/* hybrid_op.link of ios that need not wait any longer */
	u32 wanted;			/* enum want */
	struct hybrid_volume *writeback;	/* WANT_WRITEBACK: of this volume, or (NULL) all */
};

static inline void hybrid_actions_init(struct hybrid_actions *acts)
{
	INIT_LIST_HEAD(&acts->list);
	INIT_LIST_HEAD(&acts->again);
	acts->wanted = 0;
}

/* Removes the next action from the list and returns it, or NULL. */
static inline struct hybrid_op *hybrid_actions_pop(struct hybrid_actions *acts);

enum hybrid_op_type {
	/*
	 * Transfer all data of op->io to or from op->sector of the origin (op->origin) or of
	 * the cache device, with op->fua.  For io->type DISCARD and ZEROES: that operation on
	 * op->count sectors of the origin from op->sector on.
	 * Ends with hybrid_engine_io_done().
	 */
	HYBRID_OP_USER,
	/*
	 * Transfer op->segments between op->buffer and the devices, all in parallel.  If
	 * op->io is set, write is set too: first copy that io's data into the buffer at
	 * op->buffer_offset.  Then call hybrid_engine_op_copied() if op->copied is set.
	 * op->user, if set, is the I/O that caused the transfer; it does
	 * not end before the transfer.  With fua, the origin's part is durable when the operation
	 * ends; or the cache's, if the origin has none.  Ends with hybrid_engine_op_done(); with
	 * op->direct this may be called in any context if the transfer has succeeded.
	 */
	HYBRID_OP_TRANSFER,
	/*
	 * Transfer op->segments between op->mem and one device: the origin of op->volume
	 * (op->origin), or the cache device.  With fua, the data is durable when the operation
	 * ends.  Ends with hybrid_engine_op_done(), with op->direct as a TRANSFER does.
	 */
	HYBRID_OP_META,
	/*
	 * Flush the origin of op->volume, or the cache device.  Ends with op_done.
	 * No other operation flushes first: where a bio has both REQ_PREFLUSH and
	 * data, dm and md drop the error of the flush (dm_io_complete() in
	 * drivers/md/dm.c).
	 * With op->direct it comes from hybrid_engine_miss(), of the cache device, and one at a
	 * time: it may be submitted there and then, and end in any context if it has succeeded.
	 */
	HYBRID_OP_FLUSH,
	/*
	 * Discard op->segments of the cache device, which hold no data that is needed.  After
	 * -EOPNOTSUPP or any other error the discard may not have been done.  Ends with op_done.
	 */
	HYBRID_OP_DISCARD,
	/*
	 * Copy from op->buffer, sector op->buffer_offset on, into all of op->io's data.
	 * Ends with op_done, which then completes the io.
	 */
	HYBRID_OP_COPY_OUT,
	/* End op->io with op->io->error.  The io is the caller's again. */
	HYBRID_OP_COMPLETE,
	/* Call op_done from process context, soon. */
	HYBRID_OP_WORK,
	/* Call op->waiter->done(); the engine forgets the waiter. */
	HYBRID_OP_WAKE,
};

#define HYBRID_MAX_SEGMENTS 64

/* A contiguous run on one device. */
struct hybrid_segment {
	u64 sector;		/* on the device */
	u32 offset;		/* sectors into the buffer */
	u32 count;		/* sectors */
	bool origin;		/* of op->volume; else the cache device */
};

struct hybrid_op {
	struct list_head link;
	u8 type;
	bool write;
	bool origin;
	bool fua;
	bool direct;			/* FLUSH, TRANSFER, META: see there */
	u8 nr_segments;
	/* Results, set by the caller that carries the operation out: 0 or -errno */
	int error_cache, error_origin;
	u32 elapsed_ms;			/* FLUSH: its duration, 0 if unknown; set likewise */
	struct hybrid_volume *volume;	/* of the origin; may be NULL if only the cache is used */
	struct hybrid_io *io;
	struct hybrid_io *user;			/* TRANSFER */
	struct hybrid_segment *segments;
	u64 sector;			/* USER */
	u32 count;
	u32 buffer_offset;		/* sectors */
	void *buffer;			/* from hybrid_engine_ops.alloc_buffer */
	void *mem;			/* kernel virtual memory, META */
	struct hybrid_waiter *waiter;
	void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
		     struct hybrid_actions *acts);	/* the engine's own */
	void (*copied)(struct hybrid_engine *e, struct hybrid_op *op,
		       struct hybrid_actions *acts);	/* likewise; NULL: none */
	void *private;				/* the caller's own */
};

static inline struct hybrid_op *hybrid_actions_pop(struct hybrid_actions *acts)
{
	struct hybrid_op *op = list_first_entry_or_null(&acts->list, struct hybrid_op, link);

	if (op)
		list_del_init(&op->link);
	return op;
}

/* Code outside the engine that waits for an event in it. */
struct hybrid_waiter {
	struct list_head link;
	struct hybrid_op op;
	int error;
	bool ended;		/* by hybrid_waiter_ended() */
	void (*done)(struct hybrid_waiter *w);
};

/* A done() for code that polls w->ended instead of being called back. */
static inline void hybrid_waiter_ended(struct hybrid_waiter *w)
{
	w->ended = true;
}

enum hybrid_io_type {
	HYBRID_IO_READ,
	HYBRID_IO_WRITE,
	HYBRID_IO_FLUSH,	/* no data */
	HYBRID_IO_DISCARD,	/* may span blocks */
	HYBRID_IO_ZEROES,	/* may span blocks; ends with -EOPNOTSUPP if not aligned */
};

/* hybrid_io.flags */
#define HYBRID_IO_FUA	BIT(0)
#define HYBRID_IO_META	BIT(1)	/* a read of a file system's metadata */
#define HYBRID_IO_AHEAD	BIT(2)	/* readahead; may still be set after hybrid_engine_hit() */

/* The engine's own state of a write, and of a discard or write of zeroes. */
struct hybrid_io_write {
	bool redirty;		/* makes granules dirty whose writeback is not recorded yet */
	bool admitted;		/* a miss: may enter the cache */
	bool fetch;		/* may read the rest of granules that it writes in part */
	bool redirected;	/* cache I/O failed: clean parts go to the origin */
	u32 stalled_since;	/* the tick from which on it stalls, or 0 */
	u64 overwritten;	/* granules of to_cache that were valid before */
	struct hlist_node inflight;	/* its set's */
	struct hybrid_intended *intent;	/* NULL: it has none */
};

struct hybrid_io_range {
	u64 cursor;		/* the next block */
	struct list_head wait_link;	/* hybrid_io.link is in use already */
};

/*
 * One user I/O, embedded in the caller's own structure.  READ and WRITE lie
 * within one block.
 */
struct hybrid_io {
	struct hybrid_volume *volume;
	u64 sector;		/* of the volume */
	u32 count;		/* sectors */
	u8 type;		/* enum hybrid_io_type */
	u8 flags;		/* HYBRID_IO_* */
	u8 bypass;		/* enum hybrid_counter: the reason for a bypass, else 0 */
	int error;
	/* The rest is the engine's own */
	u8 state;
	u8 wait;
	u8 phase;
	bool commit;		/* must join a commit before it ends */
	bool counted;
	s32 idx;		/* of the block in its set, -1: none */
	u32 set;
	u64 key;
	u64 mask;		/* granules touched */
	u64 whole;		/* granules covered entirely */
	u64 to_cache;		/* granules written to, or read from, the cache */
	u64 to_origin;
	struct hybrid_io_write write;
	struct hybrid_io_range range;
	struct list_head link;
	struct hybrid_job *job;
	struct hybrid_op op;
};

static inline void hybrid_io_init(struct hybrid_io *io, struct hybrid_volume *volume,
				  enum hybrid_io_type type, u64 sector, u32 count, u8 flags)
{
	io->volume = volume;
	io->sector = sector;
	io->count = count;
	io->type = type;
	io->flags = flags;
	io->bypass = 0;
	io->error = 0;
}

/* Services that the caller provides to the engine. */
struct hybrid_engine_ops {
	/*
	 * Returns a buffer for @sectors of data, for TRANSFER and COPY_OUT; NULL if there is
	 * no memory.  May sleep if @gfp allows it; otherwise called from any context.
	 */
	void *(*alloc_buffer)(struct hybrid_engine *e, u32 sectors, gfp_t gfp);
	void (*free_buffer)(struct hybrid_engine *e, void *buffer);
	/* Returns the XXH64 of @count sectors of a buffer from @offset on.  Any context. */
	u64 (*checksum)(struct hybrid_engine *e, void *buffer, u32 offset, u32 count, u64 seed);
	/*
	 * Carries out one META or FLUSH operation to its end.  May sleep; called only by
	 * functions below that may sleep.  Returns 0 or -errno.
	 */
	int (*do_op)(struct hybrid_engine *e, struct hybrid_op *op);
	/*
	 * Waits until a checkpoint that began after this call is durable
	 * (hybrid_engine_checkpoint() with a waiter).  May sleep.  Returns 0 or -errno.
	 */
	int (*wait_checkpoint)(struct hybrid_engine *e);
	/*
	 * Waits until each call of hybrid_engine_hit() that has begun by now has returned; none
	 * of them sleeps.  May sleep.  Only for hybrid_engine_set_policy().
	 */
	void (*wait_hits)(struct hybrid_engine *e);
	u64 (*random)(struct hybrid_engine *e);	/* never 0; unpredictable */
};

/* Tunables.  The caller has checked their values. */
struct hybrid_config {
	u32 high_watermark;	/* percent of blocks dirty */
	u32 low_watermark;
	u32 writeback_rate;	/* KiB a second, 0: no limit */
	u32 commit_interval;	/* ms */
	u32 endurance;		/* MiB a day to the cache device, 0: no limit */
	u32 metadata_share;	/* percent of blocks kept for metadata, 0: none */
	u32 trim_rate;		/* KiB a second of free blocks to discard, 0: none */
	/* Recent errors at which the cache device counts as failing, 0: no limit */
	u32 read_error_limit, write_error_limit;
};

#define HYBRID_MAX_ENDURANCE	33554432	/* 32 TiB a day */

#define HYBRID_CONFIG_DEFAULT { \
	.high_watermark = 70, .low_watermark = 10, \
	.writeback_rate = 0, .commit_interval = 1000, .metadata_share = 25, .trim_rate = 65536, \
	.read_error_limit = 20, .write_error_limit = 5 }

/* One tunable in the form of struct hybrid_settings. */
static inline u64 hybrid_setting(u32 value, u32 def)
{
	return value == def ? 0 : (u64)value + 1;
}

/* All tunables.  A default is recorded as such: the next version may have another value for it. */
static inline struct hybrid_settings hybrid_settings(const struct hybrid_config *c)
{
	static const struct hybrid_config def = HYBRID_CONFIG_DEFAULT;
	struct hybrid_settings s = {
		.high_watermark = hybrid_setting(c->high_watermark, def.high_watermark),
		.low_watermark = hybrid_setting(c->low_watermark, def.low_watermark),
		.writeback_rate = hybrid_setting(c->writeback_rate, def.writeback_rate),
		.commit_interval = hybrid_setting(c->commit_interval, def.commit_interval),
		.endurance = hybrid_setting(c->endurance, def.endurance),
		.metadata_share = hybrid_setting(c->metadata_share, def.metadata_share),
		.trim_rate = hybrid_setting(c->trim_rate, def.trim_rate),
		.read_error_limit = hybrid_setting(c->read_error_limit, def.read_error_limit),
		.write_error_limit = hybrid_setting(c->write_error_limit, def.write_error_limit),
	};

	return s;
}

enum hybrid_counter {		/* of a volume, per CPU */
	HYBRID_READ_HITS,
	HYBRID_READ_MISSES,
	HYBRID_WRITE_HITS,
	HYBRID_WRITE_MISSES,
	HYBRID_BYPASS_SEQUENTIAL,
	HYBRID_BYPASS_POLICY,
	HYBRID_BYPASS_FULL,
	HYBRID_BYPASS_BUSY,
	HYBRID_BYPASS_MODE,
	HYBRID_BYPASS_PARTIAL,
	HYBRID_FILLS,
	HYBRID_WRITEBACKS,
	HYBRID_DISCARDS,
	HYBRID_FLUSHES,
	HYBRID_ORIGIN_FLUSHES,
	HYBRID_CACHE_ERRORS,
	HYBRID_ORIGIN_ERRORS,
	HYBRID_BYPASS_ONCE,
	HYBRID_NR_COUNTERS
};

/* ---- The pool ------------------------------------------------------------ */

/*
 * Creates the engine of the pool whose cache device has superblock @sb, which is copied, without
 * reading from the device.  May sleep.  Returns the engine, or NULL with -ENOMEM in *error.
 */
struct hybrid_engine *hybrid_engine_create(const struct hybrid_sb *sb,
					   const struct hybrid_engine_ops *ops, void *context,
					   const struct hybrid_policy_type *policy,
					   const struct hybrid_config *config, int *error);

/*
 * Frees an engine that was never loaded, was stopped, or has failed.  Nothing may be in flight.
 * May sleep.
 */
void hybrid_engine_destroy(struct hybrid_engine *e);

/* Returns the memory, in bytes, that hybrid_pool_status.ram of such an engine will report. */
u64 hybrid_engine_ram(const struct hybrid_geometry *g, const struct hybrid_policy_type *policy);

/* Returns the @context of hybrid_engine_create(). */
void *hybrid_engine_context(struct hybrid_engine *e);

/*
 * Reads the metadata, recovers from a crash, and makes the result durable under a new epoch (J8).
 * May sleep.  Returns 0, -EIO, -ENOMEM or -EUCLEAN (damaged).  On error the pool stays unloaded,
 * and *why is a phrase that tells an admin the reason.
 */
int hybrid_engine_load(struct hybrid_engine *e, const char **why);

/*
 * Starts again after hybrid_engine_stop() in the same life of the engine: reads nothing, and takes
 * the clean mark off the disk.  May sleep.  If that write fails, the pool has failed and serves the
 * I/O that it can, as after any failure.
 */
int hybrid_engine_restart(struct hybrid_engine *e, const char **why);

/*
 * Stops the pool, with no user I/O in flight or arriving.  Call repeatedly until it returns true;
 * between calls, carry out the actions and wait for an operation to end.  Then everything is
 * durable and the root says clean, or the pool has failed.
 */
bool hybrid_engine_stop(struct hybrid_engine *e, struct hybrid_actions *acts);

bool hybrid_engine_failed(struct hybrid_engine *e);
/* Did it fail because its state in RAM is inconsistent, a bug, and not because of the device? */
bool hybrid_engine_inconsistent(struct hybrid_engine *e);

/*
 * Change the tunables; change the policy.  I/O may run.  May sleep; the caller lets only one of
 * these run at a time.  Once the latter returns 0 nothing uses the old policy; after -ENOMEM the
 * old policy stays.
 */
int hybrid_engine_configure(struct hybrid_engine *e, const struct hybrid_config *config);
int hybrid_engine_set_policy(struct hybrid_engine *e, const struct hybrid_policy_type *policy);
/* Copies the name of the policy to @name.  Any time, any context. */
void hybrid_engine_policy_name(struct hybrid_engine *e, char name[HYBRID_POLICY_NAME_SIZE]);
const struct hybrid_config *hybrid_engine_config(struct hybrid_engine *e);

/* ---- Events -------------------------------------------------------------- */

enum hybrid_map_result {
	HYBRID_MAP_REMAP,	/* io->op is a USER operation: carry it out now */
	HYBRID_MAP_TAKEN,	/* actions follow, now or later */
};

/*
 * A user's I/O arrives: tries the fast path.  Returns true for a hit there: its data is at
 * io->op.sector of the cache device, and no action follows.  Returns false: call
 * hybrid_engine_miss().
 */
bool hybrid_engine_hit(struct hybrid_engine *e, struct hybrid_io *io);
enum hybrid_map_result hybrid_engine_miss(struct hybrid_engine *e, struct hybrid_io *io,
					  struct hybrid_actions *acts);

/* Fills in all of io->op, as a USER operation, after a hit. */
void hybrid_engine_hit_op(struct hybrid_io *io);

/* Both steps, for callers that carry out hits like other operations. */
static inline enum hybrid_map_result hybrid_engine_map(struct hybrid_engine *e,
						       struct hybrid_io *io,
						       struct hybrid_actions *acts)
{
	if (!hybrid_engine_hit(e, io))
		return hybrid_engine_miss(e, io, acts);
	hybrid_engine_hit_op(io);
	return HYBRID_MAP_REMAP;
}

/*
 * A USER operation ended without an error.  Returns true: end the io now, without an error.
 * Returns false: nothing was done; call hybrid_engine_io_done().
 */
bool hybrid_engine_hit_done(struct hybrid_engine *e, struct hybrid_io *io);

/*
 * A USER operation ended with @error.  Returns true: end the io now with io->error.  Returns false:
 * the engine keeps the io; an action follows.
 *
 * An operation requested by hybrid_engine_hit() or _miss() may end with -EAGAIN: the io must not
 * wait, its device would have had to, and nothing was done.  The io ends with -EAGAIN for its user
 * to see; it is no error of the device.
 */
bool hybrid_engine_io_done(struct hybrid_engine *e, struct hybrid_io *io, int error,
			   struct hybrid_actions *acts);

/*
 * The data of op->io has been copied to the buffer of a TRANSFER with op->copied: call it once,
 * before the transfer is submitted, and hold no lock.
 */
void hybrid_engine_op_copied(struct hybrid_engine *e, struct hybrid_op *op,
			     struct hybrid_actions *acts);

/* Any other operation ended; op->error_cache and error_origin are set. */
void hybrid_engine_op_done(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts);

/*
 * Advances the engine's time to @now_ms, of a clock that never goes back.  Call about every 100 ms
 * while there is anything to do, and once after each change of tunables.  Returns false when
 * nothing waits for time to pass.
 */
bool hybrid_engine_tick(struct hybrid_engine *e, u64 now_ms, struct hybrid_actions *acts);

/*
 * Records all changes that can be recorded, then writes a checkpoint that begins after this call,
 * then wakes @w.  w->error is 0 or -EIO.
 */
void hybrid_engine_checkpoint(struct hybrid_engine *e, struct hybrid_waiter *w,
			      struct hybrid_actions *acts);

/*
 * The caller could not write its own metadata to the cache device: the pool fails, as if the write
 * had been the engine's.  The pool is loaded.  The caller holds no lock.
 */
void hybrid_engine_fail(struct hybrid_engine *e, struct hybrid_actions *acts);

/*
 * Begins (@on) or ends a drain of @v, or (NULL) of all volumes: writes back all dirty data, and
 * until the drain ends nothing becomes dirty.  A volume whose mode keeps nothing dirty, and a pool
 * whose cache device is failing, drain on all the same.
 * @rate: a limit in KiB a second, 0: none.  Writeback that users wait for ignores it.
 */
void hybrid_engine_drain(struct hybrid_engine *e, struct hybrid_volume *v, bool on, u32 rate,
			 struct hybrid_actions *acts);

/* ---- Volumes ------------------------------------------------------------- */

/*
 * Adds a volume to the pool's table.  This and the next three functions may sleep, and the caller
 * lets only one of the four run at a time in a pool.  Each returns 0 once its change is durable.
 * Returns -EEXIST if the id, a UUID or the name is in use, -EINVAL if the entry could not be loaded
 * again, -ENOSPC if all instances were given out.
 */
int hybrid_volume_create(struct hybrid_engine *e, u32 id, const struct hybrid_volume_info *info);
/*
 * Turns the volume into a tombstone.  Returns -ENOENT if there is no such volume, -EBUSY if it is
 * open, or dirty without @drop_dirty.
 */
int hybrid_volume_delete(struct hybrid_engine *e, u32 id, bool drop_dirty);
/* Removes a tombstone.  Returns -ENOENT if there is no such volume, -EBUSY if it is none. */
int hybrid_volume_forget(struct hybrid_engine *e, u32 id);
/*
 * Renames the volume in the pool's table, open or not; hybrid_volume_renew_sb() renames it on its
 * origin.  Returns -ENOENT, -EEXIST and -EINVAL as above.
 */
int hybrid_volume_rename(struct hybrid_engine *e, u32 id, const char *name);

/*
 * Opens a volume: verifies that the origin of @origin_sectors belongs to it, and exchanges session
 * nonces (J9).  @context is for hybrid_volume_context().
 *
 * May sleep, like settle and close, for as long as the origin does not answer.  All three may run
 * for several volumes at once, and beside every function except load, stop and restart.
 *
 * On error *why gives the reason.  Returns -ENOENT if there is no such volume, -EBUSY if it is open
 * already, -ENOSPC if all instances were given out, -ENOMEM or -EIO.
 * Returns -EMEDIUMTYPE if this is not the volume's origin: it is foreign, cloned, too small, or was
 * written without its cache while the cache holds newer data.
 */
int hybrid_volume_open(struct hybrid_engine *e, u32 id, u64 origin_sectors, void *context,
		       struct hybrid_volume **volume, const char **why);

/*
 * Closes a volume after its last user I/O has ended and hybrid_volume_suspend() has returned true.
 * Flushes the origin, records the changes that this settles, and takes the dirty flag off a clean
 * origin; if the pool has failed, saves the list of lost granules.  May sleep.  The volume is
 * closed in any case.  An error means that not all of this was done; dirty data is safe all the
 * same.
 */
int hybrid_volume_close(struct hybrid_engine *e, struct hybrid_volume *v);

/*
 * Does the first half of hybrid_volume_close(), under the same conditions: flushes the origin and
 * records the result.  May sleep.  The volume stays open: after an error its users' next flush
 * fails, which reopening the volume would hide.
 */
int hybrid_volume_settle(struct hybrid_engine *e, struct hybrid_volume *v);

/*
 * Extends the volume to all of its origin, which has grown to @origin_sectors; does nothing if
 * there is no more room.  Called after hybrid_volume_suspend() returned true and before resume.
 * May sleep.  @member_uuid: of an origin in place, which is recognised by its size, too; else NULL.
 *
 * Returns 0 once the new size is durable.  A power cut or an error leaves the old size or the new
 * one, and the next open continues from there.
 * Returns -ENOSPC if the origin is smaller than the volume, -EBUSY if the last granule, cut off by
 * the end of an origin in place, is dirty, -EINVAL if the new size is too large, -ENOMEM or -EIO.
 */
int hybrid_volume_grow(struct hybrid_engine *e, struct hybrid_volume *v, u64 origin_sectors,
		       const u8 *member_uuid);

/*
 * Write both copies of the superblock of an open volume, with its name in the pool's table, while
 * I/O runs.  Call claim until it returns true; then renew, which may sleep and run beside other
 * functions, like close; then release, even after an error.
 */
bool hybrid_volume_claim_sb(struct hybrid_engine *e, struct hybrid_volume *v);
int hybrid_volume_renew_sb(struct hybrid_engine *e, struct hybrid_volume *v);
void hybrid_volume_release_sb(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts);

/*
 * Stops the engine's own I/O to this origin until resume.  Call repeatedly until it returns true.
 * The caller holds back users' I/O itself.
 */
bool hybrid_volume_suspend(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts);
void hybrid_volume_resume(struct hybrid_engine *e, struct hybrid_volume *v,
			  struct hybrid_actions *acts);

void *hybrid_volume_context(struct hybrid_volume *v);
/* Return the first sector of the volume's data on its origin, and its size in sectors. */
u64 hybrid_volume_data_sector(struct hybrid_volume *v);
u64 hybrid_volume_sectors(struct hybrid_volume *v);

/*
 * Finds the next run of granules that are lost, or may be, because the pool failed.  *cursor is 0
 * at first; each call advances it.  Returns false if there are no more.  Sectors are the volume's,
 * in the order of the cache.  May sleep.
 */
bool hybrid_volume_lost(struct hybrid_engine *e, struct hybrid_volume *v, u64 *cursor,
			u64 *sector, u32 *count);

/* Copies the entry of volume @id from the table to @info.  Returns 0 or -ENOENT. */
int hybrid_volume_info(struct hybrid_engine *e, u32 id, struct hybrid_volume_info *info);

/*
 * Returns the dirty blocks of volume @id, which need not be open, and in *sectors the sectors in
 * their dirty granules; 0 if there is no such volume.
 */
u32 hybrid_volume_dirty(struct hybrid_engine *e, u32 id, u64 *sectors);

/*
 * Switch the mode; set the cutoff.  I/O may run.  A new value begins a checkpoint that records it;
 * wait_checkpoint() afterwards waits until it is durable.
 */
void hybrid_volume_set_mode(struct hybrid_engine *e, struct hybrid_volume *v, u32 mode,
			    struct hybrid_actions *acts);
void hybrid_volume_set_cutoff(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			      struct hybrid_actions *acts);
/*
 * Traits of the volume's devices; none are set at first.  Set them any time while the volume is
 * open.  May sleep.
 */
#define HYBRID_ORIGIN_SEEKS		0x1 /* order saves time; so do fills of whole blocks */
#define HYBRID_ORIGIN_NO_DISCARD	0x2 /* discards only drop granules from the cache */
#define HYBRID_ORIGIN_NO_FUA		0x4 /* has a write cache; FUA is a flush after the write */
#define HYBRID_CACHE_NO_FUA		0x8 /* the same of the cache device */
void hybrid_volume_set_traits(struct hybrid_volume *v, u32 traits);
void hybrid_volume_reset_counters(struct hybrid_volume *v);

/* ---- Reports ------------------------------------------------------------- */

struct hybrid_pool_status {
	bool failed, draining;
	bool drain_on;		/* requested and not ended, dirty or not; not while failing */
	u32 block_sectors, granule_sectors;
	u32 blocks, used, free, dirty;
	u64 dirty_sectors;	/* of granules that only the cache has */
	u32 volumes;		/* open */
	u32 open_regions;
	u64 ram;		/* bytes */
	u64 journal_used, journal_blocks, journal_writes, journal_records, intent_writes;
	u64 checkpoints, metadata_writes, cache_flushes, evictions;
	u64 read_errors, write_errors, flush_errors;	/* of the cache device */
	u64 cache_written;	/* sectors, metadata included */
	u64 total_written;	/* ... earlier activations included */
	u32 metadata;		/* blocks kept for file systems' metadata */
	u64 trimmed;		/* sectors of free blocks that were discarded */
	u32 retired;		/* blocks: see hybrid_engine_retired() */
	bool failing;		/* as HYBRID_STATE_FAILING */
	u32 recent_read_errors, recent_write_errors;	/* of the cache device, halved each day */
	s64 endurance;		/* sectors of the budget that are saved up; negative: owed */
};

struct hybrid_volume_status {
	bool degraded, draining;
	bool drain_on;		/* a drain, its own or the pool's, suspends writeback mode */
	u32 mode;
	u64 cutoff;
	u32 dirty, cached;
	u64 dirty_sectors;	/* of granules that only the cache has, in RAM or on record */
	u32 lost;		/* blocks with granules that are lost: the pool failed */
	u64 merged;		/* sectors once lost, recovered when it was opened */
	u64 counter[HYBRID_NR_COUNTERS];
};

void hybrid_engine_status(struct hybrid_engine *e, struct hybrid_pool_status *st);
void hybrid_volume_status(struct hybrid_engine *e, struct hybrid_volume *v,
			  struct hybrid_volume_status *st);

/*
 * Returns the number of cache blocks retired since the pool was loaded, because their place on the
 * cache device failed more than once.  *sector is the place of the last of them.
 */
u32 hybrid_engine_retired(struct hybrid_engine *e, u64 *sector);

/* States whose beginning is reported to an admin: bits. */
enum hybrid_state {
	/* The pool failed. */
	HYBRID_STATE_FAILED = 1 << 0,
	/* A drain is complete, or the switch to a mode that keeps nothing dirty. */
	HYBRID_STATE_DRAINED = 1 << 1,
	/*
	 * The share of dirty blocks exceeded the high watermark, and has not come down to the
	 * low one since.
	 */
	HYBRID_STATE_OVER_WATERMARK = 1 << 2,
	/* Over ten minutes' endurance was owed, and half an hour's has not been saved since. */
	HYBRID_STATE_ENDURANCE_USED = 1 << 3,
	/* When opened, the origin had been written without its cache, or listed lost data. */
	HYBRID_STATE_HEALTHY_AGAIN = 1 << 4,
	/*
	 * The recent errors of the cache device have reached a limit.  Until they are forgotten,
	 * which takes days without another error, or the limits are raised, writes go to the
	 * origins as in writethrough, and dirty blocks are written back.
	 */
	HYBRID_STATE_FAILING = 1 << 5,
};

/* Returns the pool's states (not HEALTHY_AGAIN); watermark and endurance as of the last tick. */
u32 hybrid_engine_state(const struct hybrid_engine *e);
/* Returns the states of an open volume: FAILED, DRAINED and HEALTHY_AGAIN. */
u32 hybrid_volume_state(const struct hybrid_volume *v);

/* ---- For the simulator and the tests ------------------------------------- */

/*
 * Checks the state in RAM: map injective, dirty within valid, lists and counts consistent.
 * Returns NULL, or a description of the inconsistency.
 */
const char *hybrid_engine_check(struct hybrid_engine *e);

/* Requests the eviction of a block if it is cached and clean, its writeback if it is dirty. */
void hybrid_engine_evict(struct hybrid_engine *e, struct hybrid_volume *v, oblock_t b,
			 struct hybrid_actions *acts);

#endif
