// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The engine over devices in memory that do everything at once: which
 * operations each event leads to, and what is where afterwards.  Crashes,
 * races and order are the simulator's.
 */
#include "unit.h"
#include "samples.h"
#include "engine.h"

#define CACHE_SECTORS (64 * MIB)
#define ORIGIN_SECTORS (32 * MIB)
#define BLOCK 128		/* sectors */
#define DATA 2048		/* first sector of the volume on its origin */
#define MAX_LOG 4096
#define CACHE false
#define ORIGIN true

static u8 *disk[2];		/* cache, origin */
static u64 disk_sectors[2];
static struct hybrid_sb sb;
static struct hybrid_engine *e;
static struct hybrid_volume *v;
static struct hybrid_volume_info info;
static u64 now, nonces;
static u32 buffers;		/* alive */
static bool fail_cache_writes, fail_cache_reads, fail_origin;

/* What reached the devices */
static struct entry {
	bool origin, write, flush, preflush, fua, meta;
	u64 sector;
	u32 count;
} op_log[MAX_LOG];
static u32 nr_log;

/* A user's I/O */
struct user {
	struct hybrid_io io;
	u8 data[BLOCK * 512];
	bool done;
	u32 nr_log;		/* what had reached the devices then */
};

static int io_error(bool origin, bool write)
{
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
	op_log[nr_log++] = (struct entry){
		.origin = origin, .write = write, .sector = sector, .count = count,
		.meta = meta, .fua = op->fua, .preflush = meta && op->preflush,
	};
	if (io_error(origin, write))
		return -EIO;
	if (write)
		memcpy(disk[origin] + sector * 512, mem, count * 512);
	else
		memcpy(mem, disk[origin] + sector * 512, count * 512);
	return 0;
}

static int dev_flush(bool origin)
{
	assert_true(nr_log < MAX_LOG);
	op_log[nr_log++] = (struct entry){ .origin = origin, .flush = true };
	return io_error(origin, true);
}

static struct user *user_of(struct hybrid_io *io)
{
	return container_of(io, struct user, io);
}

static void segments(struct hybrid_op *op, void *mem)
{
	u32 k;

	for (k = 0; k < op->nr_segments; k++) {
		const struct hybrid_segment *s = &op->segments[k];
		int r = dev_io(s->origin, op->write, s->sector, s->count, mem + s->offset * 512,
			       op);

		if (r && s->origin)
			op->error_origin = r;
		else if (r)
			op->error_cache = r;
	}
}

static void finish(struct hybrid_io *io)
{
	assert_false(user_of(io)->done);
	user_of(io)->done = true;
	user_of(io)->nr_log = nr_log;
}

static void user_op(struct hybrid_op *op, struct hybrid_actions *acts)
{
	struct hybrid_io *io = op->io;
	int r = dev_io(op->origin, op->write, op->sector, op->count, user_of(io)->data, op);

	if (hybrid_engine_io_done(e, io, r, acts))
		finish(io);
}

static void carry_one(struct hybrid_op *op, struct hybrid_actions *acts)
{
	switch (op->type) {
	case HYBRID_OP_USER:
		user_op(op, acts);
		return;
	case HYBRID_OP_TRANSFER:
		if (op->io)
			memcpy(op->buffer + op->buffer_offset * 512, user_of(op->io)->data,
			       op->io->count * 512);
		segments(op, op->buffer);
		break;
	case HYBRID_OP_META:
		segments(op, op->mem);
		break;
	case HYBRID_OP_FLUSH:
		if (op->origin)
			op->error_origin = dev_flush(ORIGIN);
		else
			op->error_cache = dev_flush(CACHE);
		break;
	case HYBRID_OP_COPY_OUT:
		memcpy(user_of(op->io)->data, op->buffer + op->buffer_offset * 512,
		       op->io->count * 512);
		break;
	case HYBRID_OP_COMPLETE:
		finish(op->io);
		return;
	case HYBRID_OP_WAKE:
		op->waiter->done(op->waiter);
		return;
	default:
		assert_int_equal(op->type, HYBRID_OP_WORK);
	}
	hybrid_engine_op_done(e, op, acts);
}

static void carry(struct hybrid_actions *acts)
{
	struct hybrid_op *op;

	while ((op = hybrid_actions_pop(acts)))
		carry_one(op, acts);
}

static bool tick(u32 ms)
{
	struct hybrid_actions acts;
	bool more;

	hybrid_actions_init(&acts);
	now += ms;
	more = hybrid_engine_tick(e, now, &acts);
	carry(&acts);
	return more;
}

/* ---- what the engine needs ----------------------------------------------- */

static void *alloc_buffer(struct hybrid_engine *engine, u32 sectors)
{
	void *p = vmalloc(sectors * 512);

	buffers += !!p;
	return p;
}

static void free_buffer(struct hybrid_engine *engine, void *buffer)
{
	buffers -= !!buffer;
	vfree(buffer);
}

static int do_op(struct hybrid_engine *engine, struct hybrid_op *op)
{
	op->error_cache = 0;
	op->error_origin = 0;
	if (op->type == HYBRID_OP_META) {
		segments(op, op->mem);
	} else {
		assert_int_equal(op->type, HYBRID_OP_FLUSH);
		return dev_flush(op->origin);
	}
	return op->error_cache ? op->error_cache : op->error_origin;
}

static int wait_checkpoint(struct hybrid_engine *engine)
{
	struct hybrid_waiter w = { .done = hybrid_waiter_ended };
	struct hybrid_actions acts;
	u32 n;

	/* also while the engine is being loaded, before create's caller has it */
	e = engine;
	hybrid_actions_init(&acts);
	hybrid_engine_checkpoint(e, &w, &acts);
	carry(&acts);
	for (n = 0; !w.ended; n++) {
		assert_true(n < 100);
		tick(100);
	}
	return w.error;
}

static u64 new_nonce(struct hybrid_engine *engine)
{
	return ++nonces * 0x9e3779b97f4a7c15ULL | 1;
}

static const struct hybrid_engine_ops ops = {
	.alloc_buffer = alloc_buffer,
	.free_buffer = free_buffer,
	.do_op = do_op,
	.wait_checkpoint = wait_checkpoint,
	.random = new_nonce,
};

/* ---- lives ---------------------------------------------------------------- */

static struct hybrid_engine *new_engine(int *error)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;

	return hybrid_engine_create(&sb, &ops, NULL, hybrid_policy_get("lru"), &config, error);
}

