/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the engine's own files share.
 *
 * Locks, in this order: a set's lock, the engine's lock; never two sets.  The
 * engine's lock protects everything in struct hybrid_engine and hybrid_volume
 * that has no other note.  Actions are only listed under locks; they are
 * carried out by the caller, without any.
 */
#ifndef DM_HYBRID_ENGINE_INTERNAL_H
#define DM_HYBRID_ENGINE_INTERNAL_H

#include "engine.h"
#include "map.h"
#include "journal.h"

#define NR_FILL_JOBS		64
#define NR_AHEAD_JOBS		16
#define NR_WRITEBACK_JOBS	32
#define MAX_JOB_MEMORY		(16U << 11)	/* sectors, for each kind: 16 MiB */
#define OWN_WRITEBACK_SECTORS	32		/* of a volume's own buffer: any granule */
#define NR_STREAMS		32
#define SWEEP_ENDS		32
/*
 * Blocks are filled ahead on credit, which each part of a volume has of its own.
 * Each costs AHEAD_COST, and brings AHEAD_USED when it is read; each miss brings 1,
 * and AHEAD_LENT is lent at first.  So it goes on where a third of them are read,
 * and is tried now and then where they are not.  It pays where the credit has come
 * to AHEAD_PAYS.
 *
 * While a set has free blocks, a fill ahead takes nobody's place, and costs a 15th
 * of the disk's time that a hit saves: so hits pay for as many.
 */
#define AHEAD_COST		64
#define AHEAD_USED		(3 * AHEAD_COST)
#define AHEAD_MOST		(64 * AHEAD_COST)
#define AHEAD_PAYS		(AHEAD_MOST / 2)
#define AHEAD_LENT		(AHEAD_MOST / 8)
#define AHEAD_PARTS		64
#define AHEAD_PART_SHIFT	7	/* windows in turn that are of one part */
#define AHEAD_HITS		64	/* the newest, that pay */
/*
 * What a fill brings that was not asked for, of its block and ahead, is on credit as
 * well where the read goes on no run: the rest of 64 KiB takes a disk a 12th of what a
 * miss takes.  Each costs REST_COST, each miss brings 1, and each hit half of what it saves:
 * REST_MOST is lent at first, to each CPU.  So with one hit in 7 reads all fills are
 * whole, and one in REST_COST where nothing is read again.
 */
#define REST_COST		32
#define REST_HIT		(6 * REST_COST)
#define REST_MOST		(64 * REST_COST)
/*
 * With each so many flushes of origins, the stamps of one set that are settled are brought
 * up to now.  There are fewer than 2^20 sets: after 2^30 flushes all had their turn.
 */
#define LIFT_FLUSHES		1024
#define CHECKPOINT_BLOCKS	16		/* metadata blocks in one write, at most */
#define VOLUMES_TOGETHER	64
#define NR_PLACES		64
#define MS_PER_SECOND		1000ULL

/* hybrid_io.state */
enum io_state {
	IO_NEW,
	IO_READ_CACHE,		/* in flight to the cache device, in an epoch */
	IO_READ_ORIGIN,
	IO_WRITE,		/* in flight, on its set's list */
	IO_REWRITE,		/* ... of what is dirty: write_hit() */
	IO_RANGE,		/* discard, zeroes: in flight */
	IO_COMMIT,		/* waits for a commit */
};

/* hybrid_io.wait: why it is on a waiting list */
enum io_wait {
	WAIT_NONE = 0,
	WAIT_OPEN = 1 << 0,	/* its region's open record */
	WAIT_TRANSIT = 1 << 1,	/* a removal record */
	WAIT_BUSY = 1 << 2,	/* the job that works on the block */
	WAIT_OVERLAP = 1 << 3,	/* an overlapping write in flight */
	WAIT_RECORD = 1 << 4,	/* the record of what ended a dirty granule */
};

/* Of a volume, or of all: what is dirty is written back, and nothing becomes dirty. */
struct hybrid_drain {
	bool on;		/* READ_ONCE without the lock */
	u32 rate;		/* KiB a second, 0: no limit */
	s64 credit;		/* sectors times ms, with a limit */
};

enum job_type {
	JOB_FILL,
	JOB_AHEAD,		/* a fill of several blocks of a window */
	JOB_STAGED,		/* a user's I/O with a private copy of the data */
	JOB_WRITEBACK,
	JOB_HOLD,		/* data of the origin in memory, ahead of a run */
};

/* Why granules that were held are held no more: engine-stream.c */
enum hold_end {
	HOLD_READ,
	HOLD_WRITTEN,
	HOLD_DISCARDED,
	HOLD_CACHED,		/* a block was made for it */
	HOLD_MODE,
	HOLD_SUSPENDED,		/* volume or pool */
	HOLD_UNUSED,		/* for too long */
	HOLD_YIELDED,		/* to a fill */
	HOLD_FAILED,		/* it could not be read */
	NR_HOLD_ENDS
};

/* Jobs of one kind have buffers of one size, and a pool. */
enum job_kind {
	FILLS,			/* JOB_FILL and JOB_STAGED: a block */
	AHEADS,			/* JOB_AHEAD and JOB_HOLD: a window */
	WRITEBACKS,		/* a window */
	NR_JOB_KINDS
};

/*
 * Jobs of one kind.  They are allocated where memory is to be had at once, and freed when they
 * were not needed for a while.  Each open volume has one more of its own for good, which may
 * have a smaller buffer, and which it takes where there is no other.
 */
struct hybrid_job_pool {
	struct list_head free;		/* used last, first */
	u32 sectors;			/* of a buffer */
	u32 own_sectors;		/* ... of a volume's own job; 0: it has none */
	u32 most;			/* a volume may have, in use */
	u32 lent;			/* in use, the first of each volume not counted */
	u32 nr_claims;			/* volumes that were refused less than their share */
	u32 nr;				/* volumes' own not counted; READ_ONCE without the lock */
	u32 nr_free;			/* READ_ONCE without the lock */
	u32 spare;			/* the fewest free since the last tick */
};

/*
 * Work on one window: fills and staged I/O on one block of it.  While it runs,
 * a fill's or writeback's blocks are BLOCK_BUSY.
 */
