/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading what is on devices, each by a process of its own: the only way in which the tools
 * read a disk that they are not about to write to.
 */
#ifndef HYBRID_LOOK_H
#define HYBRID_LOOK_H

#include "members.h"

/* What to look for, beside superblocks */
#define HYBRID_LOOK_ARRAY	(1U << 0)	/* what is part of an array is not ok */
#define HYBRID_LOOK_IDENTITY	(1U << 1)	/* what would recognise it as an origin in place */
#define HYBRID_LOOK_STOPPED	(1U << 2)	/* of a cache device, whether its pool was */
#define HYBRID_LOOK_BLANK	(1U << 3)	/* whether it holds nothing */

struct hybrid_look {
	char *path;
	unsigned int open;	/* HYBRID_OPEN_ flags */
	unsigned int what;	/* HYBRID_LOOK_ flags */

	/*
	 * 0: a member, or what claims to be one; -ENODATA: none; -ETIMEDOUT: it did not
	 * answer; -errno: it could not be read; an exit code: it could not be opened.
	 */
	int r;
	dev_t devno;
	struct hybrid_member member;	/* if r is 0 */
	/*
	 * It is what a snapshot of LVM has of another logical volume: not a clone of which
	 * nobody knows which is meant.  False for a snapshot that was made a member itself.
	 */
	bool snapshot;
	bool stopped;			/* see hybrid_cache_stopped() */
	bool blank;			/* see hybrid_member_blank() */
	char why[HYBRID_WHY_MAX];	/* ... it is not */
	bool recognised;		/* identity is set */
	uint8_t identity[16];		/* see hybrid_uuid_of_identity() */
};

struct hybrid_looks {
	struct hybrid_look *look;
	unsigned int nr;
};

/* One more device, or file; @open, @what: flags.  Returns 0 or an exit code. */
int hybrid_looks_add(struct hybrid_looks *looks, const char *path, unsigned int open,
		     unsigned int what);

/* Look at all of them, beside each other: see hybrid_apart().  Returns 0 or an exit code. */
int hybrid_looks_run(struct hybrid_looks *looks);

void hybrid_looks_free(struct hybrid_looks *looks);

/* What to do about a device that does not answer. */
#define HYBRID_NEXT_SILENT \
	"wait for it, or have its driver give it up: of a SCSI disk, " \
	"echo offline > /sys/block/NAME/device/state"

/*
 * Whether a block device answers a read.  An error is an answer, too.  If it does not, that is
 * printed, and HYBRID_BUSY returned; 0 else, or another exit code.
 */
int hybrid_device_answers(const char *path);

#endif