static void write_root(const struct hybrid_root_info *root)
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
	sample_sb(&origin, HYBRID_ROLE_ORIGIN);
	origin.flags = 0;
	origin.ro_compat = 0;
	origin.volume_id = 1;
	origin.instance = 0;
	origin.nonce = 0;
	origin.member_sectors = ORIGIN_SECTORS;
	origin.data_sectors = info.data_sectors;
	memcpy(origin.member_uuid, info.member_uuid, sizeof(origin.member_uuid));
	for (copy = 0; copy < 2; copy++) {
		u64 sector = hybrid_sb_sector(ORIGIN_SECTORS, copy);

		hybrid_sb_encode((void *)disk[1] + 512 * sector, &origin, sector);
	}
}

static void fresh_disks(u32 block_sectors)
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

static int setup_disks(void **state)
{
	fresh_disks(BLOCK);
	fail_cache_writes = fail_cache_reads = fail_origin = false;
	now = 1000;
	v = NULL;
	e = NULL;
	return 0;
}

static void start(void)
{
	const char *why = NULL;
	int error;

	e = new_engine(&error);
	assert_non_null(e);
	assert_int_equal(hybrid_engine_load(e, &why), 0);
	assert_null(hybrid_engine_check(e));
}

static void open_volume(void)
{
	const char *why;

	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, &why), 0);
}

static int setup(void **state)
{
	setup_disks(state);
	start();
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	open_volume();
	return 0;
}

/* Gone without a word, as in a crash; the devices have no volatile caches here. */
static void crash(void)
{
	hybrid_engine_destroy(e);
	e = NULL;
	v = NULL;
	assert_int_equal(buffers, 0);
}

static void stop(void)
{
	struct hybrid_actions acts;
	u32 n;

	hybrid_actions_init(&acts);
	if (v) {
		assert_true(hybrid_volume_suspend(e, v, &acts));
		carry(&acts);
		assert_int_equal(hybrid_volume_close(e, v), 0);
	}
	v = NULL;
	for (n = 0; !hybrid_engine_stop(e, &acts); n++) {
		assert_true(n < 100);
		carry(&acts);
	}
	carry(&acts);
}

static int teardown(void **state)
{
	shim_alloc_fails = NULL;
	if (e)
		crash();
	free(disk[0]);
	free(disk[1]);
	disk[0] = disk[1] = NULL;
	return 0;
}

/* ---- I/O ------------------------------------------------------------------ */

static int submit(struct user *u, enum hybrid_io_type type, u64 sector, u32 count, bool fua)
{
	struct hybrid_actions acts;
	u32 n;

	hybrid_actions_init(&acts);
	u->done = false;
	hybrid_io_init(&u->io, v, type, sector, count, fua);
	if (hybrid_engine_map(e, &u->io, &acts) == HYBRID_MAP_REMAP)
		user_op(&u->io.op, &acts);
	carry(&acts);
	for (n = 0; !u->done; n++) {
		assert_true(n < 100);
		tick(100);
	}
	assert_null(hybrid_engine_check(e));
	return u->io.error;
}

/* What the user believes is on the volume: sectors begin with this number. */
static void fill_data(struct user *u, u64 sector, u32 count, u32 version)
{
	u32 k;

	memset(u->data, version, count * 512);
	for (k = 0; k < count; k++)
		*(u64 *)(u->data + k * 512) = (u64)version << 32 | (sector + k);
}

static struct user writer, reader, flusher;

static int write_io(u64 sector, u32 count, u32 version, bool fua)
{
	nr_log = 0;
	fill_data(&writer, sector, count, version);
	return submit(&writer, HYBRID_IO_WRITE, sector, count, fua);
}

static int flush_io(void)
{
	nr_log = 0;
	return submit(&flusher, HYBRID_IO_FLUSH, 0, 0, false);
}

static int read_io(u64 sector, u32 count)
{
	nr_log = 0;
	memset(reader.data, 0xee, sizeof(reader.data));
	return submit(&reader, HYBRID_IO_READ, sector, count, false);
}

static void put(u64 sector, u32 count, u32 version)
{
	assert_int_equal(write_io(sector, count, version, false), 0);
}

/* Reads must give that version, or (0) what the origin always had. */
static void reads(u64 sector, u32 count, u32 version)
{
	assert_int_equal(read_io(sector, count), 0);
	if (version)
		fill_data(&writer, sector, count, version);
	else
		memcpy(writer.data, disk[1] + (DATA + sector) * 512, count * 512);
	assert_memory_equal(reader.data, writer.data, count * 512);
}

static bool origin_has(u64 sector, u32 count, u32 version)
{
	fill_data(&writer, sector, count, version);
	return !memcmp(writer.data, disk[1] + (DATA + sector) * 512, count * 512);
}

static void set_mode(u32 mode)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_volume_set_mode(e, v, mode, &acts);
	carry(&acts);
}

static struct hybrid_volume_status status(void)
{
	struct hybrid_volume_status st;

	hybrid_volume_status(e, v, &st);
	return st;
}

static struct hybrid_pool_status pool(void)
{
	struct hybrid_pool_status st;

	hybrid_engine_status(e, &st);
	return st;
}

static u32 sectors_of(bool origin, bool write)
{
	u32 k, n = 0;

	for (k = 0; k < nr_log; k++)
		if (op_log[k].origin == origin && op_log[k].write == write && !op_log[k].flush &&
		    !op_log[k].meta)
			n += op_log[k].count;
	return n;
}

/* The log holds user data of so many sectors, and nothing else. */
static void moved(u32 cache_read, u32 cache_written, u32 origin_read, u32 origin_written)
{
	u32 k;

	for (k = 0; k < nr_log; k++)
		assert_false(op_log[k].meta || op_log[k].flush);
	assert_int_equal(sectors_of(CACHE, false), cache_read);
	assert_int_equal(sectors_of(CACHE, true), cache_written);
	assert_int_equal(sectors_of(ORIGIN, false), origin_read);
	assert_int_equal(sectors_of(ORIGIN, true), origin_written);
}

/* Record everything, close regions: what follows starts from rest. */
static void rest(void)
{
	u32 n;

	for (n = 0; n < 8; n++)
		tick(1000);
	assert_int_equal(wait_checkpoint(e), 0);
}

/* The origin is marked dirty, which only the first dirty write waits for. */
static void first_dirty(void)
{
	put(0, 8, 1);
	assert_int_equal(flush_io(), 0);
}

/* ---- pools ---------------------------------------------------------------- */

