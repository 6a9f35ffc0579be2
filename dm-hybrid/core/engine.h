/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine decides, it does not do: events come in (an I/O arrived, an
 * operation ended, time passed, an admin asked), actions go out (struct
 * hybrid_op on a list).  Whoever calls the engine, the kernel glue or the
 * simulator, carries the actions out, in the order of the list, after the call.
 *
 * Context: every function may be called from any context, interrupts included,
 * on any CPU at the same time, unless its comment says "blocking".  None sleeps,
 * but those; what others would allocate they can do without.  One tick at a time.
 *
 * Units: sectors of 512 bytes.  Sectors of a volume count from its first, those
 * of operations from the start of the device.
 */
#ifndef DM_HYBRID_ENGINE_H
#define DM_HYBRID_ENGINE_H

#include "codec.h"
#include "policy.h"

struct hybrid_engine;
struct hybrid_volume;
struct hybrid_io;
struct hybrid_op;

/* What an event leads to. */
struct hybrid_actions {
	struct list_head list;		/* hybrid_op.link: to be carried out */
	/* The engine's own, of the event under way: engine_settle() */
	struct list_head again;		/* hybrid_op.link of ios that have waited for long enough */
	u32 wanted;			/* enum want */
	struct hybrid_volume *writeback;	/* WANT_WRITEBACK: of one, or (NULL) of all */
};

static inline void hybrid_actions_init(struct hybrid_actions *acts)
{
	INIT_LIST_HEAD(&acts->list);
	INIT_LIST_HEAD(&acts->again);
	acts->wanted = 0;
}

/* Take the next action, NULL if there is none. */
static inline struct hybrid_op *hybrid_actions_pop(struct hybrid_actions *acts);

enum hybrid_op_type {
	/*
	 * The user's own data, whole: io <-> op->sector of the origin (op->origin)
	 * or the cache device, with op->fua.  For io->type DISCARD and ZEROES: that
	 * operation on sectors op->sector, op->count of the origin.
	 * Ends with hybrid_engine_io_done().
	 */
	HYBRID_OP_USER,
	/*
	 * op->segments between op->buffer and the devices, all in parallel.  If
	 * op->io is set, write is set too: first copy that io's data into the
	 * buffer at op->buffer_offset.  op->user, if set, is the I/O that caused the
	 * transfer, and does not end before it.  Ends with hybrid_engine_op_done().
	 */
	HYBRID_OP_TRANSFER,
	/*
	 * op->segments between op->mem and a device (op->origin: that of
	 * op->volume).  With fua it is durable when the operation ends.
	 * Ends with hybrid_engine_op_done().
	 */
	HYBRID_OP_META,
	/*
	 * Flush the origin of op->volume, or the cache device.  Ends with op_done.
	 * No other operation flushes first: where a bio has both REQ_PREFLUSH and
	 * data, dm and md drop the error of the flush (dm_io_complete() in
	 * drivers/md/dm.c).
	 */
	HYBRID_OP_FLUSH,
	/*
	 * Discard op->segments of the cache device: nothing is there that anybody needs.
	 * -EOPNOTSUPP, or any error: it may not have been done.  Ends with op_done.
	 */
	HYBRID_OP_DISCARD,
	/*
	 * Copy sectors of op->buffer from op->buffer_offset into op->io's data.
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
	u8 nr_segments;
	/* Set by whoever carries the operation out: 0 or -errno */
	int error_cache, error_origin;
	u32 elapsed_ms;			/* a FLUSH: how long it took; 0 where that is not known */
	struct hybrid_volume *volume;	/* whose origin; NULL if only the cache */
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
	void *private;				/* for whoever carries it out */
};

static inline struct hybrid_op *hybrid_actions_pop(struct hybrid_actions *acts)
{
	struct hybrid_op *op = list_first_entry_or_null(&acts->list, struct hybrid_op, link);

	if (op)
		list_del_init(&op->link);
	return op;
}

