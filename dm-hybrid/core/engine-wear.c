// SPDX-License-Identifier: GPL-2.0-only
/*
 * Wear of the cache device: the budget of writes that an admin grants it (endurance), and the
 * errors that announce its end.
 *
 * A device that fails reads or writes of data may soon fail a write of metadata, and with it
 * the pool and all dirty data.  So recent errors are counted by kind, halved each day that the
 * pool runs, and kept in the root with the time since they were halved.  Once a limit is reached
 * the device counts as failing: the pool drains, as if told to, and writes go to the origins too.
 * A failed flush, or write of metadata, is no warning: the pool fails at once.
 */
#include "engine-internal.h"

#define DAY		HYBRID_DAY_MS
#define HOUR		(DAY / 24)

/*
 * Sectors written to the cache device since the last tick.  The counters of CPUs
 * may wrap where a long has 32 bits, but never grow by 2^32 between two ticks.
 */
static unsigned long cache_written_since(const struct hybrid_engine *e)
{
	unsigned long sectors = (READ_ONCE(e->stats.metadata_writes) +
				 READ_ONCE(e->stats.intent_writes)) * HYBRID_META_BLOCK_SECTORS;
	int cpu;

	for_each_possible_cpu(cpu)
		sectors += READ_ONCE(per_cpu_ptr(e->evict.readers, cpu)->cache_written);
	return sectors - (unsigned long)READ_ONCE(e->wear.written);
}

/* Sectors, in this activation */
static u64 written_until_now(const struct hybrid_engine *e)
{
	return READ_ONCE(e->wear.written) + cache_written_since(e);
}

/* ---- the budget ----------------------------------------------------------- */

/*
 * Writes are paid out of the budget, in sectors times the ms of a day, so that the
 * smallest budget counts in the shortest tick.  The budget of an hour can be saved
 * up.  Once the debt exceeds the budget of an hour, read misses write nothing any
 * more; writes can run up a debt of at most the budget of a day.
 */
static void endurance_tick(struct hybrid_engine *e, u64 passed)
{
	s64 budget = (s64)READ_ONCE(e->config.endurance) * 2048;
	unsigned long written = cache_written_since(e);
	s64 spent = min_t(u64, written, 1ULL << 32);
	s64 left = e->wear.left;

	WRITE_ONCE(e->wear.written, e->wear.written + written);
	if (!budget) {
		WRITE_ONCE(e->wear.left, 0);
		WRITE_ONCE(e->wear.endurance, ENDURANCE_PLENTY);
		put_state(e, HYBRID_STATE_ENDURANCE_USED, false, true);
		return;
	}
	left = min(left + budget * (s64)min_t(u64, passed, DAY), budget * HOUR);
	left = max(left - spent * DAY, -budget * DAY);
	WRITE_ONCE(e->wear.left, left);
	WRITE_ONCE(e->wear.endurance, left >= 0 ? ENDURANCE_PLENTY :
		   left >= -budget * HOUR ? ENDURANCE_SHORT : ENDURANCE_SPENT);
	/* Nothing has been saved up at first, so a few writes raise no event. */
	put_state(e, HYBRID_STATE_ENDURANCE_USED, left < -budget * (HOUR / 6),
		  left >= budget * HOUR / 2);
}

/* ---- errors --------------------------------------------------------------- */

static bool reaches(u32 errors, u32 limit)
{
	return limit && errors >= limit;
}

static bool limit_reached(const struct hybrid_engine *e)
{
	return reaches(e->wear.recent[CACHE_READ_ERRORS], e->config.read_error_limit) ||
	       reaches(e->wear.recent[CACHE_WRITE_ERRORS], e->config.write_error_limit);
}

/* Caller holds the engine's lock, or loads the pool. */
static void set_failing(struct hybrid_engine *e, bool failing)
{
	if (failing == e->wear.failing)
		return;
	WRITE_ONCE(e->wear.failing, failing);
	/* A drain that an admin asked for goes on when the device is no longer failing. */
	drain_set(&e->writebacks.drain, failing || e->writebacks.drain_asked,
		  failing ? 0 : e->writebacks.drain_rate);
}

/* Adds the errors since the last tick to the older ones, which are halved each day. */
static void count_recent(struct hybrid_engine *e, enum cache_error kind, u32 days)
{
	u64 errors = atomic64_read(&e->stats.errors[kind]);
	u64 recent = e->wear.recent[kind] >> min(days, 31U);

	WRITE_ONCE(e->wear.recent[kind],
		   min_t(u64, recent + errors - e->wear.counted[kind], U32_MAX));
	e->wear.counted[kind] = errors;
}

static void errors_tick(struct hybrid_engine *e, u64 passed)
{
	u32 days, halved_ms;
	unsigned long flags;
	bool left;

	spin_lock_irqsave(&e->lock, flags);
	days = div_u64_rem(e->wear.halved_ms + min_t(u64, passed, 32ULL * DAY), DAY,
			   &halved_ms);
	WRITE_ONCE(e->wear.halved_ms, halved_ms);
	count_recent(e, CACHE_READ_ERRORS, days);
	count_recent(e, CACHE_WRITE_ERRORS, days);
	left = e->wear.recent[CACHE_READ_ERRORS] || e->wear.recent[CACHE_WRITE_ERRORS];
	/* A failing device stays so until no error is left: a quiet day proves nothing. */
	set_failing(e, limit_reached(e) || (e->wear.failing && left));
	spin_unlock_irqrestore(&e->lock, flags);
}

/* ---- for the rest of the engine ------------------------------------------- */

void hybrid_wear_tick(struct hybrid_engine *e, u64 passed)
{
	endurance_tick(e, passed);
	errors_tick(e, passed);
}

void hybrid_wear_load(struct hybrid_engine *e, const struct hybrid_root_info *root)
{
	e->wear.written_before = root->written_sectors;
	e->wear.halved_ms = root->halved_ms;
	e->wear.recent[CACHE_READ_ERRORS] = root->read_errors;
	e->wear.recent[CACHE_WRITE_ERRORS] = root->write_errors;
	set_failing(e, limit_reached(e));
}

void hybrid_wear_save(const struct hybrid_engine *e, struct hybrid_root_info *root)
{
	root->written_sectors = e->wear.written_before + written_until_now(e);
	root->read_errors = READ_ONCE(e->wear.recent[CACHE_READ_ERRORS]);
	root->write_errors = READ_ONCE(e->wear.recent[CACHE_WRITE_ERRORS]);
	root->halved_ms = READ_ONCE(e->wear.halved_ms);
}

void hybrid_wear_configure(struct hybrid_engine *e, const struct hybrid_config *config)
{
	lockdep_assert_held(&e->lock);
	WRITE_ONCE(e->config.endurance, config->endurance);
	if (e->config.read_error_limit == config->read_error_limit &&
	    e->config.write_error_limit == config->write_error_limit)
		return;
	e->config.read_error_limit = config->read_error_limit;
	e->config.write_error_limit = config->write_error_limit;
	set_failing(e, limit_reached(e));
}

void hybrid_wear_status(const struct hybrid_engine *e, struct hybrid_pool_status *st)
{
	st->cache_written = written_until_now(e);
	st->total_written = e->wear.written_before + st->cache_written;
	st->endurance = div_s64(READ_ONCE(e->wear.left), DAY);
	st->failing = READ_ONCE(e->wear.failing);
	st->recent_read_errors = READ_ONCE(e->wear.recent[CACHE_READ_ERRORS]);
	st->recent_write_errors = READ_ONCE(e->wear.recent[CACHE_WRITE_ERRORS]);
}
