/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints at the engine's boundary: every event that it is told of, every
 * operation that it asks for, every number that it is given.  Records between
 * an event and its hybrid_return (hybrid_io_mapped for an arriving I/O), in one
 * context, belong to the event.  Documentation/dm-hybrid.rst describes the fields;
 * tests/sim/replay.c replays a recorded run through the engine in userspace.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM dm_hybrid

#if !defined(DM_HYBRID_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define DM_HYBRID_TRACE_H

#include <linux/tracepoint.h>

#include "target.h"

#ifndef DM_HYBRID_TRACE_TYPES
#define DM_HYBRID_TRACE_TYPES

enum hybrid_call {
	HYBRID_CALL_CREATE,
	HYBRID_CALL_LOAD,
	HYBRID_CALL_RESTART,
	HYBRID_CALL_STOP,
	HYBRID_CALL_DESTROY,
	HYBRID_CALL_CONFIGURE,
	HYBRID_CALL_POLICY,
	HYBRID_CALL_CHECKPOINT,
	HYBRID_CALL_FAIL,
	HYBRID_CALL_DRAIN,		/* value: 0: off, else 1 and KiB/s */
	HYBRID_CALL_VOLUME_CREATE,
	HYBRID_CALL_VOLUME_DELETE,	/* value: drop_dirty */
	HYBRID_CALL_VOLUME_FORGET,
	HYBRID_CALL_OPEN,		/* value: sectors of the origin */
	HYBRID_CALL_SETTLE,
	HYBRID_CALL_CLOSE,
	HYBRID_CALL_GROW,		/* value: sectors of the origin */
	HYBRID_CALL_CLAIM_SB,
	HYBRID_CALL_RENEW_SB,
	HYBRID_CALL_RELEASE_SB,
	HYBRID_CALL_SUSPEND,
	HYBRID_CALL_RESUME,
	HYBRID_CALL_MODE,		/* value: HYBRID_MODE_* */
	HYBRID_CALL_CUTOFF,		/* value: sectors */
	HYBRID_CALL_ORIGIN,		/* value: HYBRID_ORIGIN_* */
};

enum hybrid_trace_device {
	HYBRID_DEVICE_NONE,
	HYBRID_DEVICE_CACHE,
	HYBRID_DEVICE_ORIGIN,
};

#define HYBRID_NO_VOLUME	-1

static inline dev_t hybrid_trace_dev(struct mapped_device *md)
{
	return disk_devt(dm_disk(md));
}

static inline int hybrid_trace_volume(struct hybrid_volume *v)
{
	struct volume_object *object = v ? hybrid_volume_context(v) : NULL;

	return object ? object->id : HYBRID_NO_VOLUME;
}

/* Does the operation have fields for the data that it moves? */
static inline bool hybrid_trace_moves(const struct hybrid_op *op)
{
	return op->type != HYBRID_OP_COMPLETE && op->type != HYBRID_OP_WORK &&
	       op->type != HYBRID_OP_WAKE;
}

static inline int hybrid_trace_op_volume(const struct hybrid_op *op)
{
	return hybrid_trace_moves(op) ? hybrid_trace_volume(op->volume) : HYBRID_NO_VOLUME;
}

static inline const struct hybrid_io *hybrid_trace_io(const struct hybrid_op *op)
{
	return hybrid_trace_moves(op) || op->type == HYBRID_OP_COMPLETE ? op->io : NULL;
}

static inline u32 hybrid_trace_count(const struct hybrid_op *op)
{
	return op->type == HYBRID_OP_USER || op->type == HYBRID_OP_COPY_OUT ? op->count : 0;
}

/* NONE for transfers, too: their segments name the devices. */
static inline enum hybrid_trace_device hybrid_trace_op_device(const struct hybrid_op *op)
{
	switch (op->type) {
	case HYBRID_OP_USER:
	case HYBRID_OP_META:
	case HYBRID_OP_FLUSH:
		return op->origin ? HYBRID_DEVICE_ORIGIN : HYBRID_DEVICE_CACHE;
	default:
		return HYBRID_DEVICE_NONE;
	}
}

