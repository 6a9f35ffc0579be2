// SPDX-License-Identifier: GPL-2.0-only
#include "codec.h"
#include "format-check.h"

/* Limits of sectors, and of numbers that only grow: arithmetic within them is safe. */
#define MAX_SECTORS		BIT_ULL(54)
#define MAX_NUMBER		BIT_ULL(62)

static int refuse(const char **why, const char *field, int r)
{
	if (why)
		*why = field;
	return r;
}

static int bad(const char **why, const char *field)
{
	return refuse(why, field, -EINVAL);
}

u32 hybrid_crc(const void *data, size_t len, size_t skip)
{
	static const u8 zero[sizeof(__le32)];
	const size_t after = skip + sizeof(zero);
	u32 crc = ~0;

	crc = crc32c(crc, data, skip);
	crc = crc32c(crc, zero, sizeof(zero));
	crc = crc32c(crc, data + after, len - after);
	return ~crc;
}

/* Names ------------------------------------------------------------------- */

static bool name_char(u8 c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
	       (c >= 'a' && c <= 'z') || (c && strchr("#+.:=@_-", c));
}

/*
 * Names become file names and arguments.  So no name may be hidden, mean a directory
 * or look like an option.  An empty name is allowed.
 */
static bool name_ok(const u8 *name, size_t size)
{
	size_t i;

	if (name[0] == '.' || name[0] == '-')
		return false;
	for (i = 0; i < size && name[i]; i++)
		if (!name_char(name[i]))
			return false;
	return i < size;
}

/*
 * The path of a cache device below /dev/disk, as udev makes it: by-id/... or by-path/...,
 * of characters that need no quoting in a shell.  An empty path is allowed.
 */
static bool path_ok(const u8 *path, size_t size)
{
	const char *name = (const char *)path;
	size_t prefix;

	if (!path[0])
		return true;
	if (!strncmp(name, "by-id/", 6))
		prefix = 6;
	else if (!strncmp(name, "by-path/", 8))
		prefix = 8;
	else
		return false;
	return path[prefix] && name_ok(path + prefix, size - prefix);
}

static void name_encode(u8 *to, const char *from, size_t size)
{
	size_t len = strnlen(from, size - 1);

	memset(to, 0, size);
	memcpy(to, from, len);
}

/* Ignores bytes behind the NUL on the disk. */
static void name_decode(char *to, const u8 *from, size_t size)
{
	name_encode((u8 *)to, (const char *)from, size);
}

/* Superblock -------------------------------------------------------------- */

static void sb_cache_encode(struct hybrid_sb_cache *c, const struct hybrid_sb *sb)
{
	const struct hybrid_geometry *g = &sb->geometry;

	c->block_sectors = cpu_to_le32(g->block_sectors);
	c->granule_sectors = cpu_to_le32(g->granule_sectors);
	c->set_size = cpu_to_le32(g->set_size);
	c->nr_sets = cpu_to_le32(g->nr_sets);
	c->journal_blocks = cpu_to_le32(g->journal_blocks);
	c->nr_index = cpu_to_le32(g->nr_index);
	c->nr_leaves = cpu_to_le32(g->nr_leaves);
	c->intent_blocks = cpu_to_le32(g->intent_blocks);
	c->root_sector = cpu_to_le64(g->root_sector);
	c->index_sector = cpu_to_le64(g->index_sector);
	c->leaf_sector = cpu_to_le64(g->leaf_sector);
	c->journal_sector = cpu_to_le64(g->journal_sector);
	c->intent_sector = cpu_to_le64(g->intent_sector);
	c->data_sector = cpu_to_le64(g->data_sector);
	name_encode(c->policy, sb->policy, sizeof(c->policy));
	c->high_watermark = cpu_to_le64(sb->settings.high_watermark);
	c->low_watermark = cpu_to_le64(sb->settings.low_watermark);
	c->writeback_rate = cpu_to_le64(sb->settings.writeback_rate);
	c->commit_interval = cpu_to_le64(sb->settings.commit_interval);
	c->endurance = cpu_to_le64(sb->settings.endurance);
	c->metadata_share = cpu_to_le64(sb->settings.metadata_share);
	c->trim_rate = cpu_to_le64(sb->settings.trim_rate);
	c->read_error_limit = cpu_to_le64(sb->settings.read_error_limit);
	c->write_error_limit = cpu_to_le64(sb->settings.write_error_limit);
	memcpy(c->replaces, sb->replaces, sizeof(c->replaces));
}

static void sb_origin_encode(struct hybrid_sb_origin *o, const struct hybrid_sb *sb)
{
	o->volume_id = cpu_to_le32(sb->volume_id);
	o->instance = cpu_to_le32(sb->instance);
	o->data_sector = cpu_to_le64(sb->data_sector);
	o->data_sectors = cpu_to_le64(sb->data_sectors);
	o->nonce = cpu_to_le64(sb->nonce);
	memcpy(o->volume_uuid, sb->volume_uuid, sizeof(o->volume_uuid));
	memcpy(o->pairing_key, sb->pairing_key, sizeof(o->pairing_key));
	o->lost = cpu_to_le64(sb->lost);
	o->paired_nonce = cpu_to_le64(sb->paired_nonce);
	o->mode = cpu_to_le64(sb->next.mode);
	o->cutoff_sectors = cpu_to_le64(sb->next.cutoff_sectors);
	o->quota_sectors = cpu_to_le64(sb->next.quota_sectors);
	o->minimum_sectors = cpu_to_le64(sb->next.minimum_sectors);
	name_encode(o->cache_path, sb->cache_path, sizeof(o->cache_path));
}

static u32 sb_crc(const struct hybrid_superblock *block)
{
	return hybrid_crc(block, sizeof(*block), offsetof(struct hybrid_superblock, crc));
}

