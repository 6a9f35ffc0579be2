/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two cache devices that hold the same: an md RAID1 below the pool, made by mdadm. */
#ifndef HYBRIDCTL_MIRROR_H
#define HYBRIDCTL_MIRROR_H

#include "common.h"

struct mirror {
	struct hybrid_device leg[2];	/* the first one lends its descriptor to the checks of create */
	char path[HYBRID_PATH_MAX];	/* of the array */
	bool made, written;
};

#define MIRROR_NONE	{ .leg = { { .fd = -1 }, { .fd = -1 } } }

/*
 * All that can be found out before anything is written: whether the second --cache is another device
 * of this machine, whether mdadm and the kernel can do it, whether the array's name is free.  The
 * second leg stays open.  Returns 0 or an exit code.
 */
int mirror_parse(struct mirror *m, const struct command_line *cl, const char *pool);
void mirror_close(struct mirror *m);

/* The leg that decides how large the array is: @cache, the first one, or the second. */
const struct hybrid_device *mirror_smaller(const struct mirror *m,
					   const struct hybrid_device *cache);

/* For --test: what mirror_make() runs. */
void mirror_print_test(const struct mirror *m);

/*
 * Make the array of @cache, which is the first leg, and of the second; @cache is the array then,
 * opened exclusively.  On failure mirror_undo() frees both legs.  Returns 0 or an exit code.
 */
int mirror_make(struct mirror *m, struct hybrid_device *cache);
/* Stop the array, take its superblocks off both legs, and say what was lost with that. */
void mirror_undo(struct mirror *m);

#endif
