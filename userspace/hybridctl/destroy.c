// SPDX-License-Identifier: GPL-2.0-or-later
/* destroy: makes an ordinary device of the cache device of a pool that has no volumes any more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "metadata.h"
#include "owner.h"

struct destroy {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	struct hybrid_node *pool;
	struct hybrid_volume_line *entries;
	unsigned int nr;
	bool drops;			/* some data is lost with the pool */
};

static void destroy_free(struct destroy *d)
{
	free(d->entries);
	hybrid_inventory_free(&d->inv);
	*d = (struct destroy) { .cl = d->cl };
}

/* The pool's entries -------------------------------------------------------- */

static void entry_of(struct hybrid_volume_line *entry, const struct hybrid_metadata *md, u32 id)
{
	const struct hybrid_volume_info *v = &md->volume[id];

	*entry = (struct hybrid_volume_line) {
		.id = id,
		.tombstone = v->state == HYBRID_VOLUME_TOMBSTONE,
		.inplace = v->flags & HYBRID_VOLUME_INPLACE,
		.dirty = min_t(u64, md->usage[id].dirty_blocks, UINT32_MAX),
	};
	memcpy(entry->uuid, v->uuid, 16);
	memcpy(entry->member_uuid, v->member_uuid, 16);
	snprintf(entry->name, sizeof(entry->name), "%s", v->name);
}

static int entries_of(struct destroy *d, const struct hybrid_metadata *md)
{
	u32 id;

	d->entries = calloc(HYBRID_MAX_VOLUMES, sizeof(*d->entries));
	if (!d->entries)
		return hybrid_nomem();
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		if (md->volume[id].state != HYBRID_VOLUME_FREE)
			entry_of(&d->entries[d->nr++], md, id);
	return 0;
}

/* Reads the entries of an inactive pool from its metadata, without writing to it. */
static int read_entries(struct destroy *d)
{
	struct hybrid_findings findings = { .device = d->pool->member->path };
	struct hybrid_metadata md = {};
	struct hybrid_device dev;
	int r;

	r = hybrid_device_open(&dev, d->pool->member->path, HYBRID_OPEN_EXCLUSIVE);
	if (r)
		return r;
	r = hybrid_metadata_read(&md, &dev, &findings);
	if (r != HYBRID_NOMEM && (r || hybrid_findings_worst(&findings) == HYBRID_DAMAGE))
		r = hybrid_fail(HYBRID_BADDEV,
				"hybridctl check and repair it; hybridctl wipe if nothing on it is needed",
				"the metadata of %s is damaged: the volumes of pool %s are not known",
				dev.path, d->pool->name);
	if (!r)
		r = entries_of(d, &md);
	hybrid_metadata_free(&md);
	hybrid_findings_free(&findings);
	hybrid_device_close(&dev);
	return r;
}

/* Obstacles ----------------------------------------------------------------- */

static int needs_drop(struct destroy *d, const struct hybrid_volume_line *entry, const char *why)
{
	d->drops = true;
	if (d->cl->given[OPT_DROP_DIRTY])
		return 0;
	return hybrid_fail(HYBRID_REFUSED, "add --drop-dirty to destroy the pool all the same", "pool %s, volume %s: %s",
			   d->pool->name, entry->name, why);
}

/* Until the origin is marked, the tombstone keeps the cached data from being used again. */
static int check_tombstone(struct destroy *d, const struct hybrid_volume_line *entry)
{
	const struct hybrid_member *m = hybrid_find_member(&d->inv, entry->member_uuid);

	if (entry->inplace || hybrid_entry_foreign(&d->inv, d->pool->uuid, entry))
		return 0;
	if (m)
		return hybrid_fail(HYBRID_BUSY, "hybridctl activate finishes it",
				   "pool %s: the detach of volume %s was interrupted", d->pool->name,
				   entry->name);
	return needs_drop(d, entry, "it was detached, but its origin is missing and not marked as detached");
}

static int check_entry(struct destroy *d, const struct hybrid_volume_line *entry)
{
	if (entry->tombstone)
		return check_tombstone(d, entry);
	if (entry->inplace || !hybrid_entry_foreign(&d->inv, d->pool->uuid, entry))
		return hybrid_fail(HYBRID_REFUSED, "detach it first (hybridctl detach)",
				   "pool %s has volume %s", d->pool->name, entry->name);
	return entry->dirty ?
	       needs_drop(d, entry, "it was given up, and only this pool has some of its data") : 0;
}

