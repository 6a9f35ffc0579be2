// SPDX-License-Identifier: GPL-2.0-only
/* Users' I/Os on their way to a device, and those that wait. */
#include "engine-internal.h"

void user_op(struct hybrid_io *io, bool origin, u64 sector, bool fua)
{
	struct hybrid_op *op = &io->op;

	op->type = HYBRID_OP_USER;
	op->write = io->type != HYBRID_IO_READ;
	op->origin = origin;
	op->fua = fua;
	op->volume = io->volume;
	op->io = io;
	op->sector = sector;
	op->count = io->count;
	op->nr_segments = 0;
}

void io_read_origin(struct hybrid_io *io)
{
	room_read_begins(io->volume);
	io->state = IO_READ_ORIGIN;
	user_op(io, true, io_origin_sector(io), false);
}

static bool overlaps(const struct hybrid_io *r, u64 sector, u32 count)
{
	return r->sector < sector + count && sector < r->sector + r->count;
}

bool find_range(struct hybrid_volume *v, u64 sector, u32 count)
{
	struct hybrid_io *r;

	list_for_each_entry(r, &v->ranges.list, link)
		if (overlaps(r, sector, count))
			return true;
	return false;
}

bool range_blocks(struct hybrid_volume *v, u64 sector, u32 count)
{
	unsigned long flags;
	bool found;

	if (!READ_ONCE(v->ranges.nr))
		return false;
	spin_lock_irqsave(&v->e->lock, flags);
	found = find_range(v, sector, count);
	spin_unlock_irqrestore(&v->e->lock, flags);
	return found;
}

bool range_wait(struct hybrid_volume *v, struct hybrid_io *io)
{
	unsigned long flags;
	bool found;

	spin_lock_irqsave(&v->e->lock, flags);
	found = find_range(v, io->sector, io->count);
	if (found)
		list_add_tail(&io->link, &v->ranges.waiters);
	spin_unlock_irqrestore(&v->e->lock, flags);
	return found;
}