void hybrid_sb_encode(struct hybrid_superblock *block, const struct hybrid_sb *sb,
		      u64 sector)
{
	memset(block, 0, sizeof(*block));
	memcpy(block->magic, HYBRID_SB_MAGIC, HYBRID_SB_MAGIC_SIZE);
	block->version = cpu_to_le32(HYBRID_FORMAT_VERSION);
	block->compat = cpu_to_le64(sb->compat);
	block->ro_compat = cpu_to_le64(sb->ro_compat);
	block->incompat = cpu_to_le64(sb->incompat);
	block->sector = cpu_to_le64(sector);
	block->member_sectors = cpu_to_le64(sb->member_sectors);
	memcpy(block->pool_uuid, sb->pool_uuid, sizeof(block->pool_uuid));
	memcpy(block->member_uuid, sb->member_uuid, sizeof(block->member_uuid));
	block->role = cpu_to_le32(sb->role);
	block->flags = cpu_to_le32(sb->flags);
	block->sequence = cpu_to_le64(sb->sequence);
	name_encode(block->name, sb->name, sizeof(block->name));
	if (sb->role == HYBRID_ROLE_CACHE)
		sb_cache_encode(&block->cache, sb);
	else
		sb_origin_encode(&block->origin, sb);
	memcpy(block->host_id, sb->host_id, sizeof(block->host_id));
	block->crc = cpu_to_le32(sb_crc(block));
}

/*
 * Three numbers determine the whole layout.  The other numbers stored must agree,
 * or two readers would look in different places.
 */
static int sb_cache_check(const struct hybrid_sb_cache *c, u64 member_sectors,
			  struct hybrid_geometry *g, const char **why)
{
	u32 journal_blocks = le32_to_cpu(c->journal_blocks);
	int r;

	if (!journal_blocks)
		return bad(why, "journal_blocks");
	r = hybrid_geometry_init(g, member_sectors, le32_to_cpu(c->block_sectors),
				 journal_blocks, why);
	if (r)
		return -EINVAL;
	if (le32_to_cpu(c->granule_sectors) != g->granule_sectors)
		return bad(why, "granule_sectors");
	if (le32_to_cpu(c->set_size) != g->set_size)
		return bad(why, "set_size");
	if (le32_to_cpu(c->nr_sets) != g->nr_sets)
		return bad(why, "nr_sets");
	if (le32_to_cpu(c->nr_index) != g->nr_index)
		return bad(why, "nr_index");
	if (le32_to_cpu(c->nr_leaves) != g->nr_leaves)
		return bad(why, "nr_leaves");
	if (le32_to_cpu(c->intent_blocks) != g->intent_blocks)
		return bad(why, "intent_blocks");
	if (le64_to_cpu(c->root_sector) != g->root_sector)
		return bad(why, "root_sector");
	if (le64_to_cpu(c->index_sector) != g->index_sector)
		return bad(why, "index_sector");
	if (le64_to_cpu(c->leaf_sector) != g->leaf_sector)
		return bad(why, "leaf_sector");
	if (le64_to_cpu(c->journal_sector) != g->journal_sector)
		return bad(why, "journal_sector");
	if (le64_to_cpu(c->intent_sector) != g->intent_sector)
		return bad(why, "intent_sector");
	if (le64_to_cpu(c->data_sector) != g->data_sector)
		return bad(why, "data_sector");
	if (!name_ok(c->policy, sizeof(c->policy)))
		return bad(why, "policy");
	return 0;
}

/* Checks the data area of a formatted origin, which may extend up to @end. */
static int data_area_check(u64 data_sector, u64 data_sectors, u64 end, const char **why)
{
	if (data_sector < HYBRID_HEAD_SECTORS || data_sector > end ||
	    !IS_ALIGNED(data_sector, HYBRID_ALIGN_SECTORS))
		return bad(why, "data_sector");
	if (!data_sectors || data_sectors > end - data_sector ||
	    !IS_ALIGNED(data_sectors, HYBRID_ALIGN_SECTORS))
		return bad(why, "data_sectors");
	return 0;
}

static int sb_origin_check(const struct hybrid_sb_origin *o, u64 member_sectors,
			   const char **why)
{
	if (le32_to_cpu(o->volume_id) >= HYBRID_MAX_VOLUMES)
		return bad(why, "volume_id");
	if (le64_to_cpu(o->mode) > HYBRID_NR_MODES)
		return bad(why, "mode");
	if (!path_ok(o->cache_path, sizeof(o->cache_path)))
		return bad(why, "cache_path");
	return data_area_check(le64_to_cpu(o->data_sector), le64_to_cpu(o->data_sectors),
			       member_sectors - HYBRID_TAIL_SECTORS, why);
}

/* Checks that this is a superblock of dm-hybrid, undamaged and of a known format. */
static int sb_identify(const struct hybrid_superblock *block, const char **why)
{
	if (memcmp(block->magic, HYBRID_SB_MAGIC, HYBRID_SB_MAGIC_SIZE))
		return refuse(why, "magic", -ENODATA);
	if (le32_to_cpu(block->crc) != sb_crc(block))
		return refuse(why, "crc", -EBADMSG);
	if (le32_to_cpu(block->version) != HYBRID_FORMAT_VERSION)
		return refuse(why, "version", -EPROTONOSUPPORT);
	if (le64_to_cpu(block->incompat) & ~HYBRID_INCOMPAT_KNOWN)
		return refuse(why, "incompat", -EPROTONOSUPPORT);
	return 0;
}

static u32 sb_flags_of(u32 role)
{
	switch (role) {
	case HYBRID_ROLE_ORIGIN:
		return HYBRID_SB_DIRTY | HYBRID_SB_ALONE | HYBRID_SB_EPHEMERAL;
	case HYBRID_ROLE_DETACHED:
		return HYBRID_SB_LOSS_UNKNOWN | HYBRID_SB_EPHEMERAL;
	default:
		return HYBRID_SB_EPHEMERAL;
	}
}