struct hybrid_job {
	struct list_head link;		/* of the set, or of the free jobs */
	struct hybrid_op op;
	u8 type;
	bool in_buffer;			/* fill: the data can be copied out */
	bool exclusive;			/* writeback: writes wait for it */
	bool closing;			/* ... and it for those in flight */
	bool done;
	u32 set;
	u64 key;			/* of its first block; writeback: of the window's */
	u64 mask;			/* granules it moves, from there on */
	u64 readable;			/* fill, hold: granules that the buffer will hold */
	u64 touched;			/* writeback: written meanwhile */
	u64 part;			/* fill, writeback: of mask, under way now */
	u64 left, failed;		/* ... not tried yet, and could not be moved */
	bool one_by_one;		/* ... since a part of many could not be */
	u32 from;			/* granule that the buffer begins with */
	u32 sectors;			/* of the buffer */
	u32 copies;			/* COPY_OUT under way, under the set's lock */
	u32 age;			/* hold: ticks */
	u64 hole;			/* hold: sector at which the run will come to it */
	struct list_head held;		/* hold: of the engine */
	struct hybrid_volume *volume;
	struct hybrid_io *io;		/* staged */
	struct list_head readers;	/* fill, hold: ios to be served */
	void *buffer;
	s16 block[HYBRID_MAX_GRANULES];	/* index of each block or -1 */
	struct hybrid_segment segment[HYBRID_MAX_SEGMENTS];
};

struct hybrid_stream {
	u64 next;
	u64 from;		/* nothing was cached from there to next */
	u64 sectors;		/* of the run, what was cached not counted */
	u64 used;
};

/* engine-stream.c: of one volume */
struct hybrid_streams {
	spinlock_t lock;		/* all of this */
	u64 clock;
	struct hybrid_stream stream[NR_STREAMS];
};

struct hybrid_counters {
	u64 c[HYBRID_NR_COUNTERS];
	u64 hits_spent;			/* of HYBRID_READ_HITS: on fills ahead */
	u64 hits_paid;			/* ... noted in rest_debt */
	u32 rest_debt;			/* see REST_COST */
};

enum sb_state {
	SB_CLEAN,		/* as on disk, as far as known */
	SB_DIRTY,		/* the dirty flag is durable */
	SB_ALONE,		/* written without its cache: a fresh nonce is durable */
};

/* engine-volume.c: the origin's superblock */
struct hybrid_origin_sb {
	struct hybrid_sb info;		/* as it is on the disk, or on its way there */
	bool present;			/* an origin in place has none */
	u8 state;			/* enum sb_state, READ_ONCE without the lock */
	u8 wanted;
	u8 writing;
	u8 copy;			/* that is being written */
	u8 oldest;			/* the copy to be written first */
	bool apart;			/* the volume may have another nonce than the superblock */
	bool busy;
	bool lost_known;		/* it says what is lost with the cache */
	bool lost_saved;		/* ... and where */
	struct list_head waiters;	/* ios */
	struct hybrid_op op;
	struct hybrid_segment segment;
	struct hybrid_superblock *block;
};

/* engine-range.c: discards and write-zeroes of one volume */
struct hybrid_ranges {
	struct list_head list;		/* ios under way */
	struct list_head waiters;	/* ios that overlap one of them */
	struct list_head queue;		/* ranges for which there is no room */
	u32 nr;				/* READ_ONCE without the lock */
};

/* engine-sweep.c: of one volume */
struct hybrid_sweep {
	u64 *window;			/* keys; each is there once */
	u32 room, nr;
	u32 next;			/* to be handed out; those before ->sorted are sorted */
	u32 sorted;
	u32 end[SWEEP_ENDS];		/* all windows behind one are higher than those before */
	u32 nr_ends;
	u32 set;			/* that is looked at next, with a sweep under way */
	bool under_way;
	u64 cursor, limit;		/* keys from limit on are too high for this sweep */
};

/*
 * Writeback of one volume.  A slow origin delays no other's: nothing of this is shared.
 * Its windows are a batch until the origin is flushed: engine-room.c.
 */
struct hybrid_writeback {
	struct list_head turn;		/* in writeback_turns: the worker looks for windows */
	struct hybrid_sweep sweep;	/* the worker's alone */
	u32 misses;			/* windows in a row where nothing could go; the same */
	u32 nr_active;			/* windows */
	u8 paused;			/* for so many ticks, after an error */
	u32 windows;			/* that no flush covers: begun, or written */
	u32 bound;			/* on these, beside users */
	u32 flushing;			/* windows that the present flush covers */
	bool flush_batch;		/* the next flush is for the batch */
	bool flushing_batch;		/* ... and the present one */
	u32 reads_first;		/* users' reads that end before the next batch; READ_ONCE */
	u8 reads_ticks;			/* ticks after which it waits for them no longer */
};

/*
 * engine-commit.c: flushes of one origin.  A write that ended in epoch n is covered by a flush that
 * began at n or later.
 */
struct hybrid_origin_flush {
	u64 epoch;			/* of writes that end now */
	u64 last_write;			/* epoch of the last one */
	u64 last_user_write;		/* not by writeback: users' flushes cover it */
	u64 flushed;			/* epochs up to it are durable */
	u64 target;			/* ... once the present flush has ended */
	bool busy, again;
	bool lazy;			/* lazy records wait for the next one */
	bool flushing_lazy;		/* ... for the present one */
	bool gated;			/* records that a user's flush needs wait for it */
	int error;
	struct list_head now, next;	/* ios */
	struct hybrid_op op;
};

/* A volume's share of one pool of jobs.  It may always have one; others are lent to it. */
struct hybrid_job_share {
	struct hybrid_job *own;		/* for where there is no memory; NULL: none */
	bool own_busy;
	u32 nr;				/* in use */
	bool claims;			/* counted in nr_claims */
};

