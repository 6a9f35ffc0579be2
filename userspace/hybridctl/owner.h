/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The owners of pools and volumes: the host id in their superblocks, and that of this host
 * (config.h).  The id on a pool's cache device counts for its volumes, too.  Origins carry it for
 * times when the cache device is not here.
 */
#ifndef HYBRIDCTL_OWNER_H
#define HYBRIDCTL_OWNER_H

#include "common.h"

/*
 * Whether an origin has no cache, or may have been written without it: then its own id counts, even
 * if its pool is here.
 */
bool on_its_own(const struct hybrid_sb *sb);

/* Returns the member whose id decides to which host a pool or volume belongs; NULL: it is not here. */
struct hybrid_member *owning_member(const struct hybrid_node *node);

/* Whether a pool or volume that is not active belongs to another host. */
bool is_foreign(const struct hybrid_node *node);

/*
 * With --foreign only: asks about each foreign pool or volume that the command line means and that
 * was not stopped.  Not to be called under the lock.  Returns 0 or an exit code.
 */
int ask_if_foreign(const struct command_line *cl, struct hybrid_inventory *inv);

/*
 * Whether this is an initramfs that has no host id, and is told which pools and volumes to bring up:
 * whoever's they are.
 */
bool named_without_id(const struct command_line *cl);

/* Refuses a foreign pool or volume without --foreign.  Returns 0 or an exit code. */
int check_owner(const struct command_line *cl, const struct hybrid_node *node);
/* The same, of a member that is not in use and whose own id counts. */
int check_owner_of(const struct hybrid_member *m);
/* The same, of devices that are to be formatted: even --force does not allow that. */
int check_owners_of(const struct hybrid_device * const *devs, unsigned int nr);

/*
 * Makes this host the owner of a member that has none and comes up here.  @member is not in use.
 * If that fails, warns only: the member still has no owner.
 */
void claim(struct hybrid_member *member);

/* Gives an origin, not in use, the id of its pool. */
void follow_pool(struct hybrid_member *origin, const struct hybrid_member *cache);

/* Reads the id on the cache device of an active pool; null if that fails. */
void owner_of_active(const struct hybrid_node *pool, uint8_t id[16]);

/*
 * Whether hybrid.conf lets a pool come up by itself, under its own name or under that of the pool
 * that it replaces.  @cache: its device; NULL: not here.
 */
bool pool_is_listed(const char *name, const uint8_t uuid[16], const struct hybrid_member *cache);

/*
 * With --auto: whether hybrid.conf lets a volume or an inactive pool come up by itself.  A volume
 * may be listed under its own name or its pool's; a pool also under the name of one of its volumes,
 * as far as their origins are here and name it.
 */
bool volume_comes_up(const struct command_line *cl, const char *name, const uint8_t uuid[16],
		     const char *pool, const uint8_t pool_uuid[16], const struct hybrid_member *cache);
bool pool_comes_up(const struct command_line *cl, const struct hybrid_inventory *inv,
		   const struct hybrid_node *pool);

/* The same, of a device: not if its disk is removable. */
bool device_comes_up(const struct command_line *cl, dev_t devno);
/* The same, of a member; warns if not. */
bool member_comes_up(const struct command_line *cl, const struct hybrid_member *m);

#endif
