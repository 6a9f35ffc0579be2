/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The engine as the glue calls it: every call that changes anything, with its
 * tracepoints.  engine.h has the contracts.
 */
#ifndef DM_HYBRID_CALLS_H
#define DM_HYBRID_CALLS_H

#include "trace.h"

/* trace.c: trace one operation; trace the operations of @acts behind @last */
void hybrid_trace_op(const struct hybrid_pool *pool, const struct hybrid_op *op);
void hybrid_trace_ops(const struct hybrid_pool *pool, const struct hybrid_actions *acts,
		      const struct list_head *last);

static inline void hybrid_trace_acts(const struct hybrid_pool *pool,
				     const struct hybrid_actions *acts,
				     const struct list_head *last)
{
	if (trace_hybrid_op_enabled() || trace_hybrid_segment_enabled())
		hybrid_trace_ops(pool, acts, last);
}

/* The end of a call that began with an empty list of actions. */
static inline void hybrid_trace_end(const struct hybrid_pool *pool,
				    const struct hybrid_actions *acts, int result)
{
	hybrid_trace_acts(pool, acts, &acts->list);
	trace_hybrid_return(pool, result);
}

/* ---- events --------------------------------------------------------------- */

static inline bool hybrid_call_hit(struct volume_object *object, struct hybrid_io *io)
{
	struct hybrid_pool *pool = object->pool;
	bool hit;

	trace_hybrid_io(object, io);
	/* For wait_hits() in io.c */
	rcu_read_lock();
	hit = hybrid_engine_hit(pool->engine, io);
	rcu_read_unlock();
	if (!hit)
		return false;
	/* Only the trace looks at the rest of the operation. */
	if (trace_hybrid_op_enabled()) {
		hybrid_engine_hit_op(io);
		trace_hybrid_op(pool, &io->op);
	}
	trace_hybrid_io_mapped(pool, io, io->flags, true);
	return true;
}

/* After hybrid_call_hit() */
static inline enum hybrid_map_result hybrid_call_miss(struct hybrid_pool *pool,
						      struct hybrid_io *io,
						      struct hybrid_actions *acts)
{
	const u8 flags = io->flags;
	enum hybrid_map_result r;

	r = hybrid_engine_miss(pool->engine, io, acts);
	hybrid_trace_acts(pool, acts, &acts->list);
	if (r == HYBRID_MAP_REMAP)
		trace_hybrid_op(pool, &io->op);
	trace_hybrid_io_mapped(pool, io, flags, r == HYBRID_MAP_REMAP);
	return r;
}

/* After hybrid_call_hit(), in place of a miss: the I/O ends with -EAGAIN. */
static inline void hybrid_call_not_now(struct hybrid_pool *pool)
{
	trace_hybrid_return(pool, -EAGAIN);
}

/* The operation ended without an error. */
static inline bool hybrid_call_hit_done(struct hybrid_pool *pool, struct hybrid_io *io)
{
	trace_hybrid_io_done(pool, io, 0);
	if (!hybrid_engine_hit_done(pool->engine, io))
		return false;
	trace_hybrid_return(pool, 0);
	return true;
}

/* The operation ended with an error, or hybrid_call_hit_done() returned false. */
static inline bool hybrid_call_io_done(struct hybrid_pool *pool, struct hybrid_io *io, int error,
				       struct hybrid_actions *acts)
{
	bool ended;

	if (error)
		trace_hybrid_io_done(pool, io, error);
	ended = hybrid_engine_io_done(pool->engine, io, error, acts);
	/* The result for the user, or 1: an action follows. */
	hybrid_trace_end(pool, acts, ended ? io->error : 1);
	return ended;
}

/* For both below, @acts may hold actions of earlier calls. */
static inline void hybrid_call_op_copied(struct hybrid_pool *pool, struct hybrid_op *op,
					 struct hybrid_actions *acts)
{
	const struct list_head *last = acts->list.prev;

	trace_hybrid_op_copied(pool, op);
	hybrid_engine_op_copied(pool->engine, op, acts);
	hybrid_trace_acts(pool, acts, last);
	trace_hybrid_return(pool, 0);
}

static inline void hybrid_call_op_done(struct hybrid_pool *pool, struct hybrid_op *op,
				       struct hybrid_actions *acts)
{
	const struct list_head *last = acts->list.prev;

	trace_hybrid_op_done(pool, op);
	hybrid_engine_op_done(pool->engine, op, acts);
	hybrid_trace_acts(pool, acts, last);
	trace_hybrid_return(pool, 0);
}

static inline bool hybrid_call_tick(struct hybrid_pool *pool, u64 now_ms,
				    struct hybrid_actions *acts)
{
	bool again;

