// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rename: gives pools and volumes another name, in use or not.
 *
 * 1. The durable records: for a pool its superblocks; for a volume its pool's entry, then its origin's
 *    superblocks; for a volume without a cache its origin's superblocks.  If a cut leaves the entry and
 *    the superblocks of a volume different, the entry is right, and the next activation makes the
 *    superblocks agree.
 * 2. The device.  If the command is killed before that, the next activation renames the device, or the
 *    same command given again.
 */
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "common.h"
#include "config.h"
#include "errors.h"
#include "owner.h"
#include "sysfs.h"

struct renaming {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	struct hybrid_node *node;
	const char *name;			/* the new one */
	char old[HYBRID_NAME_SIZE];
	bool has_entry;
	struct hybrid_volume_line entry;	/* of a volume with a cache */
};

/* Whether it can be done ------------------------------------------------------------ */

static int check_running(const struct hybrid_node *pool)
{
	if (!pool->dm.live || pool->dm.suspended)
		return hybrid_fail(HYBRID_BUSY, "see hybridctl status",
				   "pool %s is suspended, or has no table", pool->name);
	if (strcmp(pool->p.status.state, "running"))
		return hybrid_fail(HYBRID_DEGRADED, "see hybridctl status", "pool %s is %s: it cannot record a name",
				   pool->name, pool->p.status.state);
	return 0;
}

static int check_member(const struct hybrid_node *node)
{
	const struct hybrid_member *m = node->member;

	if (m && m->ok)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(m, "connect it, or see hybridctl scan"),
			   "the device of %s is missing or refused%s%s", node->name,
			   m ? ": " : "", m ? m->why : "");
}

static int check_pool(const struct hybrid_node *pool)
{
	if (pool->successor || hybrid_node_replaces(pool))
		return hybrid_fail(HYBRID_BUSY, "finish it with hybridctl replace-cache first",
				   "the cache of pool %s is being replaced", pool->name);
	return pool->active ? check_running(pool) : check_member(pool);
}

/* Only the origin records the name of a volume without a cache. */
static int check_uncached(const struct hybrid_node *volume)
{
	if (volume->active && !volume->member)
		return hybrid_fail(HYBRID_REFUSED, "dmsetup rename gives it another one until it is removed",
				   "nothing records the name of volume %s: it is in place, and has no cache",
				   volume->name);
	return check_member(volume);
}

static int check_paired(const struct hybrid_node *volume)
{
	const struct hybrid_node *pool = volume->pool;

	if (volume->given_up)
		return hybrid_fail(HYBRID_REFUSED, "hybridctl detach --drop-dirty gives that data up",
				   "volume %s has another name now: this is the data that its last cache has of it",
				   volume->name);
	if (!pool || !pool->active)
		return hybrid_fail(HYBRID_DEGRADED, pool ? "hybridctl activate the pool first" :
				   "connect the cache device, and hybridctl activate; or, if it is gone for good, hybridctl detach the volume",
				   "the pool of volume %s records its name, and is not active",
				   volume->name);
	if (volume->active && volume->dm.alone)
		return hybrid_fail(HYBRID_BUSY, volume->dm.readonly ? "hybridctl deactivate it first" :
				   "hybridctl activate it first", "volume %s runs without its cache",
				   volume->name);
	return check_running(pool);
}

static bool is_paired(const struct hybrid_node *node)
{
	return node->kind == HYBRID_VOLUME && !hybrid_node_uncached(node);
}

static int find_entry(struct renaming *r)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int err;

	err = hybrid_pool_volumes(r->node->pool->name, &entries, &nr);
	if (err)
		return err;
	for (i = 0; i < nr && !r->has_entry; i++) {
		r->has_entry = !entries[i].tombstone && !memcmp(entries[i].uuid, r->node->uuid, 16);
		r->entry = entries[i];
	}
	free(entries);
	if (r->has_entry)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan", "pool %s does not know volume %s",
			   r->node->pool->name, r->node->name);
}

static int check_free(struct renaming *r)
{
	int err = check_name_unused(&r->inv, r->node->kind, r->node->uuid, r->name, NULL);

	if (err || (r->node->active && !strcmp(r->node->name, r->name)))
		return err;
	return check_new_name(hybrid_kind_name(r->node->kind), r->name, true);
}