struct hybrid_volume {
	struct hybrid_engine *e;
	u32 id;
	bool claimed;			/* open, or being opened or closed */
	bool open, suspended;
	u32 origin_traits;		/* HYBRID_ORIGIN_*; READ_ONCE without the lock */
	struct hybrid_volume_info info;
	u32 mode;			/* READ_ONCE without the lock */
	u64 cutoff;
	bool foreground;		/* users' I/O in this interval; READ_ONCE without lock */
	bool foreground_before;		/* ... in the one before */
	void *context;
	struct hybrid_counters __percpu *counters;
	atomic_t nr_dirty;		/* blocks dirty in RAM */
	atomic_t nr_jdirty;		/* blocks dirty in the journal */
	u32 most_dirty;			/* limit on nr_dirty; READ_ONCE without the lock */
	atomic_t nr_cached;
	struct hybrid_drain drain;	/* asked for, or a mode switch */
	bool healthy_again;		/* since it was opened: HYBRID_STATE_HEALTHY_AGAIN */
	u64 merged;			/* sectors; since then */
	struct list_head open_link;	/* of open_volumes */
	bool cache_written;		/* since the last flush: note_cache_written() */
	bool cache_flushing;		/* the present commit makes that durable */
	/* Granules dirty in RAM or in the journal: here, apart from what hits read */
	atomic64_t nr_granules;
	struct hybrid_origin_flush flush;
	struct hybrid_origin_sb sb;
	struct list_head lost_link;	/* of waiters of struct hybrid_lost */
	struct hybrid_ranges ranges;
	u32 nr_jobs;
	struct hybrid_job_share jobs[NR_JOB_KINDS];
	struct list_head job_waiters;	/* ios */
	struct hybrid_writeback writeback;
	atomic_t nr_reads;		/* users' reads of the origin in flight */
	atomic_t ahead[AHEAD_PARTS];	/* credit for fills ahead: see AHEAD_COST */
	struct hybrid_streams streams;
};

struct hybrid_readers {
	unsigned long enter[2], leave[2];	/* read whole by other CPUs */
	unsigned long cache_written;	/* sectors; may wrap */
};

/*
 * engine.c: readers of blocks that are being removed.  A period has two stages, each of which
 * flips the phase and waits for those who entered in the phase before.
 */
struct hybrid_grace {
	u32 phase;			/* its lowest bit; READ_ONCE without the lock */
	u8 stage;			/* 0: no period is under way */
	bool wanted;			/* a set waits for a period; READ_ONCE without the lock */
	u32 started, done;		/* periods; may wrap */
	unsigned long *sets;		/* with blocks that wait for one */
};

/* What failed of the cache device, metadata included. */
enum cache_error {
	CACHE_READ_ERRORS,
	CACHE_WRITE_ERRORS,
	CACHE_FLUSH_ERRORS,
	NR_CACHE_ERRORS,
};

enum meta_state {
	META_IDLE,
	META_WORK,		/* meta.op is queued as work */
	META_COMMIT_FLUSH,	/* of the cache device, before the entry is written */
	META_COMMIT,
	META_FLUSH,		/* a commit without records */
	META_CHECKPOINT,
};

/* What read misses may cost the cache device. */
enum endurance {
	ENDURANCE_PLENTY,
	ENDURANCE_SHORT,		/* only what is asked for again is cached */
	ENDURANCE_SPENT,		/* nothing is */
};

/* engine-wear.c: the worker's, but for what others read */
struct hybrid_wear {
	s64 left;			/* of the endurance: see endurance_tick() */
	u64 written;			/* sectors, until the last tick */
	u64 written_before;		/* sectors, by earlier activations */
	u64 counted[NR_CACHE_ERRORS];	/* of all errors, those that recent has */
	u32 recent[NR_CACHE_ERRORS];	/* errors of data, halved each day */
	u32 halved_ms;			/* since that */
	u8 endurance;			/* enum endurance, READ_ONCE without the lock */
	bool failing;			/* recent errors reached a limit; READ_ONCE likewise */
};

/* The one operation on metadata that is under way */
struct hybrid_meta {
	u8 state;			/* enum meta_state */
	struct hybrid_op op;
	struct hybrid_segment segment[CHECKPOINT_BLOCKS];
};

/* engine-stream.c: of all volumes */
struct hybrid_runs {
	struct list_head holds;		/* jobs, the oldest first */
	u32 nr_holds;			/* READ_ONCE without the lock */
	bool unwanted;			/* fills need the jobs; READ_ONCE without the lock */
	u32 shortest;			/* that is read ahead of, sectors */
	u8 segment_shift;		/* log2(blocks) */
	u64 ends[NR_HOLD_ENDS];
};

/* engine-writeback.c: of all volumes */
struct hybrid_writebacks {
	struct hybrid_op op;
	bool queued;
	bool urgent;			/* a set has nothing clean to evict */
	bool passed;			/* a set passed over dirty blocks to evict clean ones */
	struct list_head turns;		/* volumes */
	struct hybrid_drain drain;
	s64 credit;			/* sectors times ms, with a rate limit */
	unsigned long *dirty_sets;	/* none with dirty blocks is missing */
};

/* engine-lost.c: what is lost with the cache, of one volume at a time */
struct hybrid_lost {
	struct hybrid_lost_map *map;
	u32 blocks;			/* metadata blocks of it */
	struct hybrid_volume *volume;	/* whose it is */
	struct list_head waiters;	/* volumes */
};

/* Since the pool was loaded: see struct hybrid_pool_status */
struct hybrid_stats {
	u64 journal_writes, journal_records, checkpoints;
	u64 metadata_writes, cache_flushes, trimmed;
	atomic64_t evictions, errors[NR_CACHE_ERRORS];
};

/* engine-commit.c: the next entry of the journal, and the present one */
struct hybrid_commit {
	bool wanted;			/* something waits, or is urgent */
	bool opens_wanted;		/* somebody waits for open regions */
	bool lazy_wanted;
	bool lazy;			/* the present assembly */
	bool opens;			/* ... has nothing but open regions */
	bool gated;			/* ... found records that wait for a flush of an origin */
	struct list_head next, now;	/* ios */
	struct list_head waiting;	/* ios, for such a flush */
	/* With records that somebody waits for, that nobody does, and with regions to be opened */
	unsigned long *must_sets, *lazy_sets, *open_sets;
};

enum checkpoint_phase {
	CP_NONE,
	CP_LEAVES,
	CP_INDEX,
	CP_FLUSH,		/* both are durable before the root names them */
	CP_ROOT,
};

