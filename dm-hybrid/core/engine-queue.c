// SPDX-License-Identifier: GPL-2.0-only
/* Users' I/O on its way to a device, and users' I/O that waits. */
#include "engine-internal.h"

void hybrid_io_begin(struct hybrid_io *io)
{
	io->state = IO_NEW;
	io->wait = WAIT_NONE;
	io->commit = false;
	io->write.redirty = false;
	io->counted = false;
	io->write.fetch = false;
	io->write.redirected = false;
	io->write.overwritten = 0;
	io->write.stalled_since = 0;
	io->idx = -1;
	io->job = NULL;
	io->to_cache = 0;
	io->to_origin = 0;
	io->write.admitted = false;
	io->write.intent = NULL;
	INIT_LIST_HEAD(&io->link);
	INIT_LIST_HEAD(&io->range.wait_link);
	INIT_LIST_HEAD(&io->op.link);
}

void hybrid_user_op(struct hybrid_io *io, bool origin, u64 sector, bool fua)
{
	struct hybrid_op *op = &io->op;

	op->type = HYBRID_OP_USER;
	op->write = io->type != HYBRID_IO_READ;
	op->origin = origin;
	op->fua = fua && (!origin || origin_has_fua(io->volume));
	op->volume = io->volume;
	op->io = io;
	op->sector = sector;
	op->count = io->count;
	op->nr_segments = 0;
}

void hybrid_io_read_origin(struct hybrid_io *io)
{
	stall_read_begins(io->volume);
	io->state = IO_READ_ORIGIN;
	hybrid_user_op(io, true, io_origin_sector(io), false);
}

static bool overlaps(const struct hybrid_io *r, u64 sector, u32 count)
{
	return r->sector < sector + count && sector < r->sector + r->count;
}

bool hybrid_find_range(struct hybrid_volume *v, u64 sector, u32 count)
{
	struct hybrid_io *r;

	list_for_each_entry(r, &v->ranges.list, link)
		if (overlaps(r, sector, count))
			return true;
	return false;
}

bool hybrid_range_blocks(struct hybrid_volume *v, u64 sector, u32 count)
{
	unsigned long flags;
	bool found;

	if (!READ_ONCE(v->ranges.nr))
		return false;
	spin_lock_irqsave(&v->e->lock, flags);
	found = hybrid_find_range(v, sector, count);
	spin_unlock_irqrestore(&v->e->lock, flags);
	return found;
}

bool hybrid_range_wait(struct hybrid_volume *v, struct hybrid_io *io)
{
	unsigned long flags;
	bool found;

	spin_lock_irqsave(&v->e->lock, flags);
	found = hybrid_find_range(v, io->sector, io->count);
	if (found)
		list_add_tail(&io->link, &v->ranges.waiters);
	spin_unlock_irqrestore(&v->e->lock, flags);
	return found;
}

void hybrid_wait_in_set(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why)
{
	lockdep_assert_held(&s->lock);
	io->wait = why;
	list_add_tail(&io->link, &s->waiting.ios);
}

enum route hybrid_wait_routed(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why)
{
	hybrid_wait_in_set(s, io, why);
	return ROUTE_TAKEN;
}

void hybrid_rerun(struct hybrid_io *io, struct hybrid_actions *acts)
{
	list_add_tail(&io->op.link, &acts->again);
}

static void rerun_op(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts)
{
	hybrid_rerun(op->io, acts);
}

void hybrid_rerun_later(struct hybrid_io *io, struct hybrid_actions *acts)
{
	op_begin(&io->op, HYBRID_OP_WORK, false, NULL, rerun_op);
	io->op.io = io;
	act(acts, &io->op);
}

void hybrid_rerun_list(struct list_head *list, struct hybrid_actions *acts)
{
	struct hybrid_io *io, *n;

	list_for_each_entry_safe(io, n, list, link) {
		list_del_init(&io->link);
		hybrid_rerun(io, acts);
	}
}

void hybrid_wake_set(struct hybrid_engine *e, u32 nr, u8 why, struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[nr];
	struct hybrid_io *io, *n;
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	list_for_each_entry_safe(io, n, &s->waiting.ios, link) {
		if (!(io->wait & why))
			continue;
		list_del_init(&io->link);
		hybrid_rerun(io, acts);
	}
	list_for_each_entry_safe(io, n, &s->waiting.ranges, range.wait_link) {
		if (!(io->wait & why))
			continue;
		list_del_init(&io->range.wait_link);
		hybrid_rerun(io, acts);
	}
	spin_unlock_irqrestore(&s->lock, flags);
}

void hybrid_wake_all_sets(struct hybrid_engine *e, u8 why, struct hybrid_actions *acts)
{
	u32 set;

	for (set = 0; set < e->map.nr_sets; set++)
		hybrid_wake_set(e, set, why, acts);
}