static void fresh_pool(void **state)
{
	struct hybrid_pool_status st;

	start();
	st = pool();
	assert_int_equal(st.blocks, sb.geometry.nr_blocks);
	assert_int_equal(st.free, st.blocks);
	assert_int_equal(st.used + st.dirty + st.volumes + st.open_regions + st.failed, 0);
	assert_true(st.checkpoints == 1);
	stop();
	crash();
	/* again, from a clean stop, and from a crash right after the start */
	start();
	crash();
	start();
	assert_int_equal(pool().free, st.blocks);
}

static void not_a_pool(void **state)
{
	const char *why = NULL;
	int error;
	u8 *root;

	e = new_engine(&error);
	assert_non_null(e);
	fail_cache_reads = true;
	assert_int_equal(hybrid_engine_load(e, &why), -EIO);
	fail_cache_reads = false;
	crash();
	e = new_engine(&error);
	root = disk[0] + 512 * hybrid_root_sector(&sb.geometry, 2);
	root[200] ^= 1;
	assert_int_equal(hybrid_engine_load(e, &why), -EUCLEAN);
	assert_string_equal(why, "no valid root");
	root[200] ^= 1;
	crash();
	/* nothing was written, and nothing is lost */
	start();
}

/* What its successor would say, no reader would take. */
static void last_root(void **state)
{
	struct hybrid_root_info root = { .sequence = BIT_ULL(62), .next_instance = 1 };
	const char *why = NULL;
	u32 round, n;
	int error;

	for (round = 0; round < 2; round++) {
		write_root(&root);
		e = new_engine(&error);
		assert_non_null(e);
		nr_log = 0;
		assert_int_equal(hybrid_engine_load(e, &why), -EUCLEAN);
		assert_string_equal(why, "no sequence or journal number is left");
		for (n = 0; n < nr_log; n++)
			assert_false(op_log[n].write);
		crash();
		root.sequence = 4;
		root.journal_tail = root.journal_head = BIT_ULL(62);
		memset(disk[0] + 512 * hybrid_root_sector(&sb.geometry, 0), 0, 4096);
	}
}

static void ram(void **state)
{
	static const char * const policies[] = { "c2q", "s3fifo", "sieve", "arc", "lru", "fifo" };
	struct hybrid_pool_status st;
	int error;
	u32 i;

	assert_int_equal(hybrid_geometry_init(&sb.geometry, GIB, 128, 0, NULL), 0);
	e = new_engine(&error);
	assert_non_null(e);
	st = pool();
	assert_true(st.blocks > 16000);
	assert_true(st.ram <= 32 * (u64)st.blocks);
	assert_true(st.ram == hybrid_engine_ram(&sb.geometry, hybrid_engine_policy(e)));
	/* 512 MiB for 1 TiB, with any policy */
	assert_int_equal(hybrid_geometry_init(&sb.geometry, 1024ULL * GIB, 128, 0, NULL), 0);
	for (i = 0; i < ARRAY_SIZE(policies); i++)
		assert_true(hybrid_engine_ram(&sb.geometry, hybrid_policy_get(policies[i])) <=
			    32 * (u64)sb.geometry.nr_blocks);
}

/* What a read adds to that counter. */
static u64 read_moves(enum hybrid_counter c, u32 block)
{
	u64 before = status().counter[c];

	assert_int_equal(read_io(block * BLOCK, 8), 0);
	return status().counter[c] - before;
}

/* One that is soon full, of c2q, with a volume open. */
static void small_pool(u64 sectors, u32 mode, const struct hybrid_config *config)
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

/* The newest blocks are the first that c2q would evict: if dirty, others go, in peace. */
static void clean_goes_first(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n, k, few = 48;

	config.low_watermark = 50;
	config.high_watermark = 60;
	small_pool(32 * MIB, HYBRID_MODE_WRITEBACK, &config);
	for (n = 0; n < 2 * pool().blocks; n++) {
		read_moves(HYBRID_FILLS, n % 300);
		tick(100);
	}
	for (k = 0; k < few; k++) {
		put((310 + k) * BLOCK, BLOCK, 1);
		tick(100);
	}
	for (n = 0; n < 100; n++) {
		read_moves(HYBRID_FILLS, 360 + n);
		tick(100);
	}
	assert_int_equal(status().dirty, few);
	assert_int_equal(status().counter[HYBRID_WRITEBACKS], 0);
	assert_int_equal(status().counter[HYBRID_BYPASS_FULL], 0);
}

/* Reads are cached while there is room; then as the endurance budget says. */
static void endurance(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n, k;

	config.endurance = 1024;	/* MiB a day: 43 an hour */
	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	tick(100);
	/* one block uses up what there is for now, but there is room */
	for (n = 0; pool().free > pool().blocks / 8; n++) {
		assert_true(n < 200);
		assert_int_equal(read_moves(HYBRID_FILLS, n), 1);
		tick(100);
	}
	assert_int_equal(pool().cache_written,
			 n * BLOCK + pool().metadata_writes * HYBRID_META_BLOCK_SECTORS);
	while (read_moves(HYBRID_FILLS, n))
		assert_true(++n < 200);
	/* no room: what is read once is not cached, what is read again is */
	assert_int_equal(read_moves(HYBRID_BYPASS_ENDURANCE, 300), 1);
	assert_int_equal(read_moves(HYBRID_FILLS, 301), 0);
	assert_int_equal(read_moves(HYBRID_FILLS, 300), 1);
	assert_int_equal(read_moves(HYBRID_READ_HITS, 300), 1);
	/* writes are cached, and leave more than an hour's debt: no read is */
	for (k = 0; k < 2000; k++)
		assert_int_equal(write_io(300 * BLOCK, BLOCK, k, false), 0);
	tick(100);
	assert_int_equal(read_moves(HYBRID_BYPASS_ENDURANCE, 301), 1);
	assert_int_equal(read_moves(HYBRID_BYPASS_ENDURANCE, 301), 1);
	assert_int_equal(read_moves(HYBRID_READ_HITS, 300), 1);
	/* it asks for more time until that is paid */
	assert_true(tick(3600 * 1000));
	for (k = 0; tick(3600 * 1000); k++)
		assert_true(k < 48);
	assert_int_equal(read_moves(HYBRID_FILLS, 302), 1);
}

/* ---- volumes -------------------------------------------------------------- */

