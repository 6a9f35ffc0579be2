/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whose pools and volumes are: the host id in their superblocks, and ours (config.h).  That of
 * a pool's cache device counts for its volumes, too; origins carry it for when it is not here.
 */
#ifndef HYBRIDCTL_OWNER_H
#define HYBRIDCTL_OWNER_H

#include "common.h"

/*
 * An origin that has no cache, or may have been written without it: its own id counts, even
 * if its pool is here.
 */
bool on_its_own(const struct hybrid_sb *sb);

/* The member that says whose a pool or volume is; NULL: none is here. */
struct hybrid_member *owning_member(const struct hybrid_node *node);

/* Of a pool or volume that is not active: whether it belongs to another host. */
bool is_foreign(const struct hybrid_node *node);

/*
 * Before the lock is taken, and with --foreign only: ask about each foreign pool or volume of
 * those that the command line means that was not stopped.  Returns 0 or an exit code.
 */
int ask_if_foreign(const struct command_line *cl, struct hybrid_inventory *inv);

/* Refuse a foreign pool or volume without --foreign.  Returns 0 or an exit code. */
int check_owner(const struct command_line *cl, const struct hybrid_node *node);

/*
 * What is nobody's, and comes up here, becomes this host's.  @member is not in use.  No
 * error of its own: then it stays nobody's.
 */
void claim(struct hybrid_member *member);

/* An origin, not in use, whose pool is known: it gets the id of that. */
void follow_pool(struct hybrid_member *origin, const struct hybrid_member *cache);

/* The id on the cache device of an active pool; null if it cannot be read. */
void owner_of_active(const struct hybrid_node *pool, uint8_t id[16]);

/* Whether hybrid.conf has a pool, or the one that it replaces.  @cache: its device; NULL: not here. */
bool pool_is_listed(const char *name, const uint8_t uuid[16], const struct hybrid_member *cache);

/*
 * With --auto: whether hybrid.conf lets a volume come up, it or its pool; a pool that is not
 * active, it or one of its volumes, as far as their origins are here and say so.
 */
bool volume_comes_up(const struct command_line *cl, const char *name, const uint8_t uuid[16],
		     const char *pool, const uint8_t pool_uuid[16], const struct hybrid_member *cache);
bool pool_comes_up(const struct command_line *cl, const struct hybrid_inventory *inv,
		   const struct hybrid_node *pool);

#endif
