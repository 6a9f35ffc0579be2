// SPDX-License-Identifier: GPL-2.0-or-later
/* accept-loss: a volume goes on without a cache that had newer data of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "look.h"
#include "lost.h"
#include "metadata.h"
#include "owner.h"

/* An origin, with the inventory that is read again before the origin is written. */
struct loss {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	const struct hybrid_member *m;
};

static bool has_cache(const struct loss *l)
{
	return l->m->sb.role == HYBRID_ROLE_ORIGIN;
}

static bool is_dirty(const struct hybrid_sb *sb)
{
	return sb->role == HYBRID_ROLE_ORIGIN && sb->flags & HYBRID_SB_DIRTY;
}

/* Refuses while the pool is active, or could be. */
static int check_cache_gone(struct loss *l, const struct hybrid_node *volume)
{
	const struct hybrid_member *cache = hybrid_find_cache(&l->inv, volume->pool_uuid);

	if (hybrid_pool_failed(volume->pool))
		return hybrid_fail(HYBRID_BUSY, "hybridctl deactivate it first",
				   "the pool %s of %s has failed, and is still active",
				   volume->pool->name, volume->name);
	if (volume->unknown)
		return 0;
	if (volume->pool && volume->pool->active)
		return hybrid_fail(HYBRID_REFUSED,
				   "hybridctl activate; or hybridctl detach --drop-dirty, which gives up the data that only the cache has",
				   "the pool %s of %s is active", volume->pool->name, volume->name);
	if (l->cl->given[OPT_FORCE])
		return 0;
	if (!cache && l->inv.silent)
		return hybrid_fail(HYBRID_REFUSED, HYBRID_NEXT_SILENT "; or add --force if it is another device",
				   "a device does not answer, and may be the cache device of %s", volume->name);
	if (!cache)
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   "hybridctl activate, check, repair or writeback; or add --force if it will never be used again",
			   "the cache device of %s is here: %s", volume->name, cache->path);
}

static int check_closed(struct loss *l, const struct hybrid_node *volume)
{
	if (volume->active)
		return hybrid_fail(HYBRID_BUSY, "hybridctl deactivate it first", "%s is active",
				   volume->name);
	if (!volume->member || !volume->member->ok)
		return hybrid_fail(HYBRID_BADDEV, "connect it, or see hybridctl scan",
				   "the origin of %s is not here", volume->name);
	return check_cache_gone(l, volume);
}

static int find(struct loss *l, const char *what)
{
	struct hybrid_node *volume;
	int r;

	r = hybrid_find_or_fail(&l->inv, what, 1U << HYBRID_VOLUME, &volume);
	if (!r)
		r = check_owner(l->cl, volume);
	/* A volume without a cache: accepted before, and it may be in use */
	if (!r && !hybrid_node_uncached(volume))
		r = check_closed(l, volume);
	if (!r)
		l->m = volume->member;
	if (r || l->m)
		return r;
	return hybrid_fail(HYBRID_BADDEV, "connect it, or see hybridctl scan",
			   "the origin of %s is not here", volume->name);
}

static int look(struct loss *l, const char *what)
{
	int r = hybrid_inventory_load(&l->inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE |
				      HYBRID_LOAD_CLOSED, NULL, 0);

	return r ? r : find(l, what);
}

/* Takes the lock.  While the user was asked, another command may have changed the volume. */
static int lock_and_look_again(struct loss *l)
{
	struct hybrid_sb before = l->m->sb;
	char uuid[HYBRID_UUID_TEXT];
	int r;

	hybrid_inventory_free(&l->inv);
	l->m = NULL;
	r = lock_with_members(&l->inv);
	if (!r)
		r = find(l, hybrid_uuid_text(uuid, before.volume_uuid));
	if (r || (l->m->sb.sequence == before.sequence && l->m->sb.nonce == before.nonce))
		return r;
	return hybrid_fail(HYBRID_BUSY, "check its state, then try again", "%s has been used meanwhile", before.name);
}

/* The volume itself may use the origin, if it maps the origin and nothing else. */
static int open_origin(const struct loss *l, struct hybrid_device *dev, struct hybrid_member *now)
{
	dev_t volume = has_cache(l) ? 0 : hybrid_dm_find(l->m->sb.volume_uuid, false);

	return open_unchanged(dev, l->m, volume, now);
}

/* accept-loss -------------------------------------------------------------- */

static int mark(const struct loss *l)
{
	struct hybrid_device dev = { .fd = -1 };
	struct hybrid_member now;
	int r;

	hold_signals();
	r = open_origin(l, &dev, &now);
	if (!r)
		r = hybrid_member_part(&dev, &now.sb);
	hybrid_device_close(&dev);
	return r;
}

static int show(const struct loss *l)
{
	struct hybrid_report_options opts = {};
	struct hybrid_losses losses = {};
	struct hybrid_device dev;
	int r;

	r = hybrid_device_open(&dev, l->m->path, 0);
	if (!r)
		r = hybrid_losses_of_origin(&losses, &dev, &l->m->sb);
	hybrid_device_close(&dev);
	if (!r)
		r = report_options(l->cl, &opts);
	/* The names of files are an extra: the tools that find them may be missing */
	if (!r && hybrid_losses_print(&losses, &opts, true) == HYBRID_NOMEM)
		r = HYBRID_NOMEM;
	hybrid_losses_free(&losses);
	fflush(stdout);
	return r;
}

static int ask(const struct loss *l)
{
	char question[HYBRID_NAME_SIZE + 128];

	if (!is_dirty(&l->m->sb))
		return 0;
	snprintf(question, sizeof(question),
		 "%s goes on without the data listed above, and never uses its cache again.",
		 l->m->sb.name);
	return confirm(l->cl, question);
}

static void print_result(const struct loss *l)
{
	const struct hybrid_sb *sb = &l->m->sb;

	hybrid_note("volume %s no longer has a cache%s", sb->name,
		    is_dirty(sb) ? "" : ", and has lost nothing");
	hybrid_note("hybridctl activate %s brings it up", sb->name);
}

/* The loss was accepted before; one copy may not be written yet, if that was cut short. */
static int accept_again(struct loss *l)
{
	int r = 0;

	if (l->m->apart) {
		r = lock_and_look_again(l);
		if (!r)
			r = mark(l);
	}
	if (!r)
		hybrid_note("volume %s already has no cache", l->m->sb.name);
	return r;
}

static int accept(struct loss *l)
{
	int r;

	if (!has_cache(l))
		return accept_again(l);
	r = show(l);
	if (!r && l->cl->given[OPT_TEST]) {
		printf("write %s: superblocks with role detached\n", l->m->path);
		return 0;
	}
	if (!r)
		r = ask(l);
	if (!r)
		r = lock_and_look_again(l);
	if (!r)
		r = mark(l);
	if (!r)
		print_result(l);
	return r;
}

int command_accept_loss(const struct command_line *cl)
{
	struct loss l = { .cl = cl };
	int r;

	r = look(&l, cl->argv[0]);
	if (!r)
		r = accept(&l);
	hybrid_inventory_free(&l.inv);
	return r;
}