static int check(struct renaming *r)
{
	struct hybrid_node *node = r->node;
	int err = check_owner(r->cl, node);

	if (!err && node->deleted)
		err = hybrid_fail(HYBRID_BUSY, "hybridctl activate --all finishes it",
				  "the detach of volume %s was interrupted", node->name);
	if (!err && node->kind == HYBRID_POOL)
		err = check_pool(node);
	else if (!err)
		err = is_paired(node) ? check_paired(node) : check_uncached(node);
	if (!err && is_paired(node))
		err = find_entry(r);
	return err ? err : check_free(r);
}

static bool is_done(const struct renaming *r)
{
	const struct hybrid_member *m = r->node->member;

	return !strcmp(r->node->name, r->name) &&
	       (!r->has_entry || !strcmp(r->entry.name, r->name)) &&
	       (!m || !m->ok || (!strcmp(m->sb.name, r->name) && !m->apart));
}

/* 1. The durable records -------------------------------------------------------------- */

/* Writes both copies.  Nobody else writes them: the pool or volume is not active, or is linear. */
static int write_member(struct renaming *r, const char *name)
{
	struct hybrid_device dev;
	struct hybrid_member now;
	int err;

	err = open_again(&dev, r->node->member, r->node->dm.devno, &now);
	if (!err) {
		snprintf(now.sb.name, sizeof(now.sb.name), "%s", name);
		now.sb.sequence++;
		err = hybrid_member_write(&dev, &now.sb);
	}
	hybrid_device_close(&dev);
	return err;
}

/* The kernel wrote the superblock: udev reads it again or, if there is none, we do. */
static void announce_again(dev_t devno)
{
	char path[HYBRID_PATH_MAX];
	struct hybrid_device dev;
	struct hybrid_member m;

	if (!hybrid_device_open(&dev, hybrid_devno_path(devno, path, sizeof(path)), HYBRID_OPEN_QUIET) &&
	    !hybrid_member_read(&dev, &m) && m.ok)
		announce_found(devno, &m);
	hybrid_device_close(&dev);
	hybrid_sysfs_uevent(devno, "change");
}

/* The kernel writes the superblocks of an origin that is open. */
static int write_entry(struct renaming *r, const char *name)
{
	const struct hybrid_node *node = r->node;
	char message[HYBRID_NAME_SIZE + 32];
	int err;

	snprintf(message, sizeof(message), "rename_volume %u %s", r->entry.id, name);
	err = hybrid_dm_message(node->pool->name, message, NULL);
	if (err || node->active || !node->member || !node->member->ok)
		return err;
	return write_member(r, name);
}

static int write_pool(struct renaming *r, const char *name)
{
	char message[HYBRID_NAME_SIZE + 16];

	if (!r->node->active)
		return write_member(r, name);
	snprintf(message, sizeof(message), "rename %s", name);
	return hybrid_dm_message(r->node->name, message, NULL);
}

static int write_name(struct renaming *r, const char *name)
{
	if (r->node->kind == HYBRID_POOL)
		return write_pool(r, name);
	return r->has_entry ? write_entry(r, name) : write_member(r, name);
}

/* 2. The device ----------------------------------------------------------------------- */

int rename_device(struct hybrid_node *node, const char *name)
{
	int err;

	if (!node->active || !strcmp(node->name, name))
		return 0;
	if (hybrid_dm_name_taken(name))
		return hybrid_fail(HYBRID_BUSY, "rename or remove that device",
				   "%s cannot be renamed to %s: a device-mapper device of this name exists",
				   node->name, name);
	err = hybrid_dm_rename(node->name, name, node->kind == HYBRID_POOL);
	if (!err)
		snprintf(node->name, sizeof(node->name), "%s", name);
	return err;
}

static int change(struct renaming *r)
{
	int err;

	hold_signals();
	err = write_name(r, r->name);
	if (!err)
		err = rename_device(r->node, r->name);
	if (err) {
		write_name(r, r->old);
		return hybrid_fail(err, "resolve the error above, then give the command again",
				   "%s was not renamed", r->old);
	}
	if (r->node->active && r->node->below)
		announce_again(r->node->below);
	return 0;
}

