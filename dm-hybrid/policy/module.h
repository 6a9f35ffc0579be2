/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DM_HYBRID_POLICY_MODULE_H
#define DM_HYBRID_POLICY_MODULE_H

#include <linux/module.h>

#include "../core/policy.h"

/**
 * HYBRID_POLICY_MODULE() - Makes the one file of a policy a kernel module of its own
 * @type: the policy's struct hybrid_policy_type
 * @policy_name: the name in @type, as a string literal
 * @description: description of the policy, for modinfo
 */
#define HYBRID_POLICY_MODULE(type, policy_name, description)		\
	MODULE_ALIAS("dm-hybrid-policy-" policy_name);			\
	MODULE_DESCRIPTION("dm-hybrid " description);			\
	MODULE_LICENSE("GPL");						\
									\
	static int __init type##_module_init(void)			\
	{								\
		return hybrid_policy_register(&(type));			\
	}								\
									\
	static void __exit type##_module_exit(void)			\
	{								\
		hybrid_policy_unregister(&(type));			\
	}								\
									\
	module_init(type##_module_init);				\
	module_exit(type##_module_exit)

#endif