static inline enum hybrid_trace_device hybrid_trace_device(const struct hybrid_op *op,
							   const struct hybrid_segment *seg)
{
	bool origin = op->type == HYBRID_OP_META ? op->origin : seg->origin;

	return origin ? HYBRID_DEVICE_ORIGIN : HYBRID_DEVICE_CACHE;
}

static inline int hybrid_trace_error(const struct hybrid_op *op)
{
	return op->type == HYBRID_OP_COMPLETE ? op->io->error : 0;
}

#endif

TRACE_DEFINE_ENUM(HYBRID_IO_READ);
TRACE_DEFINE_ENUM(HYBRID_IO_WRITE);
TRACE_DEFINE_ENUM(HYBRID_IO_FLUSH);
TRACE_DEFINE_ENUM(HYBRID_IO_DISCARD);
TRACE_DEFINE_ENUM(HYBRID_IO_ZEROES);
TRACE_DEFINE_ENUM(HYBRID_BYPASS_SEQUENTIAL);
TRACE_DEFINE_ENUM(HYBRID_BYPASS_POLICY);
TRACE_DEFINE_ENUM(HYBRID_BYPASS_FULL);
TRACE_DEFINE_ENUM(HYBRID_BYPASS_BUSY);
TRACE_DEFINE_ENUM(HYBRID_BYPASS_MODE);
TRACE_DEFINE_ENUM(HYBRID_BYPASS_PARTIAL);
TRACE_DEFINE_ENUM(HYBRID_BYPASS_ONCE);
TRACE_DEFINE_ENUM(HYBRID_OP_USER);
TRACE_DEFINE_ENUM(HYBRID_OP_TRANSFER);
TRACE_DEFINE_ENUM(HYBRID_OP_META);
TRACE_DEFINE_ENUM(HYBRID_OP_FLUSH);
TRACE_DEFINE_ENUM(HYBRID_OP_DISCARD);
TRACE_DEFINE_ENUM(HYBRID_OP_COPY_OUT);
TRACE_DEFINE_ENUM(HYBRID_OP_COMPLETE);
TRACE_DEFINE_ENUM(HYBRID_OP_WORK);
TRACE_DEFINE_ENUM(HYBRID_OP_WAKE);
TRACE_DEFINE_ENUM(HYBRID_DEVICE_NONE);
TRACE_DEFINE_ENUM(HYBRID_DEVICE_CACHE);
TRACE_DEFINE_ENUM(HYBRID_DEVICE_ORIGIN);
TRACE_DEFINE_ENUM(HYBRID_CALL_CREATE);
TRACE_DEFINE_ENUM(HYBRID_CALL_LOAD);
TRACE_DEFINE_ENUM(HYBRID_CALL_RESTART);
TRACE_DEFINE_ENUM(HYBRID_CALL_STOP);
TRACE_DEFINE_ENUM(HYBRID_CALL_DESTROY);
TRACE_DEFINE_ENUM(HYBRID_CALL_CONFIGURE);
TRACE_DEFINE_ENUM(HYBRID_CALL_POLICY);
TRACE_DEFINE_ENUM(HYBRID_CALL_CHECKPOINT);
TRACE_DEFINE_ENUM(HYBRID_CALL_FAIL);
TRACE_DEFINE_ENUM(HYBRID_CALL_DRAIN);
TRACE_DEFINE_ENUM(HYBRID_CALL_VOLUME_CREATE);
TRACE_DEFINE_ENUM(HYBRID_CALL_VOLUME_DELETE);
TRACE_DEFINE_ENUM(HYBRID_CALL_VOLUME_FORGET);
TRACE_DEFINE_ENUM(HYBRID_CALL_OPEN);
TRACE_DEFINE_ENUM(HYBRID_CALL_SETTLE);
TRACE_DEFINE_ENUM(HYBRID_CALL_CLOSE);
TRACE_DEFINE_ENUM(HYBRID_CALL_GROW);
TRACE_DEFINE_ENUM(HYBRID_CALL_CLAIM_SB);
TRACE_DEFINE_ENUM(HYBRID_CALL_RENEW_SB);
TRACE_DEFINE_ENUM(HYBRID_CALL_RELEASE_SB);
TRACE_DEFINE_ENUM(HYBRID_CALL_SUSPEND);
TRACE_DEFINE_ENUM(HYBRID_CALL_RESUME);
TRACE_DEFINE_ENUM(HYBRID_CALL_MODE);
TRACE_DEFINE_ENUM(HYBRID_CALL_CUTOFF);
TRACE_DEFINE_ENUM(HYBRID_CALL_ORIGIN);

