// SPDX-License-Identifier: GPL-2.0-or-later
/* The owners of pools: host-id, adopt, release, and the questions of activate. */
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "config.h"
#include "errors.h"
#include "look.h"
#include "owner.h"
#include "sysfs.h"

bool on_its_own(const struct hybrid_sb *sb)
{
	return sb->role == HYBRID_ROLE_DETACHED ||
	       (sb->role == HYBRID_ROLE_ORIGIN && sb->flags & HYBRID_SB_ALONE);
}

/* Returns the node whose owner counts: the pool of a volume if it is here, otherwise the node itself. */
static const struct hybrid_node *owning_node(const struct hybrid_node *node)
{
	bool own = node->member && on_its_own(&node->member->sb);

	return node->kind == HYBRID_VOLUME && node->pool && !own ? node->pool : node;
}

struct hybrid_member *owning_member(const struct hybrid_node *node)
{
	return owning_node(node)->member;
}

bool is_foreign(const struct hybrid_node *node)
{
	const struct hybrid_node *owner = owning_node(node);
	const struct hybrid_member *m = owner->member;

	return !node->active && !owner->active && m && m->ok &&
	       hybrid_config_foreign(m->sb.host_id);
}

/* Was it stopped, so that nobody uses it?  Without the pool nobody knows. */
static bool was_stopped(const struct hybrid_member *m)
{
	struct hybrid_looks looks = {};
	bool stopped;

	if (m->sb.role != HYBRID_ROLE_CACHE)
		return m->sb.role == HYBRID_ROLE_DETACHED;
	stopped = !hybrid_looks_add(&looks, m->path, HYBRID_OPEN_QUIET | HYBRID_OPEN_FILES,
				    HYBRID_LOOK_STOPPED) &&
		  !hybrid_looks_run(&looks) && looks.look->stopped;
	hybrid_looks_free(&looks);
	return stopped;
}

static int ask_unless_stopped(const struct command_line *cl, const struct hybrid_node *node)
{
	const struct hybrid_member *m = owning_member(node);
	char id[HYBRID_UUID_TEXT], question[HYBRID_PATH_MAX];

	if (cl->given[OPT_TEST] || was_stopped(m))
		return 0;
	snprintf(question, sizeof(question), m->sb.role == HYBRID_ROLE_CACHE ?
		 "%s was not stopped: if a host (%s) still uses it, use by two hosts will destroy it." :
		 "The pool of %s is not here: if a host (%s) still uses it, use by two hosts will destroy it.",
		 node->name, hybrid_uuid_is_null(m->sb.host_id) ? "it is not known which" :
		 hybrid_uuid_text(id, m->sb.host_id));
	return confirm(cl, question);
}

bool named_without_id(const struct command_line *cl)
{
	return cl->given[OPT_NAMED] && hybrid_uuid_is_null(hybrid_config()->host_id);
}

static int fail_foreign(const char *name, const struct hybrid_member *owner)
{
	char id[HYBRID_UUID_TEXT];

	return hybrid_fail(HYBRID_REFUSED,
			   "stop it there; then activate --foreign uses it once, and hybridctl adopt takes it over",
			   "%s belongs to another host (%s)", name, hybrid_uuid_text(id, owner->sb.host_id));
}

int check_owner(const struct command_line *cl, const struct hybrid_node *node)
{
	if (!is_foreign(node) || named_without_id(cl) || cl->given[OPT_FOREIGN])
		return 0;
	return fail_foreign(node->name, owning_member(node));
}

int check_owner_of(const struct hybrid_member *m)
{
	return hybrid_config_foreign(m->sb.host_id) ? fail_foreign(m->sb.name, m) : 0;
}

/* Of a member that is refused, the known fields count. */
int check_owners_of(const struct hybrid_device * const *devs, unsigned int nr)
{
	char next[HYBRID_PATH_MAX + 128], id[HYBRID_UUID_TEXT];
	struct hybrid_member m;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (hybrid_member_read(devs[i], &m) || !hybrid_config_foreign(m.sb.host_id))
			continue;
		snprintf(next, sizeof(next),
			 "stop it there; then hybridctl adopt takes it over, or hybridctl wipe %s gives it up",
			 devs[i]->path);
		return hybrid_fail(HYBRID_REFUSED, next, "%s (%s %s) belongs to another host (%s)", devs[i]->path,
				   hybrid_role_name(m.sb.role), m.sb.name, hybrid_uuid_text(id, m.sb.host_id));
	}
	return 0;
}

