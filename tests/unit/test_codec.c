// SPDX-License-Identifier: GPL-2.0-or-later
#include "unit.h"
#include "samples.h"

static void encode_volumes(struct hybrid_volume_leaf *block, const struct hybrid_ident *id, u32 nr,
			   u16 generation, const struct hybrid_volume_info *info)
{
	const struct hybrid_volume_info *p[HYBRID_VOLUMES_PER_LEAF];
	unsigned int k;

	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF; k++)
		p[k] = &info[k];
	hybrid_volumes_encode(block, id, nr, generation, p);
}

/* The caller changed a field: sum the block up again. */
static void sb_reseal(struct hybrid_superblock *b)
{
	b->crc = cpu_to_le32(hybrid_crc(b, sizeof(*b), offsetof(struct hybrid_superblock, crc)));
}

static void reseal(void *block, size_t len)
{
	struct hybrid_block_header *h = block;

	h->crc = cpu_to_le32(hybrid_crc(h, len, offsetof(struct hybrid_block_header, crc)));
}

static void crc_is_crc32c(void **state)
{
	u8 data[64], patched[64];
	u32 skip, len;

	/* the check value of CRC-32C, of "123456789" whose first four bytes are zero */
	memset(data, 0, 4);
	memcpy(data + 4, "56789", 5);
	assert_int_equal(hybrid_crc("123456789", 9, 0), ~crc32c(~0, data, 9));
	assert_int_equal(~crc32c(~0, "123456789", 9), 0xe3069283);
	fill_bytes(data, sizeof(data), 1);
	for (len = 4; len <= sizeof(data); len++) {
		for (skip = 0; skip + 4 <= len; skip++) {
			memcpy(patched, data, len);
			memset(patched + skip, 0, 4);
			assert_int_equal(hybrid_crc(data, len, skip), ~crc32c(~0, patched, len));
		}
	}
}

/* Superblock -------------------------------------------------------------- */

static const u32 roles[] = { HYBRID_ROLE_CACHE, HYBRID_ROLE_ORIGIN, HYBRID_ROLE_DETACHED };

static void sb_round_trip(void **state)
{
	struct hybrid_superblock b;
	struct hybrid_sb in, out;
	const char *why = NULL;
	u32 i, copy;

	for (i = 0; i < ARRAY_SIZE(roles); i++) {
		sample_sb(&in, roles[i]);
		for (copy = 0; copy < 2; copy++) {
			u64 sector = hybrid_sb_sector(SAMPLE_SECTORS, copy);

			memset(&b, 0xa5, sizeof(b));
			memset(&out, 0x5a, sizeof(out));
			hybrid_sb_encode(&b, &in, sector);
			assert_int_equal(hybrid_sb_decode(&b, sector, SAMPLE_SECTORS, &out, &why), 0);
			assert_memory_equal(&in, &out, sizeof(in));
			/* a device that grew since */
			assert_int_equal(hybrid_sb_decode(&b, sector, ~0ULL, &out, &why), 0);
			assert_int_equal(hybrid_sb_decode(&b, sector, SAMPLE_SECTORS - 1, &out, &why),
					 -EINVAL);
			assert_string_equal(why, "member_sectors");
			assert_int_equal(hybrid_sb_decode(&b, sector + 8, SAMPLE_SECTORS, &out, &why),
					 -ESTALE);
			assert_string_equal(why, "sector");
			assert_int_equal(hybrid_sb_decode(&b, sector + 8, SAMPLE_SECTORS, &out, NULL),
					 -ESTALE);
		}
	}
}

static void sb_bit_flips(void **state)
{
	struct hybrid_superblock b;
	struct hybrid_sb in, out, before;
	const char *why;
	u32 i, bit;
	int r;

	for (i = 0; i < ARRAY_SIZE(roles); i++) {
		sample_sb(&in, roles[i]);
		hybrid_sb_encode(&b, &in, 1024);
		memset(&out, 0x5a, sizeof(out));
		before = out;
		for (bit = 0; bit < 8 * sizeof(b); bit++) {
			((u8 *)&b)[bit / 8] ^= 1 << bit % 8;
			r = hybrid_sb_decode(&b, 1024, SAMPLE_SECTORS, &out, &why);
			assert_int_equal(r, bit < 128 ? -ENODATA : -EBADMSG);
			assert_memory_equal(&out, &before, sizeof(out));
			((u8 *)&b)[bit / 8] ^= 1 << bit % 8;
		}
	}
}

#define SB_CASE(role, field, value, r, why) do {			\
	struct hybrid_superblock b_;					\
	struct hybrid_sb sb_, out_;					\
	const char *why_ = "nothing";					\
									\
	sample_sb(&sb_, role);						\
	hybrid_sb_encode(&b_, &sb_, 1024);				\
	b_.field = (value);						\
	sb_reseal(&b_);							\
	assert_int_equal(hybrid_sb_decode(&b_, 1024, SAMPLE_SECTORS, &out_, &why_), r); \
	if (r)								\
		assert_string_equal(why_, why);				\
} while (0)

static void sb_features(void **state)
{
	u32 bit;

	SB_CASE(HYBRID_ROLE_CACHE, version, cpu_to_le32(0), -EPROTONOSUPPORT, "version");
	SB_CASE(HYBRID_ROLE_CACHE, version, cpu_to_le32(6), -EPROTONOSUPPORT, "version");
	SB_CASE(HYBRID_ROLE_CACHE, version, cpu_to_le32(8), -EPROTONOSUPPORT, "version");
	for (bit = 0; bit < 64; bit++) {
		SB_CASE(HYBRID_ROLE_ORIGIN, incompat, cpu_to_le64(1ULL << bit),
			-EPROTONOSUPPORT, "incompat");
		SB_CASE(HYBRID_ROLE_ORIGIN, compat, cpu_to_le64(1ULL << bit), 0, "");
		SB_CASE(HYBRID_ROLE_ORIGIN, ro_compat, cpu_to_le64(1ULL << bit), 0, "");
	}
}