static int sb_common_check(const struct hybrid_superblock *block, u64 sector,
			   u64 device_sectors, const char **why)
{
	u64 member_sectors = le64_to_cpu(block->member_sectors);
	u32 role = le32_to_cpu(block->role);
	u32 flags = le32_to_cpu(block->flags);

	if (le64_to_cpu(block->sector) != sector)
		return refuse(why, "sector", -ESTALE);
	if (member_sectors <= HYBRID_HEAD_SECTORS + HYBRID_TAIL_SECTORS ||
	    member_sectors > device_sectors || member_sectors > MAX_SECTORS)
		return bad(why, "member_sectors");
	if (sector != hybrid_sb_sector(member_sectors, 0) &&
	    sector != hybrid_sb_sector(member_sectors, 1))
		return bad(why, "sector");
	if (role != HYBRID_ROLE_CACHE && role != HYBRID_ROLE_ORIGIN &&
	    role != HYBRID_ROLE_DETACHED)
		return bad(why, "role");
	if (flags & ~sb_flags_of(role))
		return bad(why, "flags");
	if (le64_to_cpu(block->sequence) > MAX_NUMBER)
		return bad(why, "sequence");
	if (!name_ok(block->name, sizeof(block->name)))
		return bad(why, "name");
	return 0;
}

static void sb_fill(const struct hybrid_superblock *block, struct hybrid_sb *sb)
{
	memset(sb, 0, sizeof(*sb));
	sb->compat = le64_to_cpu(block->compat);
	sb->ro_compat = le64_to_cpu(block->ro_compat);
	sb->incompat = le64_to_cpu(block->incompat);
	sb->member_sectors = le64_to_cpu(block->member_sectors);
	sb->sequence = le64_to_cpu(block->sequence);
	sb->role = le32_to_cpu(block->role);
	sb->flags = le32_to_cpu(block->flags);
	memcpy(sb->pool_uuid, block->pool_uuid, sizeof(sb->pool_uuid));
	memcpy(sb->member_uuid, block->member_uuid, sizeof(sb->member_uuid));
	memcpy(sb->host_id, block->host_id, sizeof(sb->host_id));
	name_decode(sb->name, block->name, sizeof(sb->name));
}

static void sb_origin_fill(const struct hybrid_sb_origin *o, struct hybrid_sb *sb)
{
	sb->volume_id = le32_to_cpu(o->volume_id);
	sb->instance = le32_to_cpu(o->instance);
	sb->data_sector = le64_to_cpu(o->data_sector);
	sb->data_sectors = le64_to_cpu(o->data_sectors);
	sb->nonce = le64_to_cpu(o->nonce);
	memcpy(sb->volume_uuid, o->volume_uuid, sizeof(sb->volume_uuid));
	memcpy(sb->pairing_key, o->pairing_key, sizeof(sb->pairing_key));
	sb->lost = le64_to_cpu(o->lost);
	sb->paired_nonce = le64_to_cpu(o->paired_nonce);
	sb->next.mode = le64_to_cpu(o->mode);
	sb->next.cutoff_sectors = le64_to_cpu(o->cutoff_sectors);
	sb->next.quota_sectors = le64_to_cpu(o->quota_sectors);
	sb->next.minimum_sectors = le64_to_cpu(o->minimum_sectors);
	name_decode(sb->cache_path, o->cache_path, sizeof(sb->cache_path));
}

static void sb_cache_fill(const struct hybrid_sb_cache *c, struct hybrid_sb *sb)
{
	name_decode(sb->policy, c->policy, sizeof(sb->policy));
	sb->settings.high_watermark = le64_to_cpu(c->high_watermark);
	sb->settings.low_watermark = le64_to_cpu(c->low_watermark);
	sb->settings.writeback_rate = le64_to_cpu(c->writeback_rate);
	sb->settings.commit_interval = le64_to_cpu(c->commit_interval);
	sb->settings.endurance = le64_to_cpu(c->endurance);
	sb->settings.metadata_share = le64_to_cpu(c->metadata_share);
	sb->settings.trim_rate = le64_to_cpu(c->trim_rate);
	sb->settings.read_error_limit = le64_to_cpu(c->read_error_limit);
	sb->settings.write_error_limit = le64_to_cpu(c->write_error_limit);
	memcpy(sb->replaces, c->replaces, sizeof(sb->replaces));
}

int hybrid_sb_decode(const struct hybrid_superblock *block, u64 sector,
		     u64 device_sectors, struct hybrid_sb *sb, const char **why)
{
	u64 member_sectors = le64_to_cpu(block->member_sectors);
	struct hybrid_geometry g;
	int r;

	r = sb_identify(block, why);
	if (r)
		return r;
	r = sb_common_check(block, sector, device_sectors, why);
	if (r)
		return r;

	if (le32_to_cpu(block->role) == HYBRID_ROLE_CACHE) {
		r = sb_cache_check(&block->cache, member_sectors, &g, why);
		if (r)
			return r;
		sb_fill(block, sb);
		sb->geometry = g;
		sb_cache_fill(&block->cache, sb);
		return 0;
	}
	r = sb_origin_check(&block->origin, member_sectors, why);
	if (r)
		return r;
	sb_fill(block, sb);
	sb_origin_fill(&block->origin, sb);
	return 0;
}

/* Headers ----------------------------------------------------------------- */

static u32 block_crc(const struct hybrid_block_header *h, size_t len)
{
	return hybrid_crc(h, len, offsetof(struct hybrid_block_header, crc));
}

static void header_fill(struct hybrid_block_header *h, u32 magic, u64 number,
			u64 generation, const u8 *pool_uuid, u64 epoch)
{
	memset(h, 0, sizeof(*h));
	h->magic = cpu_to_le32(magic);
	h->number = cpu_to_le64(number);
	h->generation = cpu_to_le64(generation);
	memcpy(h->pool_uuid, pool_uuid, sizeof(h->pool_uuid));
	h->epoch = cpu_to_le64(epoch);
}

/* The last step of encoding. */
static void header_seal(struct hybrid_block_header *h, size_t len)
{
	h->crc = cpu_to_le32(block_crc(h, len));
}

static int header_check(const struct hybrid_block_header *h, u32 magic, u64 number,
			const struct hybrid_ident *id, const char **why)
{
	if (le32_to_cpu(h->magic) != magic)
		return refuse(why, "magic", -ENODATA);
	if (le32_to_cpu(h->crc) != block_crc(h, HYBRID_META_BLOCK_SIZE))
		return refuse(why, "crc", -EBADMSG);
	if (memcmp(h->pool_uuid, id->pool_uuid, sizeof(h->pool_uuid)))
		return refuse(why, "pool_uuid", -ESTALE);
	if (le64_to_cpu(h->number) != number)
		return refuse(why, "number", -ESTALE);
	if (!h->generation)
		return bad(why, "generation");
	return 0;
}

