// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Origins grow under their volumes, and the power goes at each write of the growth.
 *
 * Only the device, as the engine reads and writes it, has the larger size at once.  Its data area is as
 * large as the volume.  So an access to the old tail, or to the new one, is found while that tail counts.
 */
#include "sim.h"
#include "coverage.h"
#include "script.h"

/* Most by which an origin grows in a seed, in units of HYBRID_ALIGN_SECTORS */
#define GROW_TIMES	2

static u64 begun, ended;

void grow_print(void)
{
	printf("grown %llu ended %llu\n", (unsigned long long)begun, (unsigned long long)ended);
}

u64 grow_room(const struct world *w)
{
	return w->p.grow ? GROW_TIMES * HYBRID_ALIGN_SECTORS : 0;
}

u64 device_member(const struct device *d, bool durable)
{
	static struct hybrid_superblock block;
	struct hybrid_sb sb;

	device_get_bytes(d, HYBRID_SB_SECTOR, &block, sizeof(block), durable);
	return hybrid_sb_decode(&block, HYBRID_SB_SECTOR, device_size(d), &sb, NULL) ? device_size(d) :
	       sb.member_sectors;
}

static bool all_zero(const void *bytes, u32 len)
{
	const u8 *b = bytes;

	return !b[0] && !memcmp(b, b + 1, len - 1);
}

/* The old metadata area belongs to the volume now: the old tail must be gone, the rest does not matter. */
void grow_follow(struct world *w, struct volume *vol)
{
	struct device *d = vol->origin;
	u64 size = hybrid_volume_sectors(vol->v), end = d->data_from + size - w->hole, s;
	u8 sector[512];

	vol->info.data_sectors = size;
	if (end <= d->data_to)
		return;
	for (s = d->data_to; s < end && !w->stop; s++) {
		device_get_bytes(d, s, sector, sizeof(sector), true);
		/* A failed growth may have left a tail of a size in between */
		if (!w->faulty && (!memcmp(sector, HYBRID_SB_MAGIC, HYBRID_SB_MAGIC_SIZE) ||
		    (!all_zero(sector, sizeof(sector)) &&
		     ((struct hybrid_block_header *)sector)->magic == cpu_to_le32(HYBRID_LOST_MAGIC))))
			violation(w, "grow", "volume %u has grown over a tail that is there still, at %llu",
				  vol->id, (unsigned long long)s);
		device_clear(d, s);
	}
	d->data_to = end;
	/* Users may use some of the new sectors from now on */
	if (!w->branch)
		vol->hot = min(size - w->hole, end - d->data_from);
	vol->hot = min_t(u64, vol->hot, size - w->hole);
}

/* Zeroes the sectors that the tools zero when they format an origin. */
void grow_format(struct device *d)
{
	u64 s;

	for (s = d->data_to; s < d->sectors; s++)
		device_clear(d, s);
}

static bool grow_failed_rightly(const struct world *w, const struct volume *vol, int r)
{
	if (r == -ENOMEM)
		return w->p.fail_alloc;
	if (r == -EBUSY)
		return vol->info.flags & HYBRID_VOLUME_INPLACE;
	return faults_of_volume(w, vol) || w->pool_faulty;
}

static void grow_suspended(struct world *w, struct volume *vol)
{
	struct hybrid_volume_info info;
	int r;

	trace(w, 21, vol->id, device_size(vol->origin), "volume %u grows: its origin has %llu sectors", vol->id,
	      (unsigned long long)device_size(vol->origin));
	begun++;
	r = DURING(w, PHASE_SUSPEND, hybrid_volume_grow(w->e, vol->v, device_size(vol->origin), NULL));
	if (w->crashed || w->stop)
		return;
	if (r && !grow_failed_rightly(w, vol, r))
		violation(w, "grow", "volume %u does not grow: %d", vol->id, r);
	if (r)
		return;
	hybrid_volume_info(w->e, vol->id, &info);
	ended++;
	if (info.data_sectors_new || info.data_sectors != hybrid_volume_room(&info, device_size(vol->origin)))
		violation(w, "grow", "volume %u has grown to %llu, and is to grow to %llu", vol->id,
			  (unsigned long long)info.data_sectors, (unsigned long long)info.data_sectors_new);
	grow_follow(w, vol);
}

void grow(struct world *w, struct volume *vol, u32 sectors)
{
	struct device *d = vol->origin;

	script_log(w, LINE_GROW, vol, 0, sectors);
	d->sectors = min(d->sectors + sectors, d->capacity);
	if (!quiet(w, vol) || !DURING(w, PHASE_SUSPEND, world_suspend(w, vol)))
		return;
	grow_suspended(w, vol);
	if (!w->crashed && !w->stop)
		world_resume(w, vol);
}

/* Grows one origin now and then; the first time, perhaps, by less than the volume can use. */
void grow_event(struct world *w)
{
	struct volume *vol;
	u32 sectors;

	/* On a lying device the old tail may come back */
	if (!w->p.grow || w->branch || w->crashed || w->stop || w->lying || w->losing || w->lost_meta ||
	    w->hang_left || rng_below(&w->growrng, 40))
		return;
	vol = w->vol[rng_below(&w->growrng, w->nr_vol)];
	sectors = 8 + 8 * rng_below(&w->growrng, GROW_TIMES * HYBRID_ALIGN_SECTORS / 8);
	if (vol->v && !vol->closing && !vol->suspended)
		grow(w, vol, sectors);
}
