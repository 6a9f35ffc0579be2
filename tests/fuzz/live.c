// SPDX-License-Identifier: GPL-2.0-or-later
/* Recovery of an image, a little use, a stop, and recovery again. */
#include <signal.h>
#include <stdarg.h>
#include <sys/time.h>
#include <unistd.h>

#include "errors.h"
#include "members.h"
#include "superblock.h"
#include "targets.h"

/* Of an engine of our small images, with any contents (measured: 17.7 MB). */
#define MAX_HEAP	(20 << 20)

void found(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	dprintf(STDERR_FILENO, "found: ");
	vdprintf(STDERR_FILENO, fmt, ap);
	dprintf(STDERR_FILENO, "\n");
	va_end(ap);
	abort();
}

void be_quiet(void)
{
	hybrid_output.silent = true;
	stdout = fopen("/dev/null", "w");
	stderr = stdout;
	/* No input's time is spent on them */
	images();
}

static void too_long(int signal)
{
	abort();
}

void time_limit(void)
{
	const struct itimerval second = { .it_value.tv_sec = 1 };

	signal(SIGPROF, too_long);
	if (setitimer(ITIMER_PROF, &second, NULL))
		abort();
}

static void check_engine(struct pool *p, const char *when)
{
	const char *wrong = hybrid_engine_check(p->x.engine);

	if (wrong)
		found("%s: %s", when, wrong);
}

/* Errors are no matter: the metadata may well say that nothing can be done. */
static void use_volume(struct pool *p, u32 origin)
{
	u64 sectors = hybrid_volume_sectors(p->volume[origin]), sector;
	u32 block = p->sb.geometry.block_sectors, i;
	u8 *data = calloc(block, 512);

	for (i = 0; i < 6; i++) {
		sector = sectors / 6 * i / block * block;
		pool_io(p, origin, HYBRID_IO_READ, sector, min_t(u64, block, sectors - sector),
			data, false);
	}
	pool_io(p, origin, HYBRID_IO_WRITE, 0, 8, data, true);
	pool_io(p, origin, HYBRID_IO_DISCARD, 0, min_t(u64, 2 * block, sectors), NULL, false);
	pool_io(p, origin, HYBRID_IO_FLUSH, 0, 0, NULL, false);
	free(data);
}

/* The volume that this origin says it belongs to, as activate looks for it. */
static u32 volume_of(struct pool *p, u32 origin, bool *gone)
{
	struct hybrid_volume_info info;
	struct hybrid_member m;
	u32 id;

	*gone = false;
	if (hybrid_member_read(&p->origin[origin]->device, &m) || !m.ok)
		return image_volume[origin];
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		if (!hybrid_volume_info(p->x.engine, id, &info) &&
		    !memcmp(info.uuid, m.sb.volume_uuid, HYBRID_UUID_SIZE)) {
			*gone = info.state == HYBRID_VOLUME_TOMBSTONE;
			return id;
		}
	*gone = m.sb.role == HYBRID_ROLE_DETACHED;
	return HYBRID_MAX_VOLUMES;
}

static void use(struct pool *p, struct outcome *out)
{
	struct hybrid_volume_info info;
	const char *why;
	u32 i, id;

	for (i = 0; i < POOL_ORIGINS; i++) {
		id = volume_of(p, i, &out->gone[i]);
		out->id[i] = id;
		if (!hybrid_volume_info(p->x.engine, id, &info) &&
		    !(info.flags & HYBRID_VOLUME_INPLACE))
			out->sectors[i] = info.data_sectors;
		why = NULL;
		out->open[i] = pool_open(p, id, i, &why);
		if (!out->open[i])
			use_volume(p, i);
		else if (!why)
			found("volume %u refused without a reason (%d)", id, out->open[i]);
	}
	pool_run(p, 2000);
	check_engine(p, "after use");
}

/* A number that is just not refused by hybrid_number_ends(): it was the last to go on from. */
static bool was_the_last(const char *why)
{
	return why && (strstr(why, "no sequence") || strstr(why, "no intent number"));
}

