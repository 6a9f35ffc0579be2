// SPDX-License-Identifier: GPL-2.0-or-later
/* reset-counters and checkpoint: commands that are one message to the kernel. */
#include <stdio.h>

#include "common.h"

static int send(const struct command_line *cl, const struct hybrid_node *node, const char *message)
{
	if (!cl->given[OPT_TEST])
		return hybrid_dm_message(node->name, message, NULL);
	printf("dmsetup message %s 0 %s\n", node->name, message);
	return 0;
}

/* Volumes without a cache have no counters. */
static int reset_volumes(const struct command_line *cl, const struct hybrid_inventory *inv,
			 struct hybrid_node *node)
{
	const struct hybrid_node *n;
	int r = 0;

	for (n = inv->nodes; n < inv->nodes + inv->nr_nodes && !r; n++)
		if (n->kind == HYBRID_VOLUME && n->active && !n->dm.alone &&
		    (n == node || n->pool == node))
			r = send(cl, n, "reset_counters");
	return r;
}

int command_reset_counters(const struct command_line *cl)
{
	return with_active(cl, HYBRID_ANY, reset_volumes);
}

static int checkpoint(const struct command_line *cl, const struct hybrid_inventory *inv,
		      struct hybrid_node *node)
{
	(void)inv;
	return send(cl, node, "checkpoint");
}

int command_checkpoint(const struct command_line *cl)
{
	return with_active(cl, 1U << HYBRID_POOL, checkpoint);
}
