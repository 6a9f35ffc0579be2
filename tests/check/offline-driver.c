// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes pools in image files, as a kernel would leave them: commands on stdin, one
 * a line, sectors throughout.  Not to "stop" is to crash.
 *
 *	format CACHE BLOCK-SECTORS NAME
 *	load CACHE			recovery; the rest needs it
 *	create ID NAME MODE ORIGIN	formats the origin; ORIGIN inplace: does not
 *	open ID ORIGIN
 *
 *	write ID SECTOR COUNT SEED	each sector: 32 times (u64 seed, u64 sector)
 *	read ID SECTOR COUNT		prints the seed of each sector, -1: something else
 *	flush ID
 *	drain [ID]			until nothing is dirty
 *	idle TICKS
 *
 *	begin-drain [ID]		"idle" goes on with it
 *	interrupt			from now on, nobody looks for bad pieces
 *	bad ID SECTOR			prints the bad pieces around a sector of the origin
 *
 *	close ID
 *	delete ID [ORIGIN]		of a closed volume.  Without ORIGIN, a tombstone is left.
 *	stop
 *	try CACHE [ID ORIGIN]...	loads and opens, keeps nothing; prints for each a line:
 *					"ok", or why it was refused
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "members.h"
#include "offline.h"

#define MAX_VOLUMES	16
#define MAX_WORDS	(2 + 2 * MAX_VOLUMES)	/* try */

struct volume {
	struct hybrid_device origin;
	struct hybrid_volume *handle;
};

static struct hybrid_device cache;
static struct hybrid_offline *pool;
static struct volume volumes[MAX_VOLUMES];
static u64 pool_granule;
static u8 pool_uuid[16];

static void die(const char *what, int r, const char *why)
{
	fprintf(stderr, "%s: %s (%d)\n", what, why ? why : "", r);
	exit(2);
}

static void check(const char *what, int r)
{
	if (r)
		die(what, r, NULL);
}

static void open_image(struct hybrid_device *dev, const char *path)
{
	check(path, hybrid_device_open(dev, path, HYBRID_OPEN_WRITE | HYBRID_OPEN_FILES));
}

static void do_format(char **arg)
{
	struct hybrid_cache_plan plan = { .policy = "lru" };
	struct hybrid_device dev;

	open_image(&dev, arg[0]);
	plan.block_sectors = atoi(arg[1]);
	snprintf(plan.name, sizeof(plan.name), "%s", arg[2]);
	check("plan", hybrid_cache_plan(&dev, &plan));
	check("format", hybrid_cache_format(&dev, &plan));
	hybrid_device_close(&dev);
}

static void do_load(char **arg)
{
	struct hybrid_member m;
	const char *why = "";
	int r;

	open_image(&cache, arg[0]);
	check("member", hybrid_member_read(&cache, &m));
	pool = hybrid_offline_create(&cache, &m.sb, 0);
	if (!pool)
		die("create", 0, "no memory");
	pool_granule = m.sb.geometry.granule_sectors;
	memcpy(pool_uuid, m.sb.pool_uuid, 16);
	r = hybrid_offline_load(pool, &why);
	if (r)
		die("load", r, why);
}

static u32 mode_of(const char *name)
{
	static const char * const modes[HYBRID_NR_MODES] = {
		"writethrough", "writeback", "writearound", "passthrough",
	};
	u32 mode;

	for (mode = 0; mode < HYBRID_NR_MODES; mode++)
		if (!strcmp(name, modes[mode]))
			return mode;
	die(name, 0, "no such mode");
	return 0;
}

static void do_create(char **arg)
{
	struct hybrid_origin_plan plan = {
		.volume_id = atoi(arg[0]),
		.granule_sectors = pool_granule,
		.inplace = arg[4] && !strcmp(arg[4], "inplace"),
	};
	struct hybrid_volume_info info = {};
	struct hybrid_device dev;

	open_image(&dev, arg[3]);
	memcpy(plan.pool_uuid, pool_uuid, 16);
	snprintf(plan.name, sizeof(plan.name), "%s", arg[1]);
	check("plan", hybrid_origin_plan(&dev, &plan));
	check("format", hybrid_origin_format(&dev, &plan));
	info.mode = mode_of(arg[2]);
	info.flags = plan.inplace ? HYBRID_VOLUME_INPLACE : 0;
	memcpy(info.uuid, plan.sb.volume_uuid, 16);
	memcpy(info.member_uuid, plan.sb.member_uuid, 16);
	memcpy(info.pairing_key, plan.sb.pairing_key, 16);
	memcpy(info.name, plan.name, sizeof(info.name));
	info.data_sector = plan.sb.data_sector;
	info.data_sectors = plan.sb.data_sectors;
	info.nonce = plan.sb.nonce;
	check("create", hybrid_volume_create(hybrid_offline_engine(pool), plan.volume_id, &info));
	hybrid_device_close(&dev);
}

static struct volume *volume(const char *id)
{
	return &volumes[atoi(id) % MAX_VOLUMES];
}

static void do_open(char **arg)
{
	struct volume *v = volume(arg[0]);
	const char *why = "";
	int r;

	open_image(&v->origin, arg[1]);
	r = hybrid_offline_open(pool, atoi(arg[0]), &v->origin, &v->handle, &why);
	if (r)
		die(arg[1], r, why);
}

static void do_write(char **arg)
{
	u64 sector = strtoull(arg[1], NULL, 0), seed = strtoull(arg[3], NULL, 0);
	u32 count = atoi(arg[2]), i;
	u64 *data = hybrid_buffer(count * 512);

	for (i = 0; i < count * 64; i++)
		data[i] = i & 1 ? sector + i / 64 : seed;
	check("write", hybrid_offline_write(pool, volume(arg[0])->handle, sector, data, count));
	free(data);
}

