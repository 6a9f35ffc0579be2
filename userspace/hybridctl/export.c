// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * export: makes an ordinary disk of the origin of a volume without a cache.  Nothing is copied: a GPT in
 * head and tail makes the data area its one partition.
 *
 * The order: both superblocks say that the volume has no cache; the whole table is written, durably; the
 * superblocks are removed, the head's first.  As long as one superblock is there, the disk is the origin
 * that it was, even with some or all of a table, and export given again goes on.
 */
#include <stdio.h>
#include <string.h>

#include "announce.h"
#include "common.h"
#include "errors.h"
#include "gpt.h"
#include "owner.h"
#include "sysfs.h"

struct export {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	const struct hybrid_node *volume;
	const struct hybrid_member *m;
};

/* Obstacles ----------------------------------------------------------------- */

static int fail_no_superblock(const struct export *e)
{
	const struct hybrid_node *volume = e->volume;
	char path[HYBRID_PATH_MAX];

	if (!volume->active || (!volume->v.table.inplace && !hybrid_node_uncached(volume)))
		return hybrid_fail(HYBRID_BADDEV, "connect it, or see hybridctl scan",
				   "the origin of %s is not here", volume->name);
	return hybrid_fail(HYBRID_REFUSED, "if it has a cache, hybridctl detach is all that it takes",
			   "%s is in place: its data is on %s as if there were no dm-hybrid", volume->name,
			   hybrid_node_device(volume, path, sizeof(path)));
}

static int check_member(const struct export *e)
{
	const struct hybrid_member *m = e->m;

	if (!m)
		return fail_no_superblock(e);
	if (!m->ok)
		return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(m, "see hybridctl scan"),
				   "%s: %s", m->path, m->why);
	if (is_foreign(e->volume))
		return hybrid_fail(HYBRID_REFUSED, "stop it there; then hybridctl adopt takes it over",
				   "%s belongs to another host", e->volume->name);
	if (m->sb.role != HYBRID_ROLE_DETACHED)
		return hybrid_fail(HYBRID_REFUSED, "detach it first (hybridctl detach)",
				   "%s has a cache", e->volume->name);
	if (m->sb.lost || m->sb.flags & HYBRID_SB_LOSS_UNKNOWN)
		return hybrid_fail(HYBRID_REFUSED,
				   "restore it, then hybridctl lost --acknowledge",
				   "some of the data of %s was lost with its last cache", e->volume->name);
	return 0;
}

