// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Metadata that rots unnoticed: in a crash state some of its blocks are damaged
 * before the engine recovers.
 *
 * The atlas:
 *   - The engine may refuse anything, by name (P6), but only where damage was dealt.
 *     A refused load has changed nothing, and without the damage all data is there.
 *   - All that it does not refuse must hold: it did not use the damage.
 *   - Damage to one of two copies of a superblock never makes a difference.  If both
 *     are damaged, the engine names them; other volumes are not concerned.
 *   - A device that comes back with older content: see rot_explore_older().
 *   - The last entry of the journal cannot be told from one that a power cut
 *     tore: without it anything may be lost, but nothing may crash or hang.  The same
 *     holds for the intents that no later one says to be flushed.
 *   - A write of metadata that was acknowledged, but not carried out, while the pool
 *     ran, is like damage: see rot_explore_lost().
 */
#include <string.h>

#include "sim.h"
#include "coverage.h"

#define BLOCK HYBRID_META_BLOCK_SECTORS

enum damage {
	FLIP,			/* one bit */
	ZERO,
	UNREADABLE,
	OTHER,			/* another block of the same kind stands there */
	NR_DAMAGES
};

struct rot {
	bool cache;		/* some of the cache device's metadata */
	bool root;
	u8 sb[SIM_MAX_DEVICES];	/* copies of each device's superblock, a mask */
	bool last;		/* the last entry of the journal, or one of the last intents */
};

/* ---- The journal's last entry ---------------------------------------------------- */

static bool newest_root(struct world *w, struct hybrid_ident *id, struct hybrid_root_info *best)
{
	struct hybrid_root *block = arena_alloc(&sim_arena, sizeof(*block));
	u16 index[HYBRID_ROOT_INDEXES];
	struct hybrid_root_info root;
	const char *why;
	bool found = false;
	u32 area;

	for (area = 0; area < 2; area++) {
		device_get_bytes(w->dev[0], hybrid_root_sector(w->g, area), block,
				 HYBRID_META_BLOCK_SIZE, true);
		if (hybrid_root_decode(block, w->g, id, &root, index, &why) ||
		    (found && root.sequence < best->sequence))
			continue;
		found = true;
		*best = root;
	}
	return found;
}

/*
 * Returns the last entry's first sector; 0: no entry counts.  It has *count sectors; the next
 * entry of the same *epoch would have number *next.
 */
