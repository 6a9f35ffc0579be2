// SPDX-License-Identifier: GPL-2.0-or-later
/* Damaged images as files, and the module's expected verdict on each, for a guest. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "targets.h"

static u64 next(u64 *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return *seed >> 24;
}

/* Up to three changes; the sizes of a guest's disks do not change. */
static void draw(struct damage *d, u64 *seed)
{
	static const enum verb verbs[] = {
		CHANGE_SET, CHANGE_ADD, CHANGE_SET, CHANGE_ADD, CHANGE_SWAP, CHANGE_FLIP,
		CHANGE_COPY, CHANGE_ZERO, CHANGE_APPEND,
	};
	static const u64 values[] = { 0, 1, 2, U64_MAX, 1ULL << 31, 1ULL << 40 };
	u32 i;

	d->image = &images()[next(seed) % NR_IMAGES];
	d->nr = 1 + next(seed) % 3;
	for (i = 0; i < d->nr; i++)
		d->change[i] = (struct change){
			.verb = verbs[next(seed) % ARRAY_SIZE(verbs)],
			.raw = next(seed) % 8 == 0,
			.place = next(seed) % d->image->nr_kept,
			.from = next(seed) % d->image->nr_kept,
			.field = cpu_to_le16(next(seed)),
			.element = cpu_to_le16(next(seed) % 8),
			.value = cpu_to_le64(values[next(seed) % ARRAY_SIZE(values)]),
		};
}

static void write_disk(const struct disk *d, const char *directory, u32 nr)
{
	static const u8 zero[DISK_BLOCK];
	char path[512];
	size_t at;
	int fd;

	snprintf(path, sizeof(path), "%s/%u.%s", directory, nr, d->name);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
	if (fd < 0 || ftruncate(fd, d->size * 512))
		found("%s cannot be written", path);
	for (at = 0; at < d->size * 512; at += DISK_BLOCK)
		if (memcmp(d->bytes + at, zero, DISK_BLOCK) &&
		    pwrite(fd, d->bytes + at, DISK_BLOCK, at) != DISK_BLOCK)
			found("%s cannot be written", path);
	close(fd);
}

/* One line for each image; an origin's fields are 0 where its volume is no business of ours. */
void export_images(const char *directory, u32 nr, u64 seed)
{
	int code[1 + POOL_ORIGINS];
	const char *different;
	struct outcome out;
	struct damage d;
	u32 n, i;

	for (n = 0; n < nr; n++) {
		draw(&d, &seed);
		damage_do(&d);
		different = disagreement(d.image, code);
		if (different)
			found("%s", different);
		damage_do(&d);
		for (i = 0; i <= POOL_ORIGINS; i++)
			write_disk(&d.image->disk[i], directory, n);
		live(d.image, &out);
		printf("%u %u %d", n, d.image->sb.geometry.block_sectors, out.load);
		for (i = 0; i < POOL_ORIGINS; i++)
			printf(" %d %u %llu", out.load ? 0 : out.open[i], out.load ? 0 : out.id[i],
			       out.load ? 0ULL : (unsigned long long)out.sectors[i]);
		printf(" |%s\n", out.load ? out.why : "");
		damage_to_text(&d, stderr);
	}
}
