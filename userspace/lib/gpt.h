/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The GPT that makes an ordinary disk of a formatted origin: its one partition is the data
 * area.  It stands in head and tail, beside the superblocks, which it leaves as they are.
 */
#ifndef HYBRID_GPT_H
#define HYBRID_GPT_H

#include "members.h"

/* Type of the partition: Linux filesystem data. */
#define HYBRID_GPT_LINUX	"0fc63daf-8483-4772-8e79-3d69d8477de4"

/*
 * Whether such a table has room between the superblocks, the data area and the ends of the disk, and
 * can name the data area in the disk's logical sectors.  Prints why not, with the numbers.
 * Returns 0 or an exit code.
 */
int hybrid_gpt_check(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/*
 * Write primary, backup and protective MBR, and flush.  The table has the member's UUID, the
 * partition that of the volume, and its name: written again it is the same.  @dev is open for
 * writing.  Returns 0 or an exit code.
 */
int hybrid_gpt_write(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/* Whether there is a GPT on the device, as libblkid sees it. */
bool hybrid_gpt_there(const struct hybrid_device *dev);

/*
 * Have the kernel look for partitions on an exclusively opened disk.  Returns 0 or -errno: what
 * has partitions in use stays as it is.
 */
int hybrid_gpt_reread(const struct hybrid_device *dev);

/* Path of the first partition of a disk, whether or not it is there yet. */
char *hybrid_gpt_partition(const char *disk, char *buf, size_t len);

#endif
