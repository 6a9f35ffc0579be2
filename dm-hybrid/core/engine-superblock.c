// SPDX-License-Identifier: GPL-2.0-only
/*
 * The superblock of a formatted origin, which is written for three reasons:
 *   - the session nonce, when the volume is opened (J9): first both copies have
 *     old, then the cache holds {old, new}, then the origin gets new, then the
 *     cache forgets old;
 *   - the dirty flag, before the first dirty write (J10); it is taken off when
 *     a clean volume is closed;
 *   - a fresh nonce that the cache does not know, and the map of data lost with the
 *     cache, before the origin is written without the cache; the map also when a
 *     volume of a failed pool is closed.
 */
#include "engine-internal.h"

/* ---- while the volume is open --------------------------------------------- */

static void sb_written(struct hybrid_engine *e, struct hybrid_op *op,
		       struct hybrid_actions *acts);

void hybrid_sb_write_block(struct hybrid_volume *v, struct hybrid_op *op, u64 sector)
{
	v->sb.segment.origin = true;
	v->sb.segment.sector = sector;
	v->sb.segment.offset = 0;
	v->sb.segment.count = HYBRID_META_BLOCK_SECTORS;
	op_begin(op, HYBRID_OP_META, true, v, sb_written);
	op->fua = true;
	op->mem = v->sb.block;
	op->segments = &v->sb.segment;
	op->nr_segments = 1;
}

static void sb_write_copy(struct hybrid_volume *v, struct hybrid_op *op)
{
	u64 sector = hybrid_sb_sector(v->sb.info.member_sectors, v->sb.copy);

	hybrid_sb_encode(v->sb.block, &v->sb.info, sector);
	hybrid_sb_write_block(v, op, sector);
}

/*
 * The origin goes on without its cache (J9).  It gets a nonce that the cache does not know, and
 * keeps the one by which the cache can tell that it was not opened with this origin since.
 */
static void sb_alone(struct hybrid_volume *v)
{
	v->sb.info.nonce = v->e->ops->random(v->e);
	v->sb.info.flags |= HYBRID_SB_ALONE;
	v->sb.info.paired_nonce = v->info.nonce;
}

/* The origin did not go on without its cache, or no longer does. */
void hybrid_sb_paired(struct hybrid_volume *v, u64 nonce)
{
	v->sb.info.nonce = nonce;
	v->sb.info.flags &= ~HYBRID_SB_ALONE;
	v->sb.info.paired_nonce = 0;
}

void hybrid_sb_update(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	v->sb.busy = true;
	v->sb.writing = v->sb.wanted;
	/* Without the dirty flag no data can be lost. */
	if (v->sb.writing == SB_ALONE && (v->sb.info.flags & HYBRID_SB_DIRTY) &&
	    !v->sb.lost_known) {
		hybrid_lost_save(e, v, hybrid_sb_update, acts);
		return;
	}
	v->sb.copy = v->sb.oldest;
	v->sb.info.sequence++;
	if (v->sb.writing == SB_ALONE)
		sb_alone(v);
	else
		v->sb.info.flags |= HYBRID_SB_DIRTY;
	sb_write_copy(v, &v->sb.op);
	act(acts, &v->sb.op);
}

/*
 * The copy is not written, or torn; and where the block layer emulates FUA by a flush,
 * that flush may have failed.
 */
void hybrid_sb_failed(struct hybrid_volume *v, int error)
{
	v->sb.oldest = v->sb.copy;
	/* A lost map that could not be saved gets another try. */
	v->sb.lost_known = v->sb.lost_saved;
	hybrid_origin_flush_failed(v, error);
}

static void sb_written(struct hybrid_engine *e, struct hybrid_op *op,
		       struct hybrid_actions *acts)
{
	struct hybrid_volume *v = op->volume;
	struct hybrid_io *io, *n;
	unsigned long flags;
	LIST_HEAD(waiters);
	int error = op->error_origin;