/* Something outside the engine that waits for it. */
struct hybrid_waiter {
	struct list_head link;
	struct hybrid_op op;
	int error;
	bool ended;		/* by hybrid_waiter_ended() */
	void (*done)(struct hybrid_waiter *w);
};

/* A done() for those who look at the waiter instead of being called. */
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
#define HYBRID_IO_META	BIT(1)	/* a read of a filesystem's metadata */
#define HYBRID_IO_AHEAD	BIT(2)	/* a read ahead; may be set after hybrid_engine_hit(), too */

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
	u8 bypass;		/* enum hybrid_counter: why it was not cached; 0: no reason to */
	int error;
	/* The engine's from here on */
	u8 state;
	u8 wait;
	u8 phase;
	bool commit;		/* must join a commit before it ends */
	bool redirty;		/* makes dirty again what was written back, not yet recorded */
	bool counted;
	bool admitted;		/* a write miss: may enter the cache */
	bool fetch;		/* may read what surrounds its parts of granules */
	bool redirected;	/* the cache failed, and all that can goes to the origin */
	s32 idx;		/* of the block in its set, -1: none */
	u32 set;
	u32 room_since;		/* a write: the tick from which on it waits for room, or 0 */
	u64 key;
	u64 mask;		/* granules touched */
	u64 whole;		/* granules covered whole */
	u64 to_cache;		/* granules that go to (come from) the cache */
	u64 to_origin;
	u64 overwritten;	/* a write: those of to_cache that were valid before */
	u64 cursor;		/* a range: the block that is next */
	struct list_head link;
	struct hlist_node inflight;	/* a write: its set's */
	struct list_head wait_link;	/* ranges: link is in use already */
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

/* What the engine needs of its surroundings. */
struct hybrid_engine_ops {
	/*
	 * A buffer for @sectors of data, for TRANSFER and COPY_OUT; NULL if there
	 * is no memory.  Blocking if @gfp says so, else from any context.
	 */
	void *(*alloc_buffer)(struct hybrid_engine *e, u32 sectors, gfp_t gfp);
	void (*free_buffer)(struct hybrid_engine *e, void *buffer);
	/*
	 * Blocking.  Carry out one META or FLUSH operation to its end; returns 0
	 * or -errno.  Only while the pool is being loaded or a volume opened.
	 */
	int (*do_op)(struct hybrid_engine *e, struct hybrid_op *op);
	/*
	 * Blocking.  Wait until a checkpoint that began after this call is
	 * durable (hybrid_engine_checkpoint with a waiter); 0 or -errno.
	 */
	int (*wait_checkpoint)(struct hybrid_engine *e);
	/*
	 * Blocking.  Wait until each call of hybrid_engine_hit() that has begun by now
	 * has returned; none of them sleeps.  Only for hybrid_engine_set_policy().
	 */
	void (*wait_hits)(struct hybrid_engine *e);
	u64 (*random)(struct hybrid_engine *e);	/* never 0; unpredictable */
};

/* Tunables; checked by whoever parses them. */
struct hybrid_config {
	u32 high_watermark;	/* percent of blocks dirty */
	u32 low_watermark;
	u32 writeback_rate;	/* KiB a second, 0: no limit */
	u32 commit_interval;	/* ms */
	u32 endurance;		/* MiB a day to the cache device, 0: no limit */
	u32 metadata_share;	/* percent of blocks that are kept for metadata, 0: none */
	u32 trim_rate;		/* KiB a second that are discarded of free blocks, 0: none */
	/* Recent errors of the cache device with which it counts as failing, 0: no limit */
	u32 read_error_limit, write_error_limit;
};

#define HYBRID_MAX_ENDURANCE	33554432	/* 32 TiB a day */

#define HYBRID_CONFIG_DEFAULT { \
	.high_watermark = 70, .low_watermark = 10, \
	.writeback_rate = 0, .commit_interval = 1000, .metadata_share = 25, .trim_rate = 65536, \
	.read_error_limit = 20, .write_error_limit = 5 }

