// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The registry of policies in userspace, as dm-hybrid/policy.c is in the kernel.
 * Linked policies have registered themselves before main runs.
 */
#include "policy-registry.h"

static LIST_HEAD(policies);

static struct hybrid_policy_type *find_policy(const char *name)
{
	struct hybrid_policy_type *type;

	list_for_each_entry(type, &policies, list)
		if (!strcmp(type->name, name))
			return type;
	return NULL;
}

int hybrid_policy_register(struct hybrid_policy_type *type)
{
	if (!*type->name || strlen(type->name) >= HYBRID_POLICY_NAME_SIZE)
		return -EINVAL;
	if (find_policy(type->name))
		return -EEXIST;
	list_add_tail(&type->list, &policies);
	return 0;
}

void hybrid_policy_unregister(struct hybrid_policy_type *type)
{
	list_del(&type->list);
}

const struct hybrid_policy_type *hybrid_policy_next(const struct hybrid_policy_type *type)
{
	const struct list_head *next = type ? type->list.next : policies.next;

	return next == &policies ? NULL : list_entry(next, struct hybrid_policy_type, list);
}

const struct hybrid_policy_type *hybrid_policy_get(const char *name)
{
	return find_policy(name);
}

void hybrid_policy_put(const struct hybrid_policy_type *type)
{
	(void)type;
}
