// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The linter's rules on the intent log, J12 and J13, and on what an intent may say.
 *
 * A write under an intent is known by its action, whose data is copied before it is written.
 * From then on, until the tail has durably passed its intent, nothing else may be done to its
 * granules.
 */
#include <stdlib.h>

#include "linter.h"
#include "fibers.h"

/* A write under an intent.  The intent may follow the data. */
struct intended {
	struct list_head link;
	u32 b;
	u64 granules, checksum;
	struct volume *vol;
	u64 sector, end;		/* of the volume */
	struct action *data;		/* NULL: has ended */
	struct action *intent;		/* likewise, once n is known */
	bool failed;
	u32 instance;			/* once n is known */
	u64 n;				/* SIM_NEVER: not known yet */
};

static void drop(struct linter *l, u64 below)
{
	struct intended *x, *next;

	list_for_each_entry_safe(x, next, &l->intended, link) {
		if (x->n >= below && below != SIM_NEVER)
			continue;
		list_del(&x->link);
		free(x);
	}
}

void intents_drop(struct linter *l)
{
	drop(l, SIM_NEVER);
}

void intents_learn(struct linter *l, u64 tail)
{
	intents_drop(l);
	l->next_intent = tail;
	l->tail_sent = tail;
	l->tail_durable = tail;
	l->intents_flushed = tail;
	l->flush = NULL;
}

/* ---- Intents ------------------------------------------------------------------ */

static struct intended *find_data(struct linter *l, const struct hybrid_intent_record *r)
{
	struct intended *x;

	list_for_each_entry(x, &l->intended, link)
		if (x->n == SIM_NEVER && x->b == le32_to_cpu(r->where) &&
		    x->granules == le64_to_cpu(r->granules) &&
		    x->checksum == le64_to_cpu(r->checksum))
			return x;
	return NULL;
}

/* On record, the granules are not valid, and the block is free or has this owner. */
static void check_intended(struct linter *l, struct action *a, const struct hybrid_intent_record *r)
{
	u32 b = le32_to_cpu(r->where), set = b / l->g->set_size, i;
	u64 region = BIT_ULL(b % l->g->set_size / HYBRID_REGION_BLOCKS);
	u64 granules = le64_to_cpu(r->granules), valid;
	const struct owner *both[] = { &l->durable[b], &l->sent[b] };

	for (i = 0; i < 2; i++) {
		if (!both[i]->instance || !volume_of_instance(l, both[i]->instance))
			continue;
		if (both[i]->instance != le32_to_cpu(r->instance) ||
		    both[i]->oblock != oblock_of(r->oblock))
			broken(l, "J12", "an intent for block %u, which is another's on record", b);
		valid = both[i]->valid;
		/* After a crash, clean granules of open regions do not count. */
		if (l->open_durable[set] & region)
			valid &= both[i]->dirty;
		if (valid & granules)
			broken(l, "J12", "an intent for granules %llx of block %u, valid on record",
			       (unsigned long long)(valid & granules), b);
	}
}

void intents_submitted(struct linter *l, struct action *a, u64 sector, const void *bytes)
{
	const struct hybrid_intent *intent = bytes;
	struct hybrid_ident id = { .epoch = l->root.epoch };
	u64 n = le64_to_cpu(intent->header.number);
	const char *why = "";
	struct intended *x;
	u32 i;

	memcpy(id.pool_uuid, l->w->sb.pool_uuid, HYBRID_UUID_SIZE);
	if (hybrid_intent_check(intent, l->g, &id, &why)) {
		broken(l, "format", "intent is not valid: %s", why);
		return;
	}
	if (hybrid_intent_sector(l->g, n) != sector || n != l->next_intent)
		broken(l, "format", "intent %llu follows %llu", (unsigned long long)n,
		       (unsigned long long)l->next_intent - 1);
	if (n - l->tail_durable >= l->g->intent_blocks)
		broken(l, "J13", "intent %llu overwrites one that may count, the tail is %llu",
		       (unsigned long long)n, (unsigned long long)l->tail_durable);
	if (le64_to_cpu(intent->flushed) > l->intents_flushed)
		broken(l, "J13", "intent %llu says that all below %llu are flushed, below %llu they are",
		       (unsigned long long)n, (unsigned long long)le64_to_cpu(intent->flushed),
		       (unsigned long long)l->intents_flushed);
	l->next_intent = n + 1;
	for (i = 0; i < le32_to_cpu(intent->header.count) && !l->w->stop; i++) {
		x = find_data(l, &intent->record[i]);
		if (!x) {
			broken(l, "J12", "intent %llu for block %u granules %llx, whose data is not written",
			       (unsigned long long)n, le32_to_cpu(intent->record[i].where),
			       (unsigned long long)le64_to_cpu(intent->record[i].granules));
			return;
		}
		x->n = n;
		x->instance = le32_to_cpu(intent->record[i].instance);
		x->intent = a;
		check_intended(l, a, &intent->record[i]);
	}
}

/* ---- Data --------------------------------------------------------------------- */