static u64 last_entry(struct world *w, u32 *count, u64 *next, u64 *epoch)
{
	u32 max = HYBRID_JOURNAL_ENTRY_LIMIT(w->g->journal_blocks);
	char *bytes = arena_alloc(&sim_arena, HYBRID_JOURNAL_ENTRY_BLOCKS * HYBRID_META_BLOCK_SIZE);
	struct hybrid_root_info root;
	struct hybrid_ident id = {};
	const char *why;
	u64 last = 0, n;

	memcpy(id.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	*count = 0;
	*next = 0;
	*epoch = 0;
	if (!newest_root(w, &id, &root) || (root.flags & HYBRID_ROOT_CLEAN))
		return 0;
	id.epoch = root.epoch;
	*epoch = root.epoch;
	*next = hybrid_journal_place(w->g, root.journal_tail, max);
	for (n = root.journal_tail; n < root.journal_tail + w->g->journal_blocks;) {
		u64 place = hybrid_journal_place(w->g, n, max);
		u64 sector = hybrid_journal_sector(w->g, place);
		int blocks;

		device_get_bytes(w->dev[0], sector, bytes, HYBRID_META_BLOCK_SIZE, true);
		blocks = hybrid_entry_peek((void *)bytes, &id, place);
		if (blocks <= 0)
			break;
		device_get_bytes(w->dev[0], sector, bytes, blocks * HYBRID_META_BLOCK_SIZE, true);
		if (hybrid_entry_check((void *)bytes, w->g, blocks, &why) < 0)
			break;
		last = sector;
		*count = blocks * BLOCK;
		n = place + blocks;
		*next = hybrid_journal_place(w->g, n, max);
	}
	return last;
}

/* Is there an entry, of any epoch, behind the missing entry number @n? */
static bool entry_behind(struct world *w, u64 n)
{
	char *bytes = arena_alloc(&sim_arena, HYBRID_JOURNAL_ENTRY_BLOCKS * HYBRID_META_BLOCK_SIZE);
	u64 end = n + w->g->journal_blocks;
	struct hybrid_ident id = {};
	const char *why;
	int blocks;

	memcpy(id.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	while (++n < end) {
		u64 sector = hybrid_journal_sector(w->g, n);

		device_get_bytes(w->dev[0], sector, bytes, HYBRID_META_BLOCK_SIZE, true);
		id.epoch = le64_to_cpu(((struct hybrid_block_header *)bytes)->epoch);
		blocks = hybrid_entry_peek((void *)bytes, &id, n);
		if (blocks <= 0 || n % w->g->journal_blocks + blocks > w->g->journal_blocks)
			continue;
		device_get_bytes(w->dev[0], sector, bytes, blocks * HYBRID_META_BLOCK_SIZE, true);
		if (hybrid_entry_check((void *)bytes, w->g, blocks, &why) >= 0)
			return true;
	}
	return false;
}

/* Does the disk tell that intent @n of this epoch counts no more, or that it has been flushed? */
static bool intent_is_missed(struct world *w, u64 n, u64 epoch)
{
	struct hybrid_intent *intent = arena_alloc(&sim_arena, sizeof(*intent));
	struct hybrid_ident id = { .epoch = epoch };
	struct hybrid_root_info root;
	u64 place;

	memcpy(id.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	/* A life that began without the intent does not miss it. */
	if (!newest_root(w, &id, &root) || root.epoch != epoch)
		return false;
	if (root.intent_tail > n)
		return true;
	for (place = 0; place < w->g->intent_blocks; place++) {
		device_get_bytes(w->dev[0], hybrid_intent_sector(w->g, place), intent,
				 HYBRID_META_BLOCK_SIZE, true);
		if (!hybrid_intent_check(intent, w->g, &id, NULL) &&
		    le64_to_cpu(intent->flushed) > n)
			return true;
	}
	return false;
}

/* ---- Damage ---------------------------------------------------------------------- */

static void flip(struct world *w, struct device *d, u64 sector)
{
	u8 *bytes = arena_alloc(&sim_arena, 512);
	u32 i;

	sector += rng_below(&w->frng, BLOCK);
	device_get_bytes(d, sector, bytes, 512, true);
	/* Half of all flips hit the header, which is always filled in */
	i = rng_below(&w->frng, rng_chance(&w->frng, 50) ? 64 : 512);
	bytes[i] ^= 1 << rng_below(&w->frng, 8);
	device_set(d, sector, (val_t)bytes);
}

static void damage(struct world *w, struct device *d, u64 sector, u64 other)
{
	enum damage how = rng_below(&w->frng, other ? NR_DAMAGES : OTHER);
	u32 i;

	trace(w, 18, sector, how, "%u damages dev%u at %llu", how, d->nr,
	      (unsigned long long)sector);
	if (how == FLIP)
		flip(w, d, sector);
	else if (how != UNREADABLE || !device_add_bad(d, sector + rng_below(&w->frng, BLOCK)))
		for (i = 0; i < BLOCK; i++)
			device_set(d, sector + i, how == OTHER ? d->durable[other + i] : 0);
}

/* Damages one of @n blocks from @from on; another one may take its place. */
static void damage_one(struct world *w, struct rot *rot, u64 from, u32 n)
{
	u64 sector = from + (u64)rng_below(&w->frng, n) * BLOCK;
	u64 other = from + (u64)rng_below(&w->frng, n) * BLOCK, last, next, epoch;
	u32 count;

	last = last_entry(w, &count, &next, &epoch);
	rot->last |= last && sector + BLOCK > last && sector < last + count;
	rot->cache = true;
	damage(w, w->dev[0], sector, other);
}

static void damage_intent(struct world *w, struct rot *rot)
{
	const struct hybrid_geometry *g = w->g;
	struct hybrid_block_header *header = arena_alloc(&sim_arena, HYBRID_META_BLOCK_SIZE);
	struct hybrid_root_info root = {};
	struct hybrid_ident id = {};
	u64 sector, other;

	memcpy(id.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	newest_root(w, &id, &root);
	sector = hybrid_intent_sector(g, hybrid_intent_place(g, root.intent_tail +
							     rng_below(&w->frng, 16)));
	other = hybrid_intent_sector(g, hybrid_intent_place(g, root.intent_tail +
							    rng_below(&w->frng, 16)));
	device_get_bytes(w->dev[0], sector, header, HYBRID_META_BLOCK_SIZE, true);
	damage(w, w->dev[0], sector, other);
	rot->cache = true;
	/* With its root, the only intent of an epoch is not missed. */
	rot->last |= rot->root || (newest_root(w, &id, &root) &&
				   root.epoch == le64_to_cpu(header->epoch) &&
				   !intent_is_missed(w, le64_to_cpu(header->number), root.epoch));
}

/* Damages one copy or both. */
static void damage_sb(struct world *w, struct rot *rot, struct device *d)
{
	u8 copies = 1 + rng_below(&w->frng, 3), copy;
	u64 member = device_member(d, true);

	/* Without the head nobody finds the tail of an origin that was smaller */
	if (d->nr && member != device_size(d))
		copies = 2;
	for (copy = 0; copy < 2; copy++)
		if (copies >> copy & 1)
			damage(w, d, device_place(d, hybrid_sb_sector(d->nr ? member : device_size(d), copy)), 0);
	rot->sb[d->nr] |= copies;
}

static void draw_damage(struct world *w, struct rot *rot)
{
	const struct hybrid_geometry *g = w->g;
	u32 nr;

	switch (rng_below(&w->frng, 9)) {
	case 0:
	case 1:
		damage_one(w, rot, g->root_sector, 2);
		rot->root = true;
		break;
	case 2:
		damage_one(w, rot, g->index_sector, 2 * g->nr_index);
		break;
	case 3:
		/* The leaf of the few volumes, or any */
		damage_one(w, rot, g->leaf_sector,
			   rng_chance(&w->frng, 30) ? 1 : 2 * g->nr_leaves);
		break;
	case 4:
	case 5:
		damage_one(w, rot, g->journal_sector, g->journal_blocks);
		break;
	case 6:
		damage_intent(w, rot);
		break;
	case 7:
		damage_sb(w, rot, w->dev[0]);
		break;
	default:
		nr = rng_below(&w->frng, w->nr_vol);
		if (!(w->vol[nr]->info.flags & HYBRID_VOLUME_INPLACE))
			damage_sb(w, rot, w->vol[nr]->origin);
	}
}

/* ---- Effects --------------------------------------------------------------------- */

/* As superblock.c chooses between the copies. */
static bool pool_readable(struct world *w)
{
	struct hybrid_superblock *block = arena_alloc(&sim_arena, HYBRID_META_BLOCK_SIZE);
	struct device *d = w->dev[0];
	struct hybrid_sb sb;
	bool good = false;
	const char *why;
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		u64 sector = hybrid_sb_sector(d->sectors, copy);

		device_get_bytes(d, sector, block, HYBRID_META_BLOCK_SIZE, true);
		if (device_bad(d, sector, BLOCK) ||
		    hybrid_sb_decode(block, sector, d->sectors, &sb, &why))
			continue;
		good = true;
		if (memcmp(&sb.geometry, w->g, sizeof(*w->g)) ||
		    memcmp(sb.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE))
			violation(w, "P6", "a damaged superblock of the cache device is used");
	}
	return good;
}

static bool unchanged(struct world *w, size_t mark)
{
	u32 i;

	for (i = 0; i < w->nr_dev; i++)
		if (w->dev[i]->v->nr_dirty)
			return false;
	return undo_mark() == mark;
}

static void heal(struct world *w, size_t mark)
{
	u32 i;

	undo_to(mark);
	for (i = 0; i < w->nr_dev; i++)
		memset(&w->dev[i]->fault, 0, sizeof(w->dev[i]->fault));
}

static bool named(const char *why)
{
	return why && *why != '(';
}

/* Returns false if the pool was refused. */
static bool load(struct world *w, const struct rot *rot, size_t damaged)
{
	const char *why;
	int r;

	why = world_boot(w, &r);
	if (!why || w->stop)
		return true;
	if (!rot->cache && !faults_refuse(w, why))
		violation(w, "recovery", "load fails with %d: %s; nothing of the pool is damaged",
			  r, why);
	if (!named(why) || (r != -EUCLEAN && r != -EIO))
		violation(w, "P6", "damage is refused with %d: %s", r, why);
	if (!unchanged(w, damaged))
		violation(w, "P6", "a refused load has changed something");
	return false;
}

/* An older root may stand in for the damaged root: then some volume may not be there. */
static void open_all(struct world *w, const struct rot *rot)
{
	const char *why;
	u32 i;
	int r;

	for (i = 0; i < w->nr_vol && !w->stop; i++) {
		struct volume *vol = w->vol[i];

		if (!vol->created && !vol->unsure)
			continue;
		r = world_open(w, vol, &why);
		if (!r && rot->sb[i + 1] == 3)
			violation(w, "P6", "volume %u opens without a superblock", vol->id);
		if (!r || (r == -ENOENT && vol->unsure) || w->main->pool_faulty || rot->last ||
		    w->stop)
			continue;
		if (!named(why) || !(rot->root || rot->sb[i + 1] == 3))
			violation(w, "P6", "open of volume %u fails with %d: %s", vol->id, r,
				  why ? why : "(no reason given)");
	}
}

void rot_explore_lies(struct world *w)
{
	const char *why;
	u32 i;
	int r;

	w->unjudged = true;
	why = world_boot(w, &r);
	if (why && !w->stop && !named(why))
		violation(w, "P6", "load fails with %d: %s", r, why);
	if (why || w->stop)
		return;
	for (i = 0; i < w->nr_vol && !w->stop; i++) {
		r = world_open(w, w->vol[i], &why);
		if (r && !named(why))
			violation(w, "P6", "open fails with %d and no reason", r);
	}
	if (!w->stop)
		crash_read_back(w);
}

/*
 * A write of metadata was acknowledged, but not carried out, while the pool ran.  The life
 * in which this happened is not affected; in the next life all data is there, or the pool
 * is refused by name (P6).  A superblock has another copy: the pool and all volumes are
 * taken; but one copy alone cannot say that the origin was written while its cache was
 * dead (J9).  If the last entry of the journal is missing, anything goes; also after a
 * crash in the life that began without it, which has a new epoch.  The same holds for a
 * missing intent, unless a later intent records that it was flushed.
 */
void rot_explore_lost(struct world *w)
{
	bool root = w->lost_meta == META_ROOT;
	u64 next, epoch;
	const char *why;
	u32 count, i;
	int r;

	last_entry(w, &count, &next, &epoch);
	w->unjudged = w->lost_meta == META_JOURNAL ?
		      epoch == w->lost_epoch && next == w->lost_entry &&
		      !entry_behind(w, next) :
		      w->lost_meta == META_INTENT ?
		      !intent_is_missed(w, w->lost_entry, w->lost_epoch) :
		      w->lost_meta == META_SUPERBLOCK && w->pool_faulty;
	w->unjudged |= w->main && w->main->unjudged;
	why = world_boot(w, &r);
	if (w->stop || w->crashed)
		return;
	if (why && r == -EIO && w->dev[0]->fault.dealt)
		return;
	if (why) {
		if ((w->lost_meta == META_SUPERBLOCK && !faults_refuse(w, why)) || !named(why) ||
		    r != -EUCLEAN)
			violation(w, "P6", "after a lost write of metadata load fails with %d: %s",
				  r, why);
		return;
	}
	for (i = 0; i < w->nr_vol && !w->stop; i++) {
		struct volume *vol = w->vol[i];

		if (!vol->created && !vol->unsure)
			continue;
		r = world_open(w, vol, &why);
		if (w->crashed)
			return;
		if (!r || (r == -ENOENT && vol->unsure) || w->unjudged || w->pool_faulty ||
		    faults_of_volume(w, vol) || (root && named(why)))
			continue;
		violation(w, "P6", "after a lost write of metadata open of volume %u fails with %d: %s",
			  vol->id, r, why ? why : "(no reason given)");
	}
	if (!w->stop)
		crash_read_back(w);
}

/* ---- Older content --------------------------------------------------------------- */

/* Remembers one device, before this life changes it. */
void rot_keep(struct world *w)
{
	struct device *d;
	u64 s;

	/* A device that has grown since fits no model of its data area */
	if (!sim_rot || !rng_chance(&w->frng, 50) || w->p.grow)
		return;
	d = w->dev[rng_below(&w->frng, w->nr_dev)];
	if (!d->older)
		d->older = xalloc(d->sectors * sizeof(val_t));
	for (s = 0; s < d->sectors; s++)
		d->older[s] = d->durable[s];
}

/* Makes the remembered device older, and returns it; NULL: another device, or none, was drawn. */
static struct device *make_older(struct world *w)
{
	struct device *d = w->dev[rng_below(&w->frng, w->nr_dev)];
	u64 s;

	for (s = 0; d->older && s < d->sectors; s++)
		if (d->durable[s] != d->older[s])
			device_set(d, s, d->older[s]);
	return d->older ? d : NULL;
}

/*
 * An older origin concerns its own volume alone.  With an older cache device,
 * volumes are whole or refused; but if the origin is in place, nothing tells the older
 * cache device from the true one.
 */
void rot_explore_older(struct world *w)
{
	struct device *d;
	const char *why;
	u32 i;
	int r;

	w->frng = rng_fork(&w->rng, 5);
	d = make_older(w);
	if (!d)
		return;
	trace(w, 18, d->nr, 0, "dev%u has older content", d->nr);
	for (i = 0; i < w->nr_vol; i++)
		w->vol[i]->unjudged = d->nr ? d->nr == i + 1 :
				      w->vol[i]->ever_writeback &&
				      (w->vol[i]->info.flags & HYBRID_VOLUME_INPLACE);
	why = world_boot(w, &r);
	if (why && !w->stop)
		violation(w, "recovery", "load fails with %d: %s", r, why);
	for (i = 0; i < w->nr_vol && !w->stop; i++) {
		struct volume *vol = w->vol[i];

		r = world_open(w, vol, &why);
		/* When that life began, the volume may not have existed, or another one did */
		if (!r || !d->nr || !vol->created || vol->unsure || w->main->pool_faulty)
			continue;
		if (!vol->unjudged || !named(why))
			violation(w, "P6", "open of volume %u fails with %d: %s", vol->id, r,
				  why ? why : "(no reason given)");
	}
	if (!w->stop)
		crash_read_back(w);
}

/* A crash state with damaged metadata. */
void rot_explore(struct world *w)
{
	size_t sound = undo_mark(), damaged;
	struct rot rot = {};
	bool lost;
	u32 i;

	w->frng = rng_fork(&w->rng, 4);
	heal(w, sound);
	coverage_count(coverage_phases(w->main), FAULT_ROT, 1);
	for (i = rng_chance(&w->frng, 20) ? 2 : 1; i; i--)
		draw_damage(w, &rot);
	damaged = undo_mark();
	w->unjudged = rot.last;
	lost = rot.sb[0] == 3;
	if (pool_readable(w) == lost)
		violation(w, "P6", "%s superblock of the cache device",
			  lost ? "a damaged" : "no good");
	if (w->stop)
		return;
	if (lost || !load(w, &rot, damaged)) {
		heal(w, sound);
		w->unjudged = false;
		world_drop(w);
		if (!w->stop && crash_boot(w))
			crash_read_back(w);
		return;
	}
	open_all(w, &rot);
	if (!w->stop)
		crash_read_back(w);
}
