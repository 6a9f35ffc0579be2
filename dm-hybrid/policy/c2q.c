// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clock2Q+ (arXiv 2511.21958), with a counter of two bits in the main clock.  One
 * hit moves a block from the small queue to the main one, but no hit counts while
 * the block is in the newest half of the small queue.
 */
#include "twoqueue.h"
#include "module.h"

static void c2q_init(void *state, u32 set_size)
{
	hybrid_twoqueue_init(state, set_size, 50, 1);
}

static struct hybrid_policy_type c2q_policy = {
	.name = "c2q",
	.init = c2q_init,
	HYBRID_TWOQUEUE_OPS,
};

HYBRID_POLICY_MODULE(c2q_policy, "c2q", "Clock2Q+ policy");