/* engine-checkpoint.c: the present checkpoint, and what is on the disk */
struct hybrid_checkpoint {
	u8 phase;			/* enum checkpoint_phase */
	bool wanted;
	bool clean;			/* it is to be the last before a stop */
	bool is_clean;			/* the root on the disk says so */
	bool recovery;			/* it makes a recovery durable */
	u32 pos;			/* of the phase: the leaf or index that is next */
	u32 blocks;			/* in the present step */
	u64 tail;			/* the journal's, once it is durable */
	u64 root_sequence;
	u16 *leaf_generation, *index_generation;
	unsigned long *leaf_dirty, *indexes;
	struct list_head waiters, now;	/* hybrid_waiter */
};

/* engine-room.c: writes that find no room */
struct hybrid_room {
	struct list_head waiters;	/* ios */
	u32 tick;			/* of now; never 0 */
	u32 stalled;			/* ticks in which they waited, and no block became free */
	bool freed;			/* one did, in this tick; READ_ONCE without the lock */
};

/* engine-trim.c: discards of the cache device */
struct hybrid_trim {
	struct hybrid_op op;		/* the one that is under way, if busy ... */
	struct hybrid_segment segment;
	u32 set, first, nr;		/* ... of these blocks: its end's alone */
	bool busy;
	bool refused;			/* there are no more; READ_ONCE without the lock */
	s64 credit;			/* sectors times ms */
	unsigned long *sets;		/* those that may have blocks to be discarded */
};

/* engine-place.c: cache blocks whose place on the cache device failed */
struct hybrid_place {
	u32 block;			/* of all */
	bool bad;			/* it failed more than once, and is to be retired */
};

struct hybrid_places {
	struct hybrid_place place[NR_PLACES];	/* the one that failed first, first */
	u32 nr;
	u32 nr_bad;			/* READ_ONCE without the lock */
	u32 nr_retired;			/* since the pool was loaded; READ_ONCE */
	u32 last_retired;		/* block */
};

enum sweep_result {
	SWEEP_WINDOW,
	SWEEP_NOTHING,
	SWEEP_AGAIN,			/* not yet: ask again, after others had their turn */
};

struct hybrid_engine {
	const struct hybrid_engine_ops *ops;
	void *context;
	struct hybrid_config config;
	struct hybrid_sb sb;
	struct hybrid_geometry *g;	/* &sb.geometry */
	struct hybrid_ident id;
	struct hybrid_map map;
	struct hybrid_volume **volumes[HYBRID_MAX_VOLUMES / VOLUMES_TOGETHER];	/* volume_of() */
	struct list_head open_volumes;
	u32 nr_open;
	u32 reserve;			/* free blocks to keep in each set */
	u32 ahead_next;			/* of a set: the next to be looked at by ahead_victim() */
	struct hybrid_wear wear;
	u32 state;			/* enum hybrid_state: what has a memory; by the tick */
	bool loaded, failed, stopping, stop_tried;
	spinlock_t lock;		/* see above */
	u64 now;			/* ms, of the last tick */
	u64 last_interval;

	/* Lock-free readers */
	struct hybrid_readers __percpu *readers;
	struct hybrid_grace grace;

	/* Metadata: one operation at a time */
	struct hybrid_journal journal;
	struct hybrid_meta meta;
	struct hybrid_commit commit;

	struct hybrid_checkpoint cp;
	u32 next_instance;		/* of a volume */

	/* Jobs */
	struct hybrid_job_pool jobs[NR_JOB_KINDS];
	u32 nr_busy_jobs;
	u32 nr_job_waiters;		/* ios, all volumes; READ_ONCE without the lock */

	struct hybrid_runs runs;
	struct hybrid_writebacks writebacks;
	u32 flushes_ended;		/* see LIFT_FLUSHES; may wrap */
	u32 lift_set;			/* whose stamps are lifted next */
	struct hybrid_room room;
	struct hybrid_trim trim;
	struct hybrid_places places;

	struct hybrid_lost lost;

	atomic_t nr_dirty, nr_jdirty;

	struct hybrid_stats stats;
	u64 ram;
};

/* ---- shared helpers ------------------------------------------------------ */

/* Blocking.  What grows with the cache device, and of a small one is no page; for kvfree(). */
static inline void *alloc_zeroes(size_t bytes)
{
	return bytes <= HYBRID_META_BLOCK_SIZE / 2 ? kzalloc(bytes, GFP_KERNEL) : vzalloc(bytes);
}

static inline unsigned long *alloc_bits(u32 nr)
{
	return alloc_zeroes(BITS_TO_LONGS(nr) * sizeof(long));
}

/* Sectors are written to the cache device, metadata not counted. */
static inline void cache_wears(struct hybrid_engine *e, u32 sectors)
{
	this_cpu_add(e->readers->cache_written, sectors);
}

static inline void act(struct hybrid_actions *acts, struct hybrid_op *op)
{
	list_add_tail(&op->link, &acts->list);
}

/* A fresh operation; the caller adds what its type needs. @v: whose origin, or NULL. */
static inline void op_begin(struct hybrid_op *op, enum hybrid_op_type type, bool write,
			    struct hybrid_volume *v,
			    void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
					 struct hybrid_actions *acts))
{
	op->type = type;
	op->write = write;
	op->origin = v;
	op->volume = v;
	op->fua = false;
	op->io = NULL;
	op->user = NULL;
	op->nr_segments = 0;
	op->buffer_offset = 0;
	op->error_cache = 0;
	op->error_origin = 0;
	op->elapsed_ms = 0;
	op->done = done;
}

static inline void count(struct hybrid_volume *v, enum hybrid_counter c)
{
	this_cpu_inc(v->counters->c[c]);
}

/* I/O of the volume to the cache device failed; of metadata: fail_pool() */
static inline void count_cache_error(struct hybrid_engine *e, struct hybrid_volume *v,
				     enum cache_error kind)
{
	atomic64_inc(&e->stats.errors[kind]);
	count(v, HYBRID_CACHE_ERRORS);
}

/*
 * Enter or leave a state of the pool.  Between the two thresholds the state stays as it is:
 * otherwise there would be an event every second.  For the tick.
 */
