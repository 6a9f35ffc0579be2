// SPDX-License-Identifier: GPL-2.0-only
#include "journal.h"

static_assert(HYBRID_ENTRY_RECORDS(HYBRID_JOURNAL_KEPT_BLOCKS) > HYBRID_MAX_SET_SIZE);
static_assert(HYBRID_JOURNAL_ENTRY_LIMIT(HYBRID_JOURNAL_MIN_BLOCKS) >= HYBRID_JOURNAL_KEPT_BLOCKS);

int hybrid_journal_create(struct hybrid_journal *j, const struct hybrid_geometry *g)
{
	memset(j, 0, sizeof(*j));
	j->g = g;
	j->max_blocks = HYBRID_JOURNAL_ENTRY_LIMIT(g->journal_blocks);
	j->room = HYBRID_JOURNAL_KEPT_BLOCKS;
	j->kept = vmalloc(HYBRID_JOURNAL_KEPT_BLOCKS * HYBRID_META_BLOCK_SIZE);
	j->kept_ended = kcalloc(HYBRID_ENTRY_RECORDS(HYBRID_JOURNAL_KEPT_BLOCKS), sizeof(u64),
				GFP_KERNEL);
	j->entry = j->kept;
	j->ended = j->kept_ended;
	return j->kept && j->kept_ended ? 0 : -ENOMEM;
}

void hybrid_journal_destroy(struct hybrid_journal *j)
{
	hybrid_journal_shrink(j);
	vfree(j->kept);
	kfree(j->kept_ended);
	j->entry = NULL;
	j->kept = NULL;
	j->ended = NULL;
	j->kept_ended = NULL;
}

bool hybrid_journal_grow(struct hybrid_journal *j, u32 blocks)
{
	void *mem = NULL;
	u64 *ended;

	if (j->entry != j->kept)
		return false;
	for (blocks *= 2; !mem; ) {
		blocks /= 2;
		if (blocks <= j->room)
			return false;
		mem = kmalloc(blocks * HYBRID_META_BLOCK_SIZE, GFP_NOWAIT | __GFP_NOWARN);
	}
	ended = kmalloc_array(HYBRID_ENTRY_RECORDS(blocks), sizeof(*ended),
			      GFP_NOWAIT | __GFP_NOWARN);
	if (!ended) {
		kfree(mem);
		return false;
	}
	memcpy(mem, j->kept, j->room * HYBRID_META_BLOCK_SIZE);
	memcpy(ended, j->kept_ended, j->nr * sizeof(*ended));
	j->entry = mem;
	j->ended = ended;
	j->room = blocks;
	return true;
}

void hybrid_journal_shrink(struct hybrid_journal *j)
{
	if (j->entry == j->kept)
		return;
	kfree(j->entry);
	kfree(j->ended);
	j->entry = j->kept;
	j->ended = j->kept_ended;
	j->room = HYBRID_JOURNAL_KEPT_BLOCKS;
}

bool hybrid_journal_has_room(const struct hybrid_journal *j)
{
	u64 end = hybrid_journal_place(j->g, j->head, j->max_blocks) + j->max_blocks;

	return end - j->tail <= j->g->journal_blocks;
}

bool hybrid_journal_half_full(const struct hybrid_journal *j)
{
	return (j->head - j->tail) * 2 > j->g->journal_blocks;
}

u32 hybrid_journal_space(const struct hybrid_journal *j)
{
	return HYBRID_ENTRY_RECORDS(min(j->room, j->max_blocks)) - j->nr;
}

static struct hybrid_record *add(struct hybrid_journal *j, u32 type, u32 where)
{
	struct hybrid_record *r = &j->entry->record[j->nr];

	j->ended[j->nr] = 0;
	WRITE_ONCE(j->nr, j->nr + 1);
	memset(r, 0, sizeof(*r));
	r->type = cpu_to_le32(type);
	r->where = cpu_to_le32(where);
	return r;
}

void hybrid_journal_block(struct hybrid_journal *j, cblock_t b, u32 instance, oblock_t oblock,
			  u64 valid, u64 dirty, u64 ended)
{
	struct hybrid_record *r = add(j, HYBRID_RECORD_BLOCK, from_cblock(b));

	j->ended[j->nr - 1] = ended;
	if (!instance)
		return;
	r->instance = cpu_to_le32(instance);
	r->oblock = cpu_to_le64(from_oblock(oblock));
	r->valid = cpu_to_le64(valid);
	r->dirty = cpu_to_le64(dirty);
}

void hybrid_journal_regions(struct hybrid_journal *j, u32 set, u64 open)
{
	struct hybrid_record *r = add(j, HYBRID_RECORD_REGIONS, set);

	r->valid = cpu_to_le64(open);
}

u64 hybrid_journal_seal(struct hybrid_journal *j, const struct hybrid_ident *id, u64 intent_tail)
{
	j->place = hybrid_journal_place(j->g, j->head, j->max_blocks);
	j->blocks = hybrid_entry_seal(j->entry, id, j->place, j->nr, intent_tail);
	j->next_tail = intent_tail;
	return hybrid_journal_sector(j->g, j->place);
}

void hybrid_journal_advance(struct hybrid_journal *j)
{
	j->head = j->place + j->blocks;
	/* A replay begins with the root's, which is that of a later entry. */
	WRITE_ONCE(j->intent_tail, max(j->intent_tail, j->next_tail));
	WRITE_ONCE(j->nr, 0);
	hybrid_journal_shrink(j);
}

