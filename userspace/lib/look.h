/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading devices, each in a process of its own: the only way in which the tools read a disk
 * that they are not about to write to.
 */
#ifndef HYBRID_LOOK_H
#define HYBRID_LOOK_H

#include "members.h"

/* Things to look for beside superblocks */
#define HYBRID_LOOK_ARRAY	(1U << 0)	/* a part of an array is not ok */
#define HYBRID_LOOK_IDENTITY	(1U << 1)	/* its identities as an origin in place */
#define HYBRID_LOOK_STOPPED	(1U << 2)	/* of a cache device, whether its pool was */
#define HYBRID_LOOK_BLANK	(1U << 3)	/* whether it holds nothing */

struct hybrid_look {
	char *path;
	unsigned int open;	/* HYBRID_OPEN_ flags */
	unsigned int what;	/* HYBRID_LOOK_ flags */

	/*
	 * 0: a member, or claims to be one; -ENODATA: none; -ETIMEDOUT: it did not answer;
	 * -errno: it could not be read; an exit code: it could not be opened.
	 */
	int r;
	dev_t devno;
	struct hybrid_member member;	/* if r is 0 */
	/*
	 * An LVM snapshot that shows the member on another logical volume, so not a clone that
	 * might be meant instead.  False for a snapshot that was made a member itself.
	 */
	bool snapshot;
	bool stopped;			/* see hybrid_cache_stopped() */
	bool blank;			/* see hybrid_member_blank() */
	char why[HYBRID_WHY_MAX];	/* ... it is not */
	struct hybrid_identities identities;
	char claim[HYBRID_CLAIM_MAX];	/* known with the identities: see struct hybrid_lookalike */
};

struct hybrid_looks {
	struct hybrid_look *look;
	unsigned int nr;
};

/* Adds a device or file, with these flags.  Returns 0 or an exit code. */
int hybrid_looks_add(struct hybrid_looks *looks, const char *path, unsigned int open,
		     unsigned int what);

/* Looks at all of them in parallel: see hybrid_apart().  Returns 0 or an exit code. */
int hybrid_looks_run(struct hybrid_looks *looks);

void hybrid_looks_free(struct hybrid_looks *looks);

/* The next step for a device that does not answer. */
#define HYBRID_NEXT_SILENT \
	"wait for it, or have its driver give it up: for a SCSI disk, echo offline > " \
	"/sys/block/NAME/device/state"

/*
 * Checks that a block device answers a read.  An error is an answer, too.  Returns 0; HYBRID_BUSY,
 * after a message, if it does not answer; or another exit code.
 */
int hybrid_device_answers(const char *path);

#endif
