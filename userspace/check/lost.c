// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lost: data of volumes that is gone with a cache device.
 *
 * From a cache device: dirty data that it does not give back.  From an origin:
 * the map that was saved when its cache died, even if that loss was accepted
 * since.  From a volume that lives on without its cache: the kernel's list.  If no
 * source tells, the loss is reported as unknown: it is never "none" for lack of
 * knowledge.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "errors.h"
#include "files.h"
#include "lost.h"
#include "metadata.h"
#include "owner.h"
#include "words.h"

#define PIECE		8	/* sectors: losses are as exact as that */

struct hybrid_known_place {
	char volume[HYBRID_NAME_SIZE];
	struct hybrid_place place;
};

struct told {
	u8 uuid[HYBRID_UUID_SIZE];
	u64 nonce, nonce_old;
};

struct lost {
	const struct command_line *cl;
	struct device_words words;
	struct hybrid_losses losses;
	struct hybrid_metadata md;	/* of the cache device at hand */
	struct hybrid_device dev;
	void *buf;			/* of a cache block */
	struct told *told;		/* volumes whose cache device was looked at */
	unsigned int nr_told;
	struct hybrid_inventory active;
	bool active_loaded;
};

/* Names outlive the metadata that they were read from. */
static const char *keep_name(const char *name)
{
	static struct kept {
		struct kept *next;
		char name[HYBRID_NAME_SIZE];
	} *all;
	struct kept *k;

	for (k = all; k; k = k->next)
		if (!strcmp(k->name, name))
			return k->name;
	k = calloc(1, sizeof(*k));
	if (!k)
		return "?";
	snprintf(k->name, sizeof(k->name), "%s", name);
	k->next = all;
	all = k;
	return k->name;
}

static void unknown(struct hybrid_losses *l, const char *volume, const char *why)
{
	hybrid_ranges_add(&l->ranges, keep_name(volume), 0, 0, why);
	l->unknown = true;
}

/* ---- a cache device -------------------------------------------------------- */

static int check_run(void *context, u32 volume, u64 sector, u32 count, u64 cache_sector)
{
	struct lost *l = context;
	const char *name = keep_name(l->md.volume[volume].name);
	u32 n;
	int r;

	if (l->cl->given[OPT_ALL]) {
		hybrid_ranges_add(&l->losses.ranges, name, sector, count, "only the cache device has it");
		return 0;
	}
	if (!hybrid_device_read(&l->dev, cache_sector, l->buf, (size_t)count * 512))
		return 0;
	for (; count; sector += n, cache_sector += n, count -= n) {
		n = min_t(u32, count, PIECE);
		r = hybrid_device_read(&l->dev, cache_sector, l->buf, n * 512);
		if (r)
			hybrid_ranges_add(&l->losses.ranges, name, sector, n,
					  hybrid_range_why("cache device", r));
	}
	return 0;
}

/* The dirty data is not known, or not exactly. */
static void damaged(struct lost *l, const char *path)
{
	bool any = false;
	u32 id;

	for (id = 0; l->md.volume && id < HYBRID_MAX_VOLUMES; id++) {
		if (l->md.volume[id].state != HYBRID_VOLUME_ACTIVE)
			continue;
		unknown(&l->losses, l->md.volume[id].name, "unknown: the metadata of its cache device is damaged");
		any = true;
	}
	if (!any)
		unknown(&l->losses, path, "unknown: the metadata of the cache device is damaged");
}

static void add_told(struct lost *l)
{
	const struct hybrid_volume_info *v = l->md.volume;
	struct told *t;
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		if (v[id].state != HYBRID_VOLUME_ACTIVE)
			continue;
		t = &l->told[l->nr_told++];
		memcpy(t->uuid, v[id].uuid, HYBRID_UUID_SIZE);
		t->nonce = v[id].nonce;
		t->nonce_old = v[id].nonce_old;
	}
}

static int lost_cache(struct lost *l)
{
	struct hybrid_findings findings = { .device = l->dev.path };
	int r;

	r = hybrid_metadata_read(&l->md, &l->dev, &findings);
	if (r == HYBRID_NOMEM)
		goto out;
	if (r || hybrid_findings_worst(&findings) == HYBRID_DAMAGE)
		damaged(l, l->dev.path);
	l->buf = r ? NULL : hybrid_buffer(l->md.g->block_sectors * 512);
	if (r)
		r = 0;
	else if (!l->buf)
		r = hybrid_nomem();
	else
		r = hybrid_dirty_each(&l->md, check_run, l);
	if (!r && l->md.volume)
		add_told(l);
	free(l->buf);
out:
	hybrid_metadata_free(&l->md);
	hybrid_findings_free(&findings);
	return r;
}