static void sb_fields(void **state)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(roles); i++) {
		SB_CASE(roles[i], sector, cpu_to_le64(0), -ESTALE, "sector");
		SB_CASE(roles[i], member_sectors, cpu_to_le64(0), -EINVAL, "member_sectors");
		SB_CASE(roles[i], member_sectors, cpu_to_le64(4096), -EINVAL, "member_sectors");
		SB_CASE(roles[i], member_sectors, cpu_to_le64(SAMPLE_SECTORS + 1), -EINVAL,
			"member_sectors");
		SB_CASE(roles[i], member_sectors, cpu_to_le64(~0ULL), -EINVAL, "member_sectors");
		SB_CASE(roles[i], role, cpu_to_le32(0), -EINVAL, "role");
		SB_CASE(roles[i], role, cpu_to_le32(4), -EINVAL, "role");
		SB_CASE(roles[i], role, cpu_to_le32(~0), -EINVAL, "role");
		SB_CASE(roles[i], flags, cpu_to_le32(16), -EINVAL, "flags");
		SB_CASE(roles[i], flags, cpu_to_le32(~0), -EINVAL, "flags");
		SB_CASE(roles[i], reserved[0], 1, 0, "");
		SB_CASE(roles[i], sequence, cpu_to_le64(1ULL << 62), 0, "");
		SB_CASE(roles[i], sequence, cpu_to_le64((1ULL << 62) + 1), -EINVAL, "sequence");
	}
	/* Each role has flags of its own. */
	SB_CASE(HYBRID_ROLE_CACHE, flags, cpu_to_le32(HYBRID_SB_DIRTY), -EINVAL, "flags");
	SB_CASE(HYBRID_ROLE_CACHE, flags, cpu_to_le32(HYBRID_SB_ALONE), -EINVAL, "flags");
	SB_CASE(HYBRID_ROLE_CACHE, flags, cpu_to_le32(HYBRID_SB_EPHEMERAL), 0, "");
	SB_CASE(HYBRID_ROLE_ORIGIN, flags, cpu_to_le32(HYBRID_SB_DIRTY), 0, "");
	SB_CASE(HYBRID_ROLE_ORIGIN, flags, cpu_to_le32(HYBRID_SB_ALONE), 0, "");
	SB_CASE(HYBRID_ROLE_ORIGIN, flags, cpu_to_le32(HYBRID_SB_LOSS_UNKNOWN), -EINVAL, "flags");
	SB_CASE(HYBRID_ROLE_DETACHED, flags, cpu_to_le32(HYBRID_SB_LOSS_UNKNOWN), 0, "");
	SB_CASE(HYBRID_ROLE_DETACHED, flags, cpu_to_le32(HYBRID_SB_DIRTY), -EINVAL, "flags");
	SB_CASE(HYBRID_ROLE_DETACHED, flags, cpu_to_le32(HYBRID_SB_ALONE), -EINVAL, "flags");
}

