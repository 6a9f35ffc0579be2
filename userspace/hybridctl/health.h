/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a pool or volume does: in one word, why, and what to do. */
#ifndef HYBRIDCTL_HEALTH_H
#define HYBRIDCTL_HEALTH_H

#include "inventory.h"

struct health {
	const char *state;	/* running, draining, inactive, degraded, failed ... */
	char reason[256];	/* empty: nothing to say */
	char action[256];
	bool healthy;
};

void judge(const struct hybrid_node *node, struct health *health);

/* What failed of a pool's cache device, in words; false: nothing, or its kernel does not say. */
bool errors_by_kind(const struct hybrid_node *pool, char *buf, size_t len);

/* Hits of all requests in hundredths of a percent; false without requests. */
bool hit_ratio(const struct hybrid_node *node, bool reads, bool writes, uint64_t *ratio);

/*
 * By how many sectors a volume could grow, as far as is known: its origin is larger than when it was made,
 * or a resize was cut short.
 */
uint64_t may_grow_by(const struct hybrid_node *volume);

#endif
