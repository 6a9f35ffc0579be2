/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes a pool's metadata from memory to a device.  Of hybrid_metadata these count:
 * sb, id, root, volume, the arrays by cache block (all blocks whose instance is not
 * 0 are written), open.
 */
#ifndef HYBRID_METADATA_WRITE_H
#define HYBRID_METADATA_WRITE_H

#include "metadata.h"

/*
 * Encodes leaf @nr as its block of @generation, which must not be 0.  False: it is
 * empty, and need not be written.
 */
bool hybrid_leaf_encode(const struct hybrid_metadata *md, u32 nr, u16 generation, void *block);

/*
 * Would the kernel read all of it, were it written?  Returns 0, -ENOMEM, or -EINVAL
 * and *why.  Faults that codec.c does not see are left to hybrid_metadata_judge().
 */
int hybrid_metadata_verify(const struct hybrid_metadata *md, const char **why);

/*
 * Sets by_instance, block_state and usage from the other fields.  Two blocks that
 * claim one place are both CLAIMED.  Returns how many are BAD or CLAIMED.
 */
u64 hybrid_metadata_judge(struct hybrid_metadata *md);

/* Blocks on their way to a device: neighbours go out in one write. */
struct hybrid_writer {
	const struct hybrid_device *dev;
	void *buffer;
	u64 sector;
	u32 nr;				/* blocks in the buffer */
	int error;			/* -errno of the first that failed; nothing follows */
};

/* Returns 0 or an exit code. */
int hybrid_writer_begin(struct hybrid_writer *w, const struct hybrid_device *dev);
/* The place to encode the next block; put: the block goes to @sector. */
void *hybrid_writer_next(struct hybrid_writer *w);
void hybrid_writer_put(struct hybrid_writer *w, u64 sector);
/* Makes all blocks put so far durable. */
void hybrid_writer_flush(struct hybrid_writer *w);
/* Returns 0, or an exit code after a message, if anything failed. */
int hybrid_writer_end(struct hybrid_writer *w);

/*
 * Writes a whole member; until this is done, the device is none.  Its data area
 * stays as it is.  A root of the pool that is there stays until the new one is
 * durable.  Returns 0 or an exit code.
 */
int hybrid_metadata_write(const struct hybrid_device *dev, struct hybrid_metadata *md);

#endif