static long long seed_of(const u64 *data, u64 sector)
{
	int i;

	for (i = 0; i < 64; i++)
		if (data[i] != (i & 1 ? sector : data[0]))
			return -1;
	return data[0];
}

static void do_read(char **arg)
{
	u64 sector = strtoull(arg[1], NULL, 0);
	u32 count = atoi(arg[2]), i;
	u64 *data = hybrid_buffer(count * 512);

	check("read", hybrid_offline_read(pool, volume(arg[0])->handle, sector, data, count));
	for (i = 0; i < count; i++)
		printf("%lld%c", seed_of(data + 64 * i, sector + i), i + 1 < count ? ' ' : '\n');
	free(data);
}

static void do_flush(char **arg)
{
	check("flush", hybrid_offline_flush(pool, volume(arg[0])->handle));
}

static bool nothing_dirty(void *context, unsigned int leaps)
{
	(void)context;
	(void)leaps;
	return !hybrid_offline_dirty(pool, NULL, NULL);
}

static void do_begin_drain(char **arg)
{
	hybrid_offline_drain(pool, arg[0] ? volume(arg[0])->handle : NULL, true);
}

static void do_drain(char **arg)
{
	do_begin_drain(arg);
	hybrid_offline_run(pool, nothing_dirty, NULL);
}

static bool idle_for(void *context, unsigned int leaps)
{
	return leaps >= *(unsigned int *)context;
}

static void do_idle(char **arg)
{
	unsigned int ticks = atoi(arg[0]);

	hybrid_offline_run(pool, idle_for, &ticks);
}

static bool always(void)
{
	return true;
}

static void do_interrupt(char **arg)
{
	(void)arg;
	hybrid_offline_interruptible(pool, always);
}

static void do_bad(char **arg)
{
	const struct hybrid_bad_piece *bad;
	unsigned int failures;

	bad = hybrid_offline_bad(pool, &volume(arg[0])->origin, atoll(arg[1]));
	if (bad)
		printf("%llu %u of %u\n", (unsigned long long)bad->sector, bad->count,
		       8 * hybrid_offline_nr_bad(pool, &failures));
	else
		puts("none");
}

static void do_close(char **arg)
{
	struct volume *v = volume(arg[0]);

	check("close", hybrid_offline_close(pool, v->handle));
	hybrid_device_close(&v->origin);
}

/* As hybridctl detach does it. */
static void do_delete(char **arg)
{
	struct hybrid_engine *e = hybrid_offline_engine(pool);
	struct hybrid_device dev;

	check("delete", hybrid_volume_delete(e, atoi(arg[0]), false));
	if (!arg[1])
		return;
	open_image(&dev, arg[1]);
	check(arg[1], hybrid_member_mark_detached(&dev, NULL));
	hybrid_device_close(&dev);
	check("forget", hybrid_volume_forget(e, atoi(arg[0])));
}

static void do_stop(char **arg)
{
	(void)arg;
	check("stop", hybrid_offline_stop(pool));
}

static void say(int r, const char *why)
{
	puts(r ? why : "ok");
}

/* The engine's verdict; the devices stay as they are. */
static void do_try(char **arg)
{
	struct hybrid_offline *o;
	struct hybrid_member m;
	struct volume *v;
	const char *why = "";
	int r, opened;

	open_image(&cache, arg[0]);
	r = hybrid_member_read(&cache, &m);
	if (r || !m.ok || m.sb.role != HYBRID_ROLE_CACHE) {
		say(1, !r && !m.ok ? m.why : "no superblock of a cache device");
		return;
	}
	o = hybrid_offline_create(&cache, &m.sb, HYBRID_OFFLINE_KEEP);
	if (!o)
		die("create", 0, "no memory");
	r = hybrid_offline_load(o, &why);
	say(r, why);
	for (arg++; !r && arg[0] && arg[1]; arg += 2) {
		v = volume(arg[0]);
		open_image(&v->origin, arg[1]);
		opened = hybrid_offline_open(o, atoi(arg[0]), &v->origin, &v->handle, &why);
		say(opened, why);
	}
}

static const struct {
	const char *name;
	int least;
	void (*run)(char **arg);
} commands[] = {
	{ "format", 3, do_format }, { "load", 1, do_load }, { "create", 4, do_create },
	{ "open", 2, do_open }, { "write", 4, do_write }, { "read", 3, do_read },
	{ "flush", 1, do_flush }, { "drain", 0, do_drain }, { "idle", 1, do_idle },
	{ "close", 1, do_close }, { "delete", 1, do_delete }, { "stop", 0, do_stop },
	{ "try", 1, do_try }, { "begin-drain", 0, do_begin_drain },
	{ "interrupt", 0, do_interrupt }, { "bad", 2, do_bad },
};

static void run_line(char *line)
{
	char *word[MAX_WORDS + 1] = {}, *save;
	unsigned int i;
	int n = 0;

	for (word[0] = strtok_r(line, " \n", &save); word[n] && n < MAX_WORDS; )
		word[++n] = strtok_r(NULL, " \n", &save);
	for (i = 0; n && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(word[0], commands[i].name) && n > commands[i].least) {
			commands[i].run(word + 1);
			return;
		}
	if (n)
		die(word[0], 0, "no such command");
}

int main(void)
{
	char line[1024];

	while (fgets(line, sizeof(line), stdin))
		run_line(line);
	hybrid_offline_destroy(pool);
	return 0;
}
