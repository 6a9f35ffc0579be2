// SPDX-License-Identifier: GPL-2.0-or-later
/* A volume in the making: the steps that create, attach and activate share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "ephemeral.h"
#include "errors.h"
#include "live.h"
#include "look.h"
#include "new-volume.h"
#include "owner.h"

/* Finds the path of the origin: --origin, or that of the volume without a cache called @name. */
static int find_origin(const struct command_line *cl, const char *name, char path[HYBRID_PATH_MAX])
{
	struct hybrid_inventory inv = {};
	struct hybrid_node *node;
	int r = 0;

	path[0] = '\0';
	if (cl->value[OPT_ORIGIN]) {
		snprintf(path, HYBRID_PATH_MAX, "%s", cl->value[OPT_ORIGIN]);
		return 0;
	}
	if (!cl->given[OPT_IN_PLACE])
		r = hybrid_inventory_load(&inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE, NULL, 0);
	node = r ? NULL : hybrid_find(&inv, name, 1U << HYBRID_VOLUME);
	if (!r && !node)
		r = hybrid_check_several(&inv, name, 1U << HYBRID_VOLUME);
	if (node && hybrid_node_uncached(node) && node->member && node->member->ok)
		snprintf(path, HYBRID_PATH_MAX, "%s", node->member->path);
	hybrid_inventory_free(&inv);
	if (r || path[0])
		return r;
	return hybrid_fail(HYBRID_USAGE, "give the slow device: --origin DEVICE",
			   "no origin given for %s", name);
}

/* Whether a volume without a cache is up: it gets a cache as it is, in use or not. */
static bool is_up(const char *name, const char *origin)
{
	struct hybrid_dm_linear linear;
	uint8_t uuid[16];
	struct stat st;
	bool pool;

	return !stat(origin, &st) && S_ISBLK(st.st_mode) && hybrid_dm_linear(name, &linear) &&
	       linear.below == st.st_rdev && hybrid_dm_uuid_parse(linear.uuid, uuid, &pool);
}

static int parse_data_offset(struct new_volume *nv, const struct command_line *cl)
{
	const char *text = cl->value[OPT_DATA_OFFSET];

	if (!text)
		return 0;
	if (!nv->entry.inplace)
		return hybrid_fail(HYBRID_USAGE, "leave it out, or add --in-place",
				   "--data-offset is only for data that is cached in place");
	if (parse_sectors("--data-offset", text, &nv->plan.data_sector))
		return HYBRID_USAGE;
	if (nv->plan.data_sector % HYBRID_META_BLOCK_SECTORS == 0)
		return 0;
	return hybrid_fail(HYBRID_USAGE, "give a multiple of 4k", "--data-offset %s is not a multiple of 4k", text);
}

int new_volume_parse(struct new_volume *nv, const struct command_line *cl, const char *name)
{
	unsigned int flags = HYBRID_OPEN_EXCLUSIVE;
	char path[HYBRID_PATH_MAX];
	int r;

	memset(nv, 0, sizeof(*nv));
	nv->origin.fd = -1;
	nv->entry.inplace = cl->given[OPT_IN_PLACE];
	r = find_origin(cl, name, path);
	if (r)
		return r;
	nv->live = cl->given[OPT_LIVE] || is_up(name, path);
	nv->force = cl->given[OPT_FORCE];
	nv->ephemeral = cl->given[OPT_EPHEMERAL];
	nv->mode_given = cl->value[OPT_MODE];
	nv->cutoff_given = cl->value[OPT_CUTOFF];
	r = check_new_name("volume", name, !cl->given[OPT_TEST] && !nv->live);
	if (!r)
		r = parse_volume_options(cl, &nv->entry.mode, &nv->entry.cutoff_sectors);
	if (!r)
		r = check_mode(cl, cl->given[OPT_IN_PLACE], nv->entry.mode);
	if (!r && nv->ephemeral && nv->entry.inplace)
		r = hybrid_fail(HYBRID_REFUSED, "leave out one of them",
				"--ephemeral writes a mark to the origin, and --in-place writes nothing there");
	if (!r && nv->ephemeral && nv->entry.mode == HYBRID_MODE_WRITEBACK)
		r = fail_ephemeral_writeback(name);
	if (r)
		return r;
	r = parse_data_offset(nv, cl);
	if (r)
		return r;
	strcpy(nv->entry.name, name);
	strcpy(nv->plan.name, name);
	nv->plan.inplace = nv->entry.inplace;
	nv->plan.guard = cl->given[OPT_GUARD_MBR];
	if (cl->given[OPT_TEST])
		flags |= HYBRID_OPEN_FILES;
	/* The volume's device holds the origin; live_find() looks for other holders */
	if (nv->live)
		flags = 0;
	r = hybrid_device_answers(path);
	if (!r)
		r = hybrid_device_open(&nv->origin, path, flags);
	return r || !nv->live ? r : live_find(nv);
}