	trace_hybrid_tick(pool, now_ms);
	again = hybrid_engine_tick(pool->engine, now_ms, acts);
	hybrid_trace_end(pool, acts, again);
	return again;
}

static inline void hybrid_call_checkpoint(struct hybrid_pool *pool, struct hybrid_waiter *w,
					  struct hybrid_actions *acts)
{
	trace_hybrid_call(pool, HYBRID_CALL_CHECKPOINT, HYBRID_NO_VOLUME, 0);
	hybrid_engine_checkpoint(pool->engine, w, acts);
	hybrid_trace_end(pool, acts, 0);
}

static inline void hybrid_call_fail(struct hybrid_pool *pool, struct hybrid_actions *acts)
{
	trace_hybrid_call(pool, HYBRID_CALL_FAIL, HYBRID_NO_VOLUME, 0);
	hybrid_engine_fail(pool->engine, acts);
	hybrid_trace_end(pool, acts, 0);
}

/* ---- the pool ------------------------------------------------------------- */

static inline struct hybrid_engine *hybrid_call_create(struct hybrid_pool *pool,
						       const struct hybrid_sb *sb,
						       const struct hybrid_engine_ops *ops,
						       const struct hybrid_config *config,
						       int *error)
{
	struct hybrid_engine *e;

	trace_hybrid_config(pool, HYBRID_CALL_CREATE, pool->policy->name, config);
	e = hybrid_engine_create(sb, ops, pool, pool->policy, config, error);
	trace_hybrid_return(pool, e ? 0 : *error);
	return e;
}

static inline void hybrid_call_destroy(struct hybrid_pool *pool)
{
	trace_hybrid_call(pool, HYBRID_CALL_DESTROY, HYBRID_NO_VOLUME, 0);
	hybrid_engine_destroy(pool->engine);
	trace_hybrid_return(pool, 0);
}

static inline int hybrid_call_load(struct hybrid_pool *pool, const char **why)
{
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_LOAD, HYBRID_NO_VOLUME, 0);
	r = hybrid_engine_load(pool->engine, why);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_restart(struct hybrid_pool *pool, const char **why)
{
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_RESTART, HYBRID_NO_VOLUME, 0);
	r = hybrid_engine_restart(pool->engine, why);
	trace_hybrid_return(pool, r);
	return r;
}

static inline bool hybrid_call_stop(struct hybrid_pool *pool, struct hybrid_actions *acts)
{
	bool stopped;

	trace_hybrid_call(pool, HYBRID_CALL_STOP, HYBRID_NO_VOLUME, 0);
	stopped = hybrid_engine_stop(pool->engine, acts);
	hybrid_trace_end(pool, acts, stopped);
	return stopped;
}