/* ---- an origin ------------------------------------------------------------- */

/* Its cache device's nonces of the volume; NULL: that device was not looked at. */
static const struct told *find_told(const struct lost *l, const u8 *uuid)
{
	unsigned int i;

	for (i = 0; i < l->nr_told; i++)
		if (!memcmp(l->told[i].uuid, uuid, HYBRID_UUID_SIZE))
			return &l->told[i];
	return NULL;
}

static int add_place(struct hybrid_losses *l, const char *volume, const char *path, u64 offset,
		     u64 size)
{
	struct hybrid_known_place *list, *p;

	list = reallocarray(l->place, l->nr_places + 1, sizeof(*list));
	if (!list)
		return hybrid_nomem();
	l->place = list;
	p = &list[l->nr_places++];
	snprintf(p->volume, sizeof(p->volume), "%s", volume);
	snprintf(p->place.path, sizeof(p->place.path), "%s", path);
	p->place.offset = offset;
	p->place.size = size;
	return 0;
}

static int add_origin_place(struct hybrid_losses *l, const struct hybrid_device *dev,
			    const struct hybrid_sb *sb)
{
	return add_place(l, sb->name, dev->path, sb->data_sector * 512, sb->data_sectors * 512);
}

/* @dirty: the reason why the dirty data is unknown if there is no map. */
static void add_origin(struct hybrid_losses *l, const struct hybrid_device *dev,
		       const struct hybrid_sb *sb, const char *dirty)
{
	const char *name = keep_name(sb->name);
	struct hybrid_lost_map *map = NULL;
	u64 sector = 0, count;

	if (sb->lost && hybrid_lost_map_read(dev, sb, &map)) {
		unknown(l, name, "unknown: the map of the lost data cannot be read");
	} else if (sb->lost) {
		for (; (count = hybrid_lost_next(map, &sector)); sector += count)
			hybrid_ranges_add(&l->ranges, name, sector, count, "its cache died");
	} else if (sb->flags & HYBRID_SB_DIRTY && sb->role == HYBRID_ROLE_ORIGIN) {
		unknown(l, name, dirty);
	}
	if (sb->flags & HYBRID_SB_LOSS_UNKNOWN && sb->role == HYBRID_ROLE_DETACHED)
		unknown(l, name, "unknown: its cache was given up with newer data");
	free(map);
}

int hybrid_losses_of_origin(struct hybrid_losses *l, const struct hybrid_device *dev,
			    const struct hybrid_sb *sb)
{
	add_origin(l, dev, sb, "unknown: its cache device is not here, and may have newer data");
	return add_origin_place(l, dev, sb);
}

static bool nonce_told(const struct told *told, u64 nonce)
{
	return nonce && (nonce == told->nonce || nonce == told->nonce_old);
}

static int lost_origin(struct lost *l, const struct hybrid_sb *sb)
{
	const struct told *told = find_told(l, sb->volume_uuid);

	if (!told || sb->role == HYBRID_ROLE_DETACHED)
		return hybrid_losses_of_origin(&l->losses, &l->dev, sb);
	/* If its cache knows the origin, or will be merged with it, the cache device told the losses */
	if (!nonce_told(told, sb->nonce) && !nonce_told(told, sb->paired_nonce))
		add_origin(&l->losses, &l->dev, sb,
			   "unknown: it was written without its cache, which has newer data");
	return add_origin_place(&l->losses, &l->dev, sb);
}

/* ---- an active volume ------------------------------------------------------ */