static void volumes(void **state)
{
	struct hybrid_volume_info other = info, same;
	struct hybrid_volume *w;
	const char *why;

	/* setup made and opened number 1 */
	assert_int_equal(hybrid_volume_create(e, 1, &other), -EEXIST);
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EEXIST);
	assert_int_equal(hybrid_volume_create(e, HYBRID_MAX_VOLUMES, &other), -EINVAL);
	other.uuid[0]++;
	other.member_uuid[0]++;
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EEXIST);	/* the name */
	/* what could not be loaded again */
	strcpy(other.name, ".other");
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EINVAL);
	strcpy(other.name, "other");
	other.data_sector++;
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EINVAL);
	other.data_sector--;
	assert_int_equal(hybrid_volume_create(e, 4095, &other), 0);
	assert_int_equal(hybrid_volume_info(e, 4095, &same), 0);
	assert_string_equal(same.name, "other");
	assert_true(same.instance > 1);
	assert_int_equal(hybrid_volume_info(e, 2, &same), -ENOENT);

	assert_int_equal(hybrid_volume_open(e, 2, ORIGIN_SECTORS, NULL, &w, &why), -ENOENT);
	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &w, &why), -EBUSY);
	/* its member is another */
	assert_int_equal(hybrid_volume_open(e, 4095, ORIGIN_SECTORS, NULL, &w, &why),
			 -EMEDIUMTYPE);
	assert_string_equal(why, "belongs to another volume");
	assert_int_equal(hybrid_volume_open(e, 4095, 1024, NULL, &w, &why), -EMEDIUMTYPE);

	assert_int_equal(hybrid_volume_forget(e, 4095), -EBUSY);
	assert_int_equal(hybrid_volume_delete(e, 1, false), -EBUSY);
	assert_int_equal(hybrid_volume_delete(e, 4095, false), 0);
	assert_int_equal(hybrid_volume_open(e, 4095, ORIGIN_SECTORS, NULL, &w, &why), -ENOENT);
	crash();
	start();
	assert_int_equal(hybrid_volume_info(e, 4095, &same), 0);
	assert_int_equal(same.state, HYBRID_VOLUME_TOMBSTONE);
	assert_int_equal(hybrid_volume_forget(e, 4095), 0);
	assert_int_equal(hybrid_volume_info(e, 4095, &same), -ENOENT);
	open_volume();
	assert_int_equal(pool().volumes, 1);
}

/* Whichever root is lost, the other one knows that the volume is gone: its blocks are others'. */
static void deleted_in_both_roots(void **state)
{
	u8 *kept = malloc(CACHE_SECTORS * 512);
	struct hybrid_volume_info gone;
	struct hybrid_actions acts;
	u64 slot;

	reads(BLOCK, BLOCK, 0);
	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	assert_int_equal(hybrid_volume_close(e, v), 0);
	assert_int_equal(hybrid_volume_delete(e, 1, false), 0);
	crash();
	memcpy(kept, disk[0], CACHE_SECTORS * 512);
	for (slot = 0; slot < 2; slot++) {
		memcpy(disk[0], kept, CACHE_SECTORS * 512);
		memset(disk[0] + 512 * hybrid_root_sector(&sb.geometry, slot), 0,
		       HYBRID_META_BLOCK_SIZE);
		start();
		assert_int_equal(hybrid_volume_info(e, 1, &gone), 0);
		assert_int_equal(gone.state, HYBRID_VOLUME_TOMBSTONE);
		assert_int_equal(pool().used, 0);
		crash();
	}
	free(kept);
}

/* Change one copy of the origin's superblock. */
static void change_copy(u32 copy, void (*change)(struct hybrid_sb *sb))
{
	u64 at = hybrid_sb_sector(ORIGIN_SECTORS, copy);
	void *block = disk[1] + at * 512;
	struct hybrid_sb other;

	assert_int_equal(hybrid_sb_decode(block, at, ORIGIN_SECTORS, &other, NULL), 0);
	change(&other);
	hybrid_sb_encode(block, &other, at);
}

static void other_nonce(struct hybrid_sb *sb)
{
	sb->nonce += 2;
}

static void written_without_its_cache(void **state)
{
	struct hybrid_volume *w;
	const char *why;
	u32 copy, dirty;

	for (dirty = 0; dirty < 2; dirty++) {
		set_mode(HYBRID_MODE_WRITEBACK);
		reads(BLOCK, BLOCK, 0);
		if (dirty)
			first_dirty();
		stop();
		crash();
		/* somebody gives the origin another nonce */
		for (copy = 0; copy < 2; copy++)
			change_copy(copy, other_nonce);
		disk[1][(DATA + BLOCK) * 512 + 8] = 0x77;
		start();
		if (dirty) {
			assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &w, &why),
					 -EMEDIUMTYPE);
			return;
		}
		open_volume();
		assert_int_equal(status().cached, 0);
		reads(BLOCK, BLOCK, 0);
	}
}

static void other_member(struct hybrid_sb *sb)
{
	sb->member_uuid[0]++;
}

static void read_only(struct hybrid_sb *sb)
{
	sb->ro_compat = 1;
}

/* The highest that a reader takes: there is no next one. */
static void last_sequence(struct hybrid_sb *sb)
{
	sb->sequence = BIT_ULL(62);
}

static void writable(struct hybrid_sb *sb)
{
	sb->ro_compat = 0;
}

static void origin_refused(const char *reason)
{
	const char *why;
	u32 before;

	start();
	before = nr_log;
	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, &why), -EMEDIUMTYPE);
	assert_string_equal(why, reason);
	for (; before < nr_log; before++)
		assert_false(op_log[before].origin && op_log[before].write);
	crash();
}

static void superblocks_that_do_not_fit(void **state)
{
	stop();
	crash();
	change_copy(1, other_member);
	origin_refused("has superblocks of two members");
	change_copy(0, other_member);
	origin_refused("is another member");
	fresh_disks(BLOCK);
	start();
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	stop();
	crash();
	change_copy(0, read_only);
	change_copy(1, read_only);
	origin_refused("has a feature that allows reading only");
	change_copy(0, writable);
	change_copy(1, writable);
	change_copy(1, last_sequence);
	origin_refused("has no sequence left for its superblock");
}

/* ---- modes ---------------------------------------------------------------- */

