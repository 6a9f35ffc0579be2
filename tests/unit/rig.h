/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine over devices in memory that do everything at once: which operations each event leads
 * to, and where data is afterwards.  The simulator tests crashes, races and order.  There is one
 * rig, with one volume.
 */
#ifndef RIG_H
#define RIG_H

#include "unit.h"
#include "executor.h"

#define CACHE_SECTORS (64 * MIB)
#define ORIGIN_SECTORS (32 * MIB)
#define BLOCK 128		/* sectors */
#define DATA 2048		/* first sector of the volume on its origin */
#define CACHE false
#define ORIGIN true

extern u8 *disk[2];		/* cache, origin */
extern u64 disk_sectors[2];
/* After so many writes the power fails, and later writes change nothing.  U32_MAX: no power cut. */
extern u32 writes_left;
/* Writes until the origin fails */
extern u32 origin_writes_left;
extern struct hybrid_sb sb;	/* the cache device's; new_engine() takes its geometry */
extern struct hybrid_engine *e;		/* NULL: there is no engine */
extern struct hybrid_volume *v;		/* NULL: not open */
extern struct hybrid_volume_info info;	/* of volume 1 */
extern u32 nr_buffers;		/* buffers of the engine that exist now */
extern bool fail_cache_writes, fail_cache_reads, fail_cache_flushes, fail_origin;
extern int fail_discards;	/* error of the cache device for discards */
/* Sectors of the cache device from bad_from up to bad_to can be neither read nor written. */
extern u64 bad_from, bad_to;
/* Flushes of the origin do not end; the one that came is kept until let_flush_go(). */
extern bool hold_flush;
extern struct hybrid_op *held_flush;
extern u32 held_log;		/* length of the log when that flush came */
void let_flush_go(void);
extern u32 flush_ms;		/* duration of each flush */
/* Called instead of waiting for hits, if it is not NULL; setup() makes it NULL. */
extern void (*on_wait_hits)(void);
/* The same for metadata; wait_checkpoint() lets the held operation go, too. */
extern bool hold_meta;
extern struct hybrid_op *held_meta;
/* Holds no more, and carries out the held operation with all that follows and @acts. */
void let_meta_go(struct hybrid_actions *acts);
/* The same for discards of the cache device. */
extern bool hold_discard;
extern struct hybrid_op *held_discard;

/*
 * Operations that reached the devices.  Each of write_io(), read_io(), read_meta() and
 * flush_volume() starts a new log.
 */
struct logged_op {
	bool origin, write, flush, discard, fua, meta;
	u64 sector;
	u32 count;
	u32 nr_segments;	/* of its operation */
};

#define MAX_LOG 4096
extern struct logged_op op_log[MAX_LOG];
extern u32 nr_log;

/* A user's I/O */
struct user {
	struct hybrid_request r;
	u8 data[BLOCK * 512];
	u32 nr_log;		/* length of the log when the I/O ended */
};

extern struct user writer, reader, flusher;

/* Carries out all actions of @acts, and all that follow from them. */
void carry(struct hybrid_actions *acts);
/* Carries out one of them. */
void carry_one(struct hybrid_op *op, struct hybrid_actions *acts);
/* Lets so much time pass; returns whether the engine asks for more. */
bool tick(u32 ms);
/* Returns 0 or the error of the checkpoint; takes up to ten seconds. */
int wait_checkpoint(struct hybrid_engine *engine);

/* ---- lives ---------------------------------------------------------------- */

/* Before a test: fresh disks without an engine; setup() also creates and opens volume 1. */
int setup_disks(void **state);
int setup(void **state);
/* After a test: ends everything that still exists. */
int teardown(void **state);

/* After setup_disks(): other disks with that block size, and volume 1 created and opened. */
void fresh_volume(u32 block_sectors);

/* A formatted pool without volumes, an origin of random data. */
void fresh_disks(u32 block_sectors);
/* Writes @root to its place; no block of the index that it names exists. */
void write_root(const struct hybrid_root_info *root);
/* With the policy lru and the default configuration; not loaded.  NULL: see @error. */
struct hybrid_engine *new_engine(int *error);
/* Creates and loads e. */
void start(void);
void open_volume(void);
/* Suspends, closes and deletes the volume, with its dirty data. */
void close_volume(void);
void delete_volume(void);
/* Suspends and closes all that is open, and stops e; then crash() frees it. */
void stop(void);
/* Ends e at once, as in a crash; the devices have no volatile caches here. */
void crash(void);
/* A pool with c2q that is soon full, with a volume open; after setup_disks(). */
void small_pool(u64 sectors, u32 mode, const struct hybrid_config *config);
/* Makes the engine's batches of windows large, as after quick flushes of the origin. */
void origin_was_quick(void);

/* ---- I/O to the volume ---------------------------------------------------- */

/* Makes the I/O, for a call of the engine by the test itself. */
void prepare(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags);
/* The I/O arrives, and no more: carry() carries out @acts; wait_for() returns its error. */
void arrive(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags,
	    struct hybrid_actions *acts);
int wait_for(struct user *u);
/* Both. */
int submit(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags);
int write_io(u64 sector, u32 count, u32 version, bool fua);
int read_io(u64 sector, u32 count);
/* A read of a file system's metadata */
int read_meta(u64 sector, u32 count);
int flush_volume(void);
/* A write of @version that must succeed. */
void put(u64 sector, u32 count, u32 version);
/* Reads must give that version, or (0) the origin's data. */
void reads(u64 sector, u32 count, u32 version);
/* Fills in the data of a user's write: each sector begins with its number and @version. */
void fill_data(struct user *u, u64 sector, u32 count, u32 version);
bool origin_has(u64 sector, u32 count, u32 version);

/* Entry @n of the log is a flush of the cache device, the next a write of metadata to it. */
bool flushed_entry(u32 n);
/* User data in the log, in sectors. */
u32 sectors_of(bool origin, bool write);
/* The log holds user data of so many sectors, and nothing else. */
void moved(u32 cache_read, u32 cache_written, u32 origin_read, u32 origin_written);

void set_mode(u32 mode);
/* As far as the engine knows, users do not flush after each write: the next one has no intent. */
void forget_syncs(void);
void set_cutoff_to(u64 sectors);
struct hybrid_volume_status status(void);
struct hybrid_pool_status pool(void);
/* Records everything and closes regions, so that the test goes on from rest. */
void rest(void);
/* Marks the origin dirty, which only the first dirty write waits for. */
void first_dirty(void);

#endif