#define show_io_type(type) __print_symbolic(type,	\
	{ HYBRID_IO_READ, "read" },			\
	{ HYBRID_IO_WRITE, "write" },			\
	{ HYBRID_IO_FLUSH, "flush" },			\
	{ HYBRID_IO_DISCARD, "discard" },		\
	{ HYBRID_IO_ZEROES, "zeroes" })

#define show_bypass(why) __print_symbolic(why,	\
	{ 0, "none" },					\
	{ HYBRID_BYPASS_SEQUENTIAL, "sequential" },	\
	{ HYBRID_BYPASS_POLICY, "policy" },		\
	{ HYBRID_BYPASS_FULL, "full" },			\
	{ HYBRID_BYPASS_BUSY, "busy" },			\
	{ HYBRID_BYPASS_MODE, "mode" },			\
	{ HYBRID_BYPASS_PARTIAL, "partial" },		\
	{ HYBRID_BYPASS_ONCE, "once" })

#define show_op_type(type) __print_symbolic(type,	\
	{ HYBRID_OP_USER, "user" },			\
	{ HYBRID_OP_TRANSFER, "transfer" },		\
	{ HYBRID_OP_META, "meta" },			\
	{ HYBRID_OP_FLUSH, "flush" },			\
	{ HYBRID_OP_DISCARD, "discard" },		\
	{ HYBRID_OP_COPY_OUT, "copy_out" },		\
	{ HYBRID_OP_COMPLETE, "complete" },		\
	{ HYBRID_OP_WORK, "work" },			\
	{ HYBRID_OP_WAKE, "wake" })

#define show_device(device) __print_symbolic(device,	\
	{ HYBRID_DEVICE_NONE, "-" },			\
	{ HYBRID_DEVICE_CACHE, "cache" },		\
	{ HYBRID_DEVICE_ORIGIN, "origin" })

#define show_call(call) __print_symbolic(call,		\
	{ HYBRID_CALL_CREATE, "create" },		\
	{ HYBRID_CALL_LOAD, "load" },			\
	{ HYBRID_CALL_RESTART, "restart" },		\
	{ HYBRID_CALL_STOP, "stop" },			\
	{ HYBRID_CALL_DESTROY, "destroy" },		\
	{ HYBRID_CALL_CONFIGURE, "configure" },		\
	{ HYBRID_CALL_POLICY, "policy" },		\
	{ HYBRID_CALL_CHECKPOINT, "checkpoint" },	\
	{ HYBRID_CALL_FAIL, "fail" },			\
	{ HYBRID_CALL_DRAIN, "drain" },			\
	{ HYBRID_CALL_VOLUME_CREATE, "volume_create" },	\
	{ HYBRID_CALL_VOLUME_DELETE, "volume_delete" },	\
	{ HYBRID_CALL_VOLUME_FORGET, "volume_forget" },	\
	{ HYBRID_CALL_OPEN, "open" },			\
	{ HYBRID_CALL_SETTLE, "settle" },		\
	{ HYBRID_CALL_CLOSE, "close" },			\
	{ HYBRID_CALL_GROW, "grow" },			\
	{ HYBRID_CALL_CLAIM_SB, "claim_sb" },		\
	{ HYBRID_CALL_RENEW_SB, "renew_sb" },		\
	{ HYBRID_CALL_RELEASE_SB, "release_sb" },	\
	{ HYBRID_CALL_SUSPEND, "suspend" },		\
	{ HYBRID_CALL_RESUME, "resume" },		\
	{ HYBRID_CALL_MODE, "mode" },			\
	{ HYBRID_CALL_CUTOFF, "cutoff" },		\
	{ HYBRID_CALL_ORIGIN, "origin" })

/* ---- the life of a user's I/O --------------------------------------------- */