static void sb_cache_fields(void **state)
{
	const char *size = "block size is not a power of two from 4 KiB to 1 MiB";
	const char *journal = "journal size is not from 512 KiB to 4 GiB";
	struct hybrid_sb sb;

	sample_sb(&sb, HYBRID_ROLE_CACHE);
#define CASE32(field, value, why) \
	SB_CASE(HYBRID_ROLE_CACHE, cache.field, cpu_to_le32(value), -EINVAL, why)
#define CASE64(field, value) \
	SB_CASE(HYBRID_ROLE_CACHE, cache.field, cpu_to_le64(value), -EINVAL, #field)
#define CASES32(field) do {						\
	CASE32(field, 0, #field);					\
	CASE32(field, sb.geometry.field - 1, #field);			\
	CASE32(field, sb.geometry.field + 1, #field);			\
	CASE32(field, ~0, #field);					\
} while (0)
#define CASES64(field) do {						\
	CASE64(field, 0);						\
	CASE64(field, sb.geometry.field - 8);				\
	CASE64(field, sb.geometry.field + 8);				\
	CASE64(field, ~0ULL);						\
} while (0)
	CASE32(block_sectors, 0, size);
	CASE32(block_sectors, 127, size);
	CASE32(block_sectors, 4096, size);
	CASE32(block_sectors, 64, "nr_sets");
	CASES32(granule_sectors);
	CASES32(set_size);
	CASES32(nr_sets);
	CASE32(journal_blocks, 0, "journal_blocks");
	CASE32(journal_blocks, 127, journal);
	CASE32(journal_blocks, ~0, journal);
	CASE32(journal_blocks, 2048, "intent_sector");
	CASES32(nr_index);
	CASES32(nr_leaves);
	CASES32(intent_blocks);
	CASES64(root_sector);
	CASES64(index_sector);
	CASES64(leaf_sector);
	CASES64(journal_sector);
	CASES64(intent_sector);
	CASES64(data_sector);
	/* too small for the format is still a damaged field */
	SB_CASE(HYBRID_ROLE_CACHE, member_sectors, cpu_to_le64(5000), -EINVAL,
		"device is too small for the metadata and one block");
}

static void sb_origin_fields(void **state)
{
	static const u32 both[] = { HYBRID_ROLE_ORIGIN, HYBRID_ROLE_DETACHED };
	u32 i;

	for (i = 0; i < 2; i++) {
#define ORIGIN32(field, value) \
	SB_CASE(both[i], origin.field, cpu_to_le32(value), -EINVAL, #field)
#define ORIGIN64(field, value) \
	SB_CASE(both[i], origin.field, cpu_to_le64(value), -EINVAL, #field)
		ORIGIN32(volume_id, HYBRID_MAX_VOLUMES);
		ORIGIN32(volume_id, ~0);
		ORIGIN64(data_sector, 0);
		ORIGIN64(data_sector, 2047);
		ORIGIN64(data_sector, 2056);
		ORIGIN64(data_sector, ~0ULL);
		ORIGIN64(data_sector, ~2047ULL);
		ORIGIN64(data_sectors, 0);
		ORIGIN64(data_sectors, 2047);
		ORIGIN64(data_sectors, SAMPLE_SECTORS - 2048);
		ORIGIN64(data_sectors, ~2047ULL);
		SB_CASE(both[i], origin.data_sector, cpu_to_le64(4096), -EINVAL, "data_sectors");
		SB_CASE(both[i], origin.nonce, cpu_to_le64(0), 0, "");
		SB_CASE(both[i], origin.paired_nonce, cpu_to_le64(0), 0, "");
		SB_CASE(both[i], origin.mode, cpu_to_le64(0), 0, "");
		ORIGIN64(mode, HYBRID_NR_MODES + 1);
		ORIGIN64(mode, ~0ULL);
		SB_CASE(both[i], origin.cutoff_sectors, cpu_to_le64(~0ULL), 0, "");
		SB_CASE(both[i], origin.cache_path[0], '/', -EINVAL, "cache_path");
	}
}

static void set_name(u8 *to, const char *from, size_t size)
{
	memset(to, 0, size);
	memcpy(to, from, strlen(from));
}

static int decode_name(const char *name, bool policy)
{
	struct hybrid_superblock b;
	struct hybrid_sb sb, out;
	const char *why = NULL;
	int r;

	sample_sb(&sb, HYBRID_ROLE_CACHE);
	hybrid_sb_encode(&b, &sb, 1024);
	if (policy)
		set_name(b.cache.policy, name, sizeof(b.cache.policy));
	else
		set_name(b.name, name, sizeof(b.name));
	sb_reseal(&b);
	r = hybrid_sb_decode(&b, 1024, SAMPLE_SECTORS, &out, &why);
	if (r) {
		assert_int_equal(r, -EINVAL);
		assert_string_equal(why, policy ? "policy" : "name");
		return r;
	}
	assert_string_equal(policy ? out.policy : out.name, name);
	return 0;
}

static void names(void **state)
{
	const char *safe = "#+.:=@_-";
	char name[HYBRID_NAME_SIZE + 1];
	int c, policy;

	for (policy = 0; policy < 2; policy++) {
		size_t size = policy ? HYBRID_POLICY_NAME_SIZE : HYBRID_NAME_SIZE;

		for (c = 1; c < 256; c++) {
			bool ok = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
				  (c >= 'a' && c <= 'z') || strchr(safe, c);

			snprintf(name, sizeof(name), "a%c", c);
			assert_int_equal(decode_name(name, policy), ok ? 0 : -EINVAL);
		}
		assert_int_equal(decode_name("", policy), 0);
		assert_int_equal(decode_name(".", policy), -EINVAL);
		assert_int_equal(decode_name("..", policy), -EINVAL);
		assert_int_equal(decode_name("-x", policy), -EINVAL);
		memset(name, 'n', sizeof(name));
		name[size - 1] = '\0';
		assert_int_equal(decode_name(name, policy), 0);
		name[size - 1] = 'n';
		name[size] = '\0';
		assert_int_equal(decode_name(name, policy), -EINVAL);
	}
}

static int decode_path(const char *path)
{
	struct hybrid_superblock b;
	struct hybrid_sb sb, out;
	const char *why = NULL;
	int r;

	sample_sb(&sb, HYBRID_ROLE_ORIGIN);
	hybrid_sb_encode(&b, &sb, 1024);
	set_name(b.origin.cache_path, path, sizeof(b.origin.cache_path));
	sb_reseal(&b);
	r = hybrid_sb_decode(&b, 1024, SAMPLE_SECTORS, &out, &why);
	if (r)
		assert_string_equal(why, "cache_path");
	else
		assert_string_equal(out.cache_path, path);
	return r;
}

/* A path of a cache device is a name that udev makes, in one of two directories. */
static void cache_paths(void **state)
{
	static const char * const bad[] = {
		"sdb", "by-id", "by-id/", "by-path/", "by-uuid/1234", "/by-id/nvme-x",
		"by-id/../sdb", "by-id/.x", "by-id/-x", "by-id/a/b", "by-id/a b", "by-id/a\\x20b",
	};
	char path[HYBRID_PATH_SIZE + 1];
	u32 i;

	assert_int_equal(decode_path(""), 0);
	assert_int_equal(decode_path("by-id/nvme-Samsung_SSD_980_S64ENS0"), 0);
	assert_int_equal(decode_path("by-path/pci-0000:3d:00.0-nvme-1"), 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(decode_path(bad[i]), -EINVAL);
	memset(path, 'n', sizeof(path));
	memcpy(path, "by-id/", 6);
	path[HYBRID_PATH_SIZE - 1] = '\0';
	assert_int_equal(decode_path(path), 0);
	path[HYBRID_PATH_SIZE - 1] = 'n';
	path[HYBRID_PATH_SIZE] = '\0';
	assert_int_equal(decode_path(path), -EINVAL);
}

/* Bytes behind the end of a name neither count nor leak. */
static void bytes_after_name(void **state)
{
	struct hybrid_superblock b;
	struct hybrid_sb in, out;
	const char *why;

	sample_sb(&in, HYBRID_ROLE_ORIGIN);
	hybrid_sb_encode(&b, &in, 1024);
	memset(b.name + strlen(in.name) + 1, 0xff, 10);
	sb_reseal(&b);
	assert_int_equal(hybrid_sb_decode(&b, 1024, SAMPLE_SECTORS, &out, &why), 0);
	assert_memory_equal(&in, &out, sizeof(in));
}

/* Tree blocks -------------------------------------------------------------- */

struct pool {
	struct hybrid_geometry g;
	struct hybrid_ident id;
};

static void pool_init(struct pool *p)
{
	sample_geometry(&p->g);
	sample_ident(&p->id);
}

/* The four kinds of blocks of the tree through one interface. */
enum block_kind { ROOT, INDEX, VOLUMES, MAP, NR_KINDS };

static union {
	struct hybrid_root root;
	struct hybrid_index index;
	struct hybrid_volume_leaf volumes;
	struct hybrid_map_leaf map;
	struct hybrid_block_header header;
	u8 byte[HYBRID_META_BLOCK_SIZE];
} block;

static u16 index_generation[HYBRID_ROOT_INDEXES];
static u16 leaf_generation[HYBRID_INDEX_LEAVES];
static struct hybrid_root_info root_info;
static struct hybrid_volume_info volume_info[HYBRID_VOLUMES_PER_LEAF];

static const u32 kind_number[] = { 0, 1, 1, HYBRID_VOLUME_LEAVES + 2 };

static void encode(const struct pool *p, enum block_kind kind, u32 nr, u16 generation)
{
	u16 generations[HYBRID_INDEX_LEAVES];
	u32 i;

	memset(&block, 0xa5, sizeof(block));
	for (i = 0; i < HYBRID_INDEX_LEAVES; i++)
		generations[i] = i + 1;
	switch (kind) {
	case ROOT:
		sample_root(&root_info, generations, p->g.nr_index);
		root_info.sequence = generation;
		hybrid_root_encode(&block.root, &p->g, &p->id, &root_info, generations);
		break;
	case INDEX:
		hybrid_index_encode(&block.index, &p->g, &p->id, nr, generation, generations);
		break;
	case VOLUMES:
		sample_volumes(volume_info);
		encode_volumes(&block.volumes, &p->id, nr, generation, volume_info);
		break;
	default:
		sample_map(&block.map);
		memset(block.map.reserved, 0xa5, sizeof(block.map.reserved));
		hybrid_map_seal(&block.map, &p->id, nr, generation);
	}
}

static int decode(const struct pool *p, enum block_kind kind, u32 nr, u16 generation,
		  const char **why)
{
	switch (kind) {
	case ROOT:
		return hybrid_root_decode(&block.root, &p->g, &p->id, &root_info,
					  index_generation, why);
	case INDEX:
		return hybrid_index_decode(&block.index, &p->g, &p->id, nr, generation,
					   leaf_generation, why);
	case VOLUMES:
		return hybrid_volumes_decode(&block.volumes, &p->id, nr, generation,
					     volume_info, why);
	default:
		return hybrid_map_check(&block.map, &p->g, &p->id, nr, generation,
					HYBRID_MAP_LEAF_BLOCKS, why);
	}
}

#define refused(p, kind, nr, generation, r, name) do {			\
	const char *why_ = "nothing";					\
									\
	assert_int_equal(decode(p, kind, nr, generation, &why_), r);	\
	assert_string_equal(why_, name);				\
} while (0)

/* Change a field of the encoded block, and see it refused under its name. */
#define FIELD_CASE(kind, field, value, r, name) do {			\
	encode(&p, kind, kind_number[kind], 9);				\
	block.field = (value);						\
	reseal(&block, sizeof(block));					\
	refused(&p, kind, kind_number[kind], 9, r, name);		\
} while (0)

#define FIELD_OK(kind, field, value) do {				\
	encode(&p, kind, kind_number[kind], 9);				\
	block.field = (value);						\
	reseal(&block, sizeof(block));					\
	assert_int_equal(decode(&p, kind, kind_number[kind], 9, NULL), 0); \
} while (0)

static void every_bit_flip(void **state)
{
	struct pool p;
	const char *why;
	u32 bit;
	int kind, r;

	pool_init(&p);
	for (kind = 0; kind < NR_KINDS; kind++) {
		encode(&p, kind, kind_number[kind], 9);
		for (bit = 0; bit < 8 * sizeof(block); bit++) {
			block.byte[bit / 8] ^= 1 << bit % 8;
			r = decode(&p, kind, kind_number[kind], 9, &why);
			assert_int_equal(r, bit < 32 ? -ENODATA : -EBADMSG);
			block.byte[bit / 8] ^= 1 << bit % 8;
		}
		assert_int_equal(decode(&p, kind, kind_number[kind], 9, &why), 0);
	}
}

/* A good block, but of another kind, place, time or pool. */
static void wrong_block(void **state)
{
	struct pool p, other;
	int kind, as;

	pool_init(&p);
	pool_init(&other);
	other.id.pool_uuid[15] ^= 1;
	for (kind = 0; kind < NR_KINDS; kind++) {
		u32 nr = kind_number[kind];

		encode(&p, kind, nr, 9);
		refused(&other, kind, nr, 9, -ESTALE, "pool_uuid");
		for (as = 0; as < NR_KINDS; as++)
			if (as != kind)
				refused(&p, as, kind_number[as], 9, -ENODATA, "magic");
		if (kind != ROOT) {
			refused(&p, kind, nr, 8, -ESTALE, "generation");
			refused(&p, kind, nr, 7, -ESTALE, "generation");
			refused(&p, kind, kind == INDEX ? 0 : nr + 1, 9, -ESTALE, "number");
		}
		FIELD_CASE(kind, header.generation, 0, -EINVAL, "generation");
		FIELD_CASE(kind, header.number, cpu_to_le64(nr + (1ULL << 32)), -ESTALE, "number");
		FIELD_OK(kind, header.epoch, cpu_to_le64(1));
		FIELD_OK(kind, header.intent_tail, cpu_to_le64(1));
		if (kind != ROOT)
			FIELD_CASE(kind, header.generation, cpu_to_le64(9 + 65536), -ESTALE,
				   "generation");
	}
	encode(&p, MAP, HYBRID_VOLUME_LEAVES, 9);
	assert_int_equal(decode(&p, MAP, HYBRID_VOLUME_LEAVES, 9, NULL), 0);
	encode(&p, MAP, p.g.nr_leaves - 1, 9);
	assert_int_equal(decode(&p, MAP, p.g.nr_leaves - 1, 9, NULL), 0);
	encode(&p, INDEX, 0, 9);
	refused(&p, INDEX, p.g.nr_index, 9, -EINVAL, "number");
	refused(&p, INDEX, ~0, 9, -EINVAL, "number");
	refused(&p, VOLUMES, HYBRID_VOLUME_LEAVES, 9, -EINVAL, "number");
	refused(&p, MAP, HYBRID_VOLUME_LEAVES - 1, 9, -EINVAL, "number");
	refused(&p, MAP, p.g.nr_leaves, 9, -EINVAL, "number");
}

static void root_round_trip(void **state)
{
	u16 generations[HYBRID_ROOT_INDEXES];
	struct hybrid_root_info in, out = { 0 };
	struct pool p;

	pool_init(&p);
	assert_true(p.g.nr_index > 1);
	sample_root(&in, generations, p.g.nr_index);
	in.epoch = 77;	/* the root's own, not the ident's */
	hybrid_root_encode(&block.root, &p.g, &p.id, &in, generations);
	memset(index_generation, 0xff, sizeof(index_generation));
	assert_int_equal(hybrid_root_decode(&block.root, &p.g, &p.id, &out,
					    index_generation, NULL), 0);
	assert_int_equal(out.sequence, in.sequence);
	assert_int_equal(out.epoch, 77);
	assert_int_equal(out.journal_tail, in.journal_tail);
	assert_int_equal(out.journal_head, in.journal_head);
	assert_int_equal(out.flags, in.flags);
	assert_int_equal(out.next_instance, in.next_instance);
	assert_int_equal(out.written_sectors, in.written_sectors);
	assert_int_equal(out.read_errors, in.read_errors);
	assert_int_equal(out.write_errors, in.write_errors);
	assert_int_equal(out.halved_ms, in.halved_ms);
	assert_memory_equal(generations, index_generation, p.g.nr_index * sizeof(u16));
	assert_int_equal(index_generation[p.g.nr_index], U16_MAX);
}

static void root_fields(void **state)
{
	struct pool p;

	pool_init(&p);
	FIELD_CASE(ROOT, root.journal_tail, cpu_to_le64(5101), -EINVAL, "journal_tail");
	FIELD_CASE(ROOT, root.journal_tail, cpu_to_le64(5100 - 1025), -EINVAL, "journal_tail");
	FIELD_CASE(ROOT, root.journal_tail, cpu_to_le64(~0ULL), -EINVAL, "journal_tail");
	FIELD_OK(ROOT, root.journal_tail, cpu_to_le64(5100 - 1024));
	FIELD_CASE(ROOT, root.journal_head, cpu_to_le64(~0ULL), -EINVAL, "journal_tail");
	FIELD_CASE(ROOT, root.flags, cpu_to_le32(2), -EINVAL, "flags");
	FIELD_CASE(ROOT, root.flags, cpu_to_le32(~0), -EINVAL, "flags");
	FIELD_CASE(ROOT, root.flags, cpu_to_le32(HYBRID_ROOT_CLEAN), -EINVAL, "flags");
	FIELD_CASE(ROOT, root.next_instance, 0, -EINVAL, "next_instance");
	FIELD_CASE(ROOT, root.halved_ms, cpu_to_le32(HYBRID_DAY_MS), -EINVAL, "halved_ms");
	FIELD_CASE(ROOT, root.halved_ms, cpu_to_le32(~0), -EINVAL, "halved_ms");
	FIELD_OK(ROOT, root.halved_ms, cpu_to_le32(HYBRID_DAY_MS - 1));
	FIELD_OK(ROOT, root.reserved[0], cpu_to_le32(1));
	FIELD_OK(ROOT, root.index_generation[HYBRID_ROOT_INDEXES - 1], cpu_to_le16(1));

	encode(&p, ROOT, 0, 9);
	block.root.flags = cpu_to_le32(HYBRID_ROOT_CLEAN);
	block.root.journal_tail = block.root.journal_head;
	reseal(&block, sizeof(block));
	assert_int_equal(decode(&p, ROOT, 0, 9, NULL), 0);
	block.root.header.generation = cpu_to_le64((1ULL << 62) + 1);
	reseal(&block, sizeof(block));
	refused(&p, ROOT, 0, 9, -EINVAL, "generation");
	block.root.header.generation = cpu_to_le64(9);
	block.root.journal_tail = cpu_to_le64((1ULL << 62) + 1);
	block.root.journal_head = cpu_to_le64((1ULL << 62) + 1);
	reseal(&block, sizeof(block));
	refused(&p, ROOT, 0, 9, -EINVAL, "journal_head");
}

/* The last index block names only the remaining leaves. */
static void index_round_trip(void **state)
{
	struct pool p;
	u32 nr, i;

	pool_init(&p);
	for (nr = 0; nr < p.g.nr_index; nr++) {
		u32 n = min_t(u32, HYBRID_INDEX_LEAVES, p.g.nr_leaves - nr * HYBRID_INDEX_LEAVES);

		encode(&p, INDEX, nr, 9);
		memset(leaf_generation, 0xff, sizeof(leaf_generation));
		assert_int_equal(decode(&p, INDEX, nr, 9, NULL), 0);
		for (i = 0; i < n; i++)
			assert_int_equal(leaf_generation[i], i + 1);
		for (; i < HYBRID_INDEX_LEAVES; i++)
			assert_int_equal(leaf_generation[i], U16_MAX);
	}
}

/* Volume table ------------------------------------------------------------ */

static void volumes_round_trip(void **state)
{
	struct hybrid_volume_info in[HYBRID_VOLUMES_PER_LEAF];
	struct pool p;

	pool_init(&p);
	sample_volumes(in);
	encode(&p, VOLUMES, 1, 9);
	memset(volume_info, 0xff, sizeof(volume_info));
	assert_int_equal(decode(&p, VOLUMES, 1, 9, NULL), 0);
	assert_memory_equal(in, volume_info, sizeof(in));
	/* a free entry is all zero, even if the caller left values in it */
	in[1].instance = 5;
	encode_volumes(&block.volumes, &p.id, 1, 9, in);
	assert_int_equal(block.volumes.entry[1].instance, 0);
	block.volumes.entry[1].instance = cpu_to_le32(5);
	reseal(&block, sizeof(block));
	assert_int_equal(decode(&p, VOLUMES, 1, 9, NULL), 0);
	assert_int_equal(volume_info[1].instance, 0);
}

static void volume_fields(void **state)
{
	struct pool p;

	pool_init(&p);
#define VOLUME_CASE(i, field, value, name) \
	FIELD_CASE(VOLUMES, volumes.entry[i].field, value, -EINVAL, name)
	VOLUME_CASE(0, state, cpu_to_le32(3), "state");
	VOLUME_CASE(1, state, cpu_to_le32(~0), "state");
	VOLUME_CASE(1, state, cpu_to_le32(1), "instance");
	VOLUME_CASE(2, instance, 0, "instance");
	VOLUME_CASE(0, mode, cpu_to_le32(HYBRID_NR_MODES), "mode");
	VOLUME_CASE(0, mode, cpu_to_le32(~0), "mode");
	VOLUME_CASE(0, flags, cpu_to_le32(4), "flags");
	FIELD_OK(VOLUMES, volumes.entry[0].flags, 0);
	FIELD_OK(VOLUMES, volumes.entry[0].flags, cpu_to_le32(HYBRID_VOLUME_INPLACE));
	FIELD_OK(VOLUMES, volumes.entry[14].data_sector, cpu_to_le64(16));
	VOLUME_CASE(14, data_sector, cpu_to_le64(4), "data_sector");
	VOLUME_CASE(14, data_sector, cpu_to_le64((1ULL << 54) + 8), "data_sector");
	VOLUME_CASE(14, data_sector, cpu_to_le64(1ULL << 54), "data_sectors");
	VOLUME_CASE(14, flags, 0, "data_sector");
	VOLUME_CASE(0, data_sector, 0, "data_sector");
	VOLUME_CASE(0, data_sector, cpu_to_le64(2056), "data_sector");
	VOLUME_CASE(0, data_sector, cpu_to_le64(~2047ULL), "data_sector");
	VOLUME_CASE(0, data_sectors, 0, "data_sectors");
	VOLUME_CASE(0, data_sectors, cpu_to_le64(1), "data_sectors");
	VOLUME_CASE(0, data_sectors, cpu_to_le64((1ULL << 54) - 2048), "data_sectors");
	VOLUME_CASE(0, data_sectors, cpu_to_le64(~2047ULL), "data_sectors");
	VOLUME_CASE(14, data_sectors, 0, "data_sectors");
	VOLUME_CASE(14, data_sectors, cpu_to_le64((1ULL << 54) + 1), "data_sectors");
	/* A volume only grows, to a size that it could have. */
	FIELD_OK(VOLUMES, volumes.entry[0].data_sectors_new, 0);
	VOLUME_CASE(0, data_sectors_new, cpu_to_le64(1 << 30), "data_sectors_new");
	VOLUME_CASE(0, data_sectors_new, cpu_to_le64(2048), "data_sectors_new");
	VOLUME_CASE(0, data_sectors_new, cpu_to_le64((1U << 31) + 8), "data_sectors_new");
	VOLUME_CASE(0, data_sectors_new, cpu_to_le64(~2047ULL), "data_sectors_new");
	FIELD_OK(VOLUMES, volumes.entry[14].data_sectors_new, cpu_to_le64(12345678));
	VOLUME_CASE(14, data_sectors_new, cpu_to_le64((1ULL << 54) + 1), "data_sectors_new");
	VOLUME_CASE(0, name[0], '/', "name");
	VOLUME_CASE(0, name[1], '\n', "name");
	FIELD_OK(VOLUMES, volumes.entry[0].reserved[0], 1);
	FIELD_OK(VOLUMES, volumes.reserved[0], 1);
	FIELD_OK(VOLUMES, volumes.entry[0].nonce, 0);
}

/* The last leaf has room for more volumes than there may be. */
static void volume_beyond_limit(void **state)
{
	u32 last = HYBRID_VOLUME_LEAVES - 1, i;
	struct hybrid_volume_info in[HYBRID_VOLUMES_PER_LEAF];
	const char *why;
	struct pool p;

	pool_init(&p);
	for (i = 0; i < HYBRID_VOLUMES_PER_LEAF; i++) {
		bool ok = last * HYBRID_VOLUMES_PER_LEAF + i < HYBRID_MAX_VOLUMES;

		memset(in, 0, sizeof(in));
		sample_volume(&in[i]);
		encode_volumes(&block.volumes, &p.id, last, 9, in);
		assert_int_equal(decode(&p, VOLUMES, last, 9, &why), ok ? 0 : -EINVAL);
	}
}

/* Map ---------------------------------------------------------------------- */

static void map_fields(void **state)
{
	struct pool p;
	u32 i;

	pool_init(&p);
#define MAP_CASE(field, value, name) FIELD_CASE(MAP, map.field, value, -EINVAL, name)
	for (i = 0; i < HYBRID_MAP_LEAF_BLOCKS; i += 3) {
		MAP_CASE(valid[i], cpu_to_le64(0x1ff00), "valid");
		MAP_CASE(valid[i], cpu_to_le64(0x7f00), "dirty");
		MAP_CASE(dirty[i], cpu_to_le64(~0ULL), "dirty");
		MAP_CASE(oblock[i], cpu_to_le64(1ULL << 47), "oblock");
		MAP_CASE(oblock[i], cpu_to_le64(~0ULL), "oblock");
		FIELD_OK(MAP, map.oblock[i], cpu_to_le64((1ULL << 47) - 1));
		MAP_CASE(instance[i], 0, "valid");
		FIELD_OK(MAP, map.hint[i], 255);
	}
	MAP_CASE(valid[1], cpu_to_le64(1), "valid");
	MAP_CASE(dirty[1], cpu_to_le64(1), "dirty");
	FIELD_OK(MAP, map.oblock[1], cpu_to_le64(~0ULL));
	FIELD_OK(MAP, map.reserved16[0], 1);
	FIELD_OK(MAP, map.reserved[0], 1);
}

static int check_count(const struct pool *p, u32 count, const char **why)
{
	return hybrid_map_check(&block.map, &p->g, &p->id, kind_number[MAP], 9, count, why);
}

/* Leaves of a set of fewer than 512 blocks are used in part, or not at all. */
static void map_count(void **state)
{
	const char *why;
	struct pool p;
	u32 count, i;

	pool_init(&p);
	for (count = 0; count <= HYBRID_MAP_LEAF_BLOCKS; count++) {
		u32 regions = (count + 7) / 8;

		memset(&block, 0, sizeof(block));
		for (i = 0; i < count; i++)
			block.map.instance[i] = cpu_to_le32(1);
		block.map.open_regions = cpu_to_le16((1U << regions) - 1);
		hybrid_map_seal(&block.map, &p.id, kind_number[MAP], 9);
		assert_int_equal(check_count(&p, count, &why), 0);
		if (!count)
			continue;
		assert_int_equal(check_count(&p, count - 1, &why), -EINVAL);
		if (regions == 16)
			continue;
		block.map.open_regions = cpu_to_le16(1U << regions);
		hybrid_map_seal(&block.map, &p.id, kind_number[MAP], 9);
		assert_int_equal(check_count(&p, count, &why), -EINVAL);
		assert_string_equal(why, "open_regions");
	}
	assert_int_equal(check_count(&p, HYBRID_MAP_LEAF_BLOCKS + 1, &why), -EINVAL);
	assert_string_equal(why, "count");
}

static void masks_of_64_granules(void **state)
{
	struct pool p;

	pool_init(&p);
	assert_int_equal(hybrid_geometry_init(&p.g, SAMPLE_SECTORS, 1024, 1024, NULL), 0);
	assert_int_equal(p.g.granules, 64);
	memset(&block, 0, sizeof(block));
	block.map.instance[0] = cpu_to_le32(1);
	block.map.valid[0] = cpu_to_le64(~0ULL);
	block.map.dirty[0] = cpu_to_le64(~0ULL);
	hybrid_map_seal(&block.map, &p.id, kind_number[MAP], 9);
	assert_int_equal(decode(&p, MAP, kind_number[MAP], 9, NULL), 0);
}

/* Hostile input: with any contents, decoders stay within their memory. */
static void random_blocks(void **state)
{
	static const u32 magic[] = { HYBRID_ROOT_MAGIC, HYBRID_INDEX_MAGIC,
				     HYBRID_VOLUMES_MAGIC, HYBRID_MAP_MAGIC };
	struct hybrid_superblock sb;
	struct hybrid_sb out;
	const char *why;
	u64 seed = 3, word;
	struct pool p;
	int kind, i, n;

	pool_init(&p);
	for (n = 0; n < 2000; n++) {
		for (i = 0; i < sizeof(block); i += 8) {
			word = next_random(&seed) & next_random(&seed);
			memcpy(block.byte + i, &word, 8);
			memcpy((u8 *)&sb + i, &word, 8);
		}
		for (kind = 0; kind < NR_KINDS; kind++) {
			block.header.magic = cpu_to_le32(magic[kind]);
			block.header.number = cpu_to_le64(kind_number[kind]);
			block.header.generation = cpu_to_le64(9);
			memcpy(block.header.pool_uuid, p.id.pool_uuid, 16);
			reseal(&block, sizeof(block));
			assert_true(decode(&p, kind, kind_number[kind], 9, &why) <= 0);
		}
		memcpy(sb.magic, HYBRID_SB_MAGIC, 16);
		sb.version = cpu_to_le32(HYBRID_FORMAT_VERSION);
		sb.incompat = 0;
		sb.sector = cpu_to_le64(1024);
		sb.member_sectors = cpu_to_le64(next_random(&seed) % (1ULL << 42));
		sb.role = cpu_to_le32(1 + n % 3);
		sb.flags = 0;
		sb.name[0] = '\0';
		sb.cache.block_sectors = cpu_to_le32(8 << n % 9);
		sb_reseal(&sb);
		assert_int_equal(hybrid_sb_decode(&sb, 1024, ~0ULL, &out, &why), -EINVAL);
	}
}

/* Lost map ---------------------------------------------------------------- */

static union {
	struct hybrid_lost_map map;
	u8 byte[SAMPLE_LOST_BLOCKS * HYBRID_META_BLOCK_SIZE];
} lost;

static void lost_make(struct hybrid_sb *sb)
{
	sample_sb(sb, HYBRID_ROLE_ORIGIN);
	sample_lost(&lost.map);
	assert_int_equal(hybrid_lost_seal(&lost.map, sb, SAMPLE_LOST_SHIFT, 1), 23);
}

static int lost_read(const struct hybrid_sb *sb, unsigned int copy, const char **why)
{
	int blocks = hybrid_lost_peek(&lost.map, sb, copy, why);

	return blocks < 0 ? blocks : hybrid_lost_check(&lost.map, blocks, why);
}

static void lost_round_trip(void **state)
{
	struct hybrid_sb sb;
	const char *why;
	u64 sector = 0, last;

	lost_make(&sb);
	last = sb.data_sectors - 128;
	assert_int_equal(hybrid_lost_peek(&lost.map, &sb, 1, &why), SAMPLE_LOST_BLOCKS);
	assert_int_equal(lost_read(&sb, 1, &why), 0);
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 128);
	assert_int_equal(sector, 0);
	sector = 128;
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 20 * 128);
	assert_int_equal(sector, 10 * 128);
	sector += 5;
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 20 * 128 - 5);
	assert_int_equal(sector, 10 * 128 + 5);
	sector = 30 * 128;
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 128);
	assert_int_equal(sector, 4000 * 128);
	sector += 128;
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 128);
	assert_int_equal(sector, last);
	sector += 128;
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 0);
	sector = ~0ULL;
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 0);
}