/* Like header_check(), for a block whose parent names its generation. */
static int child_check(const struct hybrid_block_header *h, u32 magic, u32 nr,
		       u16 generation, const struct hybrid_ident *id, const char **why)
{
	int r;

	r = header_check(h, magic, nr, id, why);
	if (r)
		return r;
	if (le64_to_cpu(h->generation) != generation)
		return refuse(why, "generation", -ESTALE);
	return 0;
}

/* Lost map ---------------------------------------------------------------- */

static u32 lost_chunks(const struct hybrid_lost_map *map)
{
	u32 shift = le32_to_cpu(map->chunk_shift);

	return (le64_to_cpu(map->data_sectors) + BIT_ULL(shift) - 1) >> shift;
}

static bool lost_bit(const struct hybrid_lost_map *map, u32 chunk)
{
	return map->bitmap[chunk / 8] >> chunk % 8 & 1;
}

/* Returns the first chunk from @chunk on whose state is @lost, or the number of chunks. */
static u32 lost_find(const struct hybrid_lost_map *map, u32 chunk, bool lost)
{
	const u8 skip = lost ? 0 : 0xff;
	u32 nr = lost_chunks(map);

	while (chunk < nr && lost_bit(map, chunk) != lost)
		chunk += chunk % 8 || map->bitmap[chunk / 8] != skip ? 1 : 8;
	return min(chunk, nr);
}

static u32 lost_weight(const struct hybrid_lost_map *map, u32 blocks)
{
	u32 bytes = (blocks - 1) * HYBRID_META_BLOCK_SIZE;
	u32 weight = 0, i;

	for (i = 0; i < bytes; i++)
		weight += hweight8(map->bitmap[i]);
	return weight;
}

u32 hybrid_lost_seal(struct hybrid_lost_map *map, const struct hybrid_sb *sb,
		     u32 chunk_shift, unsigned int copy)
{
	u32 blocks = hybrid_lost_blocks(sb->data_sectors, chunk_shift);
	u32 count = lost_weight(map, blocks);

	memset(map, 0, sizeof(*map));
	header_fill(&map->header, HYBRID_LOST_MAGIC, copy, sb->lost, sb->pool_uuid, 0);
	map->header.count = cpu_to_le32(count);
	map->header.blocks = cpu_to_le32(blocks);
	memcpy(map->volume_uuid, sb->volume_uuid, sizeof(map->volume_uuid));
	memcpy(map->member_uuid, sb->member_uuid, sizeof(map->member_uuid));
	map->instance = cpu_to_le32(sb->instance);
	map->chunk_shift = cpu_to_le32(chunk_shift);
	map->data_sectors = cpu_to_le64(sb->data_sectors);
	header_seal(&map->header, blocks * HYBRID_META_BLOCK_SIZE);
	return count;
}

/* Checks that the map belongs to superblock @sb. */
static int lost_identify(const struct hybrid_lost_map *map, const struct hybrid_sb *sb,
			 unsigned int copy, const char **why)
{
	const struct hybrid_block_header *h = &map->header;

	if (le32_to_cpu(h->magic) != HYBRID_LOST_MAGIC)
		return refuse(why, "magic", -ENODATA);
	if (le64_to_cpu(h->generation) != sb->lost)
		return refuse(why, "generation", -ESTALE);
	if (le64_to_cpu(h->number) != copy)
		return refuse(why, "number", -ESTALE);
	/* An origin whose loss was accepted has no pool any more */
	if (sb->role != HYBRID_ROLE_DETACHED &&
	    memcmp(h->pool_uuid, sb->pool_uuid, sizeof(h->pool_uuid)))
		return refuse(why, "pool_uuid", -ESTALE);
	if (memcmp(map->volume_uuid, sb->volume_uuid, sizeof(map->volume_uuid)))
		return refuse(why, "volume_uuid", -ESTALE);
	if (memcmp(map->member_uuid, sb->member_uuid, sizeof(map->member_uuid)))
		return refuse(why, "member_uuid", -ESTALE);
	if (le32_to_cpu(map->instance) != sb->instance)
		return refuse(why, "instance", -ESTALE);
	return 0;
}

int hybrid_lost_peek(const struct hybrid_lost_map *map, const struct hybrid_sb *sb,
		     unsigned int copy, const char **why)
{
	u32 shift = le32_to_cpu(map->chunk_shift);
	u32 blocks;
	int r;

	r = sb->lost ? lost_identify(map, sb, copy, why) : refuse(why, "lost", -ENODATA);
	if (r)
		return r;
	if (le64_to_cpu(map->data_sectors) != sb->data_sectors)
		return bad(why, "data_sectors");
	if (shift >= 64 || shift < ilog2(HYBRID_MIN_BLOCK_SECTORS) ||
	    (sb->data_sectors - 1) >> shift >= HYBRID_LOST_CHUNKS)
		return bad(why, "chunk_shift");
	blocks = hybrid_lost_blocks(sb->data_sectors, shift);
	if (le32_to_cpu(map->header.blocks) != blocks)
		return bad(why, "blocks");
	return blocks;
}

int hybrid_lost_check(const struct hybrid_lost_map *map, u32 blocks, const char **why)
{
	u32 nr = lost_chunks(map), i;

	if (le32_to_cpu(map->header.crc) !=
	    block_crc(&map->header, blocks * HYBRID_META_BLOCK_SIZE))
		return refuse(why, "crc", -EBADMSG);
	if (le32_to_cpu(map->header.count) != lost_weight(map, blocks))
		return bad(why, "count");
	for (i = nr; i < (blocks - 1) * HYBRID_META_BLOCK_SIZE * 8; i++)
		if (lost_bit(map, i))
			return bad(why, "bitmap");
	return 0;
}

