/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Data of volumes that is gone with a cache device. */
#ifndef HYBRID_LOST_H
#define HYBRID_LOST_H

#include "ranges.h"

struct hybrid_known_place;

/* A zeroed struct: nothing is lost. */
struct hybrid_losses {
	struct hybrid_ranges ranges;
	bool unknown;			/* of at least one volume: a range without length */
	struct hybrid_known_place *place;	/* volumes whose files can be looked for */
	unsigned int nr_places;
};

/*
 * Adds the losses that the origin on @dev, with superblock @sb, has on record: the ranges of its
 * lost map, or that the loss is unknown.  Returns 0 or an exit code.
 */
int hybrid_losses_of_origin(struct hybrid_losses *l, const struct hybrid_device *dev,
			    const struct hybrid_sb *sb);

/* Prints the losses as hybridctl lost does, with @files their files, too.  Returns 0 or an exit code. */
int hybrid_losses_print(const struct hybrid_losses *l, const struct hybrid_report_options *opts,
			bool files);

void hybrid_losses_free(struct hybrid_losses *l);

#endif
