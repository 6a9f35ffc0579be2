// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads and writes the superblock of the cache device.  The engine reads and writes
 * everything else on the members.
 */
#include <linux/slab.h>

#include "io.h"
#include "superblock.h"

/* One copy of the superblock of a device of @sectors. */
static int read_copy(struct block_device *bdev, u64 sector, u64 sectors,
		     struct hybrid_superblock *block, struct hybrid_sb *sb, const char **why)
{
	int r;

	if (sector + HYBRID_META_BLOCK_SECTORS > sectors)
		return -ENODATA;
	r = hybrid_read_block(bdev, sector, block);
	if (r)
		return r;
	return hybrid_sb_decode(block, sector, sectors, sb, why);
}

/* Why the decoder refuses @block. */
static void explain(const struct hybrid_superblock *block, int r, const char *field, char *why)
{
	if (r == -EPROTONOSUPPORT && le32_to_cpu(block->version) != HYBRID_FORMAT_VERSION)
		snprintf(why, HYBRID_SB_WHY, "format version %u, this module knows version %u",
			 le32_to_cpu(block->version), HYBRID_FORMAT_VERSION);
	else if (field)
		strscpy(why, field, HYBRID_SB_WHY);
}

/*
 * The head names the place of the tail.  If the head is damaged, the tail is at
 * the end of the device.  Returns the head's error if there is no good tail.
 */
static int read_current(struct block_device *bdev, struct hybrid_superblock *block,
			struct hybrid_sb *sb, struct hybrid_sb *tail, char *why)
{
	u64 sectors = bdev_nr_sectors(bdev), end = sectors;
	const char *field = NULL;
	int r, t;

	if (sectors < HYBRID_HEAD_SECTORS + HYBRID_TAIL_SECTORS)
		return -ENOSPC;
	r = read_copy(bdev, hybrid_sb_sector(sectors, 0), sectors, block, sb, &field);
	if (!r)
		end = sb->member_sectors;
	explain(block, r, field, why);
	t = read_copy(bdev, hybrid_sb_sector(end, 1), sectors, block, tail, NULL);
	if (t)
		return r;
	if (!r && memcmp(sb->member_uuid, tail->member_uuid, HYBRID_UUID_SIZE))
		return -EUCLEAN;
	if (r || tail->sequence > sb->sequence)
		*sb = *tail;
	return 0;
}

static char *sb_error(int r)
{
	switch (r) {
	case -ENODATA:
		return "Cache device is not a dm-hybrid member";
	case -EBADMSG:
		return "Superblock of the cache device is damaged";
	case -EPROTONOSUPPORT:
		return "Cache device has an unknown format version or feature";
	case -EROFS:
		return "Cache device has a feature that allows reading only";
	case -EOVERFLOW:
		return "Superblock of the cache device has no sequence left";
	case -EMEDIUMTYPE:
		return "Device is a dm-hybrid origin, not a cache device";
	case -EUCLEAN:
		return "Head and tail of the cache device are of different members";
	case -ENOSPC:
		return "Cache device is too small";
	case -ENOMEM:
		return "Cannot allocate memory for the superblock";
	case -EINVAL:
	case -ESTALE:
		return "Superblock of the cache device does not fit the device";
	default:
		return "Cannot read the superblock of the cache device";
	}
}

int hybrid_cache_sb_read(struct block_device *bdev, struct hybrid_sb *sb, char **error,
			 char why[HYBRID_SB_WHY])
{
	struct hybrid_superblock *block = kmalloc(sizeof(*block), GFP_KERNEL);
	struct hybrid_sb *tail = kmalloc(sizeof(*tail), GFP_KERNEL);
	int r = -ENOMEM;

	why[0] = '\0';
	if (block && tail)
		r = read_current(bdev, block, sb, tail, why);
	if (!r && sb->role != HYBRID_ROLE_CACHE)
		r = -EMEDIUMTYPE;
	if (!r && (sb->ro_compat & ~HYBRID_RO_COMPAT_KNOWN))
		r = -EROFS;
	if (!r && hybrid_number_ends(sb->sequence))
		r = -EOVERFLOW;
	kfree(tail);
	kfree(block);
	if (r)
		*error = sb_error(r);
	return r;
}

/*
 * Returns the copy to write first.  That write may be torn, so this copy is neither
 * the only good one nor the only current one.
 */
static unsigned int first_to_write(struct block_device *bdev, struct hybrid_superblock *block,
				   const struct hybrid_sb *sb, struct hybrid_sb *tail)
{
	int r = read_copy(bdev, hybrid_sb_sector(sb->member_sectors, 1), bdev_nr_sectors(bdev),
			  block, tail, NULL);

	return r || tail->sequence != sb->sequence;
}

int hybrid_cache_sb_record(struct hybrid_pool *pool, const char *name, const char *policy,
			   const struct hybrid_settings *settings)
{
	struct hybrid_superblock *block = kmalloc(sizeof(*block), GFP_KERNEL);
	struct hybrid_sb *sb = kmalloc(2 * sizeof(*sb), GFP_KERNEL);
	char *error, why[HYBRID_SB_WHY];
	unsigned int copy, n;
	int r = -ENOMEM;

	if (block && sb)
		r = hybrid_cache_sb_read(pool->bdev, &sb[0], &error, why);
	if (r)
		goto out;
	copy = first_to_write(pool->bdev, block, &sb[0], &sb[1]);
	if (name) {
		strscpy(sb->name, name, sizeof(sb->name));
		/* A device that came up blank goes on naming the pool that it replaced. */
		if (!(sb->flags & HYBRID_SB_EPHEMERAL))
			memset(sb->replaces, 0, sizeof(sb->replaces));
	}
	strscpy(sb->policy, policy, sizeof(sb->policy));
	sb->settings = *settings;
	sb->sequence++;
	for (n = 0; n < 2 && !r; n++, copy ^= 1) {
		hybrid_sb_encode(block, sb, hybrid_sb_sector(sb->member_sectors, copy));
		r = hybrid_write_block(pool, hybrid_sb_sector(sb->member_sectors, copy), block);
	}
out:
	kfree(sb);
	kfree(block);
	return r;
}