/* One of them, as it is recorded: see struct hybrid_settings. */
static inline u64 hybrid_setting(u32 value, u32 def)
{
	return value == def ? 0 : (u64)value + 1;
}

/* All of them.  A default stays one: it may be another in the next version. */
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
	HYBRID_BYPASS_ENDURANCE,
	HYBRID_NR_COUNTERS
};

/* ---- The pool ------------------------------------------------------------ */

/*
 * Blocking.  Make the engine of the pool whose cache device has superblock @sb
 * (copied), without reading anything from it.  Returns it, or ERR_PTR-like NULL
 * with *error set (-ENOMEM).
 */
struct hybrid_engine *hybrid_engine_create(const struct hybrid_sb *sb,
					   const struct hybrid_engine_ops *ops, void *context,
					   const struct hybrid_policy_type *policy,
					   const struct hybrid_config *config, int *error);

/*
 * Free an engine that was never loaded, or was stopped, or failed; nothing may
 * be in flight.
 */
void hybrid_engine_destroy(struct hybrid_engine *e);

/* Bytes of memory that an engine for such a cache device takes, as its status says. */
u64 hybrid_engine_ram(const struct hybrid_geometry *g, const struct hybrid_policy_type *policy);

/* The @context of create. */
void *hybrid_engine_context(struct hybrid_engine *e);

/*
 * Blocking.  Read the metadata, recover from a crash, make the result durable
 * under a new epoch (J8).  On error the pool stays unloaded and *why says what
 * is wrong, as a phrase fit for an admin: -EIO, -ENOMEM, -EUCLEAN (damaged).
 */
int hybrid_engine_load(struct hybrid_engine *e, const char **why);

/*
 * Blocking.  The same after hybrid_engine_stop() in the same life of the
 * engine: nothing is read, the clean mark is taken off the disk.  If that cannot
 * be written the pool has failed: it serves what it can, as after any failure.
 */
int hybrid_engine_restart(struct hybrid_engine *e, const char **why);

/*
 * Stop: call with no user I/O in flight or arriving, again and again, carrying
 * out the actions and waiting for something to end between calls, until it
 * returns true.  Then everything is durable and the root says clean (or the
 * pool has failed).
 */
bool hybrid_engine_stop(struct hybrid_engine *e, struct hybrid_actions *acts);

bool hybrid_engine_failed(struct hybrid_engine *e);
/* Has it failed because its state in memory is inconsistent, a bug, and not for the device? */
bool hybrid_engine_inconsistent(struct hybrid_engine *e);

/*
 * Blocking, with I/O running; the caller lets only one of these run at a time.  Change
 * tunables; change the policy.  Once the latter returns 0 nothing uses the one before;
 * -ENOMEM: that stays.
 */
int hybrid_engine_configure(struct hybrid_engine *e, const struct hybrid_config *config);
int hybrid_engine_set_policy(struct hybrid_engine *e, const struct hybrid_policy_type *policy);
/* What the policy is called; any time, any context. */
void hybrid_engine_policy_name(struct hybrid_engine *e, char name[HYBRID_POLICY_NAME_SIZE]);
const struct hybrid_config *hybrid_engine_config(struct hybrid_engine *e);

/* ---- Events -------------------------------------------------------------- */

enum hybrid_map_result {
	HYBRID_MAP_REMAP,	/* io->op is a USER operation: carry it out now */
	HYBRID_MAP_TAKEN,	/* actions follow, now or later */
};

/*
 * A user's I/O arrives.  Is it a hit that goes the fast path?  True: its data are
 * at io->op.sector of the cache device, and no action follows.  False: call
 * hybrid_engine_miss().
 */
bool hybrid_engine_hit(struct hybrid_engine *e, struct hybrid_io *io);
enum hybrid_map_result hybrid_engine_miss(struct hybrid_engine *e, struct hybrid_io *io,
					  struct hybrid_actions *acts);

