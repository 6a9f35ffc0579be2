// SPDX-License-Identifier: GPL-2.0-only
/* The registry of policies: finds one by name, loading its module if need be. */
#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/mutex.h>

#include "core/policy.h"

static LIST_HEAD(policies);
static DEFINE_MUTEX(policies_lock);

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
	int r = 0;

	if (!*type->name || strlen(type->name) >= HYBRID_POLICY_NAME_SIZE)
		return -EINVAL;
	mutex_lock(&policies_lock);
	if (find_policy(type->name))
		r = -EEXIST;
	else
		list_add_tail(&type->list, &policies);
	mutex_unlock(&policies_lock);
	return r;
}
EXPORT_SYMBOL_GPL(hybrid_policy_register);

void hybrid_policy_unregister(struct hybrid_policy_type *type)
{
	mutex_lock(&policies_lock);
	list_del(&type->list);
	mutex_unlock(&policies_lock);
}
EXPORT_SYMBOL_GPL(hybrid_policy_unregister);

/* A policy whose module is being unloaded counts as unknown. */
static const struct hybrid_policy_type *get_loaded(const char *name)
{
	struct hybrid_policy_type *type;

	mutex_lock(&policies_lock);
	type = find_policy(name);
	if (type && !try_module_get(type->owner))
		type = NULL;
	mutex_unlock(&policies_lock);
	return type;
}

const struct hybrid_policy_type *hybrid_policy_get(const char *name)
{
	const struct hybrid_policy_type *type;

	if (!*name || strlen(name) >= HYBRID_POLICY_NAME_SIZE)
		return NULL;
	type = get_loaded(name);
	if (type)
		return type;
	request_module("dm-hybrid-policy-%s", name);
	return get_loaded(name);
}
EXPORT_SYMBOL_GPL(hybrid_policy_get);

void hybrid_policy_put(const struct hybrid_policy_type *type)
{
	module_put(type->owner);
}
EXPORT_SYMBOL_GPL(hybrid_policy_put);