static inline void put_state(struct hybrid_engine *e, u32 state, bool begins, bool ends)
{
	if (begins)
		WRITE_ONCE(e->state, e->state | state);
	else if (ends)
		WRITE_ONCE(e->state, e->state & ~state);
}

static inline void complete_io(struct hybrid_io *io, int error, struct hybrid_actions *acts)
{
	if (error)
		io->error = error;
	io->op.type = HYBRID_OP_COMPLETE;
	io->op.io = io;
	act(acts, &io->op);
}

/* A user's flush must wait for a commit.  Called after what must be recorded was marked. */
static inline void note_cache_written(struct hybrid_volume *v)
{
	/* The commit that takes the note finds the mark; pairs with cache_written_to_flushing(). */
	smp_mb();
	WRITE_ONCE(v->cache_written, true);
}

static inline u64 block_mask(const struct hybrid_engine *e, const struct hybrid_set *s,
			     enum hybrid_mask m, u32 i)
{
	return set_mask(&e->map, s, m, i);
}

/* Volume @id, or NULL. */
static inline struct hybrid_volume *volume_of(const struct hybrid_engine *e, u32 id)
{
	struct hybrid_volume **some;

	if (id >= HYBRID_MAX_VOLUMES)
		return NULL;
	some = e->volumes[id / VOLUMES_TOGETHER];
	return some ? some[id % VOLUMES_TOGETHER] : NULL;
}

static inline struct hybrid_volume *key_volume(const struct hybrid_engine *e, u64 key)
{
	return volume_of(e, hybrid_key_volume(key));
}

/* The credit for fills ahead where @key is. */
static inline atomic_t *ahead_credit(struct hybrid_engine *e, u64 key)
{
	u64 part = key >> (e->g->window_shift + AHEAD_PART_SHIFT);

	return &key_volume(e, key)->ahead[part % AHEAD_PARTS];
}

/*
 * Has every origin write that @stamp stands for been flushed?  Stamps are compared
 * modulo 2^32: none is ever 2^31 flushes behind (lift_stamps()).
 */
static inline bool settled(const struct hybrid_volume *v, u32 stamp)
{
	return (s32)((u32)READ_ONCE(v->flush.flushed) - stamp) >= 0;
}

/* First sector of the block of @key, on its volume. */
static inline u64 key_sector(const struct hybrid_engine *e, u64 key)
{
	return from_oblock(hybrid_key_block(key)) << e->g->block_shift;
}

static inline u32 window_blocks(const struct hybrid_engine *e)
{
	return 1U << e->g->window_shift;
}

/* Granules of a job's block @k among those of @mask. */
static inline u64 job_mask(const struct hybrid_engine *e, u64 mask, u32 k)
{
	return (mask >> (k * e->g->granules)) & e->map.granules;
}

/* Sectors from a job's granule @at on, @n granules, cut at the volume's end. */
static inline u32 job_sectors(const struct hybrid_engine *e, const struct hybrid_job *job, u32 at,
			      u32 n)
{
	u64 start = key_sector(e, job->key) + ((u64)at << e->g->granule_shift);

	return min_t(u64, (u64)n << e->g->granule_shift, job->volume->info.data_sectors - start);
}

/*
 * Is all that is dirty of @v to be written back, and nothing to become dirty?  READ_ONCE
 * without the lock.
 */
static inline bool drains(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return READ_ONCE(v->drain.on) || READ_ONCE(e->writebacks.drain.on);
}

/* How many blocks of @v are dirty, in RAM or on record, whichever is more. */
static inline u32 dirty_blocks(const struct hybrid_volume *v)
{
	return max(atomic_read(&v->nr_dirty), atomic_read(&v->nr_jdirty));
}

/* How many sectors are in granules of @v that are dirty, in RAM or on record. */
static inline u64 dirty_sectors(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return (u64)atomic64_read(&v->nr_granules) << e->g->granule_shift;
}

/* Has @v reached its limit of dirty blocks, which room_share() sets? */
static inline bool room_used_up(const struct hybrid_volume *v)
{
	return (u32)atomic_read(&v->nr_dirty) >= READ_ONCE(v->most_dirty);
}

/* The mode that writes follow. */
static inline u32 write_mode(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	u32 mode = READ_ONCE(v->mode);

	return mode == HYBRID_MODE_WRITEBACK && drains(e, v) ? HYBRID_MODE_WRITETHROUGH : mode;
}

/* Does anybody wait for a write in the set to end?  Caller holds its lock. */
static inline bool somebody_waits(const struct hybrid_set *s)
{
	return !list_empty(&s->waiting) || !list_empty(&s->waiting_ranges) || s->closing;
}

/*
 * May a job retry after an error?  Not while a suspend or a stop waits for it, which then waits
 * for one operation at most.
 */
static inline bool may_try_again(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return !READ_ONCE(v->suspended) && !READ_ONCE(e->stopping) && !READ_ONCE(e->failed);
}

/*
 * Credit for I/O at @rate KiB a second, @ms later: a second's at most.  In sectors times ms, so
 * that the lowest rate counts in the shortest tick.
 */
static inline s64 credit_after(s64 credit, u32 rate, u64 ms)
{
	s64 per_second = (s64)rate * 2;

	return min(credit + per_second * (s64)min(ms, MS_PER_SECOND),
		   per_second * (s64)MS_PER_SECOND);
}

static inline bool is_fill(const struct hybrid_job *job)
{
	return job->type == JOB_FILL || job->type == JOB_AHEAD;
}

/* First sector, on its device, of granule @g of a block. */
static inline u64 cache_sector(const struct hybrid_engine *e, u32 set, u32 i, u32 granule)
{
	return hybrid_data_sector(e->g, hybrid_map_cblock(&e->map, set, i)) +
	       ((u64)granule << e->g->granule_shift);
}

static inline u64 origin_sector(const struct hybrid_engine *e, const struct hybrid_volume *v,
				u64 key, u32 granule)
{
	return v->info.data_sector + key_sector(e, key) + ((u64)granule << e->g->granule_shift);
}