/* A hit as a USER operation: all of io->op. */
void hybrid_engine_hit_op(struct hybrid_io *io);

/* For who carries out all operations alike. */
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
 * A USER operation ended without an error.  True: end the io now, without one.
 * False: nothing was done; call hybrid_engine_io_done().
 */
bool hybrid_engine_hit_done(struct hybrid_engine *e, struct hybrid_io *io);

/*
 * A USER operation ended with @error.  Returns true: end the io now with
 * io->error.  False: the engine keeps it; an action follows.
 * -EAGAIN, of an operation that hybrid_engine_hit() or _miss() asked for: the io must not
 * wait, and its device would have had to, so it did nothing.  This is the user's to know: it
 * is no error of the device, and the io ends with it.
 */
bool hybrid_engine_io_done(struct hybrid_engine *e, struct hybrid_io *io, int error,
			   struct hybrid_actions *acts);

/* Any other operation ended; op->error_cache and error_origin are set. */
void hybrid_engine_op_done(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts);

/*
 * Time: call about every 100 ms while there is anything to do, and once after
 * each change of tunables.  @now_ms: a clock that never goes back.
 * Returns false when nothing waits for time to pass.
 */
bool hybrid_engine_tick(struct hybrid_engine *e, u64 now_ms, struct hybrid_actions *acts);

/*
 * Record everything that can be, then write a checkpoint that begins after this
 * call, then wake @w.
 */
void hybrid_engine_checkpoint(struct hybrid_engine *e, struct hybrid_waiter *w,
			      struct hybrid_actions *acts);

/*
 * Write back all that is dirty, of one volume or (NULL) of all; or stop that.  Until then
 * nothing becomes dirty.  A volume whose mode keeps nothing dirty goes on all the same.
 * @rate: a limit in KiB a second, 0: none.  Writeback that users wait for ignores it.
 */
void hybrid_engine_drain(struct hybrid_engine *e, struct hybrid_volume *v, bool on, u32 rate,
			 struct hybrid_actions *acts);

/* ---- Volumes ------------------------------------------------------------- */

/*
 * Blocking; the caller lets only one of these four run at a time in a pool.
 * -EEXIST: the id, uuid or name is in use.  -EBUSY: open, dirty, or a tombstone.
 * -ENOENT: no such volume.  -EINVAL: an entry that could not be loaded again.
 * -ENOSPC: all instances were given out.
 */
int hybrid_volume_create(struct hybrid_engine *e, u32 id, const struct hybrid_volume_info *info);
int hybrid_volume_delete(struct hybrid_engine *e, u32 id, bool drop_dirty);
int hybrid_volume_forget(struct hybrid_engine *e, u32 id);
/*
 * Give the volume another name in the pool's table, open or not; what its origin says is for
 * hybrid_volume_renew_sb().  Durable if 0.
 */
int hybrid_volume_rename(struct hybrid_engine *e, u32 id, const char *name);

/*
 * Open: verify that the origin of @origin_sectors belongs to the volume, and
 * exchange session nonces (J9).  *why names what is wrong: -ENOENT no such
 * volume, -EBUSY open already, -EMEDIUMTYPE not this volume's origin (foreign,
 * cloned, written without its cache while the cache holds newer data), -EIO.
 * @context: for hybrid_volume_context().
 * May wait for the origin for as long as that does not answer, like settle and close; all
 * three may run for several volumes at once, and beside everything but load, stop and restart.
 */
int hybrid_volume_open(struct hybrid_engine *e, u32 id, u64 origin_sectors, void *context,
		       struct hybrid_volume **volume, const char **why);

/*
 * Close after the last user I/O ended, and after hybrid_volume_suspend() returned
 * true.  Flushes the origin, records what that settles, and takes the dirty flag
 * off a clean origin; if the pool failed, saves what is lost.  The volume is closed
 * in any case; an error says that less than that could be done (dirty data is
 * safe all the same).
 */
int hybrid_volume_close(struct hybrid_engine *e, struct hybrid_volume *v);