u64 hybrid_lost_next(const struct hybrid_lost_map *map, u64 *sector)
{
	u32 shift = le32_to_cpu(map->chunk_shift);
	u64 size = le64_to_cpu(map->data_sectors);
	u32 from;

	if (*sector >= size)
		return 0;
	from = lost_find(map, *sector >> shift, true);
	if (from == lost_chunks(map))
		return 0;
	*sector = max(*sector, (u64)from << shift);
	return min(size, (u64)lost_find(map, from, false) << shift) - *sector;
}

/* Root -------------------------------------------------------------------- */

void hybrid_root_encode(struct hybrid_root *block, const struct hybrid_geometry *g,
			const struct hybrid_ident *id,
			const struct hybrid_root_info *root, const u16 *index_generation)
{
	u32 i;

	memset(block, 0, sizeof(*block));
	header_fill(&block->header, HYBRID_ROOT_MAGIC, 0, root->sequence,
		    id->pool_uuid, root->epoch);
	block->journal_tail = cpu_to_le64(root->journal_tail);
	block->journal_head = cpu_to_le64(root->journal_head);
	block->intent_tail = cpu_to_le64(root->intent_tail);
	block->flags = cpu_to_le32(root->flags);
	block->next_instance = cpu_to_le32(root->next_instance);
	block->written_sectors = cpu_to_le64(root->written_sectors);
	block->read_errors = cpu_to_le32(root->read_errors);
	block->write_errors = cpu_to_le32(root->write_errors);
	block->halved_ms = cpu_to_le32(root->halved_ms);
	for (i = 0; i < g->nr_index; i++)
		block->index_generation[i] = cpu_to_le16(index_generation[i]);
	header_seal(&block->header, sizeof(*block));
}

static int root_check(const struct hybrid_root *block, const struct hybrid_geometry *g,
		      const char **why)
{
	u64 tail = le64_to_cpu(block->journal_tail);
	u64 head = le64_to_cpu(block->journal_head);
	u32 flags = le32_to_cpu(block->flags);

	if (le64_to_cpu(block->header.generation) > MAX_NUMBER)
		return bad(why, "generation");
	if (tail > head || head - tail > g->journal_blocks)
		return bad(why, "journal_tail");
	if (head > MAX_NUMBER)
		return bad(why, "journal_head");
	if (le64_to_cpu(block->intent_tail) > MAX_NUMBER)
		return bad(why, "intent_tail");
	if (flags & ~HYBRID_ROOT_CLEAN || (flags & HYBRID_ROOT_CLEAN && tail != head))
		return bad(why, "flags");
	if (!block->next_instance)
		return bad(why, "next_instance");
	if (le32_to_cpu(block->halved_ms) >= HYBRID_DAY_MS)
		return bad(why, "halved_ms");
	return 0;
}

int hybrid_root_decode(const struct hybrid_root *block, const struct hybrid_geometry *g,
		       const struct hybrid_ident *id, struct hybrid_root_info *root,
		       u16 *index_generation, const char **why)
{
	u32 i;
	int r;

	r = header_check(&block->header, HYBRID_ROOT_MAGIC, 0, id, why);
	if (r)
		return r;
	r = root_check(block, g, why);
	if (r)
		return r;

	root->sequence = le64_to_cpu(block->header.generation);
	root->epoch = le64_to_cpu(block->header.epoch);
	root->journal_tail = le64_to_cpu(block->journal_tail);
	root->journal_head = le64_to_cpu(block->journal_head);
	root->intent_tail = le64_to_cpu(block->intent_tail);
	root->flags = le32_to_cpu(block->flags);
	root->next_instance = le32_to_cpu(block->next_instance);
	root->written_sectors = le64_to_cpu(block->written_sectors);
	root->read_errors = le32_to_cpu(block->read_errors);
	root->write_errors = le32_to_cpu(block->write_errors);
	root->halved_ms = le32_to_cpu(block->halved_ms);
	for (i = 0; i < g->nr_index; i++)
		index_generation[i] = le16_to_cpu(block->index_generation[i]);
	return 0;
}

/* Index ------------------------------------------------------------------- */

/* Leaves that index block @nr names. */
static u32 index_leaves(const struct hybrid_geometry *g, u32 nr)
{
	return min_t(u32, HYBRID_INDEX_LEAVES, g->nr_leaves - nr * HYBRID_INDEX_LEAVES);
}

void hybrid_index_encode(struct hybrid_index *block, const struct hybrid_geometry *g,
			 const struct hybrid_ident *id, u32 nr, u16 generation,
			 const u16 *leaf_generation)
{
	u32 i;

	memset(block, 0, sizeof(*block));
	header_fill(&block->header, HYBRID_INDEX_MAGIC, nr, generation,
		    id->pool_uuid, id->epoch);
	for (i = 0; i < index_leaves(g, nr); i++)
		block->leaf_generation[i] = cpu_to_le16(leaf_generation[i]);
	header_seal(&block->header, sizeof(*block));
}

int hybrid_index_decode(const struct hybrid_index *block, const struct hybrid_geometry *g,
			const struct hybrid_ident *id, u32 nr, u16 generation,
			u16 *leaf_generation, const char **why)
{
	u32 i;
	int r;

	if (nr >= g->nr_index)
		return bad(why, "number");
	r = child_check(&block->header, HYBRID_INDEX_MAGIC, nr, generation, id, why);
	if (r)
		return r;
	for (i = 0; i < index_leaves(g, nr); i++)
		leaf_generation[i] = le16_to_cpu(block->leaf_generation[i]);
	return 0;
}

/* Volume table ------------------------------------------------------------ */