void intents_data(struct linter *l, struct action *a, struct dreq *r, u32 b, u64 granules)
{
	struct intended *x;

	list_for_each_entry(x, &l->intended, link)
		if (x->b == b && (x->granules & granules) && x->data != a && !l->failed) {
			broken(l, "J12", "granules %llx of block %u are %s, under intent %lld",
			       (unsigned long long)granules, b,
			       r->kind == DREQ_DISCARD ? "discarded" : "written", (long long)x->n);
			return;
		}
}

/* The data of a write under an intent has been copied: an intent may name it from now on. */
void linter_copied(struct linter *l, struct action *a)
{
	const struct hybrid_segment *seg = a->op->segments;
	const val_t *vals = (val_t *)a->op->buffer + seg->offset;
	u64 offset = seg->sector - l->g->data_sector;
	const struct uio *u = container_of(a->op->io, struct uio, io);
	u8 bytes[HYBRID_INTENT_SECTORS * 512];
	struct intended *x;
	u32 i;

	if (l->w->stop)
		return;
	if (a->op->nr_segments != 1 || seg->origin || seg->count > HYBRID_INTENT_SECTORS ||
	    seg->count % l->g->granule_sectors) {
		broken(l, "J12", "a write of %u sectors under an intent", seg->count);
		return;
	}
	for (i = 0; i < seg->count; i++)
		data_bytes(vals[i], bytes + i * 512);
	x = xalloc(sizeof(*x));
	x->b = offset >> l->g->block_shift;
	x->granules = granules_of(l, offset & (l->g->block_sectors - 1), seg->count);
	x->checksum = xxh64(bytes, seg->count * 512, l->root.epoch);
	x->vol = u->vol;
	x->sector = u->sector;
	x->end = u->sector + seg->count;
	x->data = a;
	x->n = SIM_NEVER;
	list_add_tail(&x->link, &l->intended);
}

void intents_origin(struct linter *l, struct action *a, struct volume *vol, u64 from, u64 to)
{
	struct intended *x;

	list_for_each_entry(x, &l->intended, link)
		if (x->vol == vol && x->sector < to && from < x->end && !l->failed) {
			broken(l, "J12", "sectors %llu to %llu of volume %u change on the origin, under intent %lld",
			       (unsigned long long)from, (unsigned long long)to, vol->id,
			       (long long)x->n);
			return;
		}
}

void intents_ended(struct linter *l, struct action *a, struct dreq *r)
{
	struct intended *x;

	if (r == l->flush) {
		if (!r->error)
			l->intents_flushed = max(l->intents_flushed, l->intents_flushing);
		l->flush = NULL;
	}
	list_for_each_entry(x, &l->intended, link) {
		if (x->data == a) {
			x->data = NULL;
			x->failed = r->error;
		}
		if (x->intent == a)
			x->intent = NULL;
	}
}

/* All intents below the number returned, and their data, have been written. */
void intents_flush(struct linter *l, struct dreq *r)
{
	struct intended *x;

	if (l->flush)
		return;
	l->flush = r;
	l->intents_flushing = l->next_intent;
	list_for_each_entry(x, &l->intended, link)
		if (x->data || x->intent || x->failed)
			l->intents_flushing = min(l->intents_flushing, x->n);
}

/* ---- The tail ------------------------------------------------------------------ */

void intents_entry(struct linter *l, struct action *a, u64 tail)
{
	struct intended *x;

	if (tail < l->tail_sent || tail > l->next_intent)
		broken(l, "J13", "the tail moves from intent %llu to %llu, next is %llu",
		       (unsigned long long)l->tail_sent, (unsigned long long)tail,
		       (unsigned long long)l->next_intent);
	l->tail_sent = tail;
	list_for_each_entry(x, &l->intended, link) {
		const struct owner *o = &l->sent[x->b];
		bool own = o->instance && volume_of_instance(l, o->instance) == x->vol &&
			   o->oblock == x->sector >> l->g->block_shift;

		if (x->n >= tail && volume_of_instance(l, o->instance) && !own)
			broken(l, "J12", "block %u gets another owner, under intent %lld", x->b,
			       (long long)x->n);
		/* Nobody reads what an intent says of a volume that is gone. */
		if (x->n >= tail || !volume_of_instance(l, x->instance))
			continue;
		if (x->data || x->intent)
			broken(l, "J13", "the tail passes intent %llu, which has not ended",
			       (unsigned long long)x->n);
		else if (!x->failed && (!own || x->granules & ~(o->valid & o->dirty)))
			broken(l, "J13", "the tail passes intent %llu, and granules %llx of block %u are not recorded",
			       (unsigned long long)x->n, (unsigned long long)x->granules, x->b);
		if (l->w->stop)
			return;
	}
}

void intents_entry_durable(struct linter *l, u64 tail)
{
	l->tail_durable = tail;
	drop(l, tail);
}

void intents_root(struct linter *l, struct action *a, const struct hybrid_root_info *root)
{
	if (root->intent_tail != l->tail_durable)
		broken(l, "J13", "the root has tail %llu, the last entry %llu",
		       (unsigned long long)root->intent_tail,
		       (unsigned long long)l->tail_durable);
	if ((root->flags & HYBRID_ROOT_CLEAN) && root->intent_tail != l->next_intent)
		broken(l, "J13", "the root is clean, and intents may count");
}