/* The last chunk of a volume need not be whole. */
static void lost_of_odd_size(void **state)
{
	u64 sector = 0, size = 300ULL << 11;
	struct hybrid_sb sb;
	const char *why;
	u32 shift;

	for (shift = 3; shift < 60; shift++) {
		sample_sb(&sb, HYBRID_ROLE_ORIGIN);
		sb.data_sectors = size;
		if (hybrid_lost_blocks(size, shift) > SAMPLE_LOST_BLOCKS)
			continue;
		memset(&lost, 0, sizeof(lost));
		memset(lost.map.bitmap, 0xff, ((size - 1) >> shift) / 8);
		lost.map.bitmap[((size - 1) >> shift) / 8] = 0xff >> (7 - ((size - 1) >> shift) % 8);
		assert_int_equal(hybrid_lost_seal(&lost.map, &sb, shift, 0),
				 ((size - 1) >> shift) + 1);
		assert_int_equal(lost_read(&sb, 0, &why), 0);
		sector = 0;
		assert_int_equal(hybrid_lost_next(&lost.map, &sector), size);
		assert_int_equal(sector, 0);
	}
}

static void lost_nothing(void **state)
{
	struct hybrid_sb sb;
	const char *why;
	u64 sector = 0;

	lost_make(&sb);
	memset(&lost, 0, sizeof(lost));
	assert_int_equal(hybrid_lost_seal(&lost.map, &sb, SAMPLE_LOST_SHIFT, 0), 0);
	assert_int_equal(lost_read(&sb, 0, &why), 0);
	assert_int_equal(hybrid_lost_next(&lost.map, &sector), 0);
	/* No superblock names it. */
	sb.lost = 0;
	assert_int_equal(lost_read(&sb, 0, &why), -ENODATA);
	assert_string_equal(why, "lost");
	memset(&lost, 0, sizeof(lost));
	assert_int_equal(lost_read(&sb, 0, &why), -ENODATA);
}

