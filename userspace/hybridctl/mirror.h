/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Two cache devices with the same contents: an md RAID1 below the pool, made by mdadm. */
#ifndef HYBRIDCTL_MIRROR_H
#define HYBRIDCTL_MIRROR_H

#include "common.h"

struct mirror {
	struct hybrid_device leg[2];	/* create has the first one open until mirror_make() */
	char path[HYBRID_PATH_MAX];	/* of the array */
	bool made, written;
};

#define MIRROR_NONE	{ .leg = { { .fd = -1 }, { .fd = -1 } } }

/*
 * Makes all checks that are possible before anything is written: the second --cache is distinct
 * from the first and from @origin, unless NULL, the array's name is free, and mdadm is installed.  Leaves the
 * second leg open.  Returns 0 or an exit code.
 */
int mirror_parse(struct mirror *m, const struct command_line *cl, const char *origin, const char *pool);
void mirror_close(struct mirror *m);

/* Returns the leg that decides the size of the array: @cache, the first one, or the second. */
const struct hybrid_device *mirror_smaller(const struct mirror *m,
					   const struct hybrid_device *cache);

/* For --test: prints the command that mirror_make() runs. */
void mirror_print_test(const struct mirror *m);

/*
 * Makes the array of @cache, which is the first leg, and of the second.  Then @cache is the array,
 * opened exclusively.  On failure, mirror_undo() frees both legs.  Returns 0 or an exit code.
 */
int mirror_make(struct mirror *m, struct hybrid_device *cache);
/* Stops the array, takes its superblocks off both legs, and warns of the contents that were lost. */
void mirror_undo(struct mirror *m);

#endif