/*
 * Blocking.  The first half of hybrid_volume_close(), under the same conditions: flush the
 * origin and record the result.  The volume stays open; after an error its users' next
 * flush fails, which opening it again would hide.
 */
int hybrid_volume_settle(struct hybrid_engine *e, struct hybrid_volume *v);

/*
 * Blocking.  Its origin, now of @origin_sectors, has grown: the volume gets all of the room,
 * after hybrid_volume_suspend() returned true, and before resume.  Durable if 0; a cut, or an
 * error, leaves the old size or the new one, and the next open goes on with it.  Nothing happens
 * if there is no more room.  -ENOSPC: the origin is smaller than the volume.  -EBUSY: the last
 * granule, which the end of an origin in place cuts off, is dirty.  -EINVAL: too large.  -ENOMEM.
 * @member_uuid: of an origin in place, which is recognised by its size, too; else NULL.
 */
int hybrid_volume_grow(struct hybrid_engine *e, struct hybrid_volume *v, u64 origin_sectors,
		       const u8 *member_uuid);

/*
 * Write both copies of the superblock of an open volume, with the name that the pool has for
 * it, while I/O runs.  Call claim again until it returns true; then renew, which blocks and may
 * run like close; whatever that returns, release.
 */
bool hybrid_volume_claim_sb(struct hybrid_engine *e, struct hybrid_volume *v);
int hybrid_volume_renew_sb(struct hybrid_engine *e, struct hybrid_volume *v);
void hybrid_volume_release_sb(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts);

/*
 * No I/O of the engine's own to this origin until resume: call again until it
 * returns true.  Users' I/O is the caller's affair.
 */
bool hybrid_volume_suspend(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts);
void hybrid_volume_resume(struct hybrid_engine *e, struct hybrid_volume *v,
			  struct hybrid_actions *acts);

void *hybrid_volume_context(struct hybrid_volume *v);
/* First sector of the volume's data on its origin, and its size. */
u64 hybrid_volume_data_sector(struct hybrid_volume *v);
u64 hybrid_volume_sectors(struct hybrid_volume *v);

/*
 * The next run of granules that are lost, or may be, because the pool failed:
 * from *cursor on, which is 0 at first and then where to go on.  False: no more.
 * Sectors are the volume's; the order is the cache's.  Process context.
 */
bool hybrid_volume_lost(struct hybrid_engine *e, struct hybrid_volume *v, u64 *cursor,
			u64 *sector, u32 *count);

/* Volume @id's entry in the table; -ENOENT. */
int hybrid_volume_info(struct hybrid_engine *e, u32 id, struct hybrid_volume_info *info);

/*
 * Blocks of volume @id that are dirty, open or not, and sectors in their dirty granules; 0 if
 * there is no such volume.
 */
u32 hybrid_volume_dirty(struct hybrid_engine *e, u32 id, u64 *sectors);

/*
 * Switch the mode, set the cutoff; with I/O running.  Where that changes anything a
 * checkpoint is begun, which records it: wait_checkpoint() afterwards waits until it is
 * durable.
 */
void hybrid_volume_set_mode(struct hybrid_engine *e, struct hybrid_volume *v, u32 mode,
			    struct hybrid_actions *acts);
void hybrid_volume_set_cutoff(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			      struct hybrid_actions *acts);
/* What kind of device the origin is; neither at first.  Any time while the volume is open. */
#define HYBRID_ORIGIN_SEEKS		0x1 /* writes to a full cache wait for writeback in order */
#define HYBRID_ORIGIN_NO_DISCARD	0x2 /* discards only free what is cached */
void hybrid_volume_set_origin(struct hybrid_volume *v, u32 traits);
void hybrid_volume_reset_counters(struct hybrid_volume *v);

/* ---- Reports ------------------------------------------------------------- */

