/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The state of a pool or volume: one word, the reason, and the next action. */
#ifndef HYBRIDCTL_HEALTH_H
#define HYBRIDCTL_HEALTH_H

#include "inventory.h"

struct health {
	const char *state;	/* running, draining, inactive, degraded, failed ... */
	char reason[320];	/* empty: nothing to say */
	char action[256];
	bool healthy;
};

void judge(const struct hybrid_node *node, struct health *health);

/*
 * Puts the errors of a pool's cache device into words, by kind; false: none, or its kernel does not
 * count them.
 */
bool errors_by_kind(const struct hybrid_node *pool, char *buf, size_t len);

/* Share of hits in all requests, in hundredths of a percent; false without requests. */
bool hit_ratio(const struct hybrid_node *node, bool reads, bool writes, uint64_t *ratio);

/*
 * Returns the sectors by which a volume could grow, as far as is known, because its origin is
 * larger than when it was made, or because a resize was cut short.
 */
uint64_t may_grow_by(const struct hybrid_node *volume);

#endif
