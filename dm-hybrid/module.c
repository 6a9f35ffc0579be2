// SPDX-License-Identifier: GPL-2.0-only
/* The module: registers both targets. */
#include <linux/module.h>
#include <linux/rcupdate.h>

#include "io.h"
#include "target.h"

static int __init hybrid_init(void)
{
	int r = hybrid_io_module_init();

	if (r)
		return r;
	r = dm_register_target(&hybrid_pool_target);
	if (r)
		goto bad_pool;
	r = dm_register_target(&hybrid_volume_target);
	if (r)
		goto bad_volume;
	r = hybrid_notifiers_init();
	if (r)
		goto bad_notifiers;
	return 0;

bad_notifiers:
	dm_unregister_target(&hybrid_volume_target);
bad_volume:
	dm_unregister_target(&hybrid_pool_target);
bad_pool:
	hybrid_io_module_exit();
	return r;
}

static void __exit hybrid_exit(void)
{
	hybrid_notifiers_exit();
	dm_unregister_target(&hybrid_volume_target);
	dm_unregister_target(&hybrid_pool_target);
	/* The task that ended the last bio or operation may be preempted on its way out. */
	synchronize_rcu_tasks();
	hybrid_io_module_exit();
}

module_init(hybrid_init);
module_exit(hybrid_exit);

MODULE_DESCRIPTION("device-mapper hybrid storage cache");
MODULE_LICENSE("GPL");
MODULE_VERSION(__stringify(HYBRID_TARGET_MAJOR) "." __stringify(HYBRID_TARGET_MINOR) "."
	       __stringify(HYBRID_FORMAT_VERSION));
MODULE_ALIAS("dm-hybrid-pool");