/* LVM, md ... find the origin by its contents, and at a boot it is there before the volume. */
static int check_not_in_array(const struct hybrid_device *origin)
{
	char type[64];

	if (!hybrid_device_in_array(origin, type, sizeof(type)))
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   !strcmp(type, "bcache") ? "hybridctl import removes bcache" :
			   "cache the resulting device (the logical volume, the array); or leave out --in-place "
			   "on an empty disk, and move the data there (pvmove, zpool replace)",
			   "%s is part of a device that other tools assemble at boot (%s): they would use the "
			   "origin and bypass its cache, or use both", origin->path, type);
}

/* The refusals of confirm_format(), for an origin that is not formatted. */
static int check_inplace(const struct new_volume *nv)
{
	struct hybrid_member m;
	int r;

	r = check_found_again(&nv->origin);
	if (r)
		return r;
	if (hybrid_member_read(&nv->origin, &m))
		return nv->other ? 0 : check_not_in_array(&nv->origin);
	if (m.sb.role == HYBRID_ROLE_DETACHED)
		return hybrid_fail(HYBRID_REFUSED, "leave out --in-place: its data stays where it is",
				   "%s was detached: its data begins at sector %llu, not at 0",
				   nv->origin.path, (unsigned long long)m.sb.data_sector);
	return hybrid_member_fail(&nv->origin, &m, "detach it first");
}

/*
 * Plans for the origin of a volume without a cache: data, UUIDs and name stay, and so do the
 * settings of its last cache.
 */
static int plan_kept(struct new_volume *nv, const struct hybrid_member *m)
{
	const struct hybrid_sb *old = &m->sb;
	struct hybrid_sb *sb = &nv->plan.sb;
	uint8_t key[16];
	int r = nv->live || nv->follows ? 0 : check_owner_of(m);

	if (r)
		return r;
	if (strcmp(old->name, nv->entry.name))
		return hybrid_fail(HYBRID_REFUSED,
				   "give that name; or hybridctl wipe it, if its data may be lost",
				   "%s is the origin of volume %s", nv->origin.path, old->name);
	if (old->lost || old->flags & HYBRID_SB_LOSS_UNKNOWN)
		return hybrid_fail(HYBRID_REFUSED,
				   "restore it, then hybridctl lost --acknowledge",
				   "some of the data of %s was lost with its last cache", old->name);
	/* The partition bypasses the cache: it must not be mounted while the cache has newer data */
	if (m->gpt)
		return hybrid_fail(HYBRID_REFUSED,
				   "hybridctl export finishes it; or wipefs --all removes the table, and keeps the volume",
				   "the export of %s was interrupted: %s has a partition table", old->name,
				   nv->origin.path);
	memcpy(key, sb->pairing_key, sizeof(key));
	*sb = *old;
	hybrid_member_pair(sb, nv->plan.pool_uuid, nv->plan.volume_id, key);
	if (!nv->mode_given && sb->next.mode)
		nv->entry.mode = sb->next.mode - 1;
	if (!nv->cutoff_given && sb->next.cutoff_sectors)
		nv->entry.cutoff_sectors = sb->next.cutoff_sectors - 1;
	return 0;
}

/* Whether the origin has all data of the volume: it has no cache, or lost one that had nothing newer. */
static bool is_kept(const struct new_volume *nv, const struct hybrid_member *m)
{
	if (!nv->follows)
		return m->ok && (m->sb.role == HYBRID_ROLE_DETACHED || nv->unknown);
	return m->ok && ephemeral_of(m) && !memcmp(m->sb.pool_uuid, nv->follows, 16);
}

