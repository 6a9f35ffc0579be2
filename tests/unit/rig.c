// SPDX-License-Identifier: GPL-2.0-or-later
/* see rig.h */
#include "samples.h"
#include "rig.h"
#include "engine-internal.h"

u8 *disk[2];
u64 disk_sectors[2];
u32 writes_left, origin_writes_left;
struct hybrid_sb sb;
struct hybrid_engine *e;
struct hybrid_volume *v;
struct hybrid_volume_info info;
static struct hybrid_executor x;
static u64 nonces;
u32 nr_buffers;
void (*on_wait_hits)(void);
bool fail_cache_writes, fail_cache_reads, fail_cache_flushes, fail_origin, hold_flush;
u64 bad_from, bad_to;
struct hybrid_op *held_flush;
u32 flush_ms;
u32 held_log;
bool hold_meta;
struct hybrid_op *held_meta;
bool hold_discard;
struct hybrid_op *held_discard;
int fail_discards;

struct logged_op op_log[MAX_LOG];
u32 nr_log;

struct user writer, reader, flusher;

static int io_error(bool origin, bool write)
{
	if (origin && write && origin_writes_left != U32_MAX)
		return origin_writes_left ? origin_writes_left--, 0 : -EIO;
	if (origin)
		return fail_origin ? -EIO : 0;
	return (write ? fail_cache_writes : fail_cache_reads) ? -EIO : 0;
}

static int dev_io(bool origin, bool write, u64 sector, u32 count, void *mem,
		  const struct hybrid_op *op)
{
	bool meta = op->type == HYBRID_OP_META;

	assert_true(sector + count <= disk_sectors[origin]);
	assert_true(count);
	assert_true(nr_log < MAX_LOG);
	op_log[nr_log++] = (struct logged_op){
		.origin = origin, .write = write, .sector = sector, .count = count,
		.meta = meta, .fua = op->fua,
		.nr_segments = op->nr_segments,
	};
	if (io_error(origin, write))
		return -EIO;
	if (!origin && sector < bad_to && sector + count > bad_from)
		return -EIO;
	if (write && writes_left)
		memcpy(disk[origin] + sector * 512, mem, count * 512);
	if (write && writes_left && writes_left != U32_MAX)
		writes_left--;
	if (!write)
		memcpy(mem, disk[origin] + sector * 512, count * 512);
	return 0;
}

static int dev_flush(bool origin)
{
	assert_true(nr_log < MAX_LOG);
	op_log[nr_log++] = (struct logged_op){ .origin = origin, .flush = true };
	if (!origin && fail_cache_flushes)
		return -EIO;
	return io_error(origin, true);
}

/* Discarded sectors read back as other data than before. */
static int dev_discard(u64 sector, u32 count)
{
	assert_true(sector + count <= disk_sectors[CACHE]);
	assert_true(nr_log < MAX_LOG);
	op_log[nr_log++] = (struct logged_op){
		.discard = true, .write = true, .sector = sector, .count = count,
	};
	if (!fail_discards)
		memset(disk[CACHE] + sector * 512, 0xdc, (size_t)count * 512);
	return fail_discards;
}

static int transfer(struct hybrid_executor *executor, const struct hybrid_op *op, bool origin,
		    u64 sector, u32 count, void *data)
{
	return op->type == HYBRID_OP_DISCARD ? dev_discard(sector, count) :
	       dev_io(origin, op->write, sector, count, data, op);
}

/* The log has FUA with the write itself. */
static int flush(struct hybrid_executor *executor, struct hybrid_op *op, bool origin)
{
	if (op->type != HYBRID_OP_FLUSH)
		return 0;
	op->elapsed_ms = flush_ms;
	return dev_flush(origin);
}

/* Keeps an operation that must not end yet. */
static bool hold(struct hybrid_op *op)
{
	struct hybrid_op **held = op->type == HYBRID_OP_META && hold_meta ? &held_meta :
				  op->type == HYBRID_OP_FLUSH && op->origin && hold_flush ? &held_flush :
				  op->type == HYBRID_OP_DISCARD && hold_discard ? &held_discard : NULL;

	if (!held)
		return false;
	assert_null(*held);
	*held = op;
	if (op->type == HYBRID_OP_FLUSH)
		held_log = nr_log;
	return true;
}