static int check_unused(const struct hybrid_node *volume)
{
	char where[HYBRID_PATH_MAX];

	if (!volume->active)
		return 0;
	if (hybrid_devno_mounted(volume->dm.devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY, "unmount it first", "%s is mounted at %s",
				   volume->name, where);
	if (volume->dm.open_count)
		return hybrid_fail(HYBRID_BUSY, "stop its users first (lsblk, fuser)",
				   "%s is in use", volume->name);
	return 0;
}

/* Prints commands that reach the data on a device that can have no table. */
static void explain_mapping(const struct hybrid_member *m)
{
	const struct hybrid_sb *sb = &m->sb;

	hybrid_note("its data is on %s, from sector %llu on (%llu sectors); to reach it without dm-hybrid:",
		    m->path, (unsigned long long)sb->data_sector, (unsigned long long)sb->data_sectors);
	hybrid_note("  dmsetup create %s --table '0 %llu linear %s %llu'", sb->name,
		    (unsigned long long)sb->data_sectors, m->path, (unsigned long long)sb->data_sector);
	hybrid_note("  losetup --find --show --offset %llu --sizelimit %llu %s",
		    (unsigned long long)sb->data_sector * 512, (unsigned long long)sb->data_sectors * 512,
		    m->path);
}

/*
 * The disk of a partition has a table already, in which the partition could begin where the data
 * begins.  We do not write that table: others may have partitions in use there, and a cut in the
 * middle of the write would be their loss.
 */
static int fail_partition(const struct export *e, dev_t disk, unsigned int number, uint64_t start)
{
	const struct hybrid_sb *sb = &e->m->sb;
	unsigned int bytes, sector = 512;
	char path[HYBRID_PATH_MAX];

	hybrid_devno_path(disk, path, sizeof(path));
	if (hybrid_sysfs_queue(disk, "logical_block_size", &bytes) && bytes > sector)
		sector = bytes;
	hybrid_fail(HYBRID_REFUSED, "change the existing table, as below, or map the data",
		    "%s is a partition: a table within it would not be found", e->m->path);
	if ((start + sb->data_sector) * 512 % sector == 0)
		hybrid_note("to reduce the partition to its data, while it is not in use:\n"
			    "  echo 'start=%llu, size=%llu, type=L' | sfdisk --no-reread -N %u %s; partx --update --nr %u %s",
			    (unsigned long long)(start + sb->data_sector) * 512 / sector,
			    (unsigned long long)sb->data_sectors * 512 / sector, number, path, number,
			    path);
	explain_mapping(e->m);
	return HYBRID_REFUSED;
}

static int check_whole(const struct export *e)
{
	unsigned int number;
	uint64_t start;
	dev_t disk;

	if (hybrid_sysfs_partition_of(e->m->devno, &disk, &number, &start))
		return fail_partition(e, disk, number, start);
	if (!hybrid_sysfs_mapped(e->m->devno))
		return 0;
	hybrid_fail(HYBRID_REFUSED, "map the data, as below", "%s is not a disk: a table on it would not be found",
		    e->m->path);
	explain_mapping(e->m);
	return HYBRID_REFUSED;
}

static int check_room(const struct export *e)
{
	struct hybrid_device dev;
	int r;

	r = hybrid_device_open(&dev, e->m->path, e->volume->active ? 0 : HYBRID_OPEN_EXCLUSIVE);
	if (!r)
		r = hybrid_check_formattable(&dev);
	if (!r)
		r = hybrid_gpt_check(&dev, &e->m->sb);
	hybrid_device_close(&dev);
	return r;
}

static int find(struct export *e, const char *what)
{
	struct hybrid_node *volume;
	int r;

	r = hybrid_find_or_fail(&e->inv, what, 1U << HYBRID_VOLUME, &volume);
	if (r)
		return r;
	e->volume = volume;
	e->m = volume->member;
	r = check_member(e);
	if (!r)
		r = check_unused(volume);
	if (!r)
		r = check_whole(e);
	return r ? r : check_room(e);
}

static int look(struct export *e, const char *what)
{
	int r = hybrid_inventory_load(&e->inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE, NULL, 0);

	return r ? r : find(e, what);
}

/* Takes the lock.  While the user was asked, another command may have changed the volume. */
static int lock_and_look_again(struct export *e)
{
	struct hybrid_sb before = e->m->sb;
	char uuid[HYBRID_UUID_TEXT];
	int r;

	hybrid_inventory_free(&e->inv);
	r = hybrid_inventory_load(&e->inv, HYBRID_LOAD_MEMBERS, NULL, 0);
	if (!r)
		r = lock_tools();
	if (!r)
		r = hybrid_inventory_look_again(&e->inv, HYBRID_LOAD_ACTIVE);
	if (!r)
		r = find(e, hybrid_uuid_text(uuid, before.volume_uuid));
	if (r || (e->m->sb.sequence == before.sequence && e->m->sb.nonce == before.nonce))
		return r;
	return hybrid_fail(HYBRID_BUSY, "check its state, then try again", "%s has been used meanwhile", before.name);
}

/* Doing it ------------------------------------------------------------------- */

static int ask(const struct export *e)
{
	char question[2 * HYBRID_PATH_MAX];

	snprintf(question, sizeof(question),
		 "%s will no longer be a volume: %s gets a partition table with the data as its only partition.",
		 e->volume->name, e->m->path);
	return confirm(e->cl, question);
}

static void print_result(const struct hybrid_device *dev, const struct hybrid_sb *sb, int reread)
{
	char path[HYBRID_PATH_MAX], uuid[HYBRID_UUID_TEXT];

	hybrid_gpt_partition(dev->path, path, sizeof(path));
	hybrid_uuid_text(uuid, sb->volume_uuid);
	hybrid_note("%s is an ordinary disk: the former volume %s is its partition %s (PARTUUID=%s), from sector %llu on (%llu sectors)",
		    dev->path, sb->name, path, uuid, (unsigned long long)sb->data_sector,
		    (unsigned long long)sb->data_sectors);
	hybrid_note("in /etc/fstab and /etc/crypttab, replace /dev/mapper/%s by PARTUUID=%s, or by the UUID of its contents",
		    sb->name, uuid);
	if (reread)
		hybrid_warn("the kernel does not know %s yet (%s): run partx --update %s, or reboot",
			    path, strerror(-reread), dev->path);
}

static int write_disk(const struct export *e)
{
	struct hybrid_device dev;
	struct hybrid_member now;
	int r;

	r = open_unchanged(&dev, e->m, 0, &now);
	/* An old copy could bring back a cache: both say the same before either goes */
	if (!r)
		r = hybrid_member_unite(&dev, &now);
	if (!r) {
		/* Commands that read no disk can tell by this that the export was cut short */
		now.gpt = true;
		announce_found(dev.devno, &now);
		r = hybrid_gpt_write(&dev, &now.sb);
	}
	if (!r)
		r = hybrid_member_unsign(&dev, &now.sb);
	if (!r)
		print_result(&dev, &now.sb, hybrid_gpt_reread(&dev));
	hybrid_device_close(&dev);
	return r;
}

static int part(const struct export *e)
{
	int r = 0;

	hold_signals();
	if (e->volume->active)
		r = hybrid_dm_remove(e->volume->name);
	if (!r)
		r = write_disk(e);
	return r;
}

static void print_test(const struct export *e)
{
	const struct hybrid_sb *sb = &e->m->sb;
	char uuid[HYBRID_UUID_TEXT];

	if (e->volume->active)
		printf("dmsetup remove %s\n", e->volume->name);
	printf("write %s: a GPT, primary and backup, with one partition: from sector %llu on, %llu sectors, UUID %s\n",
	       e->m->path, (unsigned long long)sb->data_sector, (unsigned long long)sb->data_sectors,
	       hybrid_uuid_text(uuid, sb->volume_uuid));
	printf("write %s: zero the superblocks at sectors %llu and %llu\n", e->m->path,
	       (unsigned long long)hybrid_sb_sector(sb->member_sectors, 0),
	       (unsigned long long)hybrid_sb_sector(sb->member_sectors, 1));
}

static int export_volume(struct export *e)
{
	int r;

	if (e->cl->given[OPT_TEST]) {
		print_test(e);
		return 0;
	}
	r = ask(e);
	if (!r)
		r = lock_and_look_again(e);
	return r ? r : part(e);
}

int command_export(const struct command_line *cl)
{
	struct export e = { .cl = cl };
	int r;

	r = look(&e, cl->argv[0]);
	if (!r)
		r = export_volume(&e);
	hybrid_inventory_free(&e.inv);
	return r;
}
