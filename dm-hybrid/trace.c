// SPDX-License-Identifier: GPL-2.0-only
/* The tracepoints themselves, and their helpers that are too long to be inline. */
#define CREATE_TRACE_POINTS
#include "calls.h"

void hybrid_trace_op(const struct hybrid_pool *pool, const struct hybrid_op *op)
{
	u32 i;

	trace_hybrid_op(pool, op);
	for (i = 0; hybrid_trace_moves(op) && i < op->nr_segments; i++)
		trace_hybrid_segment(pool, op, &op->segments[i]);
}

void hybrid_trace_ops(const struct hybrid_pool *pool, const struct hybrid_actions *acts,
		      const struct list_head *last)
{
	const struct hybrid_op *op = list_entry(last, struct hybrid_op, link);

	list_for_each_entry_continue(op, &acts->list, link)
		hybrid_trace_op(pool, op);
}