void carry_one(struct hybrid_op *op, struct hybrid_actions *acts)
{
	struct user *u = op->type == HYBRID_OP_USER || op->type == HYBRID_OP_COMPLETE ?
			 container_of(op->io, struct user, r.io) : NULL;

	if (hold(op))
		return;
	if (u)
		assert_false(u->r.ended);
	hybrid_execute(&x, op);
	if (acts != &x.acts)
		list_splice_tail_init(&x.acts.list, &acts->list);
	if (u && u->r.ended)
		u->nr_log = nr_log;
}

void carry(struct hybrid_actions *acts)
{
	struct hybrid_op *op;

	while ((op = hybrid_actions_pop(acts)))
		carry_one(op, acts);
	assert_true(list_empty(&acts->again));
	assert_int_equal(acts->wanted, 0);
}

void let_flush_go(void)
{
	struct hybrid_op *op = held_flush;

	held_flush = NULL;
	hybrid_execute_io(&x, op);
	hybrid_engine_op_done(e, op, &x.acts);
	carry(&x.acts);
}

void let_meta_go(struct hybrid_actions *acts)
{
	struct hybrid_op *op = held_meta;

	hold_meta = false;
	held_meta = NULL;
	carry_one(op, acts);
	carry(acts);
}

bool tick(u32 ms)
{
	bool more;

	x.now += ms;
	more = hybrid_engine_tick(e, x.now, &x.acts);
	carry(&x.acts);
	return more;
}

static bool wait_until(struct hybrid_executor *executor, const bool *ended)
{
	u32 n;

	carry(&x.acts);
	if (held_meta)
		let_meta_go(&x.acts);
	for (n = 0; !*ended; n++) {
		assert_true(n < 100);
		tick(100);
	}
	return true;
}

static const struct hybrid_executor_ops executor_ops = {
	.transfer = transfer,
	.flush = flush,
	.wait = wait_until,
};

/* ---- services for the engine --------------------------------------------- */

static void *alloc_buffer(struct hybrid_engine *engine, u32 sectors, gfp_t gfp)
{
	void *p = kmalloc(sectors * 512, gfp);

	nr_buffers += !!p;
	return p;
}

static void free_buffer(struct hybrid_engine *engine, void *buffer)
{
	nr_buffers -= !!buffer;
	kfree(buffer);
}

int wait_checkpoint(struct hybrid_engine *engine)
{
	/* also while the engine is being loaded, before the caller of create has it */
	e = engine;
	x.engine = e;
	return hybrid_execute_checkpoint(e);
}

/* Each hit has returned before anything else is called. */
static void wait_hits(struct hybrid_engine *engine)
{
	if (on_wait_hits)
		on_wait_hits();
}

static u64 new_nonce(struct hybrid_engine *engine)
{
	return ++nonces * 0x9e3779b97f4a7c15ULL | 1;
}

static const struct hybrid_engine_ops ops = {
	.alloc_buffer = alloc_buffer,
	.free_buffer = free_buffer,
	.checksum = hybrid_execute_checksum,
	.do_op = hybrid_execute_now,
	.wait_checkpoint = wait_checkpoint,
	.wait_hits = wait_hits,
	.random = new_nonce,
};

/* ---- lives ---------------------------------------------------------------- */

struct hybrid_engine *new_engine(int *error)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;

	x.engine = hybrid_engine_create(&sb, &ops, &x, hybrid_policy_get("lru"), &config, error);
	return x.engine;
}

void write_root(const struct hybrid_root_info *root)
{
	u16 *generations = calloc(sb.geometry.nr_index, sizeof(u16));
	struct hybrid_ident id = { .epoch = root->epoch };

	memcpy(id.pool_uuid, sb.pool_uuid, sizeof(id.pool_uuid));
	hybrid_root_encode((void *)disk[0] + 512 * hybrid_root_sector(&sb.geometry, root->sequence),
			   &sb.geometry, &id, root, generations);
	free(generations);
}

static void format(void)
{
	struct hybrid_root_info root = {
		.sequence = 2, .epoch = 99, .flags = HYBRID_ROOT_CLEAN, .next_instance = 1,
	};
	struct hybrid_sb origin;
	u32 copy;

	write_root(&root);
	sample_volume(&info);
	info.data_sector = DATA;
	info.data_sectors = ORIGIN_SECTORS - 2 * DATA;
	info.nonce = 0;
	info.nonce_old = 0;
	info.cutoff_sectors = 0;
	info.data_sectors_new = 0;
	info.flags = 0;
	sample_sb(&origin, HYBRID_ROLE_ORIGIN);
	origin.flags = 0;
	origin.ro_compat = 0;
	origin.volume_id = 1;
	origin.instance = 0;
	origin.nonce = 0;
	origin.lost = 0;
	origin.paired_nonce = 0;
	origin.member_sectors = ORIGIN_SECTORS;
	origin.data_sectors = info.data_sectors;
	memcpy(origin.member_uuid, info.member_uuid, sizeof(origin.member_uuid));
	for (copy = 0; copy < 2; copy++) {
		u64 sector = hybrid_sb_sector(ORIGIN_SECTORS, copy);

		hybrid_sb_encode((void *)disk[1] + 512 * sector, &origin, sector);
	}
}

