/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Superblocks and first metadata of members: reading, formatting, changing.
 * The bytes come from codec.c, the places from geometry.c.
 */
#ifndef HYBRID_MEMBERS_H
#define HYBRID_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "codec.h"
#include "devices.h"

#define HYBRID_WHY_MAX		160
/* Text that names another user of a device: "dm-hybrid origin NAME", or the type that libblkid finds */
#define HYBRID_CLAIM_MAX	(HYBRID_NAME_SIZE + 32)

/* GPT type of partitions that are members, as other tools see nothing on an inactive one. */
#define HYBRID_GPT_TYPE		"32544467-74e4-4122-a528-2221570be82a"

/* Contents of a device's two superblocks. */
struct hybrid_member {
	char path[HYBRID_PATH_MAX];
	dev_t devno;			/* 0 for files */
	uint64_t sectors;		/* of the device */
	bool ok;			/* sb is valid and may be used */
	uint32_t copies;		/* bit 0: head is good, bit 1: tail is good */
	bool apart;			/* a copy is bad, or older than sb */
	bool gpt;			/* an origin without a cache, with a GPT: an export was cut short */
	bool unknown;			/* as read: not ok, of a format not known here */
	bool unread;			/* not ok: the device could no longer be read, or did not answer */
	char why[HYBRID_WHY_MAX];	/* if not ok, or if a copy is bad: the reason */
	struct hybrid_sb sb;		/* the current copy, or its known fields */
};

#define HYBRID_FORMAT_TEXT	96
/* Why a superblock of this version of the format is refused with -EPROTONOSUPPORT. */
const char *hybrid_unknown_format(char buf[HYBRID_FORMAT_TEXT], uint32_t version);

/* What to do with a member of such a format.  Never repair, restore or wipe: nothing is damaged. */
#define HYBRID_FORMAT_NEXT	"use the tools and the module of the release that wrote it"

/* The next step for a member that is refused, or NULL: @next, unless its format is not known. */
const char *hybrid_member_next(const struct hybrid_member *m, const char *next);

/* Refuses a device that is a member, or claims to be; @next as above.  Returns HYBRID_BUSY. */
int hybrid_member_fail(const struct hybrid_device *dev, const struct hybrid_member *m,
		       const char *next);

/*
 * Look at an open device.  Returns 0 if it is or claims to be a member (see
 * member->ok), -ENODATA if nothing of ours is there, or another -errno if it
 * could not be read.
 */
int hybrid_member_read(const struct hybrid_device *dev, struct hybrid_member *member);

/*
 * Reads the current root of the cache device whose superblock this is; zero if there is none.  False:
 * it is not certain to be the current one, because there is none, or the other root is bad.  A root
 * whose first sector is zero was erased, or never written.
 */
bool hybrid_cache_root(const struct hybrid_device *dev, const struct hybrid_sb *sb,
		       struct hybrid_root_info *root);

/*
 * Whether the pool whose cache device this is was stopped: its current root says so.  False
 * if it is in use, crashed, or cannot be read.
 */
