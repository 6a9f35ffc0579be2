/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine in userspace, over open devices or image files: the same recovery,
 * the same writeback, the same metadata as in the kernel.  Errors of devices reach
 * it as they do there (dm-hybrid/io.c).
 *
 * One thread calls these functions.  Data moves in threads of its own, if asked
 * for; the engine never sees them.
 *
 * Nothing here prints.  A call that fails returns -errno, and *why in the engine's words.
 */
#ifndef HYBRID_OFFLINE_H
#define HYBRID_OFFLINE_H

#include "codec.h"
#include "devices.h"

struct hybrid_engine;
struct hybrid_volume;
struct hybrid_offline;

/* hybrid_offline_create() flags */
/*
 * Metadata, superblocks of origins included, is written to memory alone: the
 * devices keep theirs.  So a caller can try a pool without changing it.
 */
#define HYBRID_OFFLINE_KEEP	(1U << 0)
/* Many transfers at a time.  Without it: in the engine's order, one by one. */
#define HYBRID_OFFLINE_THREADS	(1U << 1)

/*
 * Creates the pool on @cache, which has superblock @sb; reads nothing yet.  The
 * device must stay open until destroy.  NULL: no memory.
 */
struct hybrid_offline *hybrid_offline_create(const struct hybrid_device *cache,
					     const struct hybrid_sb *sb, unsigned int flags);
void hybrid_offline_destroy(struct hybrid_offline *o);

struct hybrid_engine *hybrid_offline_engine(struct hybrid_offline *o);

/* hybrid_engine_load(): recovery. */
int hybrid_offline_load(struct hybrid_offline *o, const char **why);

/*
 * hybrid_volume_open(), with the additional checks of the kernel's constructor.
 * The device must stay open until the volume is closed.
 */
int hybrid_offline_open(struct hybrid_offline *o, uint32_t id,
			const struct hybrid_device *origin, struct hybrid_volume **v,
			const char **why);
int hybrid_offline_close(struct hybrid_offline *o, struct hybrid_volume *v);

/* Carry out a user's I/O to its end.  @data: as hybrid_device_write() wants it. */
int hybrid_offline_write(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t sector,
			 const void *data, uint32_t count);
int hybrid_offline_read(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t sector,
			void *data, uint32_t count);
int hybrid_offline_flush(struct hybrid_offline *o, struct hybrid_volume *v);

/* Number of dirty blocks, of one volume or (NULL) of all; *bytes, unless NULL: of dirty granules. */
uint32_t hybrid_offline_dirty(struct hybrid_offline *o, struct hybrid_volume *v,
			      uint64_t *bytes);
/* The cache device cannot be written any more. */
bool hybrid_offline_failed(struct hybrid_offline *o);
/* The volume's entry, -ENOENT if there is none. */
int hybrid_offline_info(struct hybrid_offline *o, uint32_t id, struct hybrid_volume_info *info);

/* Starts or ends a drain of @v, or of all (NULL).  hybrid_offline_run() does the work. */
void hybrid_offline_drain(struct hybrid_offline *o, struct hybrid_volume *v, bool on);

/*
 * Runs the engine until @until, called before each step, returns true.  @leaps
 * counts the ticks that were skipped, as nothing was under way.
 */
void hybrid_offline_run(struct hybrid_offline *o,
			bool (*until)(void *context, unsigned int leaps), void *context);

/* Once @interrupted returns true, nothing more is read or written to find bad pieces. */
void hybrid_offline_interruptible(struct hybrid_offline *o, bool (*interrupted)(void));

/* Makes everything durable, and the root clean.  -EIO: the pool has failed. */
int hybrid_offline_stop(struct hybrid_offline *o);

/* Neighbouring pieces of a device, all of which could not be read, or could not be written. */
struct hybrid_bad_piece {
	const struct hybrid_device *dev;
	uint64_t sector;
	uint32_t count;
	int error;		/* -errno, of the first attempt */
	bool write;
};

/* The bad pieces around this sector; NULL: none. */
const struct hybrid_bad_piece *hybrid_offline_bad(struct hybrid_offline *o,
						  const struct hybrid_device *dev,
						  uint64_t sector);
/* How many bad pieces of 4 KiB there are, and how often one failed by now. */
unsigned int hybrid_offline_nr_bad(struct hybrid_offline *o, unsigned int *failures);

#endif