/* Reads as much at a time as the largest entry has: a single entry is a small request. */
struct reader {
	hybrid_read_fn read;
	void *context;
	const char **why;
	void *mem;		/* HYBRID_JOURNAL_ENTRY_BLOCKS */
	u64 from;		/* number of the first block in mem */
	u32 nr;			/* blocks in mem */
};

/* Reads @blocks blocks from number @n on, unless @in has them: at most an entry's, no wrap. */
static int have(struct hybrid_journal *j, struct reader *in, u64 n, u32 blocks)
{
	u64 wrap = hybrid_journal_place(j->g, n + 1, j->g->journal_blocks);
	int r;

	if (n >= in->from && n + blocks <= in->from + in->nr)
		return 0;
	in->from = n;
	in->nr = min_t(u64, HYBRID_JOURNAL_ENTRY_BLOCKS, wrap - n);
	r = in->read(in->context, hybrid_journal_sector(j->g, n), in->nr, in->mem);
	if (r)
		in->nr = 0;
	return r;
}

static const void *block_at(const struct reader *in, u64 n)
{
	return in->mem + (n - in->from) * HYBRID_META_BLOCK_SIZE;
}

/*
 * Reads the entry at number @n.  Returns its number of records, -ENODATA if there
 * is no whole entry, or an error.
 */
static int read_entry(struct hybrid_journal *j, const struct hybrid_ident *id, u64 n,
		      struct reader *in, const struct hybrid_journal_entry **entry)
{
	u64 sector = hybrid_journal_sector(j->g, n);
	u32 place = (sector - j->g->journal_sector) / HYBRID_META_BLOCK_SECTORS;
	int r = have(j, in, n, 1), blocks;

	if (r)
		return r;
	blocks = hybrid_entry_peek(block_at(in, n), id, n);
	if (blocks <= 0 || blocks > HYBRID_JOURNAL_ENTRY_BLOCKS ||
	    place + blocks > j->g->journal_blocks)
		return -ENODATA;
	r = have(j, in, n, blocks);
	if (r)
		return r;
	*entry = block_at(in, n);
	r = hybrid_entry_check(*entry, j->g, blocks, in->why);
	if (r == -EBADMSG)
		return -ENODATA;
	j->blocks = blocks;
	j->next_tail = le64_to_cpu((*entry)->header.intent_tail);
	return r;
}

/*
 * Reads the next entry.  Its place does not depend on its size, so that an entry
 * that was lost before the wrap cannot be taken for a gap.
 */
static int read_next(struct hybrid_journal *j, const struct hybrid_ident *id, struct reader *in,
		     const struct hybrid_journal_entry **entry)
{
	j->place = hybrid_journal_place(j->g, j->head, j->max_blocks);
	return read_entry(j, id, j->place, in, entry);
}

/* Does @block begin entry @n, of any epoch?  Sets the epoch of @id to the block's. */
static bool looks_valid(const struct hybrid_block_header *block, struct hybrid_ident *id, u64 n)
{
	id->epoch = le64_to_cpu(block->epoch);
	return hybrid_entry_peek(block, id, n) > 0;
}

/*
 * Only one entry is in flight at a time, and numbers go on from one epoch to the
 * next.  So a valid entry behind the end means that an entry in between, or the
 * root of a newer epoch, was lost or damaged (J7).
 */
static int check_end(struct hybrid_journal *j, const struct hybrid_ident *pool, struct reader *in)
{
	u64 n, end = j->tail + j->g->journal_blocks;
	const struct hybrid_journal_entry *entry;
	struct hybrid_ident id = *pool;
	int r;

	for (n = j->head; n < end; n++) {
		r = have(j, in, n, 1);
		if (r)
			return r;
		if (!looks_valid(block_at(in, n), &id, n))
			continue;
		r = read_entry(j, &id, n, in, &entry);
		if (r == -ENODATA)
			continue;
		if (r < 0 && r != -EINVAL)
			return r;
		if (id.epoch != pool->epoch) {
			*in->why = "the journal goes on from a newer root";
			return -ESTALE;
		}
		*in->why = "the journal goes on behind a damaged entry";
		return -EBADMSG;
	}
	return 0;
}

static int replay(struct hybrid_journal *j, const struct hybrid_ident *id, u64 head,
		  struct reader *in, int (*apply)(void *context, const struct hybrid_record *r))
{
	const struct hybrid_journal_entry *entry;
	u64 before = 0;
	int r, nr, i;

	j->head = j->tail;
	while (j->head - j->tail < j->g->journal_blocks) {
		nr = read_next(j, id, in, &entry);
		if (nr == -ENODATA)
			break;
		if (nr < 0)
			return nr;
		if (j->next_tail < before) {
			*in->why = "the intents' tail goes back";
			return -EINVAL;
		}
		before = j->next_tail;
		for (i = 0; i < nr; i++) {
			r = apply(in->context, &entry->record[i]);
			if (r)
				return r;
		}
		j->nr = 0;
		hybrid_journal_advance(j);
		cond_resched();
	}
	if (j->head < head) {
		*in->why = "the journal ends before the last checkpoint";
		return -ENODATA;
	}
	return check_end(j, id, in);
}

int hybrid_journal_replay(struct hybrid_journal *j, const struct hybrid_ident *id, u64 head,
			  hybrid_read_fn read, int (*apply)(void *context,
							    const struct hybrid_record *r),
			  void *context, const char **why)
{
	struct reader in = { .read = read, .context = context, .why = why };
	int r;

	in.mem = vmalloc(HYBRID_JOURNAL_ENTRY_BLOCKS * HYBRID_META_BLOCK_SIZE);
	if (!in.mem)
		return -ENOMEM;
	r = replay(j, id, head, &in, apply);
	vfree(in.mem);
	return r;
}
