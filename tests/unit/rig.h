/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine over devices in memory that do everything at once: which
 * operations each event leads to, and what is where afterwards.  Crashes,
 * races and order are the simulator's.  There is one rig, with one volume.
 */
#ifndef RIG_H
#define RIG_H

#include "unit.h"
#include "engine.h"

#define CACHE_SECTORS (64 * MIB)
#define ORIGIN_SECTORS (32 * MIB)
#define BLOCK 128		/* sectors */
#define DATA 2048		/* first sector of the volume on its origin */
#define CACHE false
#define ORIGIN true

extern u8 *disk[2];		/* cache, origin */
extern u64 disk_sectors[2];
/* The power goes after so many writes: others change nothing.  U32_MAX: it stays. */
extern u32 writes_left;
extern struct hybrid_sb sb;	/* the cache device's; new_engine() takes its geometry */
extern struct hybrid_engine *e;		/* NULL: none lives */
extern struct hybrid_volume *v;		/* NULL: not open */
extern struct hybrid_volume_info info;	/* of volume 1 */
extern u32 nr_buffers;		/* of the engine, alive */
extern bool fail_cache_writes, fail_cache_reads, fail_cache_flushes, fail_origin;
extern int fail_discards;	/* the error that the cache device answers to them */
/* Sectors of the cache device from bad_from up to bad_to can be neither read nor written. */
extern u64 bad_from, bad_to;
/* Flushes of the origin do not end; the one that has come is kept until it is let go. */
extern bool hold_flush;
extern struct hybrid_op *held_flush;
extern u32 held_log;		/* what had reached the devices then */
void let_flush_go(void);
extern u32 flush_ms;		/* that each flush takes */
/* Called instead of waiting for hits, if it is not NULL; setup() makes it NULL. */
extern void (*on_wait_hits)(void);
/* The same of metadata; wait_checkpoint() lets go what has come. */
extern bool hold_meta;
extern struct hybrid_op *held_meta;
/* The same of discards of the cache device. */
extern bool hold_discard;
extern struct hybrid_op *held_discard;

/* What reached the devices; each of write_io(), read_io(), read_meta() and flush_volume() begins it anew. */
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
	struct hybrid_io io;
	u8 data[BLOCK * 512];
	bool done;
	u32 nr_log;		/* what had reached the devices then */
};

extern struct user writer, reader, flusher;

/* Does all that @acts asks for, and what follows of it. */
void carry(struct hybrid_actions *acts);
/* One of them. */
void carry_one(struct hybrid_op *op, struct hybrid_actions *acts);
/* So much time goes by; returns whether the engine asks for more. */
bool tick(u32 ms);
/* Returns 0 or the error of the checkpoint; takes up to ten seconds. */
int wait_checkpoint(struct hybrid_engine *engine);

/* ---- lives ---------------------------------------------------------------- */

/* Before a test: fresh disks, no engine; or with volume 1 made and open. */
int setup_disks(void **state);
int setup(void **state);
/* After it, whatever still lives. */
int teardown(void **state);

/* After setup_disks(), other disks of that block size: volume 1 made and open. */
void fresh_volume(u32 block_sectors);

/* A formatted pool without volumes, an origin of random data. */
void fresh_disks(u32 block_sectors);
/* Writes it to its place; of the index it names nothing is there. */
void write_root(const struct hybrid_root_info *root);
/* Of the policy lru and the default configuration; not loaded.  NULL: see @error. */
struct hybrid_engine *new_engine(int *error);
/* Creates and loads e. */
void start(void);
void open_volume(void);
/* Suspend, close and delete the volume, with its dirty data. */
void delete_volume(void);
/* e suspends and closes what is open, and stops; then crash() frees it. */
void stop(void);
/* Gone without a word, as in a crash; the devices have no volatile caches here. */
void crash(void);
/* One that is soon full, of c2q, with a volume open; after setup_disks(). */
void small_pool(u64 sectors, u32 mode, const struct hybrid_config *config);

/* ---- I/O to the volume ---------------------------------------------------- */

/* Arrives, and no more: carry() what it asks for; wait_for() returns its error. */
void arrive(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags,
	    struct hybrid_actions *acts);
int wait_for(struct user *u);
/* Both. */
int submit(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags);
int write_io(u64 sector, u32 count, u32 version, bool fua);
int read_io(u64 sector, u32 count);
/* ... of a filesystem's metadata */
int read_meta(u64 sector, u32 count);
int flush_volume(void);
/* A write of @version that must succeed. */
void put(u64 sector, u32 count, u32 version);
/* Reads must give that version, or (0) what the origin has. */
void reads(u64 sector, u32 count, u32 version);
/* What a user wrote: each sector begins with its number and @version. */
void fill_data(struct user *u, u64 sector, u32 count, u32 version);
bool origin_has(u64 sector, u32 count, u32 version);

/* Entry @n of the log is a flush of the cache device, the next a write of metadata to it. */
bool flushed_entry(u32 n);
/* User data in the log, in sectors. */
u32 sectors_of(bool origin, bool write);
/* The log holds user data of so many sectors, and nothing else. */
void moved(u32 cache_read, u32 cache_written, u32 origin_read, u32 origin_written);

void set_mode(u32 mode);
void set_cutoff_to(u64 sectors);
struct hybrid_volume_status status(void);
struct hybrid_pool_status pool(void);
/* Record everything, close regions: what follows starts from rest. */
void rest(void);
/* The origin is marked dirty, which only the first dirty write waits for. */
void first_dirty(void);

#endif
