// SPDX-License-Identifier: GPL-2.0-only
/*
 * S3-FIFO (Yang and others, SOSP'23): two hits move a block from the small queue to
 * the main one, and all hits count.
 */
#include "twoqueue.h"
#include "module.h"

static void s3fifo_init(void *state, u32 set_size)
{
	hybrid_twoqueue_init(state, set_size, 0, 2);
}

static struct hybrid_policy_type s3fifo_policy = {
	.name = "s3fifo",
	.init = s3fifo_init,
	HYBRID_TWOQUEUE_OPS,
};

HYBRID_POLICY_MODULE(s3fifo_policy, "s3fifo", "S3-FIFO policy");