static void modes(void **state)
{
	static const struct { u32 mode; bool cache, origin; } row[] = {
		{ HYBRID_MODE_WRITEBACK, true, false },
		{ HYBRID_MODE_WRITETHROUGH, true, true },
		{ HYBRID_MODE_WRITEAROUND, false, true },
		{ HYBRID_MODE_PASSTHROUGH, false, true },
	};
	u32 n, k;

	first_dirty();
	for (n = 0; n < ARRAY_SIZE(row); n++) {
		u64 at = (n + 1) * 16 * BLOCK;

		set_mode(row[n].mode);
		rest();
		put(at, BLOCK, n + 1);
		moved(0, row[n].cache ? BLOCK : 0, 0, row[n].origin ? BLOCK : 0);
		assert_int_equal(origin_has(at, BLOCK, n + 1), row[n].origin);
		reads(at, BLOCK, n + 1);
		moved(row[n].cache ? BLOCK : 0, !row[n].cache && n == 2 ? BLOCK : 0,
		      row[n].cache ? 0 : BLOCK, 0);
		/* a second write, to what is cached now or not */
		put(at + 8, 8, n + 10);
		reads(at, 8, n + 1);
		reads(at + 8, 8, n + 10);
		reads(at + 16, 8, n + 1);
		assert_int_equal(status().mode, row[n].mode);
	}
	assert_int_equal(flush_io(), 0);
	for (k = 0; k < 2; k++) {
		if (k)
			stop();
		crash();
		start();
		open_volume();
		for (n = 0; n < ARRAY_SIZE(row); n++) {
			u64 at = (n + 1) * 16 * BLOCK;

			reads(at, 8, n + 1);
			reads(at + 8, 8, n + 10);
			reads(at + 16, BLOCK - 16, n + 1);
		}
	}
}

/* Out of writeback nothing stays dirty, and the origin has it all. */
static void mode_switch_drains(void **state)
{
	u32 n;

	set_mode(HYBRID_MODE_WRITEBACK);
	for (n = 0; n < 20; n++)
		put(n * BLOCK, BLOCK, n + 1);
	assert_int_equal(status().dirty, 20);
	assert_false(origin_has(0, BLOCK, 1));
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	assert_int_equal(status().dirty, 0);
	for (n = 0; n < 20; n++) {
		assert_true(origin_has(n * BLOCK, BLOCK, n + 1));
		reads(n * BLOCK, BLOCK, n + 1);
		moved(BLOCK, 0, 0, 0);
	}
}

/* ---- what each event costs ------------------------------------------------ */

static void flush_is_one_journal_write(void **state)
{
	u64 journal = sb.geometry.journal_sector;
	u64 writes;

	first_dirty();
	rest();
	/* new blocks, and nothing of the kind on the origin */
	put(64 * BLOCK, BLOCK, 5);
	moved(0, BLOCK, 0, 0);
	put(99 * BLOCK + 8, 8, 6);
	moved(0, 8, 0, 0);
	writes = pool().journal_writes;
	assert_int_equal(flush_io(), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].meta && op_log[0].write && !op_log[0].origin);
	assert_true(op_log[0].preflush && op_log[0].fua);
	assert_true(op_log[0].sector >= journal && op_log[0].sector < sb.geometry.data_sector);
	assert_int_equal(op_log[0].count, HYBRID_META_BLOCK_SECTORS);
	assert_true(pool().journal_writes == writes + 1);
	/* and nothing is left for the next */
	assert_int_equal(flush_io(), 0);
	assert_int_equal(nr_log, 0);
}

/* More records than one journal write holds: the flush waits for the last of them. */
static void flush_of_two_entries(void **state)
{
	u32 records, n, journal = 0;

	fresh_disks(8);
	start();
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	open_volume();
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	records = HYBRID_ENTRY_RECORDS(HYBRID_JOURNAL_ENTRY_LIMIT(sb.geometry.journal_blocks));
	for (n = 0; n < records; n++)
		put(8 + n * 8, 8, 5);
	assert_int_equal(flush_io(), 0);
	for (n = 0; n < flusher.nr_log; n++)
		journal += op_log[n].meta && op_log[n].preflush && op_log[n].fua;
	assert_int_equal(journal, 2);
	crash();
	start();
	open_volume();
	reads(8 + (records - 1) * 8, 8, 5);
}

/* A flush under way must find dirty data on one of the devices: recorded first, then replaced. */
static void zeroes_replace_recorded_data(void **state)
{
	static const enum hybrid_io_type type[] = { HYBRID_IO_ZEROES, HYBRID_IO_DISCARD };
	u32 k;

	first_dirty();
	for (k = 0; k < ARRAY_SIZE(type); k++) {
		rest();
		put((64 + k) * BLOCK, BLOCK, 5);
		nr_log = 0;
		assert_int_equal(submit(&writer, type[k], (64 + k) * BLOCK, BLOCK, false), 0);
		assert_true(nr_log >= 2);
		assert_true(op_log[0].meta && op_log[0].preflush && op_log[0].fua);
	}
}

static void rewrite_of_dirty_is_free(void **state)
{
	u64 writes;

	first_dirty();
	put(64 * BLOCK, BLOCK, 5);
	assert_int_equal(flush_io(), 0);
	writes = pool().metadata_writes;
	put(64 * BLOCK, BLOCK, 6);
	moved(0, BLOCK, 0, 0);
	put(64 * BLOCK + 3, 1, 7);	/* a part of a granule, too */
	moved(0, 1, 0, 0);
	assert_int_equal(flush_io(), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].flush && !op_log[0].origin);
	assert_true(pool().metadata_writes == writes);
	reads(64 * BLOCK + 3, 1, 7);
	reads(64 * BLOCK + 4, 100, 6);
}

static void fua_write(void **state)
{
	u32 k, journal = 0;

	first_dirty();
	rest();
	assert_int_equal(write_io(64 * BLOCK, 8, 5, true), 0);
	for (k = 0; k < nr_log; k++)
		journal += op_log[k].meta && op_log[k].preflush && op_log[k].fua;
	assert_int_equal(nr_log, 2);
	assert_int_equal(journal, 1);
	assert_true(op_log[1].meta);
	/* durably dirty already: the data alone */
	assert_int_equal(write_io(64 * BLOCK, 8, 6, true), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].fua && !op_log[0].meta && !op_log[0].origin);
	set_mode(HYBRID_MODE_WRITEAROUND);
	rest();
	assert_int_equal(write_io(70 * BLOCK, 8, 7, true), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].fua && op_log[0].origin);
}

static void flush_of_writethrough(void **state)
{
	u32 k;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	put(64 * BLOCK, BLOCK, 5);
	assert_int_equal(flush_io(), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].flush && op_log[0].origin);
	for (k = 0; k < 3; k++)
		assert_int_equal(flush_io(), 0);
	assert_int_equal(nr_log, 0);
	assert_int_equal(status().dirty, 0);
}

static void read_miss_fills_the_block(void **state)
{
	u64 at = 33 * BLOCK;

	reads(at + 40, 8, 0);
	assert_int_equal(nr_log, 2);
	assert_false(op_log[0].write);
	assert_true(op_log[0].origin && op_log[0].sector == DATA + at);
	assert_int_equal(op_log[0].count, BLOCK);
	assert_true(op_log[1].write && !op_log[1].origin);
	assert_int_equal(op_log[1].count, BLOCK);
	reads(at, 8, 0);
	moved(8, 0, 0, 0);
	reads(at, BLOCK, 0);
	moved(BLOCK, 0, 0, 0);
	assert_int_equal(status().counter[HYBRID_FILLS], 1);
	assert_int_equal(status().counter[HYBRID_READ_MISSES], 1);
	assert_int_equal(status().counter[HYBRID_READ_HITS], 2);
	/* the cache survives a crash warm, once it is recorded */
	rest();
	crash();
	start();
	open_volume();
	reads(at, BLOCK, 0);
	moved(BLOCK, 0, 0, 0);
}

