/* SPDX-License-Identifier: GPL-2.0-only */
/* What makes a policy's one file a kernel module of its own. */
#ifndef DM_HYBRID_POLICY_MODULE_H
#define DM_HYBRID_POLICY_MODULE_H

#include <linux/module.h>

#include "../core/policy.h"

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