/* Add the ranges of a reply; returns where to ask again, 0: that was all. */
static u64 parse_reply(struct lost *l, const char *name, char *reply)
{
	unsigned long long sector, count, more = 0;
	char *line, *save;

	for (line = strtok_r(reply, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (sscanf(line, "%llu %llu", &sector, &count) == 2)
			hybrid_ranges_add(&l->losses.ranges, name, sector, count, "its cache died");
		else if (sscanf(line, "more %llu", &more) != 1)
			hybrid_warn("%s: the kernel's reply is not understood: %s", name, line);
	return more;
}

static int lost_volume(struct lost *l, const struct hybrid_node *node)
{
	const struct hybrid_volume_status *status = &node->v.status;
	const char *name = keep_name(node->name);
	char message[64], path[HYBRID_PATH_MAX], *reply;
	u64 cursor = 0;
	int r;

	if (status->cache_errors && status->dirty && !status->lost)
		unknown(&l->losses, name, "unknown: I/O to its cache device failed; drain, "
			"deactivate, and check that device");
	do {
		snprintf(message, sizeof(message), "lost %llu", (unsigned long long)cursor);
		r = hybrid_dm_message(name, message, &reply);
		if (r)
			return r;
		cursor = parse_reply(l, name, reply);
		free(reply);
	} while (cursor);
	hybrid_devno_path(node->dm.devno, path, sizeof(path));
	return add_place(&l->losses, name, path, 0, 0);
}

/* Of a pool: each of its volumes. */
static int lost_node(struct lost *l, const struct hybrid_node *node)
{
	const struct hybrid_node *v;
	int r = 0;

	if (node->kind == HYBRID_VOLUME)
		return lost_volume(l, node);
	for (v = l->active.nodes; !r && v < l->active.nodes + l->active.nr_nodes; v++)
		if (v->kind == HYBRID_VOLUME && v->active && v->pool == node)
			r = lost_volume(l, v);
	return r;
}

/* A name, the device of a volume or pool, or a member that somebody holds. */
static bool may_be_active(const char *what)
{
	bool mapped = !strncmp(what, "/dev/mapper/", 12) || !strncmp(what, "/dev/dm-", 8);
	struct stat st;

	if (stat(what, &st))
		return mapped || !strchr(what, '/');
	if (!strchr(what, '/') && !geteuid())
		return true;
	return S_ISBLK(st.st_mode) && (mapped || hybrid_devno_held(st.st_rdev, 0));
}

/* *node: NULL if nothing of that name is active; then the device itself is looked at. */
static int find_active(struct lost *l, const char *what, struct hybrid_node **node)
{
	int r = 0;

	*node = NULL;
	if (!may_be_active(what))
		return 0;
	if (!l->active_loaded)
		r = hybrid_inventory_load(&l->active, HYBRID_LOAD_ACTIVE, NULL, 0);
	l->active_loaded = true;
	if (!r)
		*node = hybrid_find(&l->active, what, HYBRID_ANY);
	if (*node && !(*node)->active)
		*node = NULL;
	return r;
}

/* ---- all of them ----------------------------------------------------------- */

static int lost_device(struct lost *l, const char *path, bool cache)
{
	unsigned int flags = HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES;
	char origin[HYBRID_PATH_MAX];
	struct hybrid_member m;
	struct hybrid_node *node;
	int r;

	r = find_active(l, path, &node);
	if (r || (node && cache))
		return r;
	if (node && !node->dm.alone)
		return lost_node(l, node);
	/* In use without its cache: its origin tells, and nobody writes the blocks read there */
	if (node) {
		flags = 0;
		path = hybrid_node_device(node, origin, sizeof(origin));
	}
	r = hybrid_device_open(&l->dev, path, flags);
	if (r)
		return r;
	r = hybrid_member_read(&l->dev, &m);
	if (r == -ENODATA)
		r = hybrid_fail(HYBRID_BADDEV, "give a cache device, or a formatted origin",
				"%s shows no lost data: it is not a member of a pool",
				path);
	else if (r || !m.ok)
		r = hybrid_fail(HYBRID_BADDEV, hybrid_member_next(&m, "see hybridctl check"),
				"%s: %s", path, r ? strerror(-r) : m.why);
	else if (cache && m.sb.role == HYBRID_ROLE_CACHE)
		r = lost_cache(l);
	else if (!cache && m.sb.role != HYBRID_ROLE_CACHE)
		r = lost_origin(l, &m.sb);
	hybrid_device_close(&l->dev);
	return r;
}

static int print_files(const struct hybrid_losses *l)
{
	const char *volume = NULL;
	size_t i;
	int r = 0;
	unsigned int k;

	for (i = 0; !r && i < l->ranges.nr; i++) {
		if (l->ranges.list[i].volume == volume || !l->ranges.list[i].count)
			continue;
		volume = l->ranges.list[i].volume;
		for (k = 0; k < l->nr_places; k++)
			if (!strcmp(l->place[k].volume, volume))
				break;
		if (k < l->nr_places)
			r = hybrid_files_print(&l->ranges, volume, &l->place[k].place);
		else
			printf("%s: give its origin, too, to find its files\n", volume);
	}
	return r;
}

int hybrid_losses_print(const struct hybrid_losses *l, const struct hybrid_report_options *opts,
			bool files)
{
	int r = 0;

	if (!hybrid_output.quiet && (l->ranges.nr || opts->json))
		r = hybrid_ranges_print(&l->ranges, "lost", opts);
	if (!r && !l->ranges.nr && !opts->json)
		hybrid_note("nothing is lost");
	if (!r && files && !hybrid_output.quiet)
		r = print_files(l);
	return r;
}

void hybrid_losses_free(struct hybrid_losses *l)
{
	free(l->place);
	hybrid_ranges_free(&l->ranges);
	memset(l, 0, sizeof(*l));
}

static int report(struct lost *l)
{
	struct hybrid_report_options opts;
	int r;

	r = report_options(l->cl, &opts);
	if (!r)
		r = hybrid_losses_print(&l->losses, &opts, l->cl->given[OPT_FILES]);
	if (r)
		return r;
	return l->losses.unknown ? HYBRID_BADDEV : l->losses.ranges.nr ? HYBRID_DEGRADED : 0;
}

/* ---- acknowledged ---------------------------------------------------------- */

/* The volume itself may use the origin, if it maps the origin and nothing else. */
static int forget_lost(const struct hybrid_member *m)
{
	struct hybrid_device dev = { .fd = -1 };
	struct hybrid_member now;
	int r;

	hold_signals();
	r = open_unchanged(&dev, m, hybrid_dm_find(m->sb.volume_uuid, false), &now);
	if (!r) {
		now.sb.lost = 0;
		now.sb.flags &= ~HYBRID_SB_LOSS_UNKNOWN;
		now.sb.sequence++;
		r = hybrid_member_write(&dev, &now.sb);
	}
	hybrid_device_close(&dev);
	return r;
}

static int acknowledge(const struct command_line *cl, struct hybrid_inventory *inv)
{
	const struct hybrid_member *m;
	struct hybrid_node *volume;
	int r;

	r = hybrid_find_or_fail(inv, cl->argv[0], 1U << HYBRID_VOLUME, &volume);
	if (!r)
		r = check_owner(cl, volume);
	if (r)
		return r;
	m = volume->member;
	if (!m || !hybrid_node_uncached(volume))
		return hybrid_fail(HYBRID_BADDEV,
				   "hybridctl accept-loss first, if the cache device is gone",
				   "volume %s has a cache, or its origin is missing", volume->name);
	if (!m->sb.lost && !(m->sb.flags & HYBRID_SB_LOSS_UNKNOWN) && !m->apart) {
		hybrid_note("volume %s has no loss that is not acknowledged", m->sb.name);
		return 0;
	}
	if (cl->given[OPT_TEST]) {
		printf("write %s: superblocks that name no loss\n", m->path);
		return 0;
	}
	r = forget_lost(m);
	if (!r)
		hybrid_note("the losses of volume %s are no longer listed", m->sb.name);
	return r;
}

/* --acknowledge: clears the record of lost data on the origin. */
static int acknowledge_loss(const struct command_line *cl)
{
	struct hybrid_inventory inv = {};
	int r;

	if (cl->argc != 1)
		return hybrid_fail(HYBRID_USAGE, "give its name", "--acknowledge takes one volume");
	r = lock_with_members(&inv);
	if (!r)
		r = acknowledge(cl, &inv);
	hybrid_inventory_free(&inv);
	return r;
}

int command_lost(const struct command_line *cl)
{
	struct lost l = { .cl = cl, .dev.fd = -1 };
	int i, nr, r;

	if (cl->given[OPT_ACKNOWLEDGE])
		return acknowledge_loss(cl);
	r = device_words(&l.words, cl->argc, cl->argv, true);
	nr = l.words.nr;
	/* Each cache device tells of as many volumes as there can be */
	if (!r)
		l.told = calloc((size_t)nr * HYBRID_MAX_VOLUMES, sizeof(*l.told));
	if (!r && !l.told)
		r = hybrid_nomem();
	for (i = 0; !r && i < 2 * nr; i++)
		r = lost_device(&l, l.words.path[i % nr], i < nr);
	if (!r)
		r = report(&l);
	free(l.told);
	device_words_free(&l.words);
	if (l.active_loaded)
		hybrid_inventory_free(&l.active);
	hybrid_losses_free(&l.losses);
	return r;
}