static void volume_encode(struct hybrid_volume_entry *e,
			  const struct hybrid_volume_info *v)
{
	e->state = cpu_to_le32(v->state);
	e->instance = cpu_to_le32(v->instance);
	e->mode = cpu_to_le32(v->mode);
	e->flags = cpu_to_le32(v->flags);
	memcpy(e->uuid, v->uuid, sizeof(e->uuid));
	memcpy(e->member_uuid, v->member_uuid, sizeof(e->member_uuid));
	memcpy(e->pairing_key, v->pairing_key, sizeof(e->pairing_key));
	e->data_sector = cpu_to_le64(v->data_sector);
	e->data_sectors = cpu_to_le64(v->data_sectors);
	e->nonce = cpu_to_le64(v->nonce);
	e->nonce_old = cpu_to_le64(v->nonce_old);
	e->cutoff_sectors = cpu_to_le64(v->cutoff_sectors);
	e->data_sectors_new = cpu_to_le64(v->data_sectors_new);
	e->quota_sectors = cpu_to_le64(v->quota_sectors);
	e->minimum_sectors = cpu_to_le64(v->minimum_sectors);
	name_encode(e->name, v->name, sizeof(e->name));
}

static void volume_decode(struct hybrid_volume_info *v,
			  const struct hybrid_volume_entry *e)
{
	memset(v, 0, sizeof(*v));
	v->state = le32_to_cpu(e->state);
	if (v->state == HYBRID_VOLUME_FREE)
		return;
	v->instance = le32_to_cpu(e->instance);
	v->mode = le32_to_cpu(e->mode);
	v->flags = le32_to_cpu(e->flags);
	memcpy(v->uuid, e->uuid, sizeof(v->uuid));
	memcpy(v->member_uuid, e->member_uuid, sizeof(v->member_uuid));
	memcpy(v->pairing_key, e->pairing_key, sizeof(v->pairing_key));
	v->data_sector = le64_to_cpu(e->data_sector);
	v->data_sectors = le64_to_cpu(e->data_sectors);
	v->nonce = le64_to_cpu(e->nonce);
	v->nonce_old = le64_to_cpu(e->nonce_old);
	v->cutoff_sectors = le64_to_cpu(e->cutoff_sectors);
	v->data_sectors_new = le64_to_cpu(e->data_sectors_new);
	v->quota_sectors = le64_to_cpu(e->quota_sectors);
	v->minimum_sectors = le64_to_cpu(e->minimum_sectors);
	name_decode(v->name, e->name, sizeof(v->name));
}

static int volume_area_check(const struct hybrid_volume_entry *e, u64 data_sectors,
			     const char **why)
{
	u64 data_sector = le64_to_cpu(e->data_sector);

	if (!(le32_to_cpu(e->flags) & HYBRID_VOLUME_INPLACE))
		return data_area_check(data_sector, data_sectors,
				       MAX_SECTORS - HYBRID_TAIL_SECTORS, why);
	if (data_sector > MAX_SECTORS || !IS_ALIGNED(data_sector, HYBRID_META_BLOCK_SECTORS))
		return bad(why, "data_sector");
	if (!data_sectors || data_sectors > MAX_SECTORS - data_sector)
		return bad(why, "data_sectors");
	return 0;
}

static int volume_data_check(const struct hybrid_volume_entry *e, const char **why)
{
	u64 data_sectors = le64_to_cpu(e->data_sectors);
	u64 grown = le64_to_cpu(e->data_sectors_new);
	int r = volume_area_check(e, data_sectors, why);

	if (r || !grown)
		return r;
	if (grown <= data_sectors || volume_area_check(e, grown, NULL))
		return bad(why, "data_sectors_new");
	return 0;
}

static int volume_check(const struct hybrid_volume_entry *e, u32 volume_id,
			const char **why)
{
	u32 state = le32_to_cpu(e->state);

	if (state == HYBRID_VOLUME_FREE)
		return 0;
	if (state > HYBRID_VOLUME_TOMBSTONE || volume_id >= HYBRID_MAX_VOLUMES)
		return bad(why, "state");
	if (!e->instance)
		return bad(why, "instance");
	if (le32_to_cpu(e->mode) >= HYBRID_NR_MODES)
		return bad(why, "mode");
	if (le32_to_cpu(e->flags) & ~(HYBRID_VOLUME_INPLACE | HYBRID_VOLUME_WAS_DIRTY))
		return bad(why, "flags");
	if (!name_ok(e->name, sizeof(e->name)))
		return bad(why, "name");
	return volume_data_check(e, why);
}

u64 hybrid_volume_room(const struct hybrid_volume_info *info, u64 origin_sectors)
{
	if (info->flags & HYBRID_VOLUME_INPLACE)
		return origin_sectors - min(origin_sectors, info->data_sector);
	return hybrid_origin_room(origin_sectors, info->data_sector);
}

u64 hybrid_volume_length(const struct hybrid_volume_info *info, u64 origin_sectors)
{
	if (info->data_sectors_new &&
	    hybrid_volume_room(info, origin_sectors) >= info->data_sectors_new)
		return info->data_sectors_new;
	return info->data_sectors;
}

/*
 * The root that ends a growth may be lost.  The older one has both sizes, and the journal behind
 * it may have blocks beyond the old end.
 */
u64 hybrid_volume_reach(const struct hybrid_volume_info *info)
{
	return max(info->data_sectors, info->data_sectors_new);
}

int hybrid_volume_check(const struct hybrid_volume_info *info, u32 volume_id, const char **why)
{
	struct hybrid_volume_entry entry = { .state = 0 };

	volume_encode(&entry, info);
	return volume_check(&entry, volume_id, why);
}

void hybrid_volumes_encode(struct hybrid_volume_leaf *block, const struct hybrid_ident *id,
			   u32 nr, u16 generation,
			   const struct hybrid_volume_info *const info[HYBRID_VOLUMES_PER_LEAF])
{
	u32 i;

	memset(block, 0, sizeof(*block));
	header_fill(&block->header, HYBRID_VOLUMES_MAGIC, nr, generation,
		    id->pool_uuid, id->epoch);
	for (i = 0; i < HYBRID_VOLUMES_PER_LEAF; i++)
		if (info[i]->state != HYBRID_VOLUME_FREE)
			volume_encode(&block->entry[i], info[i]);
	header_seal(&block->header, sizeof(*block));
}