/* A pool or volume that is in use here is not in use by another host. */
static bool is_used_here(const struct hybrid_node *node)
{
	return hybrid_dm_find(node->uuid, node->kind == HYBRID_POOL);
}

int ask_if_foreign(const struct command_line *cl, struct hybrid_inventory *inv)
{
	const struct hybrid_node *only = cl->argc ? hybrid_find(inv, cl->argv[0], HYBRID_ANY) : NULL;
	const struct hybrid_node *node;
	int r = 0;

	if (!cl->given[OPT_FOREIGN] || (cl->argc && !only))
		return 0;
	if (only)
		only = owning_node(only);
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes && !r; node++)
		if ((!only || node == only) && owning_node(node) == node && is_foreign(node) &&
		    !is_used_here(node))
			r = ask_unless_stopped(cl, node);
	return r;
}

/* Automatic activation ------------------------------------------------------- */

/* With --auto, hybrid.conf decides, unless an initramfs was told which ones to bring up. */
static bool is_limited(const struct command_line *cl)
{
	return cl->given[OPT_AUTO] && !cl->given[OPT_NAMED];
}

bool pool_is_listed(const char *name, const uint8_t uuid[16], const struct hybrid_member *cache)
{
	char old[HYBRID_NAME_SIZE];

	return hybrid_config_comes_up(name, uuid) ||
	       (cache && cache->ok && !hybrid_uuid_is_null(cache->sb.replaces) &&
		hybrid_config_comes_up(hybrid_replaced_name(old, &cache->sb), cache->sb.replaces));
}

bool volume_comes_up(const struct command_line *cl, const char *name, const uint8_t uuid[16],
		     const char *pool, const uint8_t pool_uuid[16], const struct hybrid_member *cache)
{
	return !is_limited(cl) || hybrid_config_comes_up(name, uuid) ||
	       pool_is_listed(pool, pool_uuid, cache);
}

bool pool_comes_up(const struct command_line *cl, const struct hybrid_inventory *inv,
		   const struct hybrid_node *pool)
{
	const struct hybrid_node *node;

	if (!is_limited(cl) || pool_is_listed(pool->name, pool->uuid, pool->member))
		return true;
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++)
		if (node->kind == HYBRID_VOLUME && node->pool == pool &&
		    hybrid_config_comes_up(node->name, node->uuid))
			return true;
	return false;
}

bool device_comes_up(const struct command_line *cl, dev_t devno)
{
	return !is_limited(cl) || !hybrid_sysfs_removable(devno);
}

bool member_comes_up(const struct command_line *cl, const struct hybrid_member *m)
{
	bool up = device_comes_up(cl, m->devno);

	if (!up)
		hybrid_warn("%s (%s %s) is on a removable disk: left alone", m->path,
			    hybrid_role_name(m->sb.role), m->sb.name);
	return up;
}

/* Writing ------------------------------------------------------------------ */

static int write_owner(struct hybrid_member *m, const uint8_t id[16])
{
	struct hybrid_device dev;
	struct hybrid_member now;
	int r;

	r = open_again(&dev, m, 0, &now);
	/* Apart: one copy may have another id, and the next damage could bring that back */
	if (!r && (now.apart || memcmp(now.sb.host_id, id, 16))) {
		memcpy(now.sb.host_id, id, 16);
		now.sb.sequence++;
		r = hybrid_member_write(&dev, &now.sb);
	}
	hybrid_device_close(&dev);
	if (!r)
		m->sb = now.sb;
	return r;
}

void claim(struct hybrid_member *member)
{
	const uint8_t *id = hybrid_config()->host_id;

	if (hybrid_uuid_is_null(id) || !hybrid_uuid_is_null(member->sb.host_id))
		return;
	if (write_owner(member, id))
		hybrid_warn("%s still belongs to no host", member->sb.name);
}

void follow_pool(struct hybrid_member *origin, const struct hybrid_member *cache)
{
	if (hybrid_config_foreign(cache->sb.host_id) ||
	    !memcmp(origin->sb.host_id, cache->sb.host_id, 16))
		return;
	if (write_owner(origin, cache->sb.host_id))
		hybrid_warn("%s does not show its new host", origin->path);
}