int new_volume_plan(struct new_volume *nv)
{
	struct hybrid_member m;
	int r;

	nv->kept = !nv->plan.inplace && !hybrid_member_read(&nv->origin, &m) && is_kept(nv, &m);
	if (nv->follows && !nv->kept)
		return hybrid_fail(HYBRID_BADDEV, "try again", "%s changed since it was scanned",
				   nv->origin.path);
	r = nv->plan.inplace ? check_inplace(nv) : 0;
	if (!r && (nv->plan.inplace || nv->kept) && !nv->live && !nv->force)
		r = check_sectors(nv->fast, nv->origin.devno, nv->origin.path,
				  "use a cache device with smaller sectors, or --force if all its contents use larger ones");
	if (r)
		return r;
	nv->plan.volume_id = nv->entry.id;
	if (nv->other)
		nv->plan.data_sector = nv->other->data_sector;
	r = hybrid_origin_plan(&nv->origin, &nv->plan);
	if (!r && nv->kept)
		r = plan_kept(nv, &m);
	if (!r)
		r = mark_ephemeral(nv);
	if (!r && nv->live)
		r = live_plan(nv);
	if (r)
		return r;
	memcpy(nv->entry.uuid, nv->plan.sb.volume_uuid, 16);
	memcpy(nv->entry.member_uuid, nv->plan.sb.member_uuid, 16);
	nv->entry.data_sector = nv->plan.sb.data_sector;
	nv->entry.data_sectors = nv->plan.sb.data_sectors;
	return 0;
}

static int reopen_origin(struct new_volume *nv)
{
	return hybrid_device_reopen(&nv->origin, HYBRID_OPEN_WRITE |
				    (nv->live ? 0 : HYBRID_OPEN_EXCLUSIVE));
}

int new_volume_check_writable(struct new_volume *nv)
{
	/* The kernel opens it in the same way, also in place */
	return reopen_origin(nv);
}

int new_volume_write(struct new_volume *nv)
{
	int r;

	if (nv->plan.inplace || nv->kept)
		return 0;
	r = reopen_origin(nv);
	if (r)
		return r;
	hybrid_verbose("format origin %s", nv->origin.path);
	nv->written = true;
	explain_guard(&nv->origin, nv->plan.guard);
	r = hybrid_origin_format(&nv->origin, &nv->plan);
	if (r)
		hybrid_member_wipe(&nv->origin, &nv->plan.sb);
	/* The kernel opens it exclusively next */
	hybrid_device_close(&nv->origin);
	return r;
}

void undo_volume_write(struct new_volume *nv)
{
	if (nv->plan.inplace || nv->kept)
		return;
	hybrid_verbose("undo: wipe %s", nv->origin.path);
	if (!reopen_origin(nv))
		hybrid_member_wipe(&nv->origin, &nv->plan.sb);
	hybrid_device_close(&nv->origin);
}

/*
 * Writes both copies of an origin that is kept: paired with the pool, or if not @paired, without a
 * cache again.
 */
static int mark_kept(struct new_volume *nv, bool paired)
{
	int r = reopen_origin(nv);

	hybrid_verbose("mark origin %s: %s", nv->origin.path, paired ? "paired" : "without cache");
	if (!r)
		r = paired ? hybrid_member_write(&nv->origin, &nv->plan.sb) :
			     hybrid_member_mark_detached(&nv->origin, NULL);
	hybrid_device_close(&nv->origin);
	return r;
}

static void undo_create_volume(struct new_volume *nv)
{
	char message[64];

	/* The origin stays this pool's as long as a copy may name the pool */
	if (nv->follows || (nv->kept && mark_kept(nv, false)))
		return;
	snprintf(message, sizeof(message), "delete_volume %u drop_dirty", nv->entry.id);
	if (hybrid_dm_message(nv->pool_name, message, NULL))
		return;
	snprintf(message, sizeof(message), "forget_volume %u", nv->entry.id);
	hybrid_dm_message(nv->pool_name, message, NULL);
}

/*
 * Removes the superblock of the cache that the origin had or, if @back, writes it again.  Until
 * then the origin stays open: when a device that was open for writing is closed, udev calls the
 * tools that look for such a superblock.
 */