	spin_lock_irqsave(&e->lock, flags);
	engine_assert(e, v->sb.busy);
	if (!error && v->sb.copy == v->sb.oldest) {
		v->sb.copy = !v->sb.copy;
		sb_write_copy(v, op);
		act(acts, op);
		spin_unlock_irqrestore(&e->lock, flags);
		return;
	}
	v->sb.busy = false;
	if (error)
		hybrid_sb_failed(v, error);
	else
		WRITE_ONCE(v->sb.state, v->sb.writing);
	if (!error && v->sb.wanted > v->sb.state)
		hybrid_sb_next_locked(e, v, acts);
	else
		list_splice_init(&v->sb.waiters, &waiters);
	hybrid_origin_flush_next_locked(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
	if (!error) {
		hybrid_rerun_list(&waiters, acts);
		return;
	}
	count(v, HYBRID_ORIGIN_ERRORS);
	hybrid_wake_all_sets(e, WAIT_RECORD, acts);
	list_for_each_entry_safe(io, n, &waiters, link) {
		list_del_init(&io->link);
		complete_io(io, error, acts);
	}
}

/* Must the origin be flushed first?  Data written back counts as lost until then. */
static bool sb_needs_flush(const struct hybrid_volume *v)
{
	return v->sb.wanted == SB_ALONE && (v->sb.info.flags & HYBRID_SB_DIRTY) &&
	       !v->flush.error && v->flush.last_write > v->flush.flushed;
}

/* Not beside a flush, which would not notice data lost with a failed superblock write. */
void hybrid_sb_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	if (list_empty(&v->sb.waiters) || v->sb.busy || v->flush.busy)
		return;
	if (sb_needs_flush(v))
		hybrid_origin_flush_locked(e, v, acts);
	else
		hybrid_sb_update(e, v, acts);
}

void hybrid_sb_wait(struct hybrid_engine *e, struct hybrid_volume *v, enum sb_state wanted,
		    struct hybrid_io *io, struct hybrid_actions *acts)
{
	unsigned long flags;
	bool ready;

