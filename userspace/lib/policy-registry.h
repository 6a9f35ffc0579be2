/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The policies that are linked in. */
#ifndef HYBRID_POLICY_REGISTRY_H
#define HYBRID_POLICY_REGISTRY_H

#include "policy.h"

/* The one after @type, NULL: the first.  NULL after the last. */
const struct hybrid_policy_type *hybrid_policy_next(const struct hybrid_policy_type *type);

#endif