/* Next run of set bits of @mask at or after *at: its start in *at, returns its length or 0. */
static inline u32 next_run(u64 mask, u32 *at)
{
	u32 n = 0;

	while (*at < 64 && !(mask & BIT_ULL(*at)))
		(*at)++;
	while (*at + n < 64 && (mask & BIT_ULL(*at + n)))
		n++;
	return n;
}

/* Where the data of @io are on the cache device, which has them in block @i. */
static inline u64 io_cache_sector(const struct hybrid_engine *e, const struct hybrid_io *io, u32 i)
{
	return cache_sector(e, io->set, i, 0) + (io->sector & (e->g->block_sectors - 1));
}

/* The block of its set where @io went, to the cache alone, and not through a job. */
static inline u32 io_block(const struct hybrid_engine *e, const struct hybrid_io *io)
{
	return (io->op.sector - cache_sector(e, io->set, 0, 0)) >> e->g->block_shift;
}

/* Key, set and granules of an I/O within one block. */
static inline void io_locate(const struct hybrid_engine *e, struct hybrid_io *io)
{
	const struct hybrid_geometry *g = e->g;
	u32 start = io->sector & (g->block_sectors - 1);

	io->key = hybrid_key(io->volume->id, to_oblock(io->sector >> g->block_shift));
	io->set = hybrid_map_set_of(&e->map, io->key);
	io->mask = GENMASK_ULL((start + io->count - 1) >> g->granule_shift,
			       start >> g->granule_shift);
}

/* Not for read hits.  Written once in an interval. */
static inline void note_foreground(struct hybrid_volume *v)
{
	if (!READ_ONCE(v->foreground))
		WRITE_ONCE(v->foreground, true);
}

/*
 * Two intervals without users' I/O to the volume: the first of them may have only just begun.
 * Users of other volumes do not use its origin.
 */
static inline bool users_idle(const struct hybrid_volume *v)
{
	return !READ_ONCE(v->foreground) && !READ_ONCE(v->foreground_before);
}

/* Epochs of lock-free readers: engine.c.  Returns the phase, for epoch_leave(). */
static inline u32 epoch_enter(struct hybrid_engine *e)
{
	u32 phase = READ_ONCE(e->grace.phase) & 1;

	this_cpu_inc(e->readers->enter[phase]);
	/* Entered before anything is looked up. */
	smp_mb();
	return phase;
}

static inline void epoch_leave(struct hybrid_engine *e, u32 phase)
{
	/* What was read is read before it may go; pairs with phase_empty(). */
	smp_mb();
	this_cpu_inc(e->readers->leave[phase]);
}

/* engine.c: dirty masks and their counts; caller holds the set's lock */
void put_dirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 dirty);
void put_jdirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 jdirty);
void mark_must(struct hybrid_engine *e, u32 set, u32 i);
void mark_lazy(struct hybrid_engine *e, u32 set, u32 i);
void fail_pool(struct hybrid_engine *e);
void grace_poll(struct hybrid_engine *e);

/* engine-io.c */
void rerun(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
/* ... from a fresh start: not below whoever calls this. */
void rerun_later(struct hybrid_io *io, struct hybrid_actions *acts);
void rerun_list(struct hybrid_engine *e, struct list_head *list, struct hybrid_actions *acts);
/* Wake the ios in set @nr that wait for any of @why. */
void wake_set(struct hybrid_engine *e, u32 nr, u8 why, struct hybrid_actions *acts);
bool finish_write(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
		  int error_origin, struct hybrid_actions *acts);
void user_op(struct hybrid_io *io, bool origin, u64 sector, bool fua);
/* Make @io->op a read of the origin; the caller sends it. */
void io_read_origin(struct hybrid_io *io);
u64 replaced_granules(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
bool record_first(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
bool write_in_flight(const struct hybrid_set *s, u64 key, u64 mask);
/* Is the block of @key one that could be filled, and would not disturb anything? */
bool block_missing(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
		   u64 key);

/* engine-stream.c: the run that goes on at @sector, or NULL.  Under the stream lock. */
struct hybrid_stream *stream_find(struct hybrid_volume *v, u64 sector);
/*
 * Sectors of the sequential run that this miss continues, with its own.  From *from on
 * nothing of it was cached; NULL: who calls does not care.
 */
u64 stream_run(struct hybrid_volume *v, const struct hybrid_io *io, u64 *from);
void stream_create(struct hybrid_engine *e);
/*
 * Does @io, a read miss of a run that began at @from and is @run sectors long, take the
 * place of another block of it?  Then that one leaves.  Caller holds the set's lock.
 */
bool stream_spreads(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
		    u64 from, u64 run, struct hybrid_actions *acts);
/* Serve a read from what is held; false: not all of it is.  Caller holds the set's lock. */
bool hold_serve(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		struct hybrid_actions *acts);
/* Those granules are held no more.  Caller holds the set's lock. */
void hold_forget(struct hybrid_engine *e, struct hybrid_set *s, u64 key, u64 mask,
		 enum hold_end why);
/* A read ended at @sector that was no hit.  Caller holds no lock. */
void stream_ahead(struct hybrid_engine *e, struct hybrid_volume *v, u64 sector,
		  struct hybrid_actions *acts);
/* Nothing of one volume, or (NULL) of all, is held any more.  Caller holds no lock. */
void holds_drop(struct hybrid_engine *e, const struct hybrid_volume *v, enum hold_end why);
void holds_tick(struct hybrid_engine *e);
/* NULL, or what is wrong.  Caller holds the set's lock. */
const char *holds_check(struct hybrid_engine *e, struct hybrid_set *s);

/* engine-job.c */
void jobs_create(struct hybrid_engine *e);
void jobs_destroy(struct hybrid_engine *e);
/* The volume's own jobs, while it is open.  Sleeps.  -ENOMEM: release frees what there is. */
int jobs_reserve(struct hybrid_engine *e, struct hybrid_volume *v);
void jobs_release(struct hybrid_volume *v);
/*
 * Give back memory of jobs that were not needed, end all claims, and run again the ios
 * that wait for jobs.  At each tick.
 */
void jobs_tick(struct hybrid_engine *e, struct hybrid_actions *acts);
/* A volume is closed; under the engine's lock. */
void jobs_unclaim(struct hybrid_engine *e, struct hybrid_volume *v);
/* Is there more memory to give back at later ticks? */
bool jobs_spare(const struct hybrid_engine *e);
/*
 * Allocate a job of that kind if none is free, for the caller or for whoever comes first.  It
 * does not sleep, but it may allocate many pages: not under a lock.
 */
void job_prepare(struct hybrid_engine *e, enum job_kind kind);
/*
 * NULL: all that @v may have are in use, or none is free; or it is for a writeback, or a hold,
 * that may not begin now.  Caller may hold a set's lock.
 */
struct hybrid_job *job_get(struct hybrid_engine *e, enum job_type type, struct hybrid_volume *v);
/*
 * *job: for staged I/O, as above.  False: there is none and @io waits, which runs again when
 * a job of its volume ends, or at a tick: if it @must have a job, or if its volume has as many
 * in use as there are for each.  Caller may hold a set's lock.
 */
bool job_get_staged(struct hybrid_engine *e, struct hybrid_io *io, bool must,
		    struct hybrid_job **job);
void job_put(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_actions *acts);
/* The job's next operation: between its buffer and the devices, no segments yet. */
void job_transfer(struct hybrid_job *job, bool write,
		  void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
			       struct hybrid_actions *acts));
void job_segment(struct hybrid_job *job, bool origin, u64 sector, u32 offset, u32 sectors);
struct hybrid_job *job_find(struct hybrid_engine *e, struct hybrid_set *s, u64 key);
/*
 * Begin a fill of what was added to it.  @io is about one of the blocks: a read is
 * served from the buffer.
 */
void fill_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		struct hybrid_actions *acts);
/* For a fill, or hold, of blocks from @key on; NULL: as above. */
struct hybrid_job *fill_get(struct hybrid_engine *e, enum job_type type,
			    struct hybrid_volume *v, u64 key);
/* Fill those granules of @key's block @i, too.  Caller holds the set's lock. */
void fill_add(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_job *job, u64 key,
	      u32 i, u64 mask);
/* The granules that the job moves, where they are on the cache device. */
void job_cache_segments(struct hybrid_engine *e, struct hybrid_job *job, u64 mask);
/* Join a fill under way; false: it cannot serve this io. Caller holds the set's lock. */
bool fill_join(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
	       struct hybrid_actions *acts);
/* A fill, or hold, gives @io its data.  Caller holds the set's lock. */
void job_serve(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
	       struct hybrid_actions *acts);
/* The origin was read: so for all that wait for it.  Caller holds the set's lock. */
void job_serve_readers(struct hybrid_engine *e, struct hybrid_job *job,
		       struct hybrid_actions *acts);
/*
 * The origin could not be read.  One bad sector must not fail a read of others: each goes
 * on its own.  Caller holds the set's lock, or nobody can find the job.
 */
void job_fail_readers(struct hybrid_job *job, struct hybrid_actions *acts);
void staged_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		  struct hybrid_actions *acts);