static void lost_bit_flips(void **state)
{
	struct hybrid_sb sb;
	const char *why;
	u32 bit;

	lost_make(&sb);
	for (bit = 0; bit < 8 * sizeof(lost); bit += bit < 4096 ? 1 : 997) {
		lost.byte[bit / 8] ^= 1 << bit % 8;
		assert_true(lost_read(&sb, 1, &why) < 0);
		lost.byte[bit / 8] ^= 1 << bit % 8;
	}
	assert_int_equal(lost_read(&sb, 1, &why), 0);
}

/* One that belongs to something else. */
static void lost_of_another(void **state)
{
	struct hybrid_sb sb, other;
	const char *why;

#define LOST_OTHER(change, r, field) do {			\
	other = sb;						\
	change;							\
	assert_int_equal(lost_read(&other, 1, &why), r);	\
	assert_string_equal(why, field);			\
} while (0)
	lost_make(&sb);
	LOST_OTHER(other.lost++, -ESTALE, "generation");
	LOST_OTHER(other.pool_uuid[0]++, -ESTALE, "pool_uuid");
	LOST_OTHER(other.volume_uuid[15]++, -ESTALE, "volume_uuid");
	LOST_OTHER(other.member_uuid[0]++, -ESTALE, "member_uuid");
	LOST_OTHER(other.instance++, -ESTALE, "instance");
	LOST_OTHER(other.data_sectors += 2048, -EINVAL, "data_sectors");
	/* An origin that has no pool any more keeps its map */
	other = sb;
	other.role = HYBRID_ROLE_DETACHED;
	memset(other.pool_uuid, 0, sizeof(other.pool_uuid));
	assert_int_equal(lost_read(&other, 1, &why), 0);
	assert_int_equal(lost_read(&sb, 0, &why), -ESTALE);
	assert_string_equal(why, "number");
}