/* Other places with the old name ------------------------------------------------------- */

static void warn_of_config(const struct renaming *r)
{
	const struct hybrid_config *config = hybrid_config();
	unsigned int i;

	for (i = 0; i < config->autoactivate_list.nr; i++)
		if (!strcmp(config->autoactivate_list.word[i], r->old))
			hybrid_warn("%s lists %s: write %s there, or it does not come up by itself",
				    hybrid_config_path(), r->old, r->name);
	for (i = 0; i < config->nr_ephemeral && r->node->kind == HYBRID_POOL; i++)
		if (!strcmp(config->ephemeral[i].pool, r->old))
			hybrid_warn("%s has pool=%s: write %s there, or the pool is called %s again when its device comes up blank",
				    hybrid_config_path(), r->old, r->name, r->old);
}

/* Whether a word of a line has the old name: after /dev/mapper/, or as the value of rd.hybrid.name=. */
static bool names(const char *word, const char *old)
{
	size_t len = strlen(word), name = strlen(old);
	const char *end = word + len - name;

	if (len < name || strcmp(end, old))
		return false;
	return (end - word >= 12 && !strncmp(end - 12, "/dev/mapper/", 12)) ||
	       (end - word >= 15 && !strncmp(end - 15, "rd.hybrid.name=", 15));
}

static void warn_of_file(const struct renaming *r, const char *path)
{
	char *line = NULL, *word, *save;
	bool found = false;
	size_t size = 0;
	FILE *f;

	f = fopen(path, "re");
	while (f && !found && getline(&line, &size, f) > 0)
		if (line[strspn(line, " \t")] != '#')
			for (word = strtok_r(line, " \t\n\"'", &save); word && !found;
			     word = strtok_r(NULL, " \t\n\"'", &save))
				found = names(word, r->old);
	free(line);
	if (f)
		fclose(f);
	if (found)
		hybrid_warn("%s names %s: write %s there before the next boot", path, r->old, r->name);
}

static void warn_of_old_name(const struct renaming *r)
{
	static const char * const files[] = { "fstab", "crypttab", "default/grub", "kernel/cmdline" };
	char path[HYBRID_PATH_MAX];
	unsigned int i;

	warn_of_config(r);
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		warn_of_file(r, hybrid_etc_path(path, sizeof(path), files[i]));
}

/* --------------------------------------------------------------------------------------- */

static void print_test(const struct renaming *r)
{
	const struct hybrid_node *node = r->node;

	if (node->kind == HYBRID_POOL && node->active)
		printf("dmsetup message %s 0 'rename %s'\n", node->name, r->name);
	if (r->has_entry)
		printf("dmsetup message %s 0 'rename_volume %u %s'\n", node->pool->name, r->entry.id,
		       r->name);
	if (node->member && (r->has_entry || node->kind == HYBRID_POOL ? !node->active : true))
		printf("write %s: superblocks with the name %s\n", node->member->path, r->name);
	if (node->active)
		printf("dmsetup rename %s %s\n", node->name, r->name);
}

static int run(struct renaming *r)
{
	const char *kind;
	int err;

	err = hybrid_find_or_fail(&r->inv, r->cl->argv[0], HYBRID_ANY, &r->node);
	if (!err)
		err = check(r);
	if (err)
		return err;
	kind = hybrid_kind_name(r->node->kind);
	snprintf(r->old, sizeof(r->old), "%s", r->node->name);
	if (is_done(r)) {
		hybrid_note("%s %s already has this name", kind, r->name);
		return 0;
	}
	if (r->cl->given[OPT_TEST]) {
		print_test(r);
		return 0;
	}
	err = change(r);
	if (err)
		return err;
	hybrid_note("%s %s is now called %s", kind, r->old, r->name);
	warn_of_old_name(r);
	return 0;
}

int command_rename(const struct command_line *cl)
{
	struct renaming r = { .cl = cl, .name = cl->argv[1] };
	int err;

	if (!hybrid_name_valid(r.name))
		return check_new_name("pool or volume", r.name, false);
	err = lock_with_members(&r.inv);
	if (!err)
		err = run(&r);
	hybrid_inventory_free(&r.inv);
	return err;
}
