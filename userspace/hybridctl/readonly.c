// SPDX-License-Identifier: GPL-2.0-or-later
/* activate --degraded --readonly: shows the remaining data of a volume without its cache device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "metadata.h"

/* Each hole needs memory in the kernel, and so does each piece between two holes. */
#define MAX_HOLES	16384

struct holes {
	struct hybrid_dm_hole *list;
	size_t nr;
	u64 sectors;		/* in all */
	bool rounded;		/* the holes cover more than the lost data */
};

/* Finds lost data in multiples of @unit sectors; @list may be NULL.  Returns the number of holes. */
static size_t find_holes(const struct hybrid_lost_map *map, u64 size, u64 unit,
			 struct hybrid_dm_hole *list)
{
	u64 sector = 0, count, from, to, end = 0;
	size_t nr = 0;

	for (; (count = hybrid_lost_next(map, &sector)); sector += count) {
		from = round_down(sector, unit);
		to = min(round_up(sector + count, unit), size);
		if (!nr || from > end) {
			if (list)
				list[nr].sector = from;
			nr++;
		}
		if (list)
			list[nr - 1].count = to - list[nr - 1].sector;
		end = to;
	}
	return nr;
}

static int plan_holes(const struct hybrid_lost_map *map, u64 size, struct holes *holes)
{
	u64 unit = 1;
	size_t i;

	while (find_holes(map, size, unit, NULL) > MAX_HOLES)
		unit *= 2;
	holes->rounded = unit > 1;
	holes->nr = find_holes(map, size, unit, NULL);
	holes->list = calloc(holes->nr + 1, sizeof(*holes->list));
	if (!holes->list)
		return hybrid_nomem();
	find_holes(map, size, unit, holes->list);
	for (i = 0; i < holes->nr; i++)
		holes->sectors += holes->list[i].count;
	return 0;
}

/* There are no holes if the cache has nothing newer. */
static int read_holes(const struct hybrid_member *origin, struct holes *holes)
{
	const struct hybrid_sb *sb = &origin->sb;
	struct hybrid_lost_map *map = NULL;
	struct hybrid_device dev;
	int r;

	if (!(sb->flags & HYBRID_SB_DIRTY))
		return 0;
	r = hybrid_device_open(&dev, origin->path, 0);
	if (r)
		return r;
	r = sb->lost ? hybrid_lost_map_read(&dev, sb, &map) : -ENODATA;
	hybrid_device_close(&dev);
	if (r)
		return hybrid_fail(HYBRID_DEGRADED,
				   "connect the cache device; hybridctl accept-loss if it is gone for good",
				   "volume %s: its cache device has newer data, in unknown ranges: any data on the origin may be out of date",
				   sb->name);
	r = plan_holes(map, sb->data_sectors, holes);
	free(map);
	return r;
}

int start_readonly(const struct hybrid_member *origin)
{
	const struct hybrid_sb *sb = &origin->sb;
	struct holes holes = {};
	int r;

	if (hybrid_dm_name_taken(sb->name))
		return hybrid_fail(HYBRID_BUSY, "rename or remove that device",
				   "volume %s: a device-mapper device of this name exists", sb->name);
	r = read_holes(origin, &holes);
	if (!r)
		r = hybrid_dm_create_readonly(sb->name, sb->volume_uuid, sb->data_sectors,
					      origin->devno, sb->data_sector, holes.list, holes.nr);
	if (!r)
		hybrid_warn("volume %s can be read without its cache device: /dev/mapper/%s; reads of %llu KiB fail%s",
			    sb->name, sb->name, (unsigned long long)holes.sectors / 2,
			    holes.rounded ? ", more than was lost" : "");
	free(holes.list);
	return r;
}