/* Whole granules are written without reading; of parts the block is filled first (J11). */
static void writes_of_parts(void **state)
{
	static const struct {
		u32 offset, count;
		bool whole;
	} row[] = {
		{ 0, 8, true }, { 8, 16, true }, { 120, 8, true }, { 0, BLOCK, true },
		{ 3, 1, false }, { 0, 7, false }, { 4, 8, false }, { 4, 16, false },
		{ 1, BLOCK - 1, false },
	};
	u32 n, mode;

	first_dirty();
	for (mode = 0; mode < 2; mode++) {	/* writethrough, writeback */
		assert_int_equal(HYBRID_MODE_WRITEBACK, 1);
		set_mode(mode);
		rest();
		for (n = 0; n < ARRAY_SIZE(row); n++) {
			u64 at = (20 * (mode + 1) + n) * 4 * BLOCK;
			u32 count = row[n].count;

			put(at + row[n].offset, count, n + 1);
			if (row[n].whole)
				moved(0, count, 0, mode ? 0 : count);
			else if (mode)
				moved(0, BLOCK + count, BLOCK, 0);
			else
				assert_int_equal(sectors_of(ORIGIN, true), count);
			reads(at + row[n].offset, count, n + 1);
			if (row[n].offset)
				reads(at, row[n].offset, 0);
			if (row[n].offset + count < BLOCK)
				reads(at + row[n].offset + count,
				      BLOCK - row[n].offset - count, 0);
		}
	}
	/* What is there is a hit. */
	put(24 * 8 * BLOCK + 5, 1, 9);
	moved(0, 1, 0, 0);
	/* Only what is not valid is fetched, with what lies between. */
	put(90 * BLOCK, 64, 9);
	moved(0, 64, 0, 0);
	put(90 * BLOCK + 66, 2, 10);
	moved(0, 64 + 2, 64, 0);
	reads(90 * BLOCK, 64, 9);
	reads(90 * BLOCK + 64, 2, 0);
	reads(90 * BLOCK + 66, 2, 10);
}

/* From low addresses to high ones, like a lift: it may begin anywhere. */
static void drain_is_sorted(void **state)
{
	static const u32 order[] = { 9, 2, 30, 5, 17, 1, 28, 11, 3, 40 };
	struct hybrid_actions acts;
	u64 last = 0;
	u32 n, k = 0, descents = 0;

	set_mode(HYBRID_MODE_WRITEBACK);
	for (n = 0; n < ARRAY_SIZE(order); n++)
		put(order[n] * 4 * BLOCK, BLOCK, n + 1);
	hybrid_actions_init(&acts);
	nr_log = 0;
	hybrid_engine_drain(e, v, true, &acts);
	carry(&acts);
	for (n = 0; status().dirty && n < 50; n++)
		tick(500);
	assert_int_equal(status().dirty, 0);
	for (n = 0; n < nr_log; n++)
		if (op_log[n].origin && op_log[n].write && !op_log[n].meta) {
			descents += op_log[n].sector < last;
			last = op_log[n].sector;
			k++;
		}
	assert_int_equal(k, ARRAY_SIZE(order));
	assert_in_range(descents, 0, 1);
	for (n = 0; n < ARRAY_SIZE(order); n++)
		assert_true(origin_has(order[n] * 4 * BLOCK, BLOCK, n + 1));
}

/* Reads so many blocks in sequence; what happened to them. */
static u64 run_moves(enum hybrid_counter c, u32 block, u32 count)
{
	u64 before = status().counter[c];

	while (count--) {
		reads(block++ * BLOCK, BLOCK, 0);
		tick(1000);
	}
	return status().counter[c] - before;
}

/* A long run is cached while there is room, and pushes nothing out later. */
static void sequential_bypass(void **state)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n;

	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	hybrid_volume_set_cutoff(e, v, 4 * BLOCK);
	for (n = 0; pool().free > pool().blocks / 8; n++)
		assert_int_equal(run_moves(HYBRID_BYPASS_SEQUENTIAL, n, 1), 0);
	assert_int_equal(status().cached, round_up(n, 4));
	while (!run_moves(HYBRID_BYPASS_SEQUENTIAL, n++, 1))
		assert_true(n < 200);
	assert_int_equal(run_moves(HYBRID_BYPASS_SEQUENTIAL, n, 20), 20);
	assert_int_equal(run_moves(HYBRID_READ_HITS, 0, 20), 20);
	assert_int_equal(run_moves(HYBRID_FILLS, 300, 10), 4);
	assert_int_equal(run_moves(HYBRID_BYPASS_SEQUENTIAL, 320, 10), 6);
	hybrid_volume_set_cutoff(e, v, 0);
	assert_int_equal(run_moves(HYBRID_FILLS, 332, 8), 8);
}

/* Reads one block of the window, then another: what it adds to what is cached. */
static u32 window_moves(u32 window)
{
	u32 before = status().cached;

	reads((window * 4 + 1) * BLOCK, 8, 0);
	assert_int_equal(status().cached, before + 1);
	reads((window * 4 + 2) * BLOCK, 8, 0);
	return status().cached - before;
}

/* Where one block of a window is there, a miss brings all that is missing beside it. */
static void fills_ahead(void **state)
{
	u64 hits = HYBRID_READ_HITS;
	u32 n, k;

	assert_int_equal(window_moves(0), 3);
	assert_int_equal(read_moves(hits, 3), 1);
	/* ... not across what is there */
	assert_int_equal(read_moves(HYBRID_FILLS, 0), 1);
	reads(4 * BLOCK, 8, 0);
	reads(6 * BLOCK, 8, 0);
	assert_int_equal(status().cached, 4 + 4);
	/* Nobody reads them: it ends. */
	for (n = 0; window_moves(3 + n) > 2; n++)
		assert_true(n < 100);
	assert_in_range(n, 60, 70);
	/* ... and is tried again, now and then */
	for (k = 0; window_moves(3 + ++n) == 2; k++)
		assert_true(k < 40);
	assert_in_range(k, 20, 32);
	/* Those that are read bring others. */
	for (k = 0; k < 5; k++)
		assert_int_equal(read_moves(hits, (3 + k) * 4 + 3), 1);
	for (k = 0; window_moves(3 + ++n) == 3; k++)
		assert_true(k < 20);
	assert_int_equal(k, 15);
}