int hybrid_volumes_decode(const struct hybrid_volume_leaf *block,
			  const struct hybrid_ident *id, u32 nr, u16 generation,
			  struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF],
			  const char **why)
{
	u32 i;
	int r;

	if (nr >= HYBRID_VOLUME_LEAVES)
		return bad(why, "number");
	r = child_check(&block->header, HYBRID_VOLUMES_MAGIC, nr, generation, id, why);
	if (r)
		return r;
	for (i = 0; i < HYBRID_VOLUMES_PER_LEAF; i++) {
		r = volume_check(&block->entry[i], nr * HYBRID_VOLUMES_PER_LEAF + i, why);
		if (r)
			return r;
	}
	for (i = 0; i < HYBRID_VOLUMES_PER_LEAF; i++)
		volume_decode(&info[i], &block->entry[i]);
	return 0;
}

/* Map --------------------------------------------------------------------- */

/* Checks the fields of one cache block that map and journal have in common. */
static int mapping_check(const struct hybrid_geometry *g, u32 instance, u64 oblock,
			 u64 valid, u64 dirty, const char **why)
{
	if (valid & ~GENMASK_ULL(g->granules - 1, 0) || (valid && !instance))
		return bad(why, "valid");
	if (dirty & ~valid)
		return bad(why, "dirty");
	if (instance && oblock >= MAX_SECTORS >> g->block_shift)
		return bad(why, "oblock");
	return 0;
}

static int map_entry_check(const struct hybrid_map_leaf *block,
			   const struct hybrid_geometry *g, u32 i, const char **why)
{
	return mapping_check(g, le32_to_cpu(block->instance[i]),
			     le64_to_cpu(block->oblock[i]), le64_to_cpu(block->valid[i]),
			     le64_to_cpu(block->dirty[i]), why);
}

/* Like map_entry_check() of all entries, but does not name the wrong field. */
static bool map_entries_ok(const struct hybrid_map_leaf *block, const struct hybrid_geometry *g,
			   u32 count)
{
	u64 valid = 0, beyond = 0, oblock = 0;
	u32 i;

	for (i = 0; i < count; i++) {
		u64 v = le64_to_cpu(block->valid[i]), d = le64_to_cpu(block->dirty[i]);

		beyond |= d & ~v;
		if (block->instance[i]) {
			valid |= v;
			oblock |= le64_to_cpu(block->oblock[i]);
		} else {
			beyond |= v;
		}
	}
	/* Both limits are powers of two. */
	beyond |= valid & ~GENMASK_ULL(g->granules - 1, 0);
	return !beyond && oblock < MAX_SECTORS >> g->block_shift;
}

void hybrid_map_seal(struct hybrid_map_leaf *block, const struct hybrid_ident *id,
		     u32 nr, u16 generation)
{
	memset(block->reserved16, 0, sizeof(block->reserved16));
	memset(block->reserved, 0, sizeof(block->reserved));
	header_fill(&block->header, HYBRID_MAP_MAGIC, nr, generation,
		    id->pool_uuid, id->epoch);
	header_seal(&block->header, sizeof(*block));
}

int hybrid_map_check(const struct hybrid_map_leaf *block, const struct hybrid_geometry *g,
		     const struct hybrid_ident *id, u32 nr, u16 generation, u32 count,
		     const char **why)
{
	u32 regions = DIV_ROUND_UP(count, HYBRID_REGION_BLOCKS);
	bool ok;
	u32 i;
	int r;

	if (nr < HYBRID_VOLUME_LEAVES || nr >= g->nr_leaves)
		return bad(why, "number");
	if (count > HYBRID_MAP_LEAF_BLOCKS)
		return bad(why, "count");
	r = child_check(&block->header, HYBRID_MAP_MAGIC, nr, generation, id, why);
	if (r)
		return r;
	if (le16_to_cpu(block->open_regions) >> regions)
		return bad(why, "open_regions");
	ok = map_entries_ok(block, g, count);
	for (i = 0; !ok && i < count; i++) {
		r = map_entry_check(block, g, i, why);
		if (r)
			return r;
	}
	for (i = count; i < HYBRID_MAP_LEAF_BLOCKS; i++)
		if (block->instance[i])
			return bad(why, "instance");
	return 0;
}

/* Journal ----------------------------------------------------------------- */

static size_t entry_size(u32 nr)
{
	return sizeof(struct hybrid_journal_entry) + nr * sizeof(struct hybrid_record);
}

static u32 entry_blocks(u32 nr)
{
	return DIV_ROUND_UP(entry_size(nr), HYBRID_META_BLOCK_SIZE);
}

u32 hybrid_entry_seal(struct hybrid_journal_entry *entry, const struct hybrid_ident *id,
		      u64 n, u32 nr, u64 intent_tail)
{
	u32 blocks = entry_blocks(nr);
	size_t size = (size_t)blocks * HYBRID_META_BLOCK_SIZE;

	memset((u8 *)entry + entry_size(nr), 0, size - entry_size(nr));
	header_fill(&entry->header, HYBRID_JOURNAL_MAGIC, n, n, id->pool_uuid, id->epoch);
	entry->header.count = cpu_to_le32(nr);
	entry->header.blocks = cpu_to_le32(blocks);
	entry->header.intent_tail = cpu_to_le64(intent_tail);
	header_seal(&entry->header, size);
	return blocks;
}

/* Count and size of the entry agree, and are within the format. */
static bool entry_size_ok(const struct hybrid_block_header *h)
{
	u32 nr = le32_to_cpu(h->count);

	return nr <= HYBRID_ENTRY_RECORDS(HYBRID_JOURNAL_ENTRY_BLOCKS) &&
	       le32_to_cpu(h->blocks) == entry_blocks(nr);
}

/* Is this the header of block @n of a ring, in this epoch and pool? */
static bool ring_header_ok(const struct hybrid_block_header *header, u32 magic,
			   const struct hybrid_ident *id, u64 n)
{
	return le32_to_cpu(header->magic) == magic && le64_to_cpu(header->number) == n &&
	       le64_to_cpu(header->generation) == n && le64_to_cpu(header->epoch) == id->epoch &&
	       !memcmp(header->pool_uuid, id->pool_uuid, sizeof(header->pool_uuid));
}