/* All that was accepted is accepted again, with the module's writes since then. */
static void use_again(struct image *im, struct pool *p, struct outcome *out)
{
	static const struct hybrid_settings settings = { .endurance = 8 };
	const char *why = "";
	u32 i;
	int r;

	image_pool(im, p);
	r = pool_record(p, "fifo", &settings);
	if (!r)
		r = pool_load(p, &out->why);
	if (r && was_the_last(out->why))
		return;
	if (r)
		found("not activated again: %s (%d)", out->why, r);
	check_engine(p, "after a clean stop");
	for (i = 0; i < POOL_ORIGINS; i++) {
		r = out->gone[i] || out->open[i] ? 0 : pool_open(p, out->id[i], i, &why);
		if (r && !was_the_last(why))
			found("volume %u is not opened again: %s (%d)", out->id[i], why, r);
	}
	pool_drop(p);
}

void live(struct image *im, struct outcome *out)
{
	size_t heap = fuzz_bytes;
	struct pool p;
	u64 writes = im->disk[0].writes;

	memset(out, 0, sizeof(*out));
	image_pool(im, &p);
	out->load = pool_load(&p, &out->why);
	if (out->load) {
		if (!out->why)
			found("refused without a reason (%d)", out->load);
		if (im->disk[0].writes != writes)
			found("refused (%s), but written to", out->why);
		return;
	}
	if (fuzz_bytes > heap + MAX_HEAP)
		found("%zu bytes of heap", fuzz_bytes - heap);
	check_engine(&p, "after recovery");
	use(&p, out);
	if (hybrid_engine_failed(p.x.engine))
		found("the pool failed on good devices");
	pool_stop(&p);
	use_again(im, &p, out);
}

void with_damage(const u8 *bytes, size_t len, void (*run)(struct damage *d))
{
	struct damage d;
	size_t large;

	damage_from_bytes(&d, bytes, len);
	large = fuzz_large_bytes;
	damage_do(&d);
	run(&d);
	if (fuzz_large_bytes != large)
		found("%zu bytes are left over", fuzz_large_bytes - large);
}

static void load(struct damage *d)
{
	struct outcome out;

	live(d->image, &out);
}

void fuzz_load(const u8 *bytes, size_t len)
{
	with_damage(bytes, len, load);
}

/* ---- one superblock ---------------------------------------------------------------- */

/* The decoded superblock has all that counts: it encodes, and decodes again, to the same. */
static void check_decoded(const struct hybrid_sb *sb, u64 sector, u64 sectors)
{
	struct hybrid_superblock again;
	struct hybrid_sb second;
	const char *why = "";

	if (sb->role == HYBRID_ROLE_CACHE &&
	    sb->geometry.data_sector + ((u64)sb->geometry.nr_blocks << sb->geometry.block_shift) +
	    HYBRID_TAIL_SECTORS > sectors)
		found("blocks beyond the end");
	if (sb->role != HYBRID_ROLE_CACHE && sb->data_sector + sb->data_sectors > sectors)
		found("data beyond the end");
	hybrid_sb_encode(&again, sb, sector);
	if (hybrid_sb_decode(&again, sector, sectors, &second, &why))
		found("its own encoding is refused: %s", why);
	if (memcmp(sb, &second, sizeof(*sb)))
		found("another superblock after encoding");
}

/* flags, the device's size, then the bytes laid over a good superblock */
void fuzz_superblock(const u8 *bytes, size_t len)
{
	struct image *im = images();
	const struct place *p;
	struct hybrid_superblock block;
	struct hybrid_sb sb;
	const char *why;
	u64 sectors;
	size_t i;

	if (len < 1 + sizeof(sectors))
		return;
	memcpy(&sectors, bytes + 1, sizeof(sectors));
	p = &im->place[(bytes[0] >> 1) % 4];
	image_reset(im);
	memcpy(&block, im->disk[p->disk].bytes + p->sector * 512, sizeof(block));
	for (i = 1 + sizeof(sectors); i < len && i < sizeof(block); i++)
		((u8 *)&block)[i - 1 - sizeof(sectors)] ^= bytes[i];
	if (bytes[0] & 1)
		block.crc = cpu_to_le32(hybrid_crc(&block, sizeof(block),
						   offsetof(struct hybrid_superblock, crc)));
	if (!hybrid_sb_decode(&block, p->sector, sectors, &sb, &why))
		check_decoded(&sb, p->sector, sectors);
}
