// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The writes that intents name, in damaged metadata.
 *
 * An intent counts as in a recovery.  If its data is lost, or cannot be read, its range is.  If the
 * state of its block is not known, the set of the block is uncertain.  And if an intent that may
 * count is missing, it may have named any granule.
 */
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "intent.h"
#include "map.h"
#include "salvage.h"

struct intents {
	struct hybrid_salvage *s;
	const struct hybrid_device *dev;
	struct hybrid_map map;		/* only the fields that hashes need */
	const u8 *known;		/* by cache block */
	u64 tail;			/* the first intent that may count */
	bool stopped;			/* none does */
	u64 flushed;
	void *data;
};

static int read_device(void *context, u64 sector, u32 blocks, void *mem)
{
	const struct intents *in = context;

	return hybrid_device_read(in->dev, sector, mem, (size_t)blocks * HYBRID_META_BLOCK_SIZE);
}

/* Does any other block of the set hold that block of the volume? */
static bool held_elsewhere(const struct hybrid_metadata *md, size_t b, u32 instance, u64 oblock)
{
	size_t first = b / md->g->set_size * md->g->set_size, i;

	for (i = first; i < first + md->g->set_size; i++)
		if (i != b && md->instance[i] == instance && md->oblock[i] == oblock)
			return true;
	return false;
}

/* Can the record be right? */
static bool fits(const struct intents *in, const struct hybrid_intent_record *r, int volume)
{
	const struct hybrid_metadata *md = &in->s->md;
	size_t b = le32_to_cpu(r->where);
	u32 instance = le32_to_cpu(r->instance);
	u64 oblock = le64_to_cpu(r->oblock);

	return hybrid_intent_end(md->g, r) <= hybrid_volume_reach(&md->volume[volume]) &&
	       hybrid_map_set_of(&in->map, hybrid_key(volume, to_oblock(oblock))) ==
	       b / md->g->set_size &&
	       (md->instance[b] ? md->instance[b] == instance && md->oblock[b] == oblock :
		!held_elsewhere(md, b, instance, oblock));
}

static void lose_data(struct intents *in, const struct hybrid_intent_record *r, int volume,
		      const char *why)
{
	const struct hybrid_geometry *g = in->s->md.g;
	u64 count = (u64)hweight64(le64_to_cpu(r->granules)) << g->granule_shift;

	hybrid_ranges_add(&in->s->lost, in->s->md.volume[volume].name,
			  hybrid_intent_end(g, r) - count, count, why);
}

static void take_record(struct intents *in, const struct hybrid_intent_record *r, bool flushed)
{
	struct hybrid_metadata *md = &in->s->md;
	size_t b = le32_to_cpu(r->where);
	u64 granules = le64_to_cpu(r->granules);
	u32 instance = le32_to_cpu(r->instance);
	int volume = hybrid_metadata_volume_of(md, instance), found;

	if (volume < 0) {
		in->s->intents_lost |= instance >= md->root.next_instance;
		return;
	}
	if (in->s->doubtful[volume])
		return;
	if (!in->known[b]) {
		in->s->uncertain[b / md->g->set_size] = 1;
		return;
	}
	if (!fits(in, r, volume)) {
		in->s->intents_lost = true;
		return;
	}
	if (md->valid[b] & granules)
		return;
	found = hybrid_intent_read_data(md->g, &md->id, r, read_device, in, in->data);
	if (found < 0)
		lose_data(in, r, volume, "it cannot be read from the cache device");
	else if (!found && flushed)
		lose_data(in, r, volume, "its cached data is damaged");
	if (found <= 0)
		return;
	md->instance[b] = instance;
	md->oblock[b] = le64_to_cpu(r->oblock);
	md->valid[b] |= granules;
	md->dirty[b] |= granules;
	md->block_state[b] = HYBRID_BLOCK_LIVE;
}

/*
 * Reads the intent at @place, of any epoch.  Returns 0, -ENODATA if there is none, or none that was
 * written as a whole, -EINVAL if its fields are bad, or another error if it cannot be read.
 */
static int read_intent(const struct intents *in, u64 place, struct hybrid_intent *intent,
		       struct hybrid_ident *id)
{
	const struct hybrid_geometry *g = in->s->md.g;
	int r;

	r = hybrid_device_read(in->dev, hybrid_intent_sector(g, place), intent, sizeof(*intent));
	if (r)
		return r;
	id->epoch = le64_to_cpu(intent->header.epoch);
	r = hybrid_intent_check(intent, g, id, NULL);
	if (r == -EBADMSG ||
	    (!r && hybrid_intent_place(g, le64_to_cpu(intent->header.number)) != place))
		return -ENODATA;
	return r;
}

/* Looks at all of the ring: what the newest intents say of the older ones, and the numbers used. */
static void survey(struct intents *in, struct hybrid_intent *intent)
{
	struct hybrid_salvage *s = in->s;
	struct hybrid_ident id = s->md.id;
	u32 place;
	u64 n;
	int r;

	s->intent_next = in->tail;
	for (place = 0; place < s->md.g->intent_blocks; place++) {
		r = read_intent(in, place, intent, &id);
		if (r == -ENODATA)
			continue;
		s->unreadable |= r && r != -EINVAL;
		n = le64_to_cpu(intent->header.number);
		if (!r)
			s->intent_next = max(s->intent_next, n + 1);
		if (r ? in->stopped || (r == -EINVAL && n < in->tail) : n < in->tail)
			continue;
		if (!r && id.epoch == s->md.id.epoch)
			in->flushed = max(in->flushed, le64_to_cpu(intent->flushed));
		else
			s->intents_lost = true;
	}
}

static void take_intents(struct intents *in, struct hybrid_intent *intent)
{
	struct hybrid_salvage *s = in->s;
	u64 n, end = min(s->intent_next, in->tail + s->md.g->intent_blocks);
	struct hybrid_ident id = s->md.id;
	u32 k;

	for (n = in->tail; n < end; n++) {
		bool good = !read_intent(in, hybrid_intent_place(s->md.g, n), intent, &id) &&
			    le64_to_cpu(intent->header.number) == n &&
			    id.epoch == s->md.id.epoch;

		s->intents_lost |= !good && n < in->flushed;
		for (k = 0; good && k < le32_to_cpu(intent->header.count); k++)
			take_record(in, &intent->record[k], n < in->flushed);
	}
}

int hybrid_salvage_intents(struct hybrid_salvage *s, const struct hybrid_device *dev,
			   const u8 *known, u64 tail, bool stopped)
{
	struct hybrid_intent *intent = hybrid_buffer(sizeof(*intent));
	struct intents in = {
		.s = s, .dev = dev, .known = known, .tail = tail, .stopped = stopped,
		.map = { .g = s->md.g, .nr_sets = s->md.g->nr_sets },
		.data = hybrid_buffer(HYBRID_INTENT_DATA),
	};
	bool nomem = !intent || !in.data;

	if (!nomem) {
		survey(&in, intent);
		take_intents(&in, intent);
		s->intent_next += s->md.g->intent_blocks;
		hybrid_metadata_count(&s->md);
	}
	free(intent);
	free(in.data);
	return nomem ? hybrid_nomem() : 0;
}
