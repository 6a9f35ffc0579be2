/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * This file alone knows the differences between kernel versions.  It probes for
 * features, never for version numbers, because distributions backport.
 */
#ifndef DM_HYBRID_COMPAT_H
#define DM_HYBRID_COMPAT_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/sched.h>

/* Bios have a write hint (again) in kernels with a header for it: <linux/rw_hint.h>. */
#ifdef _LINUX_RW_HINT_H
#define hybrid_copy_write_hint(to, from)	((to)->bi_write_hint = (from)->bi_write_hint)
#else
#define hybrid_copy_write_hint(to, from)	((void)0)
#endif

/* How members are opened: fmode_t became blk_mode_t. */
#ifdef BLK_OPEN_WRITE
#define HYBRID_OPEN_RW	(BLK_OPEN_READ | BLK_OPEN_WRITE)
#else
#define HYBRID_OPEN_RW	(FMODE_READ | FMODE_WRITE)
#endif

/*
 * Must the bio fail with EAGAIN rather than wait?  Linux 6.1 also sets REQ_NOWAIT on each
 * polled bio, and clears REQ_POLLED again if the volume cannot be polled.  Its io_uring sends
 * a refused bio again and again, from a worker thread that may wait.
 */
static inline bool hybrid_bio_nowait(const struct bio *bio)
{
	return (bio->bi_opf & (REQ_NOWAIT | REQ_POLLED)) == REQ_NOWAIT &&
	       !(current->flags & PF_IO_WORKER);
}

/* Has the device a write cache and no FUA, so that the block layer flushes it instead? */
static inline bool hybrid_bdev_emulates_fua(struct block_device *bdev)
{
	return bdev_write_cache(bdev) && !bdev_fua(bdev);
}

/* Does the device, or any device that it is made of, seek? */
static inline bool hybrid_bdev_seeks(struct block_device *bdev)
{
#ifdef BLK_FEAT_ROTATIONAL
	return bdev_get_queue(bdev)->limits.features & BLK_FEAT_ROTATIONAL;
#else
	return !blk_queue_nonrot(bdev_get_queue(bdev));
#endif
}

/*
 * Only hits are polled, or served without waiting, so the cache device decides whether the
 * volume takes such I/O.  If limits have no such features, dm asks the origin
 * (volume_iterate_devices()).
 */
static inline void hybrid_stack_hits(struct queue_limits *limits, struct block_device *cache)
{
#ifdef BLK_FEAT_POLL
	const blk_features_t hits = BLK_FEAT_NOWAIT | BLK_FEAT_POLL;

	limits->features &= ~hits;
	limits->features |= bdev_get_queue(cache)->limits.features & hits;
#endif
}

/*
 * Exported to modules, but declared in drivers/md/dm.h, which is not among the
 * headers that a kernel installs.
 */
void dm_internal_suspend_noflush(struct mapped_device *md);
void dm_internal_resume(struct mapped_device *md);

/*
 * A user's pages may go to @bdev as they are: if @bdev needs stable pages, so does
 * the volume.
 */
static inline void hybrid_stack_stable_writes(struct dm_target *ti, struct queue_limits *limits,
					      struct block_device *bdev)
{
#ifdef BLK_FEAT_STABLE_WRITES
	if (bdev_stable_writes(bdev))
		limits->features |= BLK_FEAT_STABLE_WRITES;
#else
	if (bdev_stable_writes(bdev))
		ti->needs_stable_writes = true;
#endif
}

#endif