/* Made by an attacker: the checksum is right. */
static void lost_hostile(void **state)
{
	static const u32 shifts[] = { 0, 2, 5, 6, 8, 40, 63, 64, 65, 128, ~0 };
	struct hybrid_sb sb;
	const char *why;
	u64 seed = 1, sector;
	u32 i;

#define LOST_CASE(field, value, want) do {					\
	lost_make(&sb);								\
	lost.map.field = (value);						\
	reseal(&lost, sizeof(lost));						\
	assert_int_equal(lost_read(&sb, 1, &why), -EINVAL);			\
	assert_string_equal(why, want);						\
} while (0)
	LOST_CASE(header.blocks, 0, "blocks");
	LOST_CASE(header.blocks, cpu_to_le32(SAMPLE_LOST_BLOCKS + 1), "blocks");
	LOST_CASE(header.blocks, cpu_to_le32(~0), "blocks");
	LOST_CASE(header.count, cpu_to_le32(22), "count");
	for (i = 0; i < ARRAY_SIZE(shifts); i++) {
		lost_make(&sb);
		lost.map.chunk_shift = cpu_to_le32(shifts[i]);
		reseal(&lost, sizeof(lost));
		assert_int_equal(lost_read(&sb, 1, &why), -EINVAL);
	}
	/* Chunks behind the volume's end */
	lost_make(&sb);
	lost.byte[sizeof(lost) - 1] |= 0x80;
	lost.map.header.count = cpu_to_le32(24);
	reseal(&lost, sizeof(lost));
	assert_int_equal(lost_read(&sb, 1, &why), -EINVAL);
	assert_string_equal(why, "bitmap");
	/* Any bitmap ends. */
	lost_make(&sb);
	for (i = 0; i < ((sb.data_sectors >> SAMPLE_LOST_SHIFT) / 8); i++)
		lost.map.bitmap[i] = next_random(&seed);
	hybrid_lost_seal(&lost.map, &sb, SAMPLE_LOST_SHIFT, 1);
	assert_int_equal(lost_read(&sb, 1, &why), 0);
	for (i = 0, sector = 0; hybrid_lost_next(&lost.map, &sector); i++)
		sector += hybrid_lost_next(&lost.map, &sector);
	assert_in_range(i, 1000, sb.data_sectors >> SAMPLE_LOST_SHIFT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_is_crc32c),
		cmocka_unit_test(sb_round_trip),
		cmocka_unit_test(sb_bit_flips),
		cmocka_unit_test(sb_features),
		cmocka_unit_test(sb_fields),
		cmocka_unit_test(sb_cache_fields),
		cmocka_unit_test(sb_origin_fields),
		cmocka_unit_test(names),
		cmocka_unit_test(lost_round_trip),
		cmocka_unit_test(lost_of_odd_size),
		cmocka_unit_test(lost_nothing),
		cmocka_unit_test(lost_bit_flips),
		cmocka_unit_test(lost_of_another),
		cmocka_unit_test(lost_hostile),
		cmocka_unit_test(cache_paths),
		cmocka_unit_test(bytes_after_name),
		cmocka_unit_test(every_bit_flip),
		cmocka_unit_test(wrong_block),
		cmocka_unit_test(root_round_trip),
		cmocka_unit_test(root_fields),
		cmocka_unit_test(index_round_trip),
		cmocka_unit_test(volumes_round_trip),
		cmocka_unit_test(volume_fields),
		cmocka_unit_test(volume_beyond_limit),
		cmocka_unit_test(map_fields),
		cmocka_unit_test(map_count),
		cmocka_unit_test(masks_of_64_granules),
		cmocka_unit_test(random_blocks),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