TRACE_EVENT(hybrid_io,
	    TP_PROTO(const struct volume_object *object, const struct hybrid_io *io),
	    TP_ARGS(object, io),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(dev_t, dev)
			     __field(const void *, io)
			     __field(u64, sector)
			     __field(u64, block)
			     __field(u32, volume)
			     __field(u32, count)
			     __field(u8, type)
			     __field(bool, fua)
			     __field(bool, meta)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(object->pool->md);
			   __entry->dev = hybrid_trace_dev(object->md);
			   __entry->io = io;
			   __entry->sector = io->sector;
			   __entry->block = io->sector >> ilog2(object->pool->block_sectors);
			   __entry->volume = object->id;
			   __entry->count = io->count;
			   __entry->type = io->type;
			   __entry->fua = io->flags & HYBRID_IO_FUA;
			   __entry->meta = io->flags & HYBRID_IO_META;),
	    TP_printk("pool=%d:%d dev=%d:%d volume=%u io=%p type=%s sector=%llu count=%u block=%llu fua=%d meta=%d",
		      MAJOR(__entry->pool), MINOR(__entry->pool), MAJOR(__entry->dev),
		      MINOR(__entry->dev), __entry->volume, __entry->io,
		      show_io_type(__entry->type), __entry->sector, __entry->count, __entry->block,
		      __entry->fua, __entry->meta));

TRACE_EVENT(hybrid_io_mapped,
	    TP_PROTO(const struct hybrid_pool *pool, const struct hybrid_io *io, u8 flags,
		     bool remapped),
	    TP_ARGS(pool, io, flags, remapped),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(const void *, io)
			     __field(bool, remapped)
			     __field(u8, bypass)
			     __field(bool, ahead)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->io = io;
			   __entry->remapped = remapped;
			   /* An I/O that the engine took may have ended. */
			   __entry->bypass = remapped ? io->bypass : 0;
			   __entry->ahead = flags & HYBRID_IO_AHEAD;),
	    TP_printk("pool=%d:%d io=%p remapped=%d bypass=%s ahead=%d", MAJOR(__entry->pool),
		      MINOR(__entry->pool), __entry->io, __entry->remapped,
		      show_bypass(__entry->bypass), __entry->ahead));

TRACE_EVENT(hybrid_io_done,
	    TP_PROTO(const struct hybrid_pool *pool, const struct hybrid_io *io, int error),
	    TP_ARGS(pool, io, error),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(const void *, io)
			     __field(int, error)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->io = io;
			   __entry->error = error;),
	    TP_printk("pool=%d:%d io=%p error=%d", MAJOR(__entry->pool), MINOR(__entry->pool),
		      __entry->io, __entry->error));

/* ---- operations ----------------------------------------------------------- */

TRACE_EVENT(hybrid_op,
	    TP_PROTO(const struct hybrid_pool *pool, const struct hybrid_op *op),
	    TP_ARGS(pool, op),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(const void *, op)
			     __field(const void *, io)
			     __field(u64, sector)
			     __field(u32, count)
			     __field(int, volume)
			     __field(int, error)
			     __field(u8, type)
			     __field(u8, segments)
			     __field(bool, write)
			     __field(u8, device)
			     __field(bool, fua)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->op = op;
			   __entry->io = hybrid_trace_io(op);
			   __entry->sector = op->type == HYBRID_OP_USER ? op->sector : 0;
			   __entry->count = hybrid_trace_count(op);
			   __entry->volume = hybrid_trace_op_volume(op);
			   __entry->error = hybrid_trace_error(op);
			   __entry->type = op->type;
			   __entry->segments = hybrid_trace_moves(op) ? op->nr_segments : 0;
			   __entry->write = hybrid_trace_moves(op) && op->write;
			   __entry->device = hybrid_trace_op_device(op);
			   __entry->fua = hybrid_trace_moves(op) && op->fua;),
	    TP_printk("pool=%d:%d op=%p type=%s io=%p volume=%d device=%s write=%d sector=%llu count=%u fua=%d segments=%u error=%d",
		      MAJOR(__entry->pool), MINOR(__entry->pool), __entry->op,
		      show_op_type(__entry->type), __entry->io, __entry->volume,
		      show_device(__entry->device), __entry->write, __entry->sector,
		      __entry->count, __entry->fua, __entry->segments, __entry->error));

