/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The GPT that turns a formatted origin into an ordinary disk: its one partition is the data
 * area.  The GPT is in head and tail, beside the superblocks, which it leaves as they are.
 */
#ifndef HYBRID_GPT_H
#define HYBRID_GPT_H

#include "members.h"

/* Type of the partition: Linux filesystem data. */
#define HYBRID_GPT_LINUX	"0fc63daf-8483-4772-8e79-3d69d8477de4"

/*
 * Checks that such a table has room between the superblocks, the data area and the ends of the
 * disk, and can name the data area in the disk's logical sectors.  If not, prints the reason with
 * the numbers.  Returns 0 or an exit code.
 */
int hybrid_gpt_check(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/*
 * Writes primary and backup table and the protective MBR, and flushes.  The table has the member's
 * UUID, and the partition has the volume's UUID and name, so that a second write gives the same
 * table.  @dev is open for writing.  Returns 0 or an exit code.
 */
int hybrid_gpt_write(const struct hybrid_device *dev, const struct hybrid_sb *sb);

/* Whether there is a GPT on the device, as libblkid sees it. */
bool hybrid_gpt_there(const struct hybrid_device *dev);

/*
 * Has the kernel look for partitions on an exclusively opened disk.  Returns 0 or -errno; a disk
 * with partitions in use stays as it is.
 */
int hybrid_gpt_reread(const struct hybrid_device *dev);

/* Path of the first partition of a disk, whether or not it is there yet. */
char *hybrid_gpt_partition(const char *disk, char *buf, size_t len);

#endif