/* A block that was filled ahead is as good as one that was missed: for a run, and later. */
static void ahead_ends_at_the_volume(void **state)
{
	u32 last = info.data_sectors / BLOCK - 1;

	assert_int_equal(last % 4, 3);
	reads((last - 1) * BLOCK, 8, 0);
	reads(last * BLOCK, 8, 0);
	reads((last - 2) * BLOCK, BLOCK, 0);
	assert_int_equal(status().cached, 4);
	reads((last - 3) * BLOCK, BLOCK, 0);
	assert_int_equal(status().counter[HYBRID_READ_HITS], 1);
}

/* Who reads what is just being written gets it from the cache; but not once the write failed. */
static void reads_beside_a_write(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	first_dirty();
	reads(sector, BLOCK, 0);
	hybrid_actions_init(&acts);
	fill_data(&writer, sector, 8, 2);
	writer.done = false;
	hybrid_io_init(&writer.io, v, HYBRID_IO_WRITE, sector, 8, false);
	assert_int_equal(hybrid_engine_map(e, &writer.io, &acts), HYBRID_MAP_REMAP);
	assert_int_equal(read_io(sector, 16), 0);
	moved(16, 0, 0, 0);
	assert_false(hybrid_engine_io_done(e, &writer.io, -EIO, &acts));
	assert_int_equal(read_io(sector, 16), 0);
	moved(0, 0, 16, 0);
	carry(&acts);
	assert_true(writer.done);
	reads(sector, 8, 2);
}

/* Scattered writes to what is clean open regions for each other, and flush nothing. */
static void opens_ahead(void **state)
{
	u64 before;
	u32 n, k;

	for (n = 0; n < 110; n++)
		reads(n * 4 * BLOCK, 8, 0);
	rest();
	first_dirty();
	before = pool().journal_writes;
	for (n = 0; n < 110; n++) {
		put(n * 4 * BLOCK, 8, 2);
		for (k = 0; k < nr_log; k++)
			assert_false(op_log[k].preflush || op_log[k].flush);
	}
	assert_int_equal(status().counter[HYBRID_WRITE_MISSES], 0);
	assert_in_range(pool().journal_writes - before, 2, 9);
	/* What nobody wrote to is closed again. */
	rest();
	rest();
	assert_int_equal(pool().open_regions, 0);
}

/* Between the watermarks writeback waits until nobody else does anything. */
static void writeback_yields(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n = 0;

	small_pool(8 * MIB, HYBRID_MODE_WRITEBACK, &config);
	while (status().dirty * 100 < pool().blocks * 60) {
		put(n++ * 4 * BLOCK, 8, 1);
		tick(100);
	}
	for (n = 0; n < 40; n++) {
		put(0, 8, 2);
		tick(100);
		assert_int_equal(flush_io(), 0);
	}
	assert_int_equal(status().counter[HYBRID_WRITEBACKS], 0);
	for (n = 0; n < 4; n++)
		tick(100);
	assert_true(status().counter[HYBRID_WRITEBACKS]);
	for (; status().dirty * 100 > pool().blocks * 11; n++) {
		tick(100);
		assert_true(n < 100);
	}
}

/* ---- what fails ----------------------------------------------------------- */

static void cache_dies(void **state)
{
	first_dirty();
	reads(50 * BLOCK, BLOCK, 0);
	set_mode(HYBRID_MODE_WRITEBACK);
	fail_cache_writes = fail_cache_reads = true;
	/* clean: the origin's; dirty: lost, said so */
	reads(50 * BLOCK, BLOCK, 0);
	assert_int_equal(read_io(0, 8), -EIO);
	put(60 * BLOCK, BLOCK, 3);
	tick(1000);
	assert_int_equal(flush_io(), 0);
	reads(60 * BLOCK, BLOCK, 3);
	assert_true(origin_has(60 * BLOCK, BLOCK, 3));
	reads(50 * BLOCK, BLOCK, 0);
	assert_int_equal(read_io(0, 8), -EIO);
	assert_true(status().counter[HYBRID_CACHE_ERRORS] > 0);
}

/* Nothing can be recorded any more: the pool fails. */
static void kill_cache(void)
{
	fail_cache_writes = fail_cache_reads = true;
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_true(status().degraded);
}

/* Which of the volume's sectors are lost, by the list; the number of runs. */
static u32 list_lost(u64 *sector, u32 *count)
{
	u64 cursor = 0;
	u32 nr = 0;

	while (hybrid_volume_lost(e, v, &cursor, &sector[nr], &count[nr]))
		nr++;
	return nr;
}

/* The map that the origin's superblock names; NULL: it names none. */
static struct hybrid_lost_map *saved_map(u32 copy, struct hybrid_sb *sb)
{
	void *block = disk[1] + hybrid_sb_sector(ORIGIN_SECTORS, copy) * 512;
	struct hybrid_lost_map *map = (void *)(disk[1] + hybrid_lost_sector(ORIGIN_SECTORS, copy) * 512);
	const char *why;
	int blocks;

	assert_int_equal(hybrid_sb_decode(block, hybrid_sb_sector(ORIGIN_SECTORS, copy),
					  ORIGIN_SECTORS, sb, &why), 0);
	if (!sb->lost)
		return NULL;
	blocks = hybrid_lost_peek(map, sb, copy, &why);
	assert_true(blocks > 0);
	assert_int_equal(hybrid_lost_check(map, blocks, &why), 0);
	return map;
}

/* Both copies name a map of the first block alone. */
static void first_block_lost(void)
{
	struct hybrid_lost_map *map;
	struct hybrid_sb sb;
	u64 sector;
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		map = saved_map(copy, &sb);
		assert_non_null(map);
		assert_true(sb.flags & HYBRID_SB_DIRTY);
		sector = 0;
		assert_int_equal(hybrid_lost_next(map, &sector), BLOCK);
		assert_int_equal(sector, 0);
		sector = BLOCK;
		assert_int_equal(hybrid_lost_next(map, &sector), 0);
	}
}