TRACE_EVENT(hybrid_segment,
	    TP_PROTO(const struct hybrid_pool *pool, const struct hybrid_op *op,
		     const struct hybrid_segment *seg),
	    TP_ARGS(pool, op, seg),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(const void *, op)
			     __field(u64, sector)
			     __field(u32, count)
			     __field(u32, offset)
			     __field(int, volume)
			     __field(bool, write)
			     __field(u8, device)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->op = op;
			   __entry->sector = seg->sector;
			   __entry->count = seg->count;
			   __entry->offset = seg->offset;
			   __entry->volume = hybrid_trace_volume(op->volume);
			   __entry->write = op->write;
			   __entry->device = hybrid_trace_device(op, seg);),
	    TP_printk("pool=%d:%d op=%p volume=%d device=%s write=%d sector=%llu count=%u offset=%u",
		      MAJOR(__entry->pool), MINOR(__entry->pool), __entry->op, __entry->volume,
		      show_device(__entry->device), __entry->write, __entry->sector,
		      __entry->count, __entry->offset));

TRACE_EVENT(hybrid_op_done,
	    TP_PROTO(const struct hybrid_pool *pool, const struct hybrid_op *op),
	    TP_ARGS(pool, op),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(const void *, op)
			     __field(int, error_cache)
			     __field(int, error_origin)
			     __field(u32, elapsed_ms)
			     __field(u8, type)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->op = op;
			   __entry->type = op->type;
			   __entry->elapsed_ms = op->type == HYBRID_OP_FLUSH ? op->elapsed_ms : 0;
			   __entry->error_cache = op->error_cache;
			   __entry->error_origin = op->error_origin;),
	    TP_printk("pool=%d:%d op=%p type=%s error_cache=%d error_origin=%d elapsed_ms=%u",
		      MAJOR(__entry->pool), MINOR(__entry->pool), __entry->op,
		      show_op_type(__entry->type), __entry->error_cache, __entry->error_origin,
		      __entry->elapsed_ms));

TRACE_EVENT(hybrid_op_copied,
	    TP_PROTO(const struct hybrid_pool *pool, const struct hybrid_op *op),
	    TP_ARGS(pool, op),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(const void *, op)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->op = op;),
	    TP_printk("pool=%d:%d op=%p", MAJOR(__entry->pool), MINOR(__entry->pool),
		      __entry->op));

/* ---- all other calls of the engine, and their results ---------------------- */

TRACE_EVENT(hybrid_tick,
	    TP_PROTO(const struct hybrid_pool *pool, u64 now_ms),
	    TP_ARGS(pool, now_ms),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(u64, now_ms)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->now_ms = now_ms;),
	    TP_printk("pool=%d:%d now_ms=%llu", MAJOR(__entry->pool), MINOR(__entry->pool),
		      __entry->now_ms));

TRACE_EVENT(hybrid_call,
	    TP_PROTO(const struct hybrid_pool *pool, enum hybrid_call call, int volume, u64 value),
	    TP_ARGS(pool, call, volume, value),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(u64, value)
			     __field(int, volume)
			     __field(u8, call)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->value = value;
			   __entry->volume = volume;
			   __entry->call = call;),
	    TP_printk("pool=%d:%d call=%s volume=%d value=%llu", MAJOR(__entry->pool),
		      MINOR(__entry->pool), show_call(__entry->call), __entry->volume,
		      __entry->value));

TRACE_EVENT(hybrid_config,
	    TP_PROTO(const struct hybrid_pool *pool, enum hybrid_call call, const char *policy,
		     const struct hybrid_config *config),
	    TP_ARGS(pool, call, policy, config),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(u32, high_watermark)
			     __field(u32, low_watermark)
			     __field(u32, writeback_rate)
			     __field(u32, commit_interval)
			     __field(u32, endurance)
			     __field(u32, metadata_share)
			     __field(u32, trim_rate)
			     __field(u32, read_error_limit)
			     __field(u32, write_error_limit)
			     __field(u8, call)
			     __array(char, policy, HYBRID_POLICY_NAME_SIZE)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->high_watermark = config->high_watermark;
			   __entry->low_watermark = config->low_watermark;
			   __entry->writeback_rate = config->writeback_rate;
			   __entry->commit_interval = config->commit_interval;
			   __entry->endurance = config->endurance;
			   __entry->metadata_share = config->metadata_share;
			   __entry->trim_rate = config->trim_rate;
			   __entry->read_error_limit = config->read_error_limit;
			   __entry->write_error_limit = config->write_error_limit;
			   __entry->call = call;
			   strscpy(__entry->policy, policy, HYBRID_POLICY_NAME_SIZE);),
	    TP_printk("pool=%d:%d call=%s policy=%s high_watermark=%u low_watermark=%u writeback_rate=%u commit_interval=%u endurance=%u metadata_share=%u trim_rate=%u read_error_limit=%u write_error_limit=%u",
		      MAJOR(__entry->pool), MINOR(__entry->pool), show_call(__entry->call),
		      __entry->policy, __entry->high_watermark, __entry->low_watermark,
		      __entry->writeback_rate, __entry->commit_interval, __entry->endurance,
		      __entry->metadata_share, __entry->trim_rate,
		      __entry->read_error_limit, __entry->write_error_limit));