/* engine-evict.c: keep the reserve of the set of @io, which needs room; caller holds its lock */
void evict(struct hybrid_engine *e, const struct hybrid_io *io, struct hybrid_actions *acts);
bool can_spare(struct hybrid_engine *e, struct hybrid_set *s);
bool may_evict(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/* Block @i is read as metadata: keep it, if its set keeps less than it may. */
void metadata_read(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/* Would metadata_read() change nothing?  Also without the lock: a hint then. */
bool metadata_noted(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
bool evict_block(struct hybrid_engine *e, u32 set, u32 i);
/* Remove block @i if it has no valid granule, no job and no write in flight. */
void remove_empty_block(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Take back block @i, which is removed.  False: the removal is on its way to the journal, or
 * will be; an I/O that needs the block gone waits for WAIT_TRANSIT.
 */
bool resurrect(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
void removal_durable(struct hybrid_engine *e, u32 set, u32 i);
/* Blocks of the set on their way to be free. */
u32 leaving(const struct hybrid_engine *e, const struct hybrid_set *s);
void reclaim(struct hybrid_engine *e, struct hybrid_actions *acts);

/*
 * engine-place.c: I/O to the data of block @i, and of no other, failed; not one that was refused
 * (-EAGAIN).  At the second time the block is evicted if it can be: call it when nothing
 * of what failed keeps the block any more.  Caller holds the set's lock.
 */
void place_failed(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
/* Is the block not to be used again once it has left?  Caller holds the set's lock. */
bool place_is_bad(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Block @i, unhashed, is nobody's any more: it becomes free, or (false) is retired.  Caller
 * holds the set's lock.
 */
bool place_free(struct hybrid_engine *e, u32 set, u32 i);
/* NULL, or what is wrong.  Nothing runs. */
const char *places_check(const struct hybrid_engine *e);

/*
 * engine-room.c: a write found no free block in its set, whose lock the caller holds, or
 * may not make it dirty.  False: it need not wait.
 */
bool room_wait(struct hybrid_engine *e, const struct hybrid_set *s, struct hybrid_io *io);
void room_create(struct hybrid_volume *v);
/* Under the engine's lock: set the limit of dirty blocks of each open volume. */
void room_share(struct hybrid_engine *e);
/* Blocks became free, or can be evicted. */
void room_wake(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Under the engine's lock: must writeback of @v wait for a flush of what it wrote? */
bool room_batch_full(const struct hybrid_engine *e, const struct hybrid_volume *v);
/* Under the lock: a window ended, or no more can be written back now. */
void room_flush_batch(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
/* Under the lock: a flush of the origin begins, and one that took so many ms has ended. */
void room_flush_begins(struct hybrid_volume *v);
void room_flush_ended(struct hybrid_engine *e, struct hybrid_volume *v, u32 elapsed_ms,
		      struct hybrid_actions *acts);
/* A read of the origin that a user waits for begins, or has ended; any context. */
void room_read_begins(struct hybrid_volume *v);
void room_read_ended(struct hybrid_engine *e, struct hybrid_volume *v,
		     struct hybrid_actions *acts);
void room_tick(struct hybrid_engine *e, struct hybrid_actions *acts);

/* engine-wear.c: the budget of writes to the cache device, and its errors */
void wear_tick(struct hybrid_engine *e, u64 passed_ms);
/* As the root has it, when the pool is loaded. */
void wear_load(struct hybrid_engine *e, const struct hybrid_root_info *root);
void wear_save(const struct hybrid_engine *e, struct hybrid_root_info *root);
/* Caller holds the engine's lock. */
void wear_configure(struct hybrid_engine *e, const struct hybrid_config *config);
void wear_status(const struct hybrid_engine *e, struct hybrid_pool_status *st);

/* engine-trim.c: blocks of the set became free; caller holds its lock */
void trim_note(struct hybrid_engine *e, u32 set);
/* Are there places to be discarded?  Also without a lock: a hint then. */
bool trim_wanted(const struct hybrid_engine *e);
void trim_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts);

/* engine-writeback.c: windows of one volume, or (NULL) of all, may be able to go */
void writeback_kick(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts);
void writeback_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
/* Is anything of @v to become clean that is not, on record too? */
void drain_set(struct hybrid_drain *d, bool on, u32 rate);
bool is_draining(const struct hybrid_engine *e, const struct hybrid_volume *v);
void writeback_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts);
void writeback_window(struct hybrid_engine *e, u64 key, struct hybrid_actions *acts);
/* A write to the block of @key is in flight no more.  Caller holds the set's lock. */
void writeback_written(struct hybrid_engine *e, struct hybrid_set *s, u64 key,
		       struct hybrid_actions *acts);

/* engine-sweep.c: @v's window to be written back next.  Only for the writeback worker. */
enum sweep_result sweep_next(struct hybrid_engine *e, struct hybrid_volume *v, u64 *key);
/* A block of the set became dirty; caller holds its lock. */
void sweep_note(struct hybrid_engine *e, const struct hybrid_set *s);
/* Blocking.  @volumes are in the table: all of them together have one pool's room. */
int sweep_create(struct hybrid_engine *e, struct hybrid_volume *v, u32 volumes);
void sweep_destroy(struct hybrid_volume *v);
u64 sweep_ram(const struct hybrid_geometry *g);

/* engine-commit.c */
void want_commit(struct hybrid_engine *e, struct hybrid_actions *acts);
void meta_kick_locked(struct hybrid_engine *e, struct hybrid_actions *acts);
void meta_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
void commit_or_complete(struct hybrid_engine *e, struct hybrid_io *io,
			struct hybrid_actions *acts);
void join_commit(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
void flush_io(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
void origin_flush_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			 struct hybrid_actions *acts);
void origin_flush_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts);
void origin_flush_failed(struct hybrid_volume *v, int error);
void wake_records(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Caller holds no lock. */
void lift_stamps(struct hybrid_engine *e);
void origin_written(struct hybrid_engine *e, struct hybrid_volume *v, bool user);
/* Ask for the region to be opened; caller holds the set's lock. */
void open_region(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
void lazy_interval(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * Flush the origin if it has writes outstanding; then, if @record says so, record what
 * nobody waits for.  False: there is nothing to flush.  Under the engine's lock.
 */
bool origin_settle_locked(struct hybrid_engine *e, struct hybrid_volume *v, bool record,
			  struct hybrid_actions *acts);
bool unrecorded_left(struct hybrid_engine *e);

/* engine-checkpoint.c */
int checkpoint_create(struct hybrid_engine *e);
void checkpoint_destroy(struct hybrid_engine *e);
void mark_leaf(struct hybrid_engine *e, u32 set, u32 i);
void mark_region_leaves(struct hybrid_engine *e, u32 set, u64 regions);
void mark_volume_leaf(struct hybrid_engine *e, u32 id);
void checkpoint_begin(struct hybrid_engine *e);
/* The next one makes a recovery durable. */
void checkpoint_recovery(struct hybrid_engine *e);
/* Add the next write to meta.op, which the caller began. */
void checkpoint_step(struct hybrid_engine *e);
void checkpoint_step_done(struct hybrid_engine *e);

/* engine-volume.c */
struct hybrid_volume *volume_alloc(struct hybrid_engine *e, u32 id,
				   const struct hybrid_volume_info *info);
void volume_free(struct hybrid_volume *v);
/* What volume_of() gives from now on, of one for which volume_alloc() was called. */
void volume_put(struct hybrid_engine *e, u32 id, struct hybrid_volume *v);
void volumes_destroy(struct hybrid_engine *e);
/*
 * Call @each for all blocks of @v, also for removed ones, under the lock of their set.  The
 * caller holds no lock.
 */
void each_block(struct hybrid_engine *e, struct hybrid_volume *v,
		void (*each)(struct hybrid_engine *e, u32 set, u32 i));
/* The superblock must be in state @wanted before @io goes on. */
void sb_wait(struct hybrid_engine *e, struct hybrid_volume *v, enum sb_state wanted,
	     struct hybrid_io *io, struct hybrid_actions *acts);
void volume_purge(struct hybrid_engine *e, struct hybrid_volume *v, bool free);
/* Under the engine's lock: the flush ended that the superblock waited for. */
void sb_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
		    struct hybrid_actions *acts);
/* Under the engine's lock: write both copies for what is wanted now. */
void sb_update(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts);

/* engine-lost.c */
void lost_destroy(struct hybrid_engine *e);
/* Blocking, before a volume is open, or larger: have memory for its map; or -ENOMEM. */
int lost_reserve(struct hybrid_engine *e, u64 data_sectors);
/*
 * The pool failed: save what is lost of @v, then call sb_update().  Under the
 * engine's lock; the volume's superblock is busy.
 */
void lost_save(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts);
/* Blocking.  The same while the volume is closed; the caller writes the superblock. */
int lost_save_blocking(struct hybrid_engine *e, struct hybrid_volume *v);

/* engine-range.c: does a discard in flight touch these sectors? */
bool range_blocks(struct hybrid_volume *v, u64 sector, u32 count);
/* If so, @io waits for it. */
bool range_wait(struct hybrid_volume *v, struct hybrid_io *io);
enum hybrid_map_result range_io(struct hybrid_engine *e, struct hybrid_io *io,
				struct hybrid_actions *acts);
bool range_done(struct hybrid_engine *e, struct hybrid_io *io, int error,
		struct hybrid_actions *acts);

#endif