int hybrid_entry_peek(const struct hybrid_block_header *header,
		      const struct hybrid_ident *id, u64 n)
{
	if (!ring_header_ok(header, HYBRID_JOURNAL_MAGIC, id, n))
		return -ENODATA;
	if (!entry_size_ok(header))
		return -EINVAL;
	return le32_to_cpu(header->blocks);
}

static int block_record_check(const struct hybrid_record *rec,
			      const struct hybrid_geometry *g, const char **why)
{
	if (le32_to_cpu(rec->where) >= g->nr_blocks)
		return bad(why, "where");
	if (le32_to_cpu(rec->hint) > U8_MAX)
		return bad(why, "hint");
	return mapping_check(g, le32_to_cpu(rec->instance), le64_to_cpu(rec->oblock),
			     le64_to_cpu(rec->valid), le64_to_cpu(rec->dirty), why);
}

static int regions_record_check(const struct hybrid_record *rec,
				const struct hybrid_geometry *g, const char **why)
{
	u32 regions = DIV_ROUND_UP(g->set_size, HYBRID_REGION_BLOCKS);

	if (le32_to_cpu(rec->where) >= g->nr_sets)
		return bad(why, "where");
	if (le64_to_cpu(rec->valid) & ~GENMASK_ULL(regions - 1, 0))
		return bad(why, "valid");
	return 0;
}

static int record_check(const struct hybrid_record *rec, const struct hybrid_geometry *g,
			const char **why)
{
	switch (le32_to_cpu(rec->type)) {
	case HYBRID_RECORD_BLOCK:
		return block_record_check(rec, g, why);
	case HYBRID_RECORD_REGIONS:
		return regions_record_check(rec, g, why);
	default:
		return bad(why, "type");
	}
}

int hybrid_entry_check(const struct hybrid_journal_entry *entry,
		       const struct hybrid_geometry *g, u32 blocks, const char **why)
{
	const struct hybrid_block_header *h = &entry->header;
	u32 i, nr = le32_to_cpu(h->count);
	int r;

	if (!blocks || blocks > HYBRID_JOURNAL_ENTRY_BLOCKS || !entry_size_ok(h) ||
	    le32_to_cpu(h->blocks) != blocks)
		return bad(why, "blocks");
	if (le32_to_cpu(h->crc) != block_crc(h, (size_t)blocks * HYBRID_META_BLOCK_SIZE))
		return refuse(why, "crc", -EBADMSG);
	if (hybrid_journal_place(g, le64_to_cpu(h->number), blocks) != le64_to_cpu(h->number))
		return bad(why, "number");
	if (le64_to_cpu(h->intent_tail) > MAX_NUMBER)
		return bad(why, "intent_tail");
	for (i = 0; i < nr; i++) {
		r = record_check(&entry->record[i], g, why);
		if (r)
			return r;
	}
	return nr;
}

/* Intents ----------------------------------------------------------------- */

void hybrid_intent_record(struct hybrid_intent *intent, u32 nr, cblock_t b, u32 instance,
			  oblock_t oblock, u64 granules, u64 checksum)
{
	struct hybrid_intent_record *r = &intent->record[nr];

	r->where = cpu_to_le32(from_cblock(b));
	r->instance = cpu_to_le32(instance);
	r->oblock = cpu_to_le64(from_oblock(oblock));
	r->granules = cpu_to_le64(granules);
	r->checksum = cpu_to_le64(checksum);
}

void hybrid_intent_seal(struct hybrid_intent *intent, const struct hybrid_ident *id, u64 n,
			u32 nr, u64 flushed)
{
	u32 old = le32_to_cpu(intent->header.count);

	if (old > nr)
		memset(intent->record + nr, 0, (old - nr) * sizeof(intent->record[0]));
	header_fill(&intent->header, HYBRID_INTENT_MAGIC, n, n, id->pool_uuid, id->epoch);
	intent->header.count = cpu_to_le32(nr);
	intent->header.blocks = cpu_to_le32(1);
	intent->flushed = cpu_to_le64(flushed);
	header_seal(&intent->header, sizeof(*intent));
}

/* Is the mask one run of granules, with data that fits a record? */
static bool intent_granules_ok(const struct hybrid_geometry *g, u64 granules)
{
	u32 first, nr = hweight64(granules);

	if (!granules || nr << g->granule_shift > HYBRID_INTENT_SECTORS)
		return false;
	first = __ffs64(granules);
	return first + nr <= HYBRID_MAX_GRANULES && granules == GENMASK_ULL(first + nr - 1, first);
}

static int intent_record_check(const struct hybrid_intent_record *r,
			       const struct hybrid_geometry *g, const char **why)
{
	u64 granules = le64_to_cpu(r->granules);

	if (le32_to_cpu(r->where) >= g->nr_blocks)
		return bad(why, "where");
	if (!r->instance)
		return bad(why, "instance");
	if (!intent_granules_ok(g, granules))
		return bad(why, "granules");
	return mapping_check(g, le32_to_cpu(r->instance), le64_to_cpu(r->oblock), granules,
			     granules, why);
}

int hybrid_intent_check(const struct hybrid_intent *intent, const struct hybrid_geometry *g,
			const struct hybrid_ident *id, const char **why)
{
	const struct hybrid_block_header *h = &intent->header;
	u64 n = le64_to_cpu(h->number);
	u32 nr = le32_to_cpu(h->count), i;
	int r;

	if (!ring_header_ok(h, HYBRID_INTENT_MAGIC, id, n))
		return refuse(why, "magic", -ENODATA);
	if (le32_to_cpu(h->crc) != block_crc(h, sizeof(*intent)))
		return refuse(why, "crc", -EBADMSG);
	if (n > MAX_NUMBER)
		return bad(why, "number");
	if (!nr || nr > HYBRID_INTENT_RECORDS || le32_to_cpu(h->blocks) != 1)
		return bad(why, "count");
	if (le64_to_cpu(intent->flushed) > n)
		return bad(why, "flushed");
	for (i = 0; i < nr; i++) {
		r = intent_record_check(&intent->record[i], g, why);
		if (r)
			return r;
	}
	return 0;
}