static int replace_other(struct new_volume *nv, bool back)
{
	const struct other_cache *other = nv->other;
	size_t len = nv->origin.logical_sectors * 512;
	void *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	int r;

	if (!other || !block) {
		free(block);
		return other ? hybrid_nomem() : 0;
	}
	hybrid_verbose("%s: the superblock of %s is %s", nv->origin.path, other->type, back ? "restored" : "removed");
	if (back)
		memcpy(block, other->block, len);
	r = hybrid_device_writable(&nv->origin) ? 0 : reopen_origin(nv);
	if (!r) {
		r = hybrid_device_write(&nv->origin, other->sector, block, len);
		if (!r)
			r = hybrid_device_flush(&nv->origin);
		if (r)
			r = hybrid_fail(hybrid_exit_of_errno(-r), "check the device and the kernel log",
					"%s: cannot write: %s", nv->origin.path, strerror(-r));
	}
	free(block);
	hybrid_device_close(&nv->origin);
	return r;
}

int new_volume_enter(struct new_volume *nv)
{
	char message[HYBRID_PARAMS_MAX];
	int r;

	if (!nv->other)
		hybrid_device_close(&nv->origin);
	hybrid_create_message_build(message, sizeof(message), &nv->entry,
				    nv->plan.sb.pairing_key);
	r = hybrid_dm_message(nv->pool_name, message, NULL);
	if (r)
		return r;
	/* A cut before this leaves an entry that the origin does not know: the next activation deletes it */
	if (nv->kept)
		r = mark_kept(nv, true);
	if (r)
		undo_create_volume(nv);
	return r;
}

int new_volume_start(struct new_volume *nv)
{
	char params[HYBRID_PARAMS_MAX];
	int r = new_volume_enter(nv);

	if (r)
		return r;
	kernel_params(params, &nv->entry, nv->pool, nv->origin.devno);
	r = replace_other(nv, false);
	if (!r)
		r = nv->live ? live_start(nv, params) :
		    start_volume(&nv->entry, nv->pool, nv->origin.devno);
	if (r) {
		replace_other(nv, true);
		undo_create_volume(nv);
	}
	return r;
}

void print_volume_test(const struct new_volume *nv)
{
	char params[HYBRID_PARAMS_MAX], message[HYBRID_PARAMS_MAX], pool[HYBRID_DEVICE_MAX];
	char uuid[HYBRID_DM_UUID_TEXT];

	if (!nv->plan.inplace) {
		printf("write %s: %ssuperblocks at sectors %llu and %llu\n", nv->origin.path,
		       nv->kept ? "" : "zero the first and the last MiB, ",
		       (unsigned long long)hybrid_sb_sector(nv->plan.sb.member_sectors, 0),
		       (unsigned long long)hybrid_sb_sector(nv->plan.sb.member_sectors, 1));
		print_guard_test(&nv->origin, nv->plan.guard && !nv->kept);
	} else if (nv->other) {
		printf("write %s: zero the superblock of %s at sector %llu; the data begins at sector %llu\n",
		       nv->origin.path, nv->other->type, (unsigned long long)nv->other->sector,
		       (unsigned long long)nv->other->data_sector);
	}
	hybrid_create_message_build(message, sizeof(message), &nv->entry,
				    nv->plan.sb.pairing_key);
	printf("dmsetup message %s 0 '%s'\n", nv->pool_name, message);
	snprintf(pool, sizeof(pool), "/dev/mapper/%s", nv->pool_name);
	volume_params(params, &nv->entry, pool, nv->origin.path);
	hybrid_dm_uuid(uuid, nv->entry.uuid, false);
	if (nv->live && !nv->linear.uuid[0])
		printf("dmsetup rename %s --setuuid %s\n", nv->entry.name, uuid);
	if (nv->live)
		printf("dmsetup load %s", nv->entry.name);
	else
		printf("dmsetup create %s --uuid %s", nv->entry.name, uuid);
	printf(" --table '0 %llu %s %s'\n", (unsigned long long)nv->entry.data_sectors,
	       HYBRID_VOLUME_TARGET, params);
	if (nv->live)
		printf("dmsetup resume --nolockfs %s\n", nv->entry.name);
}

void new_volume_close(struct new_volume *nv)
{
	hybrid_device_close(&nv->origin);
}