static inline int hybrid_call_configure(struct hybrid_pool *pool,
					const struct hybrid_config *config)
{
	int r;

	trace_hybrid_config(pool, HYBRID_CALL_CONFIGURE, pool->policy->name, config);
	r = hybrid_engine_configure(pool->engine, config);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_set_policy(struct hybrid_pool *pool,
					 const struct hybrid_policy_type *policy)
{
	int r;

	trace_hybrid_config(pool, HYBRID_CALL_POLICY, policy->name,
			    hybrid_engine_config(pool->engine));
	r = hybrid_engine_set_policy(pool->engine, policy);
	trace_hybrid_return(pool, r);
	return r;
}

/* @v: NULL for all volumes */
static inline void hybrid_call_drain(struct hybrid_pool *pool, struct hybrid_volume *v, bool on,
				     u32 rate, struct hybrid_actions *acts)
{
	trace_hybrid_call(pool, HYBRID_CALL_DRAIN, hybrid_trace_volume(v),
			  on ? 1 + (u64)rate : 0);
	hybrid_engine_drain(pool->engine, v, on, rate, acts);
	hybrid_trace_end(pool, acts, 0);
}

/* ---- volumes -------------------------------------------------------------- */

static inline int hybrid_call_volume_create(struct hybrid_pool *pool, u32 id,
					    const struct hybrid_volume_info *info)
{
	int r;

	trace_hybrid_volume_create(pool, id, info);
	r = hybrid_volume_create(pool->engine, id, info);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_volume_delete(struct hybrid_pool *pool, u32 id, bool drop_dirty)
{
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_VOLUME_DELETE, id, drop_dirty);
	r = hybrid_volume_delete(pool->engine, id, drop_dirty);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_volume_forget(struct hybrid_pool *pool, u32 id)
{
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_VOLUME_FORGET, id, 0);
	r = hybrid_volume_forget(pool->engine, id);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_volume_rename(struct hybrid_pool *pool, u32 id, const char *name)
{
	int r;

	trace_hybrid_volume_rename(pool, id, name);
	r = hybrid_volume_rename(pool->engine, id, name);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_open(struct volume_object *object, u64 origin_sectors,
				   struct hybrid_volume **handle, const char **why)
{
	struct hybrid_pool *pool = object->pool;
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_OPEN, object->id, origin_sectors);
	r = hybrid_volume_open(pool->engine, object->id, origin_sectors, object, handle, why);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_settle(struct volume_object *object)
{
	struct hybrid_pool *pool = object->pool;
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_SETTLE, object->id, 0);
	r = hybrid_volume_settle(pool->engine, object->handle);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_close(struct volume_object *object, struct hybrid_volume *v)
{
	struct hybrid_pool *pool = object->pool;
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_CLOSE, object->id, 0);
	r = hybrid_volume_close(pool->engine, v);
	trace_hybrid_return(pool, r);
	return r;
}

static inline int hybrid_call_grow(struct volume_object *object, u64 origin_sectors,
				   const u8 *member_uuid)
{
	struct hybrid_pool *pool = object->pool;
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_GROW, object->id, origin_sectors);
	r = hybrid_volume_grow(pool->engine, object->handle, origin_sectors, member_uuid);
	trace_hybrid_return(pool, r);
	return r;
}

static inline bool hybrid_call_claim_sb(struct hybrid_pool *pool, struct hybrid_volume *v)
{
	bool claimed;

	trace_hybrid_call(pool, HYBRID_CALL_CLAIM_SB, hybrid_trace_volume(v), 0);
	claimed = hybrid_volume_claim_sb(pool->engine, v);
	trace_hybrid_return(pool, claimed);
	return claimed;
}

static inline int hybrid_call_renew_sb(struct volume_object *object)
{
	struct hybrid_pool *pool = object->pool;
	int r;

	trace_hybrid_call(pool, HYBRID_CALL_RENEW_SB, object->id, 0);
	r = hybrid_volume_renew_sb(pool->engine, object->handle);
	trace_hybrid_return(pool, r);
	return r;
}

static inline void hybrid_call_release_sb(struct hybrid_pool *pool, struct hybrid_volume *v,
					  struct hybrid_actions *acts)
{
	trace_hybrid_call(pool, HYBRID_CALL_RELEASE_SB, hybrid_trace_volume(v), 0);
	hybrid_volume_release_sb(pool->engine, v, acts);
	hybrid_trace_end(pool, acts, 0);
}

static inline bool hybrid_call_suspend(struct hybrid_pool *pool, struct hybrid_volume *v,
				       struct hybrid_actions *acts)
{
	bool done;

	trace_hybrid_call(pool, HYBRID_CALL_SUSPEND, hybrid_trace_volume(v), 0);
	done = hybrid_volume_suspend(pool->engine, v, acts);
	hybrid_trace_end(pool, acts, done);
	return done;
}

static inline void hybrid_call_resume(struct hybrid_pool *pool, struct hybrid_volume *v,
				      struct hybrid_actions *acts)
{
	trace_hybrid_call(pool, HYBRID_CALL_RESUME, hybrid_trace_volume(v), 0);
	hybrid_volume_resume(pool->engine, v, acts);
	hybrid_trace_end(pool, acts, 0);
}

static inline void hybrid_call_set_mode(struct hybrid_pool *pool, struct hybrid_volume *v,
					u32 mode, struct hybrid_actions *acts)
{
	trace_hybrid_call(pool, HYBRID_CALL_MODE, hybrid_trace_volume(v), mode);
	hybrid_volume_set_mode(pool->engine, v, mode, acts);
	hybrid_trace_end(pool, acts, 0);
}

static inline void hybrid_call_set_cutoff(struct hybrid_pool *pool, struct hybrid_volume *v,
					  u64 sectors, struct hybrid_actions *acts)
{
	trace_hybrid_call(pool, HYBRID_CALL_CUTOFF, hybrid_trace_volume(v), sectors);
	hybrid_volume_set_cutoff(pool->engine, v, sectors, acts);
	hybrid_trace_end(pool, acts, 0);
}

static inline void hybrid_call_set_traits(struct hybrid_pool *pool, struct hybrid_volume *v,
					  u32 traits)
{
	trace_hybrid_call(pool, HYBRID_CALL_ORIGIN, hybrid_trace_volume(v), traits);
	hybrid_volume_set_traits(v, traits);
	trace_hybrid_return(pool, 0);
}

#endif
