/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulator: the shipped engine in one process under a seeded scheduler.
 *
 * - device.c: disks with volatile write caches that tear, reorder and fail
 * - world.c: carries out the engine's actions, one random step at a time
 * - workload.c: a run: profile, formatting, lives and deaths, all drawn from the seed
 * - events.c: actions of users and admins during a run
 * - faults.c: faults of devices, and the losses that they excuse
 * - age.c: counters near their wrap
 * - grow.c: origins that grow
 * - hang.c: origins that do not answer, while other volumes must go on
 * - isolation.c: the cost of such a hang to other volumes, as a table
 * - rot.c: metadata that is damaged when the engine recovers
 * - oracle.c: which values each sector may hold (promises P1 to P4)
 * - linter.c: rules J1 to J11 on the stream of device operations
 * - policy-contract.c: a policy that checks the engine's calls to it
 * - recovery.c: the state that recovery must find, read from the disk independently of the engine
 * - generations.c: no block of the tree is written over one that could pass for it
 * - coverage.c: which faults happened in which phases
 * - loops.c: the N-th allocation, or request, fails, for every N
 * - script.c: a run as a list of decisions, recorded or replayed
 * - shrink.c: the shortest script that breaks the same rule
 * - exhaustive.c: mode C: all short scripts
 * - crash.c: cuts the power in a copy of the world, recovers, reads back
 * - alloc.c: the engine's memory: leaks, and allocations that fail
 * - main.c: seeds, options, the last line
 *
 * Except for checksums, the engine never looks at users' data.  So a data sector is not
 * 512 bytes here but one 64-bit value that says which write it came from; only metadata is
 * real bytes.  This makes the simulator fast, and any mixture of two blocks' data
 * visible.
 */
#ifndef SIM_H
#define SIM_H

#include <stdio.h>

#include "engine.h"

#define SIM_FEW_VOLUMES	3	/* most seeds have no more */
#define SIM_MANY_VOLUMES 8	/* ... and no seed has more */
#define SIM_MAX_VOLUMES	16	/* only --isolation has so many */
#define SIM_MAX_DEVICES	(1 + SIM_MAX_VOLUMES)
#define SIM_NEVER	U64_MAX

/* ---- Random numbers ------------------------------------------------------- */

struct rng {
	u64 state;
};