struct hybrid_pool_status {
	bool failed, draining;
	bool drain_on;		/* asked for, and not ended, dirty or not; not while failing */
	u32 block_sectors, granule_sectors;
	u32 blocks, used, free, dirty;
	u64 dirty_sectors;	/* of granules that only the cache has */
	u32 volumes;		/* open */
	u32 open_regions;
	u64 ram;		/* bytes */
	u64 journal_used, journal_blocks, journal_writes, journal_records;
	u64 checkpoints, metadata_writes, cache_flushes, evictions;
	u64 read_errors, write_errors, flush_errors;	/* of the cache device */
	u64 cache_written;	/* sectors, metadata included */
	u64 total_written;	/* ... and those of earlier activations */
	u32 metadata;		/* blocks that are kept for filesystems' metadata */
	u64 trimmed;		/* sectors of free blocks that were discarded */
	u32 retired;		/* blocks: see hybrid_engine_retired() */
	bool failing;		/* as HYBRID_STATE_FAILING */
	u32 recent_read_errors, recent_write_errors;	/* of the cache device, halved each day */
	u64 endurance_left, endurance_owed;	/* sectors of the budget; one of them is 0 */
};

struct hybrid_volume_status {
	bool degraded, draining;
	bool drain_on;		/* a drain, its own or the pool's, keeps writeback from it */
	u32 mode;
	u64 cutoff;
	u32 dirty, cached;
	u64 dirty_sectors;	/* of granules that only the cache has, in RAM or on record */
	u32 lost;		/* blocks with granules that are lost: the pool failed */
	u64 merged;		/* sectors that were lost, and came back when it was opened */
	u64 counter[HYBRID_NR_COUNTERS];
};

void hybrid_engine_status(struct hybrid_engine *e, struct hybrid_pool_status *st);
void hybrid_volume_status(struct hybrid_engine *e, struct hybrid_volume *v,
			  struct hybrid_volume_status *st);

/*
 * How many cache blocks are not used any more, since the pool was loaded, because their place on
 * the cache device failed more than once; *sector: where the last of them is.
 */
u32 hybrid_engine_retired(struct hybrid_engine *e, u64 *sector);

/* States that an admin hears of when they begin: bits. */
enum hybrid_state {
	/* The pool failed. */
	HYBRID_STATE_FAILED = 1 << 0,
	/* A drain is complete, or the switch to a mode that keeps nothing dirty. */
	HYBRID_STATE_DRAINED = 1 << 1,
	/*
	 * The share of dirty blocks was above the high watermark, and has not been down at
	 * the low one since.
	 */
	HYBRID_STATE_OVER_WATERMARK = 1 << 2,
	/* Ten minutes' endurance was owed, and half an hour's has not been saved since. */
	HYBRID_STATE_ENDURANCE_USED = 1 << 3,
	/* The origin had been written without its cache, or what it lost with it was listed. */
	HYBRID_STATE_HEALTHY_AGAIN = 1 << 4,
	/*
	 * The cache device had as many errors of late as a limit permits.  Until these are
	 * forgotten, which takes days without another, or the limits are raised, writes go to
	 * the origins as in writethrough, and dirty blocks are written back.
	 */
	HYBRID_STATE_FAILING = 1 << 5,
};

/* States of the pool (all but HEALTHY_AGAIN), as of the last tick. */
u32 hybrid_engine_state(const struct hybrid_engine *e);
/* States of an open volume: FAILED, DRAINED and HEALTHY_AGAIN. */
u32 hybrid_volume_state(const struct hybrid_volume *v);

/* ---- For the simulator and the tests ------------------------------------- */

/*
 * Does the RAM map agree with itself?  Map injective, dirty within valid, lists
 * and counts consistent.  NULL, or what is wrong.
 */
const char *hybrid_engine_check(struct hybrid_engine *e);

/* Ask for the eviction, or the writeback, of a block if it is cached. */
void hybrid_engine_evict(struct hybrid_engine *e, struct hybrid_volume *v, oblock_t b,
			 struct hybrid_actions *acts);

#endif