/* P5: what is lost is listed, and saved before the origin goes on alone. */
static void lost_is_listed(void **state)
{
	struct hybrid_sb before, sb;
	u64 sector[8];
	u32 count[8], nr;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	assert_int_equal(list_lost(sector, count), 0);
	assert_null(saved_map(0, &before));
	kill_cache();
	assert_int_equal(status().lost, 1);
	nr = list_lost(sector, count);
	assert_int_equal(nr, 1);
	assert_int_equal(sector[0], 0);
	assert_in_range(count[0], 1, BLOCK);
	put(60 * BLOCK, BLOCK, 3);
	first_block_lost();
	saved_map(0, &sb);
	assert_int_not_equal(sb.nonce, before.nonce);
	/* Once in a life */
	put(61 * BLOCK, BLOCK, 3);
	saved_map(1, &before);
	assert_int_equal(sb.lost, before.lost);
}

/* Not written since: the list is saved when the volume is closed, and dropped with the cache back. */
static void lost_is_saved_on_close(void **state)
{
	struct hybrid_sb before, sb;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	saved_map(0, &before);
	kill_cache();
	assert_null(saved_map(0, &sb));
	assert_int_equal(hybrid_volume_close(e, v), -EIO);
	first_block_lost();
	saved_map(0, &sb);
	assert_true(sb.nonce == before.nonce);
	fail_cache_writes = fail_cache_reads = false;
	crash();
	start();
	open_volume();
	assert_null(saved_map(0, &sb));
	assert_null(saved_map(1, &sb));
	assert_true(sb.flags & HYBRID_SB_DIRTY);
	assert_int_equal(status().lost, 0);
	assert_true(status().dirty > 0);
}

/* A volume with nothing dirty says that nothing is lost. */
static void nothing_lost(void **state)
{
	struct hybrid_sb sb;
	u64 sector[1];
	u32 count[1];

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	set_mode(HYBRID_MODE_WRITETHROUGH);
	while (status().dirty)
		tick(1000);
	saved_map(0, &sb);
	assert_true(sb.flags & HYBRID_SB_DIRTY);
	kill_cache();
	put(60 * BLOCK, BLOCK, 3);
	assert_null(saved_map(0, &sb));
	assert_int_equal(sb.flags & HYBRID_SB_DIRTY, 0);
	assert_int_equal(status().lost, 0);
	assert_int_equal(list_lost(sector, count), 0);
}

/* All is written back: the origin has everything, and says that it goes alone. */
static void flush_loses_nothing(void **state)
{
	struct hybrid_actions acts;
	struct hybrid_sb sb, alone;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	rest();
	put(50 * BLOCK, BLOCK, 3);
	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, v, true, &acts);
	carry(&acts);
	while (status().dirty)
		tick(10);
	saved_map(0, &sb);
	fail_cache_writes = fail_cache_reads = true;
	assert_int_equal(flush_io(), 0);
	assert_true(hybrid_engine_failed(e));
	saved_map(0, &alone);
	assert_true(alone.nonce != sb.nonce);
	assert_int_equal(flush_io(), 0);
}

static void origin_errors_pass_through(void **state)
{
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	put(50 * BLOCK, BLOCK, 3);
	fail_origin = true;
	assert_int_equal(read_io(60 * BLOCK, 8), -EIO);
	assert_int_equal(write_io(60 * BLOCK, 8, 4, false), -EIO);
	assert_int_equal(write_io(50 * BLOCK, 8, 4, false), -EIO);
	reads(50 * BLOCK + 8, 8, 3);
	fail_origin = false;
	assert_true(status().counter[HYBRID_ORIGIN_ERRORS] >= 3);
	assert_int_equal(hybrid_engine_failed(e), false);
	put(60 * BLOCK, 8, 5);
	reads(60 * BLOCK, 8, 5);
}

static u32 allocs, fail_at;

static bool fail_nth(size_t size, gfp_t gfp)
{
	return allocs++ == fail_at;
}

/* Every allocation in turn fails: nothing leaks (the sanitizer looks), and the next try works. */
static void no_memory(void **state)
{
	const char *why;
	int error, r;
	u32 n;

	hybrid_geometry_init(&sb.geometry, 16 * MIB, 128, 0, NULL);
	for (n = 0; ; n++) {
		assert_true(n < 1000);
		shim_alloc_fails = fail_nth;
		allocs = 0;
		fail_at = n;
		error = 1;
		e = new_engine(&error);
		shim_alloc_fails = NULL;
		if (e)
			break;
		assert_int_equal(error, -ENOMEM);
		assert_int_equal(buffers, 0);
	}
	assert_int_equal(error, 0);
	assert_true(n > 20);
	assert_int_equal(allocs, n);
	crash();

	fresh_disks(BLOCK);
	for (n = 0, r = -1; r; n++) {
		assert_true(n < 1000);
		e = new_engine(&error);
		shim_alloc_fails = fail_nth;
		allocs = 0;
		fail_at = n;
		r = hybrid_engine_load(e, &why);
		shim_alloc_fails = NULL;
		if (!r)
			break;
		assert_int_equal(r, -ENOMEM);
		crash();
	}
	assert_true(n >= 2);

	for (n = 0, r = -1; r; n++) {
		shim_alloc_fails = fail_nth;
		allocs = 0;
		fail_at = n;
		r = hybrid_volume_create(e, 1, &info);
		if (r)
			assert_int_equal(r, -ENOMEM);
		shim_alloc_fails = NULL;
	}
	assert_true(n > 1);
	open_volume();
	reads(0, 8, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(fresh_pool, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(not_a_pool, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(last_root, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(ram, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(clean_goes_first, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(endurance, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(volumes, setup, teardown),
		cmocka_unit_test_setup_teardown(deleted_in_both_roots, setup, teardown),
		cmocka_unit_test_setup_teardown(written_without_its_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(superblocks_that_do_not_fit, setup, teardown),
		cmocka_unit_test_setup_teardown(modes, setup, teardown),
		cmocka_unit_test_setup_teardown(mode_switch_drains, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_is_one_journal_write, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_of_two_entries, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(zeroes_replace_recorded_data, setup, teardown),
		cmocka_unit_test_setup_teardown(rewrite_of_dirty_is_free, setup, teardown),
		cmocka_unit_test_setup_teardown(fua_write, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_of_writethrough, setup, teardown),
		cmocka_unit_test_setup_teardown(read_miss_fills_the_block, setup, teardown),
		cmocka_unit_test_setup_teardown(writes_of_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(drain_is_sorted, setup, teardown),
		cmocka_unit_test_setup_teardown(sequential_bypass, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(fills_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(ahead_ends_at_the_volume, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_beside_a_write, setup, teardown),
		cmocka_unit_test_setup_teardown(opens_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(writeback_yields, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(cache_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_is_listed, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_is_saved_on_close, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_loses_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(origin_errors_pass_through, setup, teardown),
		cmocka_unit_test_setup_teardown(no_memory, setup_disks, teardown),
	};

	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
