/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Members found on block devices, active pools and volumes, and their relations.
 * Read once at the start of a command.
 */
#ifndef HYBRID_INVENTORY_H
#define HYBRID_INVENTORY_H

#include "dm.h"
#include "members.h"

enum hybrid_kind { HYBRID_POOL, HYBRID_VOLUME };

/*
 * A pool or a volume: active, or known from its member's superblock only (then
 * the parts marked "active" are zero).
 */
struct hybrid_node {
	enum hybrid_kind kind;
	char name[HYBRID_NAME_SIZE];
	uint8_t uuid[16];
	uint8_t pool_uuid[16];		/* of a pool: its own; null: unknown */
	bool active;
	/*
	 * A volume of an active pool that no device maps.  dm, table and status then have
	 * only its sectors, id, inplace, cutoff, mode, dirty and dirty_sectors.
	 */
	bool closed;
	bool given_up;			/* ... closed: its origin left that pool, which has its dirty data */
	bool deleted;			/* its pool has deleted it: a detach was cut short; with ... CLOSED */
	/*
	 * Its origin names an active pool that has no entry for it: an attach was cut short, or a repair
	 * lost the entry; with ... CLOSED.
	 */
	bool unknown;
	struct hybrid_member *member;	/* cache device or origin; NULL: not found */
	/*
	 * A volume that is not active: its origin or its pool's cache device, which is here, but not ok.  NULL:
	 * neither is.
	 */
	struct hybrid_member *refused;

	struct hybrid_dm_device dm;			/* active */
	dev_t below;					/* active: cache device or origin */
	struct hybrid_node *pool;			/* volume: its pool, if known */
	struct hybrid_node *successor;			/* pool: one that replaces it */
	union {
		struct {
			struct hybrid_pool_table table;		/* active */
			struct hybrid_pool_status status;	/* active */
		} p;
		struct {
			struct hybrid_volume_table table;	/* active */
			struct hybrid_volume_status status;	/* active */
		} v;
	};
};

/* A device that looks like an origin in place. */
struct hybrid_lookalike {
	char path[HYBRID_PATH_MAX];
	dev_t devno;
	struct hybrid_identities identities;
	/*
	 * Another user that its contents name: a superblock of dm-hybrid, or one by which other
	 * tools assemble it (LVM, md, bcache ...).  Empty: none.
	 */
	char claim[HYBRID_CLAIM_MAX];
};

struct hybrid_inventory {
	struct hybrid_member *members;	/* sorted as the kernel names devices */
	unsigned int nr_members;
	bool members_known;		/* any other member is not here */
	struct hybrid_node *nodes;	/* pools first */
	unsigned int nr_nodes;
	struct hybrid_lookalike *lookalikes;	/* if they were looked for */
	unsigned int nr_lookalikes;
	unsigned int silent;		/* devices that did not answer */
};

/* hybrid_inventory_load() flags */
#define HYBRID_LOAD_MEMBERS	(1U << 0)	/* read block devices */
#define HYBRID_LOAD_KNOWN	(1U << 1)	/* members as they were announced: reads no disk */
#define HYBRID_LOAD_ACTIVE	(1U << 2)	/* ask device-mapper */
#define HYBRID_LOAD_CLOSED	(1U << 3)	/* ask active pools for volumes not in use */
/* All that can be known without reading a disk */
#define HYBRID_LOAD_ALL		(HYBRID_LOAD_KNOWN | HYBRID_LOAD_ACTIVE)

/*
 * Reads the inventory.  With @nr_paths, looks only at these devices (and files), not
 * at all of them.  Returns 0 or an exit code; free with hybrid_inventory_free() in any
 * case.  If a member is seen through devices built on each other, only the topmost is
 * listed.  An LVM snapshot is listed only if it is in @paths.  Any other member that
 * appears twice is not ok, both times.  Each member is read by a process with a time limit
 * (hybrid_apart()), so this must not be called under the lock of the tools.
 */
int hybrid_inventory_load(struct hybrid_inventory *inv, unsigned int flags,
			  char * const *paths, unsigned int nr_paths);

/*
 * Does the same for members that udev has announced, and prints nothing.  @known has path, device
 * number, role and UUIDs as they were then.  A member that cannot be read now keeps these, but is
 * not ok: neither a copy of it nor the rest of its pool is used as if the member were gone.
 */