static inline u64 rng_next(struct rng *r)
{
	u64 z = (r->state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* 0 ... n - 1 */
static inline u32 rng_below(struct rng *r, u32 n)
{
	return n ? ((rng_next(r) >> 32) * n) >> 32 : 0;
}

static inline bool rng_chance(struct rng *r, u32 percent)
{
	return rng_below(r, 100) < percent;
}

static inline struct rng rng_fork(struct rng *r, u64 salt)
{
	struct rng child = { r->state ^ (salt * 0xd6e8feb86659fd93ULL) };

	child.state = rng_next(&child);
	return child;
}

/* ---- Memory --------------------------------------------------------------- */

/* Memory of one life of an engine: freed as a whole when its machine crashes. */
struct heap {
	struct list_head blocks;
	u64 bytes;
	bool raw;			/* of a crash state: nothing is poisoned */
};

extern struct heap *sim_heap;		/* of the engine that runs now */

void heap_init(struct heap *h);
void heap_drop(struct heap *h);
bool heap_empty(const struct heap *h);
#define HEAP_RAW	-1	/* contents of no interest */
#define HEAP_POISON	0xa5	/* nobody may rely on memory that is not zeroed */
void *heap_alloc(struct heap *h, size_t bytes, int fill);

/* Memory of a run, or of one crash state: released back to a mark. */
struct arena {
	struct chunk *chunk;
};

struct mark {
	struct chunk *chunk;
	size_t used;
};

extern struct arena sim_arena;
void *arena_alloc(struct arena *a, size_t bytes);
struct mark arena_mark(struct arena *a);
void arena_release(struct arena *a, struct mark m);

void *xalloc(size_t bytes);		/* zeroed; never fails */
void *xrealloc(void *p, size_t bytes);

/* ---- Values of data sectors ----------------------------------------------- */

/*
 * In a data area: 0 = as formatted, VAL_ZERO = zeroes, else VAL().  In a
 * metadata area: the address of 512 bytes, 0 = zeroes.
 */
typedef u64 val_t;

#define VAL_ZERO	1ULL
#define VAL_ROTTEN	0xfd		/* owner of data in which bits were flipped */
#define VAL_JUNK	0xff		/* owner of the contents of a fresh cache device */

static inline val_t VAL(u32 owner, u64 sector, u32 version)
{
	return (u64)(owner + 1) << 56 | sector << 32 | version;
}

static inline u32 val_owner(val_t v)
{
	return (v >> 56) - 1;
}

static inline u64 val_sector(val_t v)
{
	return (v >> 32) & 0xffffff;
}

static inline u32 val_version(val_t v)
{
	return (u32)v;
}

const char *val_name(val_t v);

/*
 * The 512 bytes that stand for @val where the engine reads data as bytes: what this function
 * returns, if it is set, else the value again and again.
 */
extern const void *(*sim_contents)(val_t val);
void data_bytes(val_t val, void *bytes);

/* ---- Devices -------------------------------------------------------------- */

enum dreq_kind {
	DREQ_READ,
	DREQ_WRITE,
	DREQ_FLUSH,
	DREQ_DISCARD,
	DREQ_ZEROES,
};

struct device;
struct action;

/* One request to one device. */
struct dreq {
	struct device *dev;
	u8 kind;
	bool fua;
	bool meta;
	u64 sector;
	u32 count;
	val_t *vals;		/* write: the data; read: its destination */
	void *bytes;		/* metadata read: its destination */
	u64 submitted, done;	/* time; done 0: in flight, or failed */
	u32 low, high;		/* sectors already carried out */
	bool applied;
	bool slow;		/* other requests overtake it */
	bool lost;		/* acknowledged, but not carried out */
	int error;
	struct action *action;
	u32 place;		/* in the list of requests in flight */
	bool owned;		/* for the linter: owner and oblock are known */
	u32 owner;
	u64 oblock;
};

/* A value that a power cut may lose. */
struct version {
	val_t val;
	struct dreq *by;
	u32 older;
	bool doomed;		/* a failed flush lost it, though reads still return it */
};

/* The volatile state of a device. */
struct volatiles {
	u32 *newest;		/* for each sector; 0: only the durable value */
	struct version *pool;
	u32 nr, cap, free;
	u32 *dirty;		/* sectors that have versions */
	u32 nr_dirty, cap_dirty;
	struct dreq **inflight;
	u32 nr_inflight, cap_inflight;
};

#define SIM_MAX_BAD	8

/* Kinds of metadata, by the area that is written. */
enum meta_kind {
	META_NOTHING,
	META_SUPERBLOCK,
	META_ROOT,
	META_INDEX,
	META_VOLUMES,		/* leaves of the volume table, and of the map */
	META_MAP,
	META_JOURNAL,
	META_INTENT,
	NR_META_KINDS
};

struct fault {
	bool dealt;		/* errors may be seen */
	bool dead;
	bool dooms;		/* a failed flush loses some of the data that it covered */
	u8 read, write, flush;	/* percent of requests that fail */
	u32 left;		/* failures to come; 0: no more, U32_MAX: always */
	u64 from, to;		/* sectors */
	u64 bad[SIM_MAX_BAD];	/* sectors that cannot be read until rewritten */
	u32 lose, misdirect;	/* writes of data that go nowhere, or elsewhere */
	u8 lose_meta;		/* enum meta_kind: the next write of this kind goes nowhere */
	u8 hangs;		/* requests that stay under way: a bit for each kind */
	u32 nr_bad, nr_were_bad;	/* of bad[]: sectors bad now come first, then all bad in this life */
	u64 worn[SIM_MAX_BAD];	/* sectors that can be neither read nor written, for good */
	u32 nr_worn;
};

enum device_profile {
	DEVICE_VOLATILE,
	DEVICE_PROTECTED,	/* completed writes are durable */
	DEVICE_LYING,		/* flush and FUA do nothing */
};

struct device {
	u32 nr;			/* 0: the cache device, else origin nr - 1 */
	u64 sectors;		/* without the hole */
	u64 capacity;		/* sectors to which the device can grow */
	u64 hole;		/* sectors in front of the data that do not exist: see far in profile */
	u64 data_from, data_to;
	u64 world_data_to;	/* in a crash state: the world's */
	val_t *durable;
	struct volatiles vol[2];
	struct volatiles *v;	/* the world's, or that of a crash state */
	struct fault fault;
	u8 profile;		/* enum device_profile */
	bool flush_failed;	/* since the volume was opened */
	bool no_fua;		/* FUA is a flush after the write */
	u8 discard;		/* 0: ignores discards, 1: zeroes, 2: some of both, or: */
#define ORIGIN_TAKES_NONE 3
	u64 writes;
	val_t *older;		/* durable values when an earlier life began */
};

struct undo {
	struct device *dev;
	u64 sector;
	val_t val;
};

extern u64 sim_now;		/* grows with every event */

void device_init(struct device *d, u32 nr, u64 sectors, u64 data_from, u64 data_to);
void device_free(struct device *d);
/* Ends all faults, except bad and worn sectors.  @forget: also forgets that there were any. */
void device_heal(struct device *d, bool forget);
/* Makes the sector bad; false: there are too many. */
bool device_add_bad(struct device *d, u64 sector);
bool device_bad(const struct device *d, u64 sector, u32 count);

static inline bool device_is_data(const struct device *d, u64 sector)
{
	return sector >= d->data_from && sector < d->data_to;
}

/* Returns the size that the engine is told, in sectors. */
static inline u64 device_size(const struct device *d)
{
	return d->sectors + d->hole;
}

/* Returns the place of the engine's sector @sector; SIM_NEVER: it is in the hole. */
static inline u64 device_place(const struct device *d, u64 sector)
{
	if (sector < d->data_from)
		return sector;
	return sector < d->data_from + d->hole ? SIM_NEVER : sector - d->hole;
}

/* Gets copy @copy of the superblock, as it is durable or reads now; false: the copy is not good. */
bool device_get_sb(const struct device *d, u32 copy, struct hybrid_sb *sb, bool durable);

val_t device_durable(const struct device *d, u64 sector);
val_t device_read(const struct device *d, u64 sector);	/* newest carried out */
val_t device_completed(const struct device *d, u64 sector); /* ... and completed */
void device_set(struct device *d, u64 sector, val_t val);
void device_set_bytes(struct device *d, u64 sector, const void *bytes, u32 len);
void device_get_bytes(const struct device *d, u64 sector, void *bytes, u32 len, bool durable);

void dreq_submit(struct dreq *r, struct rng *rng);
void dreq_apply(struct dreq *r, struct rng *rng, bool part);
void dreq_complete(struct dreq *r, struct rng *rng);

/* Power cut: volatile data becomes durable or is lost. */
enum cut {
	CUT_NONE,		/* no volatile data survives */
	CUT_ALL,		/* all of it survives, in-flight writes too */
	CUT_COMPLETED,
	CUT_SECTORS,		/* chance decides for each sector */
	CUT_WRITES,		/* the mask decides for each write */
	NR_CUTS
};
u32 device_volatile_writes(struct device *d, struct dreq **list, u32 max);
void device_cut(struct device *d, enum cut how, u64 mask, struct rng *rng);
/* Reset without power loss: writes in flight land or do not. */
void device_reset(struct device *d, struct rng *rng);
void device_enter_branch(struct device *d);
/* ... by a reset: volatile data stays volatile. */
void device_enter_branch_alive(struct device *d, struct rng *rng);
void device_leave_branch(struct device *d);
/* Drops the data that failed flushes lost: reads no longer return it. */
void device_drop_doomed(struct device *d);
/* Durably sets the sector as formatted, or to zeroes.  No request to it is under way. */
void device_clear(struct device *d, u64 sector);

size_t undo_mark(void);
void undo_to(size_t mark);
u64 undo_hash(size_t mark);	/* of the changes since @mark */
extern bool undo_on;
extern u64 sim_durable_changes;	/* not counting changes in crash states */
extern u64 sim_oracle_changes;	/* of the values that may stand after a crash */

/* ---- Oracle --------------------------------------------------------------- */

struct entry {
	val_t val;		/* wild: 0, or the value that a read has shown */
	u64 submit, complete;	/* complete SIM_NEVER: in flight */
	u32 version;
	u32 until;		/* wild: the newest version submitted when it ended */
	u32 next;
	bool durable;
	bool maybe;		/* failed: may have happened */
	bool wild;		/* discard: any older value, or zeroes */
	bool rot;		/* no write: a copy of the sector holds this value by a fault */
	u64 born;		/* time of submission, which reads do not move */
};

struct oracle {
	u32 owner;
	u64 sectors;
	u32 *head;
	struct entry *pool;
	u32 nr, cap, free;
	u32 newest;		/* version */
	u32 *active;		/* sectors whose value is not settled yet */
	u32 nr_active, cap_active;
	u8 *is_active;
	u8 *was_rotten;		/* sectors that ever had a damaged copy */
	u8 *touched;		/* blocks that were ever written */
	u32 touched_shift;
	/* Did the sector hold @val, or was @val on its way, by @version?  NULL: @val itself tells */
	bool (*held)(const struct oracle *o, u64 sector, val_t val, u32 version);
	val_t *pin;		/* values that a crash state returned */
	u32 *pinned;
	u32 nr_pinned, cap_pinned;
};

void oracle_init(struct oracle *o, u32 owner, u64 sectors, u32 block_shift);
void oracle_free(struct oracle *o);
void oracle_submit(struct oracle *o, u64 sector, u32 count, u32 version, bool zero, bool wild);
/* Sets the value that this submission wrote to one of its sectors; without this call it is VAL(). */
void oracle_give(struct oracle *o, u64 sector, u32 version, val_t val);
void oracle_done(struct oracle *o, u64 sector, u32 count, u32 version, int error, bool durable,
		 u64 oldest_read);
void oracle_withdraw(struct oracle *o, u64 sector, u32 count, u32 version);
void oracle_flush(struct oracle *o, u64 started, u64 oldest_read);
/* Returns NULL, or the reason why a read may not return this value. */
const char *oracle_read(struct oracle *o, u64 sector, val_t val, u64 started);
void oracle_crash(struct oracle *o);
void oracle_forget(struct oracle *o);	/* dirty data dropped by the admin */
const char *oracle_crash_read(struct oracle *o, u64 sector, val_t val, bool pin);
void oracle_unpin(struct oracle *o);
/*
 * Does value @a stand strictly before @b, as far as users had been told at time @then?
 * An unknown value is older than all others.
 */
bool oracle_before(struct oracle *o, u64 sector, val_t a, val_t b, u64 then);
bool oracle_wild(struct oracle *o, u64 sector);
bool oracle_crash_allows(struct oracle *o, u64 sector, val_t val);
/* A copy of the sector holds @val now, and reads may return it until the sector is written again. */
void oracle_rot(struct oracle *o, u64 sector, val_t val);
/* Is @val the only value that a read from now on may return?  The write of version @but has not begun. */
bool oracle_settled(struct oracle *o, u64 sector, val_t val, u32 but);
void oracle_explain(struct oracle *o, u64 sector);

/* ---- World ---------------------------------------------------------------- */

struct world;

struct volume {
	u32 id;
	u32 nr;			/* number of its origin */
	struct device *origin;
	struct hybrid_volume *v;	/* NULL: not open */
	struct hybrid_volume_info info;
	struct oracle *oracle;
	u64 hot;		/* sectors that are used */
	u64 run_at;		/* sector at which the sequential run of reads goes on */
	bool created;
	bool unsure;		/* the crash came while created was changing */
	bool closing;		/* no I/O of users arrives until it is open again */
	bool ever_writeback;
	bool unjudged;		/* reads may return any data */
	bool suspended;		/* the engine sends no I/O of its own to the origin */
	bool taken;		/* closed while the pool stopped */
	u32 ios;
	u32 calls;		/* calls of the engine on its behalf that have not returned */
	u64 requests;		/* to devices, on its behalf */
};

/* A user's I/O. */
struct uio {
	struct hybrid_io io;
	struct volume *vol;
	struct list_head link;
	u64 started;
	u64 sector;		/* as submitted: the engine may change io.sector and io.count */
	u32 count;
	u32 version;
	val_t *data;
	bool user_op;		/* a USER operation is under way */
	bool clean;		/* the origin had all of its data at the start */
	bool cached;		/* some of it went to the cache device */
	bool nowait;		/* ends with -EAGAIN rather than wait */
	bool intended;		/* an intent names it */
};

/* An operation being carried out. */
struct action {
	struct list_head link;
	struct hybrid_op *op;
	struct uio *uio;	/* USER */
	u32 left;		/* device requests */
	u64 started;
	int error_cache, error_origin;
	bool *finished;		/* do_op waits */
	u32 nr;
};

struct profile {
	u64 seed;
	u32 block_sectors;
	u32 cache_blocks;	/* wanted */
	u32 volumes;
	u32 steps;
	u32 max_ios;
	u32 hot_blocks;
	u32 crash_percent;	/* of episodes: end in a crash */
	u32 reset_percent;	/* of these crashes: without power loss */
	u32 slow_percent;	/* of requests: others overtake them */
	u32 seeks;		/* origins seek */
	u32 no_fua;		/* devices that emulate FUA by a flush: 1, the cache; 2, origins */
	u32 trims;		/* the cache device takes discards */
	u32 episode;		/* steps */
	u32 cut_writes;		/* up to so many volatile writes, every subset is tried */
	u32 cut_samples;	/* crash states at each cut point */
	u32 cut_every;		/* changes of the disks */
	u32 fail_alloc;
	u32 alloc_faults;		/* percent of the allocations that may not wait: these fail */
	u32 nowait;		/* percent of users' I/O that must not wait ... */
	u32 busy;		/* ... and percent of these for which the device would have to wait */
	u32 collisions;		/* collisions.c: which events often coincide; 0: none */
	u32 syncs;		/* users flush after each write, as far as the engine knows */
	u32 intent_blocks;	/* so small a ring as no tool makes; 0: as it comes */
	u32 demand_fill;	/* fills read only requested granules, unless they continue a run */
	u32 journal_blocks;
	u32 small;		/* blocks of a set, and entries of one block; 0: as they come */
	u32 far;		/* log2 of the blocks in front of volumes' data: see world.hole */
	u32 fault_kind;		/* 0: none */
#define FAULTS_PLANNED	6	/* faults.c draws them, of all kinds */
	u32 worn;		/* percent of faults that are a worn sector of the cache device */
	u32 weight[19];
	u32 admin_percent;	/* of events: suspend, reload, tunables */
	u32 load_percent;	/* other users' I/O while somebody waits for a call */
	u32 inplace_percent;	/* of volumes */
	u32 run_percent;	/* of reads: part of a run through all of a volume */
	u32 aim;		/* phase in which something goes wrong ... */
	u32 aims;		/* ... so many times */
	u32 aged;		/* 1, 2: counters are near 2^31, 2^32 */
	u32 grow;		/* origins grow */
	bool overlap;
	const char *policy;
	struct hybrid_config config;
};

struct world {
	u64 seed;
	struct rng rng;
	struct profile p;
	struct hybrid_sb sb;
	struct hybrid_geometry *g;
	struct hybrid_engine *e;
	struct heap heap;
	struct device *dev[SIM_MAX_DEVICES];
	u32 nr_dev;
	struct volume *vol[SIM_MAX_VOLUMES];
	u32 nr_vol;
	u64 hole;		/* sectors of each volume that nobody uses: block_sectors << far */
	struct list_head ready;		/* actions that ended, of which the engine is not told yet */
	u32 nr_ready;
	struct list_head uios;
	u32 nr_uios;
	u32 nr_actions;
	u32 next_action;
	u64 ms;
	bool branch;			/* a crash state: in order, no linter */
	bool blocking;			/* inside a blocking call */
	bool ticking;
	bool switching;			/* a call that switches to another policy is under way */
	bool timer;			/* runs: otherwise no tick comes before the next kick */
	u8 doing;			/* enum sim_phase of a call under way, 0: none */
	u32 deaths;			/* since the last clean stop */
	u32 crash_phases;		/* phases when crashed was set */
	bool crashed;
	bool rotting;			/* data is damaged: the linter cannot judge */
	bool intended_lost;		/* data under an intent was damaged, or its write lost */
	bool intended_unread;		/* a recovery could not read it */
	bool lying;			/* a device lies: after a cut anything goes */
	bool losing;			/* a write of metadata will be lost */
	u8 lost_meta;			/* enum meta_kind: a write of this kind was lost */
	u64 lost_entry;			/* ... of the journal, or an intent: its number ... */
	u64 lost_epoch;
	bool unjudged;			/* users may be told anything */
	bool faulty;			/* errors may be returned */
	bool pool_faulty;
	bool no_submit;
	u32 look;			/* crash states to look at before the next change */
	struct volume *ask;		/* somebody reads back a write to this volume */
	u64 ask_sector;
	u32 ask_count;
	u64 gated_at;			/* journal writes, before flushes waited for an origin */
	u64 requests;			/* to devices, for the pool itself */
	u64 changes;			/* of the disks */
	u64 crash_at;			/* change before which the power goes */
	u32 next_version;
	u32 step;
	u64 hash;
	bool stop;
	bool may_hang;			/* the run ends, and that is no violation */
	struct linter *lint;
	struct found *found;		/* state that this life's recovery must find; NULL: not read */
	struct rng brng;
	struct rng arng;		/* of events aimed at a phase */
	struct rng frng;		/* of faults.c */
	struct rng agerng;		/* of age.c */
	struct rng hrng;		/* of hang.c */
	struct rng nrng;		/* of I/O that must not wait */
	struct rng growrng;		/* of grow.c */
	u32 hang_left;			/* steps until all origins answer again; 0: all do */
	struct world *main;
};

extern bool sim_trace;
extern u64 sim_violations, sim_crash_states, sim_seeds, sim_ios;
extern const char *sim_rule;		/* the rule that the last run broke first */
extern struct world *sim_world;

void trace(struct world *w, u32 code, u64 a, u64 b, const char *fmt, ...) __printf(5, 6);
void violation(struct world *w, const char *rule, const char *fmt, ...) __printf(3, 4);

void world_carry(struct world *w, struct hybrid_actions *acts);
bool world_step(struct world *w);	/* false: nothing under way */
struct dreq *world_inflight(struct world *w, u32 n);	/* the n-th oldest, or NULL */
bool world_plain_step(struct world *w);		/* the oldest first */
void world_complete(struct world *w, struct dreq *r);
void world_apply(struct world *w, struct dreq *r, bool part);
void world_tell(struct world *w, struct action *a);
void world_idle(struct world *w);	/* until nothing is under way */
void world_settle(struct world *w);	/* until no user's I/O is left: liveness */
/* Without users' I/O: blocks that wait to become free must become free. */
void world_check_grace(struct world *w);
/* Lets time pass; the engine hears of it while its timer runs. */
void world_tick(struct world *w, u32 ms);
/* As hybrid_tick_kick(): a call may have left work that waits for time to pass. */
void world_kick(struct world *w);
/* Nothing is under way: the timer must stop, and leave nothing unrecorded. */
void world_rest(struct world *w);
/* @flags: HYBRID_IO_* */
void world_submit(struct world *w, struct volume *vol, enum hybrid_io_type type, u64 sector,
		  u32 count, u8 flags);
/*
 * Submits I/O that must not wait.  A hit goes to a device, which may refuse it; other I/O ends
 * with -EAGAIN or, now and then, goes to a worker, which may wait.
 */
void world_submit_nowait(struct world *w, struct volume *vol, enum hybrid_io_type type,
			 u64 sector, u32 count, u8 flags);
/* Reads block @b of the volume, or as much of it as there is. */
void world_read_block(struct world *w, struct volume *vol, u64 b);
u64 world_oldest_read(struct world *w, struct volume *vol);
void world_check(struct world *w);
/* For shim_alloc_fails: allocations that may fail at any time fail now and then. */
bool world_alloc_fails(size_t bytes, gfp_t gfp);
const char *world_boot(struct world *w, int *error);
int world_open(struct world *w, struct volume *vol, const char **why);
void world_close(struct world *w, struct volume *vol);
bool world_stop(struct world *w);
bool world_suspend(struct world *w, struct volume *vol);
void world_resume(struct world *w, struct volume *vol);
void world_drop(struct world *w);

void world_before_change(struct world *w);

/* ---- Crash states --------------------------------------------------------- */

void crash_explore(struct world *w, u32 samples);
/* Makes one crash state, drawn from @sample, and calls @explore in it. */
enum crash_kind {
	CRASH_BY_CHANCE,
	CRASH_BY_MASK,		/* @sample: which writes survive */
	CRASH_RESET,		/* without power loss */
};

void crash_explore_one(struct world *w, u32 sample, enum crash_kind kind,
		       void (*explore)(struct world *b));
/* For @explore: the first recovers and opens all volumes, the second reads them back. */
bool crash_boot(struct world *b);
void crash_read_back(struct world *b);

/* A state with damaged metadata: the engine refuses it by name, or uses none of it. */
void rot_explore(struct world *w);
/* A state in which one device has its contents from the start of an earlier life. */
void rot_keep(struct world *w);
void rot_explore_older(struct world *w);
/* A state of devices that lied: the engine refuses it by name, or mounts it, with any data. */
void rot_explore_lies(struct world *w);
/* A state after a write of metadata that was acknowledged but not carried out. */
void rot_explore_lost(struct world *w);
enum meta_kind meta_kind(const struct world *w, const struct dreq *r);

/* ---- Workload ------------------------------------------------------------- */

enum event {
	EV_STEP, EV_READ, EV_WRITE, EV_FUA, EV_FLUSH, EV_DISCARD, EV_ZEROES, EV_TICK,
	EV_MODE, EV_DRAIN, EV_EVICT, EV_CHECKPOINT, EV_REOPEN, EV_RESTART, EV_RECREATE,
	EV_CUTOFF, EV_POLICY, EV_META, EV_AHEAD,
	NR_EVENTS
};

extern bool sim_hang, sim_faults, sim_rot, sim_events, sim_policies, sim_demand_fill, sim_alloc_faults;
extern bool sim_collisions, sim_lint;
extern bool sim_nowait, sim_grow;

/* workload.c: the name of any policy */
const char *draw_policy(struct rng r);
bool draw_contract(struct rng r);
u32 draw_endurance(struct rng r);
u32 draw_share(struct rng r);
u32 draw_trim_rate(struct rng r);
void draw_error_limits(struct hybrid_config *config, struct rng r);
void run_seed(u64 seed, char mode, u64 *hash);
void one_event(struct world *w);
void do_event(struct world *w, enum event ev);
/* Deletes the volume, forgets it, creates and opens it again; @drop: even if data is dirty. */
void recreate(struct world *w, struct volume *vol, bool drop);
/* Does a users' write or range that is under way touch these sectors? */
bool users_overlap(struct world *w, struct volume *vol, u64 sector, u32 count);
void user_io(struct world *w, enum event ev, struct volume *vol, u64 sector, u32 count);
void set_mode(struct world *w, struct volume *vol, u32 mode);
void set_cutoff(struct world *w, struct volume *vol);	/* to the value in its info */
void drain(struct world *w, struct volume *vol, bool on);
/* The same without a line in a script. */
void ask_mode(struct world *w, struct volume *vol, u32 mode);
void ask_drain(struct world *w, struct volume *vol, bool on);
void evict_sector(struct world *w, struct volume *vol, u64 sector);
void tick(struct world *w, u32 ms);
void admin_event(struct world *w);
/* The disks are about to change: deals a fault, perhaps, in the phase aimed at. */
void aimed_event(struct world *w);
/* Somebody waits for a call (world.doing): other users' I/O goes on. */
void other_events(struct world *w);
u32 draw_mode(struct rng *r);
void name_volume(struct world *w, struct volume *vol);
void format_origin(struct world *w, struct volume *vol);
/* These return false if the power went, or a promise is broken. */
bool create_volume(struct world *w, struct volume *vol);
bool open_volume(struct world *w, struct volume *vol);
void restart(struct world *w);
void boot(struct world *w);
void crash(struct world *w, bool reset);
void read_all(struct world *w);
void finish(struct world *w);
/* hot.c: drains a pool without faults, while users go on writing */
void drain_beside_users(struct world *w);
void reload(struct world *w);
/* Lets all users' I/O to the volume end, and no more arrive. */
bool quiet(struct world *w, struct volume *vol);

/* ---- Collisions ------------------------------------------------------------ */

void collide_draw(struct profile *p, struct rng r, char mode);
/* False: any range will do. */
bool collide_range(struct world *w, struct volume *vol, u64 *sector, u32 *count);
void collide_submitted(struct world *w, const struct uio *u);
void collide_written(struct world *w, const struct uio *u);
void collide_flushed(struct world *w, struct volume *vol);
bool collide_slow(struct world *w, const struct dreq *r);
/* Chooses the next event; false: any event will do. */
bool collide_event(struct world *w);
void collide_before_change(struct world *w);
void collide_stop(struct world *w);	/* at each step of the pool's */
void collide_restarted(struct world *w);
bool collide_deal(struct world *w);	/* deals a fault; false: any will do */
void collide_closes(struct world *w, const struct volume *vol);
/* Prints how often each coincidence happened. */
void collide_print(void);

/* ---- Loops ----------------------------------------------------------------- */

/* Does all runs of a workload, or only run @only; returns how many there were. */
u64 loop_seed(const char *what, u64 seed, s64 only);
void loop_profile(struct profile *p, struct rng *r);
void loop_run(struct world *w);
/* Does this allocation, this request fail? */
bool loop_alloc_fails(void);
bool loop_request_fails(const struct dreq *r);
/* Has an allocation failed since the last call?  Then -ENOMEM is right. */
bool loop_alloc_failed(void);
void loop_heal(void);

/* ---- Linter --------------------------------------------------------------- */

struct linter *linter_new(struct world *w);
void linter_free(struct linter *l);
/* A new life of the engine begins, on the state @f that the last one left; NULL: it was not read. */
void linter_boot(struct linter *l, const struct found *f);
void linter_crash(struct linter *l);
void linter_open(struct linter *l, struct volume *vol);	/* it is about to be opened */
/* A metadata write begins: its contents no longer change. */
void linter_meta(struct linter *l, struct action *a, struct device *d);
/* The data of a write under an intent has been copied. */
void linter_copied(struct linter *l, struct action *a);
void linter_submit(struct linter *l, struct action *a, struct dreq *r);
void linter_complete(struct linter *l, struct action *a, struct dreq *r);
void linter_reformat(struct linter *l, struct volume *vol);
/* Nothing waits for time to pass: then RAM and the records on disk must agree. */
void linter_rest(struct linter *l);
bool linter_any_dirty(struct linter *l);
/* Is any data around these sectors dirty on record? */
bool linter_dirty(struct linter *l, struct volume *vol, u64 sector, u32 count);

/* ---- Age ------------------------------------------------------------------ */

void age_pool(struct world *w);			/* after it was loaded */
void age_volume(struct world *w, struct hybrid_volume *v);	/* after it was opened */
void age_flushes(struct world *w);

/* ---- Origins that do not answer: hang.c ------------------------------------- */

enum hang {
	HANG_ALL,
	HANG_READ,
	HANG_WRITE,
	HANG_FLUSH,
	HANG_DISCARD,
	NR_HANGS
};

extern const char * const hang_kinds[NR_HANGS];
bool hang_holds(const struct dreq *r);
bool hang_any(const struct world *w);
void hang_begin(struct world *w, struct volume *vol, u32 what);
void hang_device(struct device *d, enum hang what);
/* Checks that all other volumes got all they asked for; then all origins answer. */
void hang_end(struct world *w);
void hang_profile(struct profile *p, struct rng r);
void hang_event(struct world *w);	/* perhaps one begins, or ends, at this step */

/* ---- Origins that grow: grow.c ---------------------------------------------- */

/* Returns the sectors by which each origin may grow. */
u64 grow_room(const struct world *w);
/* Grows the device by so many sectors, and the volume by as many of them as it can have. */
void grow(struct world *w, struct volume *vol, u32 sectors);
void grow_event(struct world *w);	/* perhaps, at this step */
/* Follows the size of an open volume, which may have changed. */
void grow_follow(struct world *w, struct volume *vol);
void grow_format(struct device *d);
void grow_print(void);		/* prints how often growth began, and how often it ended */
/* Returns the size in the head superblock, as it is durable or reads now. */
u64 device_member(const struct device *d, bool durable);

/* ---- Isolation ------------------------------------------------------------- */

/* HANG, OPERATION: parts of names, or NULL.  Returns how many cells of the table were measured. */
u64 isolation_run(const char *hang, const char *operation);

/* ---- Generations ---------------------------------------------------------- */

void generations_check(struct world *w, const struct dreq *r);	/* a write begins */

/* ---- Places: places.c ------------------------------------------------------- */

void places_boot(struct world *w);		/* a new life of the engine begins */
void places_told(struct world *w, const struct action *a);	/* the engine is about to be told of its end */
void places_submit(struct world *w, const struct dreq *r);

/* ---- Faults --------------------------------------------------------------- */

void faults_draw(struct world *w);
void faults_devices(struct world *w);	/* after the devices were made */
void faults_write_lost(struct world *w, struct dreq *r);
/* The next write of metadata of that kind, to any device, is lost. */
void faults_lose(struct world *w, enum meta_kind kind);
void faults_event(struct world *w);	/* perhaps one, at this step */
void faults_replay(struct world *w, u64 state);	/* deals the fault that @state led to */
void faults_reopen(struct world *w, struct volume *vol);
void faults_boot(struct world *w);	/* ... before the pool is loaded */
/* Has an error been dealt that opening, closing ... the volume may meet? */
bool faults_of_volume(const struct world *w, const struct volume *vol);
/* Does the origin durably have all data around this I/O, and the cache no dirty data there? */
bool faults_clean(const struct world *w, const struct uio *u);
/* May a load fail so, for what happened to users' data? */
bool faults_refuse(const struct world *w, const char *why);
/* May this I/O end with an error? */
bool faults_excuse(const struct world *w, const struct uio *u);

#endif