bool hybrid_cache_stopped(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/*
 * Whether a device seems to hold nothing: it is no member, libblkid knows nothing on it, it has
 * no partitions, and its first and its last MiB are zero.  Otherwise @why is the reason, to
 * follow "it ".
 */
bool hybrid_member_blank(const struct hybrid_device *dev, char why[HYBRID_WHY_MAX]);

/*
 * Plan of a new pool.  The caller fills in the first part, hybrid_cache_plan() the
 * second.
 */
struct hybrid_cache_plan {
	char name[HYBRID_NAME_SIZE];
	char policy[HYBRID_POLICY_NAME_SIZE];
	uint32_t block_sectors;
	uint32_t journal_blocks;	/* 0: as geometry chooses */
	bool guard;			/* a protective MBR, if it is a whole disk */

	struct hybrid_sb sb;
};

struct hybrid_origin_plan {
	char name[HYBRID_NAME_SIZE];
	uint8_t pool_uuid[16];
	uint32_t volume_id;
	uint32_t granule_sectors;	/* of the pool */
	bool inplace;
	uint64_t data_sector;		/* in place: where the data begins */
	bool guard;

	struct hybrid_sb sb;		/* inplace: never written */
};

/*
 * Refuse, before anything is written, a device that cannot become a member: zoned, or with
 * sectors larger than a metadata block.  Returns 0 or an exit code.
 */
int hybrid_check_formattable(const struct hybrid_device *dev);

/*
 * Check that the device fits and decide UUIDs, keys and places; write nothing.
 * Return 0 or an exit code.
 */
int hybrid_cache_plan(const struct hybrid_device *dev, struct hybrid_cache_plan *plan);
int hybrid_origin_plan(const struct hybrid_device *dev, struct hybrid_origin_plan *plan);

/* Whether a guard would be written.  A partition's GPT type tells other tools enough. */
bool hybrid_can_guard(const struct hybrid_device *dev);

/*
 * Write the plan: zeroed head and tail, guard, root, superblocks, in this order, and
 * flush.  Return 0 or an exit code; hybrid_member_wipe() then wipes the part that
 * was written.
 */
int hybrid_cache_format(const struct hybrid_device *dev, const struct hybrid_cache_plan *plan);
int hybrid_origin_format(const struct hybrid_device *dev, const struct hybrid_origin_plan *plan);

/*
 * Before a member of @member_sectors is made: zeroes the tail that the present head leads to, and the one
 * at the end of the device, unless the new member has its own tail there.  Returns 0 or -errno.
 */
int hybrid_member_forget_tails(const struct hybrid_device *dev, uint64_t member_sectors);

/* Zeroes head and tail of a member of @member_sectors, and flushes.  Returns 0 or -errno. */
int hybrid_member_zero(const struct hybrid_device *dev, uint64_t member_sectors);

/* Write both copies of @sb and flush.  Returns 0 or an exit code. */
int hybrid_member_write(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/* The same, to undo a write that may have reached one copy: that one first. */
int hybrid_member_write_back(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/*
 * Extends the data area of an origin that has grown to all of the room.  Nobody else may write to the
 * origin.  As in the kernel (engine-grow.c), a cut leaves the old size or the new one.  Returns 0 or an
 * exit code.
 */
int hybrid_member_grow(const struct hybrid_device *dev, struct hybrid_sb *sb);

/*
 * Reads the lost map that an origin's superblock names, from a copy that is good.
 * Returns 0, with *map allocated, or -errno.
 */
int hybrid_lost_map_read(const struct hybrid_device *dev, const struct hybrid_sb *sb,
			 struct hybrid_lost_map **map);

/*
 * Makes @sb that of an origin that belongs to a pool, with nothing cached yet.  The data, names and
 * settings stay.  Writes nothing.
 */
void hybrid_member_pair(struct hybrid_sb *sb, const uint8_t pool_uuid[16], uint32_t id,
			const uint8_t key[16]);

/*
 * Writes both copies of an origin's superblock as that of an origin without a cache: role, no pool
 * and no key, a fresh nonce; the rest as it is in @sb.  A dirty origin loses data by this: a good
 * lost map stays, otherwise the loss is unknown, and a warning says so.  Returns 0 or an exit code.
 */
int hybrid_member_part(const struct hybrid_device *dev, struct hybrid_sb *sb);

/*
 * Does the same to the superblock read from the device.  @next: mode and cutoff for the next cache;
 * NULL: as they are there.  Returns 0 or an exit code.
 */
int hybrid_member_mark_detached(const struct hybrid_device *dev,
				const struct hybrid_volume_settings *next);

/*
 * Reads an origin again, and makes both copies of its superblock the current one.  Needed before a
 * table maps the origin without its cache, since an old copy could bring the cache back.  Returns 0
 * or an exit code.
 */
int hybrid_member_unite(const struct hybrid_device *dev, struct hybrid_member *member);

/*
 * A pool that replaces another one has the other's name with this suffix, so that neither is in the
 * other's way at a boot.  hybrid_replaced_name() gives the name without it, which the new pool has
 * in the end; returns @name.
 */
#define HYBRID_NEW_SUFFIX	"-new"
char *hybrid_replaced_name(char name[HYBRID_NAME_SIZE], const struct hybrid_sb *sb);

/*
 * Takes the superblocks off a formatted member, the head's first, and leaves everything else.  Before
 * them goes a tail that an interrupted growth left at the end of the device.  If cut short, it leaves a
 * member that one copy describes, or none.  Returns 0 or an exit code.
 */
int hybrid_member_unsign(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/*
 * Zeroes head and tail of a formatted member, the superblocks first.  If cut short, it leaves a member
 * with all of its metadata, or none.
 */
int hybrid_member_wipe(const struct hybrid_device *dev, const struct hybrid_sb *sb);

#endif