int hybrid_inventory_load_known(struct hybrid_inventory *inv, unsigned int flags,
				const struct hybrid_member *known, unsigned int nr);

/*
 * Builds the nodes again, from device-mapper and the members already read: for an inventory read
 * before the lock was taken.  @flags: ACTIVE and CLOSED.  Returns 0 or an exit code.
 */
int hybrid_inventory_look_again(struct hybrid_inventory *inv, unsigned int flags);

/*
 * Reads the identities of devices that may be origins in place: of the named ones, or else of all
 * that nothing holds.  As for members, not under the lock.  Returns 0 or an exit code.
 */
int hybrid_inventory_lookalikes(struct hybrid_inventory *inv, char * const *paths,
				unsigned int nr_paths);

/*
 * Adds a member made since the members were read.  Call hybrid_inventory_look_again() next, as
 * pointers to members are no longer valid.  Returns 0 or an exit code.
 */
int hybrid_inventory_add(struct hybrid_inventory *inv, const struct hybrid_member *m);

void hybrid_inventory_free(struct hybrid_inventory *inv);

/*
 * Find by name, UUID, /dev path of the volume or pool, or a member device.  Of several with one
 * name, the active one is meant, else the only one of this host.  @kinds: bits 1 << kind.
 * NULL: not found, or it is not clear which one is meant; nothing is printed.
 */
struct hybrid_node *hybrid_find(struct hybrid_inventory *inv, const char *what,
				unsigned int kinds);
#define HYBRID_ANY	((1U << HYBRID_POOL) | (1U << HYBRID_VOLUME))

/* For a name that hybrid_find() does not find: fails, and lists them, if several have it. */
int hybrid_check_several(struct hybrid_inventory *inv, const char *what, unsigned int kinds);

/* Is @node the pool or volume with @uuid?  A volume and its entry in a pool have the same one. */
bool hybrid_node_is(const struct hybrid_node *node, enum hybrid_kind kind, const uint8_t uuid[16]);
/* "pool" or "volume" */
const char *hybrid_kind_name(enum hybrid_kind kind);

/* The same, with the error printed: *node is set if 0 is returned. */
int hybrid_find_or_fail(struct hybrid_inventory *inv, const char *what, unsigned int kinds,
			struct hybrid_node **node);
/* ... and it must be active. */
int hybrid_find_active(struct hybrid_inventory *inv, const char *what, unsigned int kinds,
		       struct hybrid_node **node);

struct hybrid_node *hybrid_find_uuid(struct hybrid_inventory *inv, const uint8_t uuid[16],
				     enum hybrid_kind kind);
struct hybrid_member *hybrid_find_member(struct hybrid_inventory *inv, const uint8_t uuid[16]);

/* The cache device of a pool, even one that is not ok; NULL: it is not here. */
struct hybrid_member *hybrid_find_cache(struct hybrid_inventory *inv, const uint8_t pool[16]);

/* The UUID of the pool whose volumes move to @pool; NULL: there is none. */
const uint8_t *hybrid_node_replaces(const struct hybrid_node *pool);

/*
 * Whether a volume has no cache: a formatted one whether it is active (linear on its origin) or
 * not, one in place only while it is active.  Needs an inventory with members.
 */
bool hybrid_node_uncached(const struct hybrid_node *node);

/* Whether the pool is active and has failed.  NULL has not. */
bool hybrid_pool_failed(const struct hybrid_node *pool);

/* Whether one of a pool's entries is of the origin with this superblock. */
bool hybrid_has_entry(const struct hybrid_volume_line *entries, unsigned int nr,
		      const struct hybrid_sb *origin);

/*
 * Whether the origin of a pool's entry is here, but has no cache or another one.  The pool's data
 * of it is never used again.
 */
bool hybrid_entry_foreign(struct hybrid_inventory *inv, const uint8_t pool_uuid[16],
			  const struct hybrid_volume_line *entry);

/* Read status and table of an active node again.  Returns 0 or an exit code. */
int hybrid_node_refresh(struct hybrid_node *node);

/*
 * The volume table of an active pool; *entries is allocated.  Returns 0 or an
 * exit code.
 */
int hybrid_pool_volumes(const char *pool, struct hybrid_volume_line **entries,
			unsigned int *nr);

/* Path of the device below an active node, or of its member; "-" if neither. */
char *hybrid_node_device(const struct hybrid_node *node, char *buf, size_t len);

#endif
