/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of the engine: the structs of a pool, of its volumes, and of what each of the
 * engine's files owns of them.
 *
 * Locks, in this order: a set's lock, the engine's lock; never two sets.  The
 * engine's lock protects everything in struct hybrid_engine and hybrid_volume
 * that has no other note.  Actions are only listed under locks; they are
 * carried out by the caller, without any.
 */
#ifndef DM_HYBRID_ENGINE_STATE_H
#define DM_HYBRID_ENGINE_STATE_H

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
 * With each so many flushes of origins, the stamps of one set that are durable are brought
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

/* What a route came to. */
enum route {
	ROUTE_REMAP,		/* io->op is ready */
	ROUTE_TAKEN,		/* somebody has it */
};

/* May a miss enter the cache? */
enum admission {
	REFUSED,
	WHILE_FILLING,		/* a long run: what it could push out is not there yet */
	IN_PLACE,		/* ... of what the run itself brought */
	ADMITTED,
	SINGLE,			/* ... and goes on no run */
};

/* hybrid_io.wait: why it is on a waiting list */
enum io_wait {
	WAIT_NONE = 0,
	WAIT_OPEN = 1 << 0,	/* its region's open record */
	WAIT_TRANSIT = 1 << 1,	/* a removal record */
	WAIT_BUSY = 1 << 2,	/* the job that works on the block */
	WAIT_OVERLAP = 1 << 3,	/* an overlapping write in flight */
	WAIT_RECORD = 1 << 4,	/* the record of what ended a dirty granule */
	WAIT_JOB = 1 << 5,	/* nothing any more: a job of its volume has ended */
};

/*
 * hybrid_actions.wanted: what a file wants of one above it.  Nobody calls upwards, under a set's
 * lock perhaps: engine_settle() sees to it at the end of the event.
 */
enum want {
	WANT_COMMIT = 1 << 0,	/* somebody waits for records, or will soon */
	WANT_OPENS = 1 << 1,	/* ... for open regions */
	WANT_LAZY = 1 << 2,	/* records that nobody waits for */
	WANT_WRITEBACK = 1 << 3,	/* windows may be able to go */
	WANT_ROOM = 1 << 4,	/* blocks became free, or can be evicted */
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
	bool (*written)(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			int error_origin, struct hybrid_actions *acts);	/* ... a write */
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

/* engine-superblock.c */
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
 * engine-flush.c: flushes of one origin.  A write that ended in epoch n is covered by a flush that
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
	void (*ended)(struct hybrid_engine *e, struct hybrid_op *op,
		      struct hybrid_actions *acts);	/* origin_flushed() */
};

/* engine-job.c: of all volumes */
struct hybrid_jobs {
	struct hybrid_job_pool pool[NR_JOB_KINDS];
	u32 nr_busy;
	u32 nr_waiters;			/* ios, all volumes; READ_ONCE without the lock */
};

/* A volume's share of one pool of jobs.  It may always have one; others are lent to it. */
struct hybrid_job_share {
	struct hybrid_job *own;		/* for where there is no memory; NULL: none */
	bool own_busy;
	u32 nr;				/* in use */
	bool claims;			/* counted in nr_claims */
};

/* engine-job.c: of one volume */
struct hybrid_volume_jobs {
	struct hybrid_job_share share[NR_JOB_KINDS];
	u32 nr;				/* in use, of all kinds */
	struct list_head waiters;	/* ios */
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
	struct hybrid_volume_jobs jobs;
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
	s64 left;			/* of the endurance: see endurance_tick(); READ_ONCE */
	u64 written;			/* sectors, until the last tick */
	u64 written_before;		/* sectors, by earlier activations */
	u64 counted[NR_CACHE_ERRORS];	/* of all errors, those that recent has */
	u32 recent[NR_CACHE_ERRORS];	/* errors of data, halved each day; READ_ONCE */
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

/* engine-flush.c: stamps of all sets are brought up to now, in turn */
struct hybrid_lift {
	u32 flushes;			/* that have ended: see LIFT_FLUSHES; may wrap */
	u32 set;			/* that is next */
};

/* engine-lost.c: what is lost with the cache, of one volume at a time */
struct hybrid_lost {
	struct hybrid_lost_map *map;
	u32 blocks;			/* metadata blocks of it */
	struct hybrid_volume *volume;	/* whose it is */
	struct list_head waiters;	/* volumes */
	void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
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

	struct hybrid_jobs jobs;
	struct hybrid_runs runs;
	struct hybrid_writebacks writebacks;
	struct hybrid_lift lift;
	struct hybrid_room room;
	struct hybrid_trim trim;
	struct hybrid_places places;

	struct hybrid_lost lost;

	atomic_t nr_dirty, nr_jdirty;

	struct hybrid_stats stats;
	u64 ram;
};

#endif
