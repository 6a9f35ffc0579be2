/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Members of dm-hybrid, a block cache for the device-mapper.
 *
 * This file may be redistributed under the terms of the
 * GNU Lesser General Public License.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "superblocks.h"
#include "crc32c.h"

#define DM_HYBRID_MAGIC		"dm-hybrid member"
#define DM_HYBRID_MAGIC_LEN	16
#define DM_HYBRID_BLOCK		4096
#define DM_HYBRID_OFFSET	(512 * 1024)	/* after the start, and before the end */
#define DM_HYBRID_MIN_SIZE	(2 * 1024 * 1024)

struct dm_hybrid_super_block {
	uint8_t		magic[DM_HYBRID_MAGIC_LEN];
	uint32_t	crc;		/* CRC-32C of the block with this field zero */
	uint32_t	version;
	uint64_t	compat;
	uint64_t	ro_compat;
	uint64_t	incompat;
	uint64_t	sector;		/* where on the member this copy stands */
	uint64_t	member_sectors;
	uint8_t		pool_uuid[16];
	uint8_t		member_uuid[16];
	uint32_t	role;
	uint32_t	flags;
	uint64_t	sequence;
	uint8_t		name[64];
} __attribute__((packed));

static uint32_t dm_hybrid_csum(const unsigned char *block)
{
	static const unsigned char zero[4];
	const size_t at = offsetof(struct dm_hybrid_super_block, crc);
	uint32_t crc;

	crc = crc32c(~0U, block, at);
	crc = crc32c(crc, zero, sizeof(zero));
	crc = crc32c(crc, block + at + sizeof(zero), DM_HYBRID_BLOCK - at - sizeof(zero));
	return crc ^ ~0U;
}

static int dm_hybrid_copy(blkid_probe pr, uint64_t off)
{
	const struct dm_hybrid_super_block *sb;
	const unsigned char *block;

	block = blkid_probe_get_buffer(pr, off, DM_HYBRID_BLOCK);
	if (!block)
		return errno ? -errno : BLKID_PROBE_NONE;
	sb = (const struct dm_hybrid_super_block *) block;
	if (memcmp(sb->magic, DM_HYBRID_MAGIC, DM_HYBRID_MAGIC_LEN) != 0)
		return BLKID_PROBE_NONE;
	if (!blkid_probe_verify_csum(pr, dm_hybrid_csum(block), le32_to_cpu(sb->crc)))
		return BLKID_PROBE_NONE;
	/* A shifted copy: of a partition at the end of a disk, say */
	if (le64_to_cpu(sb->sector) != off >> 9)
		return BLKID_PROBE_NONE;

	if (blkid_probe_set_uuid(pr, (unsigned char *) sb->pool_uuid) ||
	    blkid_probe_set_uuid_as(pr, (unsigned char *) sb->member_uuid, "UUID_SUB") ||
	    blkid_probe_set_label(pr, (unsigned char *) sb->name, sizeof(sb->name)) ||
	    blkid_probe_sprintf_version(pr, "%u", le32_to_cpu(sb->version)) ||
	    blkid_probe_set_magic(pr, off, DM_HYBRID_MAGIC_LEN, sb->magic))
		return BLKID_PROBE_NONE;
	return BLKID_PROBE_OK;
}

static int probe_dm_hybrid(blkid_probe pr,
		const struct blkid_idmag *mag __attribute__((__unused__)))
{
	uint64_t tail = pr->size / DM_HYBRID_BLOCK * DM_HYBRID_BLOCK - DM_HYBRID_OFFSET;
	int rc;

	if (pr->size < DM_HYBRID_MIN_SIZE)
		return BLKID_PROBE_NONE;
	rc = dm_hybrid_copy(pr, DM_HYBRID_OFFSET);
	if (rc == BLKID_PROBE_NONE)
		rc = dm_hybrid_copy(pr, tail);
	return rc;
}

const struct blkid_idinfo dm_hybrid_idinfo = {
	.name		= "dm_hybrid_member",
	.usage		= BLKID_USAGE_RAID,
	.probefunc	= probe_dm_hybrid,
	.magics		= BLKID_NONE_MAGIC
};