static int check_pool(const struct hybrid_node *pool)
{
	if (!pool->member || !pool->member->ok)
		return hybrid_fail(HYBRID_BADDEV, "connect it, or see hybridctl scan",
				   "the cache device of pool %s is not here", pool->name);
	if (pool->active && (!pool->dm.live || pool->dm.suspended))
		return hybrid_fail(HYBRID_BUSY, "see hybridctl status",
				   "pool %s is suspended, or has no table", pool->name);
	return 0;
}

static int find(struct destroy *d, const char *what)
{
	unsigned int i;
	int r;

	r = hybrid_find_or_fail(&d->inv, what, 1U << HYBRID_POOL, &d->pool);
	if (!r)
		r = check_owner(d->cl, d->pool);
	if (!r)
		r = check_pool(d->pool);
	if (!r)
		r = d->pool->active ? hybrid_pool_volumes(d->pool->name, &d->entries, &d->nr) :
		    read_entries(d);
	for (i = 0; i < d->nr && !r; i++)
		r = check_entry(d, &d->entries[i]);
	return r;
}

static int look(struct destroy *d, const char *what)
{
	int r = hybrid_inventory_load(&d->inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE, NULL, 0);

	return r ? r : find(d, what);
}

/* Takes the lock.  While the user was asked, another command may have added a volume. */
static int lock_and_look_again(struct destroy *d)
{
	bool drops = d->drops;
	char uuid[HYBRID_UUID_TEXT];
	int r;

	hybrid_uuid_text(uuid, d->pool->uuid);
	destroy_free(d);
	r = lock_with_members(&d->inv);
	if (!r)
		r = find(d, uuid);
	if (r || d->drops == drops)
		return r;
	return hybrid_fail(HYBRID_BUSY, "check its state, then try again", "pool %s has changed meanwhile",
			   d->pool->name);
}

/* Doing it ------------------------------------------------------------------- */

static int ask(const struct destroy *d)
{
	char question[2 * HYBRID_PATH_MAX];

	snprintf(question, sizeof(question),
		 "Pool %s will be destroyed%s, and the first and the last MiB of %s will be zeroed.", d->pool->name,
		 d->drops ? ", with the only copy of some data of volumes that were given up" : "",
		 d->pool->member->path);
	return confirm(d->cl, question);
}

static int wipe_member(const struct hybrid_member *m)
{
	struct hybrid_device dev;
	struct hybrid_member now;
	int r;

	r = open_again(&dev, m, 0, &now);
	if (!r)
		r = hybrid_member_wipe(&dev, &now.sb);
	hybrid_device_close(&dev);
	return r;
}

static int take_down(struct destroy *d)
{
	int r = 0;

	hold_signals();
	if (d->pool->active)
		r = hybrid_dm_remove(d->pool->name);
	if (!r)
		r = wipe_member(d->pool->member);
	if (!r)
		hybrid_note("pool %s is destroyed; %s is an ordinary device", d->pool->name,
			    d->pool->member->path);
	return r;
}

static int destroy(struct destroy *d)
{
	int r;

	if (d->cl->given[OPT_TEST]) {
		if (d->pool->active)
			printf("dmsetup remove %s\n", d->pool->name);
		printf("write %s: zero the first and the last MiB\n", d->pool->member->path);
		return 0;
	}
	r = ask(d);
	if (!r)
		r = lock_and_look_again(d);
	return r ? r : take_down(d);
}

int give_cache_back(const struct command_line *cl, const uint8_t pool[16])
{
	struct destroy d = { .cl = cl };
	char uuid[HYBRID_UUID_TEXT];
	int r;

	unlock_tools();
	r = lock_with_members(&d.inv);
	if (!r)
		r = find(&d, hybrid_uuid_text(uuid, pool));
	if (!r)
		r = take_down(&d);
	destroy_free(&d);
	return r;
}

int command_destroy(const struct command_line *cl)
{
	struct destroy d = { .cl = cl };
	int r;

	r = look(&d, cl->argv[0]);
	if (!r)
		r = destroy(&d);
	destroy_free(&d);
	return r;
}