void owner_of_active(const struct hybrid_node *pool, uint8_t id[16])
{
	struct hybrid_looks looks = {};
	char path[HYBRID_PATH_MAX];

	memset(id, 0, 16);
	if (!hybrid_looks_add(&looks, hybrid_node_device(pool, path, sizeof(path)),
			      HYBRID_OPEN_QUIET, 0) &&
	    !hybrid_looks_run(&looks) && !looks.look->r && looks.look->member.ok)
		memcpy(id, looks.look->member.sb.host_id, 16);
	hybrid_looks_free(&looks);
}

/* adopt, release ------------------------------------------------------------- */

/* Writes a pool first, then its origins that are here: these follow the pool if this ends half way. */
static int write_all(struct hybrid_inventory *inv, const struct hybrid_node *node,
		     const uint8_t id[16])
{
	struct hybrid_member *m;
	int r;

	r = write_owner(node->member, id);
	if (r || node->kind == HYBRID_VOLUME)
		return r;
	for (m = inv->members; m < inv->members + inv->nr_members && !r; m++)
		if (m->ok && m->sb.role == HYBRID_ROLE_ORIGIN &&
		    !memcmp(m->sb.pool_uuid, node->uuid, 16))
			r = write_owner(m, id);
	return r ? HYBRID_PARTIAL : 0;
}

static void print_all(struct hybrid_inventory *inv, const struct hybrid_node *node,
		      const uint8_t id[16])
{
	char text[HYBRID_UUID_TEXT];
	struct hybrid_member *m;

	hybrid_uuid_text(text, id);
	for (m = inv->members; m < inv->members + inv->nr_members; m++)
		if (m == node->member || (node->kind == HYBRID_POOL && m->ok &&
					  m->sb.role == HYBRID_ROLE_ORIGIN &&
					  !memcmp(m->sb.pool_uuid, node->uuid, 16)))
			printf("write %s: host id %s in both superblocks\n", m->path, text);
}

static int find_owned(struct hybrid_inventory *inv, const char *what, struct hybrid_node **node)
{
	int r = hybrid_find_or_fail(inv, what, HYBRID_ANY, node);

	if (r)
		return r;
	*node = (struct hybrid_node *)owning_node(*node);
	if ((*node)->active)
		return hybrid_fail(HYBRID_BUSY, "deactivate it first", "%s is active",
				   (*node)->name);
	if (!(*node)->member)
		return hybrid_fail(HYBRID_DEGRADED, "connect it", "%s: its device is missing",
				   (*node)->name);
	return 0;
}

/* @id NULL: this host. */
static int write_for(const struct command_line *cl, struct hybrid_inventory *inv,
		     const uint8_t *id, const char *whose)
{
	struct hybrid_node *node;
	uint8_t own[16];
	int r;

	r = lock_tools();
	if (!r)
		r = hybrid_inventory_look_again(inv, HYBRID_LOAD_ACTIVE);
	if (!r)
		r = find_owned(inv, cl->argv[0], &node);
	if (!r && !id)
		r = hybrid_config_make_host_id(own);
	if (r)
		return r;
	hold_signals();
	r = write_all(inv, node, id ? id : own);
	if (!r)
		hybrid_note("%s %s now belongs to %s", node->kind == HYBRID_POOL ? "pool" : "volume",
			    node->name, whose);
	return r;
}

static int give_to(const struct command_line *cl, const uint8_t *id, const char *whose)
{
	struct hybrid_inventory inv = {};
	struct hybrid_node *node;
	int r;

	r = hybrid_inventory_load(&inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r)
		r = find_owned(&inv, cl->argv[0], &node);
	if (!r)
		r = ask_unless_stopped(cl, node);
	if (!r && cl->given[OPT_TEST])
		print_all(&inv, node, id ? id : hybrid_config()->host_id);
	else if (!r)
		r = write_for(cl, &inv, id, whose);
	hybrid_inventory_free(&inv);
	return r;
}

int command_adopt(const struct command_line *cl)
{
	return give_to(cl, NULL, "this host");
}

int command_release(const struct command_line *cl)
{
	static const uint8_t nobody[16];

	return give_to(cl, nobody, "no host");
}

/* host-id ------------------------------------------------------------------ */

int command_host_id(const struct command_line *cl)
{
	uint8_t id[16];
	char text[HYBRID_UUID_TEXT];
	int r;

	if (cl->given[OPT_TEST]) {
		if (hybrid_uuid_is_null(hybrid_config()->host_id))
			printf("write " HYBRID_CONF ": host_id, a new UUID\n");
		return 0;
	}
	r = lock_tools();
	if (!r)
		r = hybrid_config_make_host_id(id);
	if (!r)
		puts(hybrid_uuid_text(text, id));
	return r;
}