void fresh_disks(u32 block_sectors)
{
	u64 i, seed = 7;

	disk_sectors[0] = CACHE_SECTORS;
	disk_sectors[1] = ORIGIN_SECTORS;
	for (i = 0; i < 2; i++) {
		free(disk[i]);
		disk[i] = calloc(disk_sectors[i], 512);
		assert_non_null(disk[i]);
	}
	/* every sector of the origin's data is another */
	for (i = DATA; i < ORIGIN_SECTORS - DATA; i++)
		*(u64 *)(disk[1] + i * 512) = next_random(&seed);
	sample_sb(&sb, HYBRID_ROLE_CACHE);
	assert_int_equal(hybrid_geometry_init(&sb.geometry, CACHE_SECTORS, block_sectors, 0,
					      NULL), 0);
	sb.member_sectors = CACHE_SECTORS;
	format();
}

int setup_disks(void **state)
{
	fresh_disks(BLOCK);
	fail_cache_writes = fail_cache_reads = fail_cache_flushes = fail_origin = false;
	fail_discards = 0;
	writes_left = origin_writes_left = U32_MAX;
	bad_from = bad_to = 0;
	hybrid_executor_init(&x, &executor_ops);
	x.now = 1000;
	v = NULL;
	e = NULL;
	return 0;
}

void start(void)
{
	const char *why = NULL;
	int error;

	e = new_engine(&error);
	assert_non_null(e);
	assert_int_equal(hybrid_engine_load(e, &why), 0);
	assert_null(hybrid_engine_check(e));
}

void open_volume(void)
{
	const char *why;

	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, &why), 0);
	hybrid_volume_set_traits(v, HYBRID_ORIGIN_SEEKS);
}

static void create_volume(void)
{
	start();
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	open_volume();
}

void fresh_volume(u32 block_sectors)
{
	fresh_disks(block_sectors);
	create_volume();
}

int setup(void **state)
{
	setup_disks(state);
	create_volume();
	return 0;
}

void crash(void)
{
	hybrid_engine_destroy(e);
	e = NULL;
	v = NULL;
	assert_int_equal(nr_buffers, 0);
}

void close_volume(void)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	assert_int_equal(hybrid_volume_close(e, v), 0);
	v = NULL;
}

void delete_volume(void)
{
	close_volume();
	assert_int_equal(hybrid_volume_delete(e, 1, true), 0);
}

void stop(void)
{
	struct hybrid_actions acts;
	u32 n;

	hybrid_actions_init(&acts);
	if (v)
		close_volume();
	for (n = 0; !hybrid_engine_stop(e, &acts); n++) {
		assert_true(n < 100);
		carry(&acts);
	}
	carry(&acts);
}

int teardown(void **state)
{
	shim_alloc_fails = NULL;
	hold_flush = false;
	on_wait_hits = NULL;
	held_flush = NULL;
	flush_ms = 0;
	hold_meta = false;
	held_meta = NULL;
	hold_discard = false;
	held_discard = NULL;
	if (e)
		crash();
	free(disk[0]);
	free(disk[1]);
	disk[0] = disk[1] = NULL;
	return 0;
}

/* ---- I/O ------------------------------------------------------------------ */

void prepare(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags)
{
	u->r.ended = false;
	u->r.data = u->data;
	hybrid_io_init(&u->r.io, v, type, sector, count, flags);
}

void arrive(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags,
	    struct hybrid_actions *acts)
{
	prepare(u, type, sector, count, flags);
	if (hybrid_engine_map(e, &u->r.io, acts) == HYBRID_MAP_REMAP)
		carry_one(&u->r.io.op, acts);
}

int wait_for(struct user *u)
{
	u32 n;

	for (n = 0; !u->r.ended; n++) {
		assert_true(n < 100);
		tick(100);
	}
	assert_null(hybrid_engine_check(e));
	return u->r.io.error;
}

