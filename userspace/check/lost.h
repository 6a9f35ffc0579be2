/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What of volumes is gone with a cache device. */
#ifndef HYBRID_LOST_H
#define HYBRID_LOST_H

#include "ranges.h"

struct hybrid_known_place;

/* A zeroed struct: nothing is lost. */
struct hybrid_losses {
	struct hybrid_ranges ranges;
	bool unknown;			/* of a volume at least: a range without length */
	struct hybrid_known_place *place;	/* volumes whose files can be looked for */
	unsigned int nr_places;
};

/*
 * Add what the origin on @dev, whose superblock is @sb, says of itself: by its lost map, or that
 * the loss is unknown.  Returns 0 or an exit code.
 */
int hybrid_losses_of_origin(struct hybrid_losses *l, const struct hybrid_device *dev,
			    const struct hybrid_sb *sb);

/* As hybridctl lost prints it; @files: and whose files these are.  Returns 0 or an exit code. */
int hybrid_losses_print(const struct hybrid_losses *l, const struct hybrid_report_options *opts,
			bool files);

void hybrid_losses_free(struct hybrid_losses *l);

#endif