	spin_lock_irqsave(&e->lock, flags);
	ready = v->sb.state >= wanted;
	if (!ready) {
		list_add_tail(&io->link, &v->sb.waiters);
		v->sb.wanted = max_t(u8, v->sb.wanted, wanted);
		hybrid_sb_next_locked(e, v, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	/* The superblock got into that state meanwhile. */
	if (ready)
		hybrid_rerun(io, acts);
}

/* ---- blocking I/O, while the volume is opened, closed, grows, or is suspended -- */

int hybrid_sb_io(struct hybrid_volume *v, unsigned int copy, u64 sectors, bool write)
{
	struct hybrid_engine *e = v->e;
	struct hybrid_op *op = &v->sb.op;
	unsigned long flags;
	int r;

	v->sb.copy = copy;
	v->sb.info.member_sectors = sectors;
	sb_write_copy(v, op);
	op->write = write;
	op->fua = write;
	r = e->ops->do_op(e, op);
	if (r && write) {
		spin_lock_irqsave(&e->lock, flags);
		hybrid_sb_failed(v, r);
		spin_unlock_irqrestore(&e->lock, flags);
	}
	return r;
}

/*
 * The older copy first: the newer one may be the only one whose nonce the cache
 * knows.
 */
int hybrid_sb_write_both(struct hybrid_volume *v)
{
	u64 sectors = v->sb.info.member_sectors;
	int r;

	v->sb.info.sequence++;
	r = hybrid_sb_io(v, v->sb.oldest, sectors, true);
	return r ? r : hybrid_sb_io(v, !v->sb.oldest, sectors, true);
}

/* A rename begins with the pool's entry: where the names differ, the entry's is the newer one. */
void hybrid_sb_take_name(struct hybrid_volume *v)
{
	memcpy(v->sb.info.name, v->info.name, sizeof(v->sb.info.name));
}

bool hybrid_nonce_known(const struct hybrid_volume *v, u64 nonce)
{
	return nonce == v->info.nonce || (v->info.nonce_old && nonce == v->info.nonce_old);
}

static int sb_read_copy(struct hybrid_volume *v, unsigned int copy, u64 sectors,
			struct hybrid_sb *sb)
{
	int r = hybrid_sb_io(v, copy, sectors, false);

	return r ? r : hybrid_sb_decode(v->sb.block, hybrid_sb_sector(sectors, copy), sectors, sb,
					NULL);
}

/* For an admin; the subject is the origin. */
static const char *sb_error(int r)
{
	switch (r) {
	case -ENODATA:
		return "has no dm-hybrid superblock";
	case -EBADMSG:
		return "has a damaged superblock";
	case -EPROTONOSUPPORT:
		return "is not of format version " __stringify(HYBRID_FORMAT_VERSION)
		       ", or has an unknown feature";
	case -EINVAL:
	case -ESTALE:
		return "has a superblock that does not fit it";
	default:
		return "cannot be read";
	}
}

/*
 * Take the newer of the copies that are good.  If only the older one has a nonce
 * that the cache knows, the newer one was to say that the origin goes on alone.
 * An origin does so only once both copies say it, so this one never did.
 */
int hybrid_sb_read(struct hybrid_volume *v, u64 sectors, const char **why)
{
	struct hybrid_sb sb[2];
	unsigned int best;
	int r[2];

	r[0] = sb_read_copy(v, 0, sectors, &sb[0]);
	/* A device that has grown has its tail where it was formatted. */
	if (!r[0])
		sectors = sb[0].member_sectors;
	r[1] = sb_read_copy(v, 1, sectors, &sb[1]);
	if (r[0] && r[1]) {
		*why = sb_error(r[1] == -EPROTONOSUPPORT ? r[1] : r[0]);
		return r[0];
	}
	if (!r[0] && !r[1] && memcmp(sb[0].member_uuid, sb[1].member_uuid, HYBRID_UUID_SIZE)) {
		*why = "has superblocks of two members";
		return -EMEDIUMTYPE;
	}
	best = r[0] || (!r[1] && sb[1].sequence > sb[0].sequence);
	v->sb.info = sb[best];
	v->sb.oldest = !best;
	v->sb.apart = r[!best] || sb[!best].nonce != v->sb.info.nonce;
	if (!r[!best] && !hybrid_nonce_known(v, v->sb.info.nonce) &&
	    hybrid_nonce_known(v, sb[!best].nonce)) {
		v->sb.info = sb[!best];
		v->sb.info.sequence = sb[best].sequence;
		v->sb.oldest = best;
	}
	return 0;
}

/*
 * No copy may ever have a nonce that the cache has forgotten, not even a copy that
 * could not be read or written last time.  So both get the present nonce before
 * the cache hears of another.
 */
int hybrid_sb_unite(struct hybrid_volume *v)
{
	return v->sb.apart ? hybrid_sb_io(v, v->sb.oldest, v->sb.info.member_sectors, true) : 0;
}

int hybrid_sb_matches(const struct hybrid_engine *e, const struct hybrid_volume *v, u64 sectors,
		      const char **why)
{
	const struct hybrid_volume_info *info = &v->info;
	u64 length = hybrid_volume_length(info, sectors);
	const struct hybrid_sb *sb = &v->sb.info;

	*why = NULL;
	if (sb->role != HYBRID_ROLE_ORIGIN)
		*why = "is not an origin";
	else if (sb->ro_compat & ~HYBRID_RO_COMPAT_KNOWN)
		*why = "has a feature that allows reading only";
	else if (hybrid_number_ends(sb->sequence))
		*why = "has no sequence left for its superblock";
	else if (memcmp(sb->pool_uuid, e->sb.pool_uuid, HYBRID_UUID_SIZE))
		*why = "belongs to another pool";
	else if (memcmp(sb->volume_uuid, info->uuid, HYBRID_UUID_SIZE))
		*why = "belongs to another volume";
	else if (memcmp(sb->member_uuid, info->member_uuid, HYBRID_UUID_SIZE))
		*why = "is another member";
	else if (memcmp(sb->pairing_key, info->pairing_key, HYBRID_KEY_SIZE))
		*why = "carries another pairing key";
	else if (sb->data_sector != info->data_sector ||
		 (sb->data_sectors != info->data_sectors && sb->data_sectors != length))
		*why = "has another data area than the volume table says";
	return *why ? -EMEDIUMTYPE : 0;
}

bool hybrid_volume_claim_sb(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;
	bool claimed;

	spin_lock_irqsave(&e->lock, flags);
	claimed = !v->sb.busy && !v->flush.busy;
	/* Flushes without a pause must not keep the caller, who asks until it succeeds. */
	v->sb.claim_waits = !claimed;
	if (claimed)
		v->sb.busy = true;
	spin_unlock_irqrestore(&e->lock, flags);
	return claimed;
}

int hybrid_volume_renew_sb(struct hybrid_engine *e, struct hybrid_volume *v)
{
	int r;

	if (!v->sb.present)
		return 0;
	hybrid_sb_take_name(v);
	r = hybrid_sb_write_both(v);
	if (r)
		count(v, HYBRID_ORIGIN_ERRORS);
	return r;
}

void hybrid_sb_release(struct hybrid_engine *e, struct hybrid_volume *v,
		       struct hybrid_actions *acts)
{
	unsigned long flags;
	int error;

	spin_lock_irqsave(&e->lock, flags);
	error = v->flush.error;
	v->sb.busy = false;
	v->sb.claim_waits = false;
	hybrid_sb_next_locked(e, v, acts);
	hybrid_origin_flush_next_locked(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
	/* After an error, records that wait for a flush of the origin never go out. */
	if (error)
		hybrid_wake_all_sets(e, WAIT_RECORD, acts);
}