int submit(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, u8 flags)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	arrive(u, type, sector, count, flags, &acts);
	carry(&acts);
	return wait_for(u);
}

void fill_data(struct user *u, u64 sector, u32 count, u32 version)
{
	u32 k;

	memset(u->data, version, count * 512);
	for (k = 0; k < count; k++)
		*(u64 *)(u->data + k * 512) = (u64)version << 32 | (sector + k);
}

int write_io(u64 sector, u32 count, u32 version, bool fua)
{
	nr_log = 0;
	fill_data(&writer, sector, count, version);
	return submit(&writer, HYBRID_IO_WRITE, sector, count, fua ? HYBRID_IO_FUA : 0);
}

int flush_volume(void)
{
	nr_log = 0;
	return submit(&flusher, HYBRID_IO_FLUSH, 0, 0, 0);
}

int read_io(u64 sector, u32 count)
{
	nr_log = 0;
	memset(reader.data, 0xee, sizeof(reader.data));
	return submit(&reader, HYBRID_IO_READ, sector, count, 0);
}

int read_meta(u64 sector, u32 count)
{
	nr_log = 0;
	return submit(&reader, HYBRID_IO_READ, sector, count, HYBRID_IO_META);
}

void put(u64 sector, u32 count, u32 version)
{
	assert_int_equal(write_io(sector, count, version, false), 0);
}

void reads(u64 sector, u32 count, u32 version)
{
	assert_int_equal(read_io(sector, count), 0);
	if (version)
		fill_data(&writer, sector, count, version);
	else
		memcpy(writer.data, disk[1] + (DATA + sector) * 512, count * 512);
	assert_memory_equal(reader.data, writer.data, count * 512);
}

bool origin_has(u64 sector, u32 count, u32 version)
{
	fill_data(&writer, sector, count, version);
	return !memcmp(writer.data, disk[1] + (DATA + sector) * 512, count * 512);
}

void set_mode(u32 mode)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_volume_set_mode(e, v, mode, &acts);
	carry(&acts);
}

void forget_syncs(void)
{
	v->users.sync = (struct hybrid_sync){ .writes = 8 };
}

void set_cutoff_to(u64 sectors)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_volume_set_cutoff(e, v, sectors, &acts);
	carry(&acts);
}

struct hybrid_volume_status status(void)
{
	struct hybrid_volume_status st;

	hybrid_volume_status(e, v, &st);
	return st;
}

struct hybrid_pool_status pool(void)
{
	struct hybrid_pool_status st;

	hybrid_engine_status(e, &st);
	return st;
}

bool flushed_entry(u32 n)
{
	const struct logged_op *op = &op_log[n];

	return n + 1 < nr_log && op[0].flush && !op[0].origin &&
	       op[1].meta && op[1].write && op[1].fua && !op[1].origin;
}

u32 sectors_of(bool origin, bool write)
{
	u32 k, n = 0;

	for (k = 0; k < nr_log; k++)
		if (op_log[k].origin == origin && op_log[k].write == write && !op_log[k].flush &&
		    !op_log[k].meta && !op_log[k].discard)
			n += op_log[k].count;
	return n;
}

void moved(u32 cache_read, u32 cache_written, u32 origin_read, u32 origin_written)
{
	u32 k;

	for (k = 0; k < nr_log; k++)
		assert_false(op_log[k].meta || op_log[k].flush);
	assert_int_equal(sectors_of(CACHE, false), cache_read);
	assert_int_equal(sectors_of(CACHE, true), cache_written);
	assert_int_equal(sectors_of(ORIGIN, false), origin_read);
	assert_int_equal(sectors_of(ORIGIN, true), origin_written);
}

void rest(void)
{
	u32 n;

	for (n = 0; n < 8; n++)
		tick(1000);
	assert_int_equal(wait_checkpoint(e), 0);
}

void first_dirty(void)
{
	put(0, 8, 1);
	assert_int_equal(flush_volume(), 0);
}

void small_pool(u64 sectors, u32 mode, const struct hybrid_config *config)
{
	assert_int_equal(hybrid_geometry_init(&sb.geometry, sectors, BLOCK, 0, NULL), 0);
	sb.member_sectors = sectors;
	format();
	start();
	assert_int_equal(hybrid_engine_set_policy(e, hybrid_policy_get("c2q")), 0);
	hybrid_engine_configure(e, config);
	info.mode = mode;
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	open_volume();
}

void origin_was_quick(void)
{
	v->writeback.bound = 64;
}