TRACE_EVENT(hybrid_volume_rename,
	    TP_PROTO(const struct hybrid_pool *pool, u32 volume, const char *name),
	    TP_ARGS(pool, volume, name),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(u32, volume)
			     __array(char, name, HYBRID_NAME_SIZE)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->volume = volume;
			   memcpy(__entry->name, name, HYBRID_NAME_SIZE);),
	    TP_printk("pool=%d:%d volume=%u name=%s", MAJOR(__entry->pool), MINOR(__entry->pool),
		      __entry->volume, __entry->name));

TRACE_EVENT(hybrid_volume_create,
	    TP_PROTO(const struct hybrid_pool *pool, u32 volume,
		     const struct hybrid_volume_info *info),
	    TP_ARGS(pool, volume, info),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(u64, data_sector)
			     __field(u64, data_sectors)
			     __field(u64, cutoff)
			     __field(u32, volume)
			     __field(u32, mode)
			     __field(u32, flags)
			     __array(u8, uuid, HYBRID_UUID_SIZE)
			     __array(u8, member_uuid, HYBRID_UUID_SIZE)
			     __array(u8, pairing_key, HYBRID_KEY_SIZE)
			     __array(char, name, HYBRID_NAME_SIZE)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->data_sector = info->data_sector;
			   __entry->data_sectors = info->data_sectors;
			   __entry->cutoff = info->cutoff_sectors;
			   __entry->volume = volume;
			   __entry->mode = info->mode;
			   __entry->flags = info->flags;
			   memcpy(__entry->uuid, info->uuid, HYBRID_UUID_SIZE);
			   memcpy(__entry->member_uuid, info->member_uuid, HYBRID_UUID_SIZE);
			   memcpy(__entry->pairing_key, info->pairing_key, HYBRID_KEY_SIZE);
			   memcpy(__entry->name, info->name, HYBRID_NAME_SIZE);),
	    TP_printk("pool=%d:%d volume=%u name=%s mode=%u flags=%u data_sector=%llu data_sectors=%llu cutoff=%llu uuid=%s member_uuid=%s pairing_key=%s",
		      MAJOR(__entry->pool), MINOR(__entry->pool), __entry->volume, __entry->name,
		      __entry->mode, __entry->flags, __entry->data_sector, __entry->data_sectors,
		      __entry->cutoff, __print_hex_str(__entry->uuid, HYBRID_UUID_SIZE),
		      __print_hex_str(__entry->member_uuid, HYBRID_UUID_SIZE),
		      __print_hex_str(__entry->pairing_key, HYBRID_KEY_SIZE)));

TRACE_EVENT(hybrid_return,
	    TP_PROTO(const struct hybrid_pool *pool, int result),
	    TP_ARGS(pool, result),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(int, result)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->result = result;),
	    TP_printk("pool=%d:%d result=%d", MAJOR(__entry->pool), MINOR(__entry->pool),
		      __entry->result));

/* A random number, or a checksum of data */
TRACE_EVENT(hybrid_number,
	    TP_PROTO(const struct hybrid_pool *pool, u64 value),
	    TP_ARGS(pool, value),
	    TP_STRUCT__entry(__field(dev_t, pool)
			     __field(u64, value)),
	    TP_fast_assign(__entry->pool = hybrid_trace_dev(pool->md);
			   __entry->value = value;),
	    TP_printk("pool=%d:%d value=%llu", MAJOR(__entry->pool), MINOR(__entry->pool),
		      __entry->value));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace

#include <trace/define_trace.h>
