// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "errors.h"
#include "gpt.h"
#include "members.h"
#include "sysfs.h"
#include "units.h"

#define FIRST_ROOT_SEQUENCE	2	/* even: area A */

/* Reading ------------------------------------------------------------------ */

static int read_copy(const struct hybrid_device *dev, uint64_t sector, void *block,
		     struct hybrid_sb *sb, const char **why)
{
	int r;

	*why = NULL;
	memset(sb, 0, sizeof(*sb));
	if (sector + HYBRID_META_BLOCK_SECTORS > dev->sectors)
		return -ENODATA;
	r = hybrid_device_read(dev, sector, block, HYBRID_META_BLOCK_SIZE);
	if (r) {
		*why = strerror(-r);
		return r;
	}
	return hybrid_sb_decode(block, sector, dev->sectors, sb, why);
}

const char *hybrid_unknown_format(char buf[HYBRID_FORMAT_TEXT], uint32_t version)
{
	if (version == HYBRID_FORMAT_VERSION)
		return "its format has a feature that this program does not know: nothing is damaged";
	snprintf(buf, HYBRID_FORMAT_TEXT,
		 "its format is version %u, and this program knows version %u: nothing is damaged",
		 version, HYBRID_FORMAT_VERSION);
	return buf;
}

const char *hybrid_member_next(const struct hybrid_member *m, const char *next)
{
	return m && m->unknown ? HYBRID_FORMAT_NEXT : next;
}

int hybrid_member_fail(const struct hybrid_device *dev, const struct hybrid_member *m,
		       const char *next)
{
	if (!m->ok)
		return hybrid_fail(HYBRID_BUSY, hybrid_member_next(m, next),
				   "%s already belongs to dm-hybrid: %s", dev->path, m->why);
	return hybrid_fail(HYBRID_BUSY, next, "%s already belongs to dm-hybrid: %s %s", dev->path,
			   hybrid_role_name(m->sb.role), m->sb.name);
}

/* A copy of the superblock that was read. */
struct copy {
	struct hybrid_sb sb;
	int r;
	const char *why;	/* the field that the decoder names */
	uint32_t version;	/* if r is -EPROTONOSUPPORT */
};

static void describe(char *buf, size_t len, const char *place, const struct copy *c)
{
	char field[HYBRID_WHY_MAX / 2], format[HYBRID_FORMAT_TEXT];
	const char *text = field, *why = c->why;
	int r = c->r;

	snprintf(field, sizeof(field), "its field %s is out of bounds", why ? why : "?");
	if (r == -ENODATA)
		text = "there is none";
	else if (r == -EBADMSG)
		text = "its checksum does not match";
	else if (r == -ESTALE)
		text = "it was written for another place (a shifted or cut copy of a member)";
	else if (r == -EPROTONOSUPPORT)
		text = hybrid_unknown_format(format, c->version);
	else if (r == -EINVAL && why && !strcmp(why, "member_sectors"))
		text = "the device is smaller than when it was formatted";
	else if (r != -EINVAL)
		text = strerror(-r);
	snprintf(buf, len, "superblock in the %s: %s", place, text);
}

/* Neither copy is good, and another release wrote one: for that release, the member may be good. */
static bool is_unknown(struct hybrid_member *m, const struct copy c[2])
{
	const struct copy *other = c[0].r == -EPROTONOSUPPORT ? &c[0] : &c[1];
	char text[HYBRID_FORMAT_TEXT];

	m->unknown = c[0].r && c[1].r && other->r == -EPROTONOSUPPORT;
	if (m->unknown)
		snprintf(m->why, sizeof(m->why), "%s", hybrid_unknown_format(text, other->version));
	return m->unknown;
}

static void set_why(struct hybrid_member *m, const struct copy c[2])
{
	if (is_unknown(m, c))
		return;
	/* Of two bad copies, the one that is ours, or claims to be, tells more */
	if (c[0].r && (c[0].r != -ENODATA || !c[1].r))
		describe(m->why, sizeof(m->why), "head", &c[0]);
	else if (c[1].r)
		describe(m->why, sizeof(m->why), "tail", &c[1]);
}

/* Whether it has partitions, is a part of an array or LVM, active or not, or is below another device. */
static bool has_others_above(const struct hybrid_device *dev)
{
	char text[HYBRID_WHY_MAX];

	return !dev->file && (hybrid_devno_has_partitions(dev->devno) ||
			      hybrid_sysfs_holders(dev->devno, text, sizeof(text)) ||
			      hybrid_device_in_array(dev, text, sizeof(text)));
}

/* Both copies were read: which one counts? */
static int choose_copy(const struct hybrid_device *dev, struct hybrid_member *m,
		       const struct copy c[2])
{
	int head = c[0].r, tail = c[1].r;

	if (head == -ENODATA && tail == -ENODATA)
		return -ENODATA;
	set_why(m, c);
	m->copies = (head ? 0 : 1) | (tail ? 0 : 2);
	if (!m->copies) {
		/* The tail of a disk may be that of its last partition, array ... */
		if (head == -ENODATA && tail == -ESTALE && has_others_above(dev))
			return -ENODATA;
		/* The copy that could be read is not ours, nor does it claim to be */
		return head == -EIO || (head == -ENODATA && tail == -EIO) ? -EIO : 0;
	}
	if (m->copies == 3 && memcmp(c[0].sb.member_uuid, c[1].sb.member_uuid, 16)) {
		snprintf(m->why, sizeof(m->why), "head and tail belong to different members");
		return 0;
	}
	m->apart = m->copies != 3 || c[0].sb.sequence != c[1].sb.sequence;
	if (m->copies == 3)
		m->sb = c[c[1].sb.sequence > c[0].sb.sequence].sb;
	else
		m->sb = c[m->copies == 2].sb;
	m->unknown = m->sb.ro_compat & ~HYBRID_RO_COMPAT_KNOWN;
	if (m->unknown) {
		snprintf(m->why, sizeof(m->why), "only a newer version may write to it");
		return 0;
	}
	if (hybrid_number_ends(m->sb.sequence)) {
		snprintf(m->why, sizeof(m->why), "no sequence number is left for its superblock");
		return 0;
	}
	m->ok = true;
	return 0;
}

static bool has_table(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	return sb->role == HYBRID_ROLE_DETACHED && hybrid_gpt_there(dev);
}

static void look_at(const struct hybrid_device *dev, uint64_t sector, struct hybrid_superblock *block,
		    struct copy *c)
{
	c->r = read_copy(dev, sector, block, &c->sb, &c->why);
	c->version = c->r == -EPROTONOSUPPORT ? le32_to_cpu(block->version) : 0;
}

int hybrid_member_read(const struct hybrid_device *dev, struct hybrid_member *m)
{
	uint64_t size = dev->sectors;
	struct copy c[2];
	void *block;
	int r;

	memset(m, 0, sizeof(*m));
	memcpy(m->path, dev->path, sizeof(m->path));
	m->devno = dev->devno;
	m->sectors = dev->sectors;
	if (dev->sectors < HYBRID_HEAD_SECTORS + HYBRID_TAIL_SECTORS)
		return -ENODATA;
	block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	if (!block)
		return -ENOMEM;
	look_at(dev, HYBRID_SB_SECTOR, block, &c[0]);
	/* A device that has grown keeps its tail where it was */
	if (!c[0].r && c[0].sb.member_sectors < size)
		size = c[0].sb.member_sectors;
	look_at(dev, hybrid_sb_sector(size, 1), block, &c[1]);
	free(block);
	r = choose_copy(dev, m, c);
	m->gpt = !r && m->ok && has_table(dev, &m->sb);
	return r;
}

static bool all_zero(const void *block, size_t len)
{
	const char *p = block;

	return !p[0] && !memcmp(p, p + 1, len - 1);
}

bool hybrid_cache_root(const struct hybrid_device *dev, const struct hybrid_sb *sb,
		       struct hybrid_root_info *root)
{
	const struct hybrid_geometry *g = &sb->geometry;
	struct hybrid_root *block = hybrid_buffer(sizeof(*block));
	u16 *generations = calloc(g->nr_index, sizeof(*generations));
	bool all = block && generations;
	struct hybrid_ident id = {};
	struct hybrid_root_info info;
	unsigned int area;
	const char *why;

	memset(root, 0, sizeof(*root));
	memcpy(id.pool_uuid, sb->pool_uuid, sizeof(id.pool_uuid));
	for (area = 0; area < 2 && block && generations; area++) {
		if (hybrid_device_read(dev, hybrid_root_sector(g, area), block, sizeof(*block)))
			all = false;
		else if (hybrid_root_decode(block, g, &id, &info, generations, &why))
			all &= all_zero(block, 512);
		else if (info.sequence > root->sequence)
			*root = info;
	}
	free(generations);
	free(block);
	return all && root->sequence;
}

bool hybrid_cache_stopped(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	struct hybrid_root_info root;

	hybrid_cache_root(dev, sb, &root);
	return root.flags & HYBRID_ROOT_CLEAN;
}

/* The last MiB begins at a whole metadata block, as the tail's superblock is placed. */
static uint64_t tail_sector(uint64_t member_sectors)
{
	return member_sectors / HYBRID_META_BLOCK_SECTORS * HYBRID_META_BLOCK_SECTORS -
	       HYBRID_TAIL_SECTORS;
}

static int is_zero(const struct hybrid_device *dev, uint64_t sector, uint64_t sectors, bool *zero)
{
	size_t len = sectors * 512;
	char *buf = hybrid_buffer(len);
	int r = buf ? hybrid_device_read(dev, sector, buf, len) : -ENOMEM;

	*zero = !r && all_zero(buf, len);
	free(buf);
	return r;
}

static bool has_signature(const struct hybrid_device *dev, char why[HYBRID_WHY_MAX])
{
	char *text;
	bool found;

	if (hybrid_device_signatures(dev, &text)) {
		snprintf(why, HYBRID_WHY_MAX, "cannot be read");
		return true;
	}
	text[strcspn(text, "\n")] = '\0';
	found = text[0];
	if (found)
		snprintf(why, HYBRID_WHY_MAX, "holds data: %.120s", text);
	free(text);
	return found;
}

bool hybrid_member_blank(const struct hybrid_device *dev, char why[HYBRID_WHY_MAX])
{
	uint64_t end = tail_sector(dev->sectors);
	bool head = false, tail = false;
	struct hybrid_member m;
	int r = hybrid_member_read(dev, &m);

	why[0] = '\0';
	if (!r)
		snprintf(why, HYBRID_WHY_MAX, m.sb.role == HYBRID_ROLE_CACHE ?
			 "is the cache device of pool %.120s" : "is a member of dm-hybrid, %.120s",
			 m.sb.name[0] ? m.sb.name : m.why);
	else if (dev->sectors < HYBRID_HEAD_SECTORS + HYBRID_TAIL_SECTORS)
		snprintf(why, HYBRID_WHY_MAX, "is too small");
	else if (!dev->file && hybrid_devno_has_partitions(dev->devno))
		snprintf(why, HYBRID_WHY_MAX, "has partitions");
	if (why[0] || has_signature(dev, why))
		return false;
	r = is_zero(dev, 0, HYBRID_HEAD_SECTORS, &head);
	if (!r)
		r = is_zero(dev, end, dev->sectors - end, &tail);
	if (!r && head && tail)
		return true;
	snprintf(why, HYBRID_WHY_MAX, r ? "cannot be read" : head ?
		 "is not zero in its last MiB" : "is not zero in its first MiB");
	return false;
}

/* Planning ----------------------------------------------------------------- */

static void copy_name(char *dst, const char *src, size_t size)
{
	memset(dst, 0, size);
	memcpy(dst, src, strnlen(src, size - 1));
}

static int fail_random(void)
{
	return hybrid_fail(HYBRID_BADDEV, "try again", "no random numbers from the kernel");
}

static int check_zones(const struct hybrid_device *dev)
{
	if (!dev->zoned)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "choose another device, or use it through a dm-zoned target",
			   "%s is zoned: it cannot be written in arbitrary order", dev->path);
}

int hybrid_check_formattable(const struct hybrid_device *dev)
{
	int r = check_zones(dev);

	if (!r && dev->logical_sectors * 512 > HYBRID_META_BLOCK_SIZE)
		r = hybrid_fail(HYBRID_BADDEV, "choose another device, or format it with smaller sectors (nvme format)",
				"%s has sectors of %u bytes, and metadata needs %u or less",
				dev->path, dev->logical_sectors * 512, HYBRID_META_BLOCK_SIZE);
	return r;
}

int hybrid_cache_plan(const struct hybrid_device *dev, struct hybrid_cache_plan *plan)
{
	struct hybrid_sb *sb = &plan->sb;
	const char *why = NULL;
	int r;

	memset(sb, 0, sizeof(*sb));
	r = hybrid_check_formattable(dev);
	if (r)
		return r;
	r = hybrid_geometry_init(&sb->geometry, dev->sectors, plan->block_sectors,
				 plan->journal_blocks, &why);
	if (r)
		return hybrid_fail(HYBRID_BADDEV,
				   "choose another device, --block-size or --journal-size",
				   "%s (%llu MiB) cannot be a cache device: %s", dev->path,
				   (unsigned long long)dev->sectors >> 11,
				   why ? why : strerror(-r));
	sb->member_sectors = dev->sectors;
	sb->sequence = 1;
	sb->role = HYBRID_ROLE_CACHE;
	hybrid_uuid_new(sb->pool_uuid);
	hybrid_uuid_new(sb->member_uuid);
	copy_name(sb->name, plan->name, sizeof(sb->name));
	copy_name(sb->policy, plan->policy, sizeof(sb->policy));
	return 0;
}

static int inplace_identity(const struct hybrid_device *dev, struct hybrid_sb *sb)
{
	bool within = sb->data_sector;
	char identity[HYBRID_PATH_MAX + 64];

	/* A snapshot has the same file system UUID as its volume */
	if (hybrid_sysfs_snapshot_of(dev->devno))
		return hybrid_fail(HYBRID_REFUSED, "leave out --in-place, or copy it to a volume of its own",
				   "%s is a snapshot: an origin in place on a snapshot would not be found again",
				   dev->path);
	if (within && !hybrid_device_own_identity(dev, identity, sizeof(identity)))
		return hybrid_fail(HYBRID_BADDEV, "put it on a disk with a serial number, or on a partition of a GPT",
				   "%s cannot be recognised later: it has no serial number and no partition UUID",
				   dev->path);
	if (!within && !hybrid_device_identity(dev, identity, sizeof(identity)))
		return hybrid_fail(HYBRID_BADDEV,
				   "leave out --in-place, or put a file system on it first",
				   "%s cannot be recognised later: it has no file system and no serial number",
				   dev->path);
	hybrid_verbose("%s is recognised by %s", dev->path, identity);
	hybrid_uuid_of_identity(sb->member_uuid, identity);
	return 0;
}

static int origin_places(const struct hybrid_device *dev, const struct hybrid_origin_plan *plan,
			 struct hybrid_sb *sb)
{
	u64 data_sector, data_sectors;

	if (plan->inplace) {
		if (plan->data_sector >= dev->sectors)
			return hybrid_fail(HYBRID_BADDEV, "see where its data begins",
					   "%s has %llu sectors: its data cannot begin at %llu", dev->path,
					   (unsigned long long)dev->sectors,
					   (unsigned long long)plan->data_sector);
		sb->data_sector = plan->data_sector;
		sb->data_sectors = dev->sectors - plan->data_sector;
		return inplace_identity(dev, sb);
	}
	if (hybrid_origin_data(dev->sectors, dev->optimal_sectors, &data_sector, &data_sectors))
		return hybrid_fail(HYBRID_BADDEV, "choose a larger device",
				   "%s is too small for an origin (%llu KiB)", dev->path,
				   (unsigned long long)dev->sectors / 2);
	sb->data_sector = data_sector;
	sb->data_sectors = data_sectors;
	hybrid_uuid_new(sb->member_uuid);
	return 0;
}

int hybrid_origin_plan(const struct hybrid_device *dev, struct hybrid_origin_plan *plan)
{
	struct hybrid_sb *sb = &plan->sb;
	int r;

	memset(sb, 0, sizeof(*sb));
	r = plan->inplace ? check_zones(dev) : hybrid_check_formattable(dev);
	if (r)
		return r;
	if (dev->logical_sectors > plan->granule_sectors)
		return hybrid_fail(HYBRID_BADDEV, "use a pool with a larger block size",
				   "%s has sectors of %u bytes, more than the pool's granule of %u",
				   dev->path, dev->logical_sectors * 512,
				   plan->granule_sectors * 512);
	r = origin_places(dev, plan, sb);
	if (r)
		return r;
	if (hybrid_random(sb->pairing_key, sizeof(sb->pairing_key)))
		return fail_random();
	sb->member_sectors = dev->sectors;
	sb->sequence = 1;
	sb->role = HYBRID_ROLE_ORIGIN;
	sb->volume_id = plan->volume_id;
	memcpy(sb->pool_uuid, plan->pool_uuid, 16);
	hybrid_uuid_new(sb->volume_uuid);
	copy_name(sb->name, plan->name, sizeof(sb->name));
	return 0;
}

/* Writing ------------------------------------------------------------------ */

static int fail_write(const struct hybrid_device *dev, int r)
{
	return hybrid_fail(hybrid_exit_of_errno(-r), "check the device and the kernel log",
			   "%s: cannot write: %s", dev->path, strerror(-r));
}

/* Announces the member that the device is from now on. */
static void tell(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	struct hybrid_member m = {
		.devno = dev->devno, .ok = true, .copies = 3, .gpt = has_table(dev, sb), .sb = *sb
	};

	announce_found(dev->devno, &m);
}

static int write_copy(const struct hybrid_device *dev, const struct hybrid_sb *sb, unsigned int copy)
{
	struct hybrid_superblock *block = hybrid_buffer(sizeof(*block));
	uint64_t sector = hybrid_sb_sector(sb->member_sectors, copy);
	int r = block ? 0 : -ENOMEM;

	if (!r) {
		hybrid_sb_encode(block, sb, sector);
		r = hybrid_device_write(dev, sector, block, sizeof(*block));
	}
	if (!r)
		r = hybrid_device_flush(dev);
	free(block);
	return r;
}

static int zero_tail(const struct hybrid_device *dev, uint64_t sector, uint64_t sectors)
{
	int r = hybrid_device_zero(dev, sector, sectors);

	return r ? r : hybrid_device_flush(dev);
}

/*
 * A growth that was cut short left a tail at the end of the device, to which the head does not lead.  If
 * the head were lost, that tail would be found, and would be out of date.
 */
static int forget_new_tail(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	uint64_t end = hybrid_sb_sector(dev->sectors, 1);
	struct hybrid_sb found;
	const char *why;
	void *block;
	int r;

	if (sb->role == HYBRID_ROLE_CACHE || end <= hybrid_sb_sector(sb->member_sectors, 1))
		return 0;
	block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	if (!block)
		return -ENOMEM;
	r = read_copy(dev, end, block, &found, &why);
	free(block);
	if (r || memcmp(found.member_uuid, sb->member_uuid, 16))
		return 0;
	return zero_tail(dev, end, HYBRID_META_BLOCK_SECTORS);
}

/*
 * Returns the copy to write first, or -errno.  That write may be torn, so this copy is neither the only
 * good one of the member nor the only current one.
 */
static int first_to_write(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	void *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	struct hybrid_sb now[2];
	unsigned int copy;
	const char *why;
	bool good[2];

	if (!block)
		return -ENOMEM;
	for (copy = 0; copy < 2; copy++)
		good[copy] = !read_copy(dev, hybrid_sb_sector(sb->member_sectors, copy), block, &now[copy], &why) &&
			     !memcmp(now[copy].member_uuid, sb->member_uuid, 16);
	free(block);
	return good[0] && (!good[1] || now[1].sequence < now[0].sequence);
}

/* @undo: what the newer copy says is to go, even if the other one cannot be written. */
static int write_both(const struct hybrid_device *dev, const struct hybrid_sb *sb, bool undo)
{
	int first, r = forget_new_tail(dev, sb);

	if (r)
		return r;
	first = first_to_write(dev, sb);
	if (first < 0)
		return first;
	first ^= undo;
	/* One after the other, each durable: at least one copy is always whole */
	r = write_copy(dev, sb, first);
	if (!r)
		r = write_copy(dev, sb, !first);
	if (!r)
		tell(dev, sb);
	return r;
}

static int write_superblocks(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	return write_both(dev, sb, false);
}

/* One sector, which is never torn, has all of a superblock but the host id. */
static_assert(offsetof(struct hybrid_superblock, role_data) + sizeof(struct hybrid_sb_cache) <= 512);
static_assert(offsetof(struct hybrid_superblock, role_data) + sizeof(struct hybrid_sb_origin) <= 512);

/* First without a host id, so that a power cut leaves a whole member, or none. */
static int write_first_superblocks(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	struct hybrid_sb first = *sb;
	int r = 0;

	memset(first.host_id, 0, sizeof(first.host_id));
	first.sequence--;
	if (!hybrid_uuid_is_null(sb->host_id))
		r = write_superblocks(dev, &first);
	return r ? r : write_superblocks(dev, sb);
}

static int forget_tail(const struct hybrid_device *dev, uint64_t sector, void *block)
{
	struct hybrid_sb tail;
	const char *why;

	if (read_copy(dev, sector, block, &tail, &why))
		return 0;
	return zero_tail(dev, sector, HYBRID_META_BLOCK_SECTORS);
}

/* A tail within the data would count if the device gets that size again and the head is lost. */
int hybrid_member_forget_tails(const struct hybrid_device *dev, uint64_t member_sectors)
{
	uint64_t own = hybrid_sb_sector(member_sectors, 1), end = hybrid_sb_sector(dev->sectors, 1);
	void *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	struct hybrid_sb head;
	const char *why;
	int r = 0;

	if (!block)
		return -ENOMEM;
	if (!read_copy(dev, HYBRID_SB_SECTOR, block, &head, &why) &&
	    hybrid_sb_sector(head.member_sectors, 1) != own)
		r = forget_tail(dev, hybrid_sb_sector(head.member_sectors, 1), block);
	if (!r && end != own)
		r = forget_tail(dev, end, block);
	free(block);
	return r;
}

int hybrid_member_zero(const struct hybrid_device *dev, uint64_t member_sectors)
{
	uint64_t tail = tail_sector(member_sectors);
	uint64_t end = round_up(member_sectors, (u64)HYBRID_META_BLOCK_SECTORS);
	int r;

	/* Whole sectors of 4 KiB, unless the device ends before: it has smaller ones then */
	end = min_t(u64, end, dev->sectors);
	r = hybrid_device_zero(dev, 0, HYBRID_HEAD_SECTORS);
	if (!r)
		r = hybrid_device_zero(dev, tail, end - tail);
	return r ? r : hybrid_device_flush(dev);
}

bool hybrid_can_guard(const struct hybrid_device *dev)
{
	return dev->file || !hybrid_sysfs_partition(dev->devno);
}

/* A protective MBR, as GPT has it: one partition fills the disk, of a type that other tools leave alone. */
static int write_guard(const struct hybrid_device *dev)
{
	static const uint8_t entry[] = { 0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1 };
	uint64_t size = dev->sectors / dev->logical_sectors - 1;
	uint8_t *mbr = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	unsigned int i;
	int r;

	if (!mbr)
		return -ENOMEM;
	memcpy(mbr + 446, entry, sizeof(entry));
	if (size > UINT32_MAX)
		size = UINT32_MAX;
	for (i = 0; i < 4; i++)
		mbr[446 + 12 + i] = size >> 8 * i;
	mbr[510] = 0x55;
	mbr[511] = 0xaa;
	r = hybrid_device_write(dev, 0, mbr, HYBRID_META_BLOCK_SIZE);
	free(mbr);
	return r;
}

/* An empty head, but for the guard, and an empty tail. */
static int prepare_bands(const struct hybrid_device *dev, uint64_t member_sectors, bool guard)
{
	int r = hybrid_member_forget_tails(dev, member_sectors);

	if (!r)
		r = hybrid_member_zero(dev, member_sectors);
	return r || !guard || !hybrid_can_guard(dev) ? r : write_guard(dev);
}

static int write_root(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	const struct hybrid_geometry *g = &sb->geometry;
	struct hybrid_root_info info = {
		.sequence = FIRST_ROOT_SEQUENCE,
		.flags = HYBRID_ROOT_CLEAN,
		.next_instance = 1,
	};
	struct hybrid_root *block = hybrid_buffer(sizeof(*block));
	u16 *generations = calloc(g->nr_index, sizeof(*generations));
	struct hybrid_ident id;
	int r = -ENOMEM;

	if (!block || !generations)
		goto out;
	r = hybrid_random(&id.epoch, sizeof(id.epoch));
	if (r)
		goto out;
	info.epoch = id.epoch;
	memcpy(id.pool_uuid, sb->pool_uuid, sizeof(id.pool_uuid));
	hybrid_root_encode(block, g, &id, &info, generations);
	r = hybrid_device_write(dev, hybrid_root_sector(g, FIRST_ROOT_SEQUENCE), block,
				sizeof(*block));
	if (!r)
		r = hybrid_device_zero(dev, hybrid_root_sector(g, FIRST_ROOT_SEQUENCE + 1),
				       HYBRID_META_BLOCK_SECTORS);
	if (!r)
		r = hybrid_device_flush(dev);
out:
	free(generations);
	free(block);
	return r;
}

int hybrid_cache_format(const struct hybrid_device *dev, const struct hybrid_cache_plan *plan)
{
	int r;

	r = prepare_bands(dev, plan->sb.member_sectors, plan->guard);
	if (!r)
		r = write_root(dev, &plan->sb);
	if (!r)
		r = write_first_superblocks(dev, &plan->sb);
	return r ? fail_write(dev, r) : 0;
}

int hybrid_origin_format(const struct hybrid_device *dev, const struct hybrid_origin_plan *plan)
{
	int r;

	if (plan->inplace)
		return 0;
	r = prepare_bands(dev, plan->sb.member_sectors, plan->guard);
	if (!r)
		r = write_first_superblocks(dev, &plan->sb);
	return r ? fail_write(dev, r) : 0;
}

int hybrid_member_write(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	int r = write_superblocks(dev, sb);

	return r ? fail_write(dev, r) : 0;
}

int hybrid_member_write_back(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	int r = write_both(dev, sb, true);

	return r ? fail_write(dev, r) : 0;
}

/* Writes a new tail, zeroes the old one and its lost map, then writes head and tail with the new size. */
static int grow(const struct hybrid_device *dev, struct hybrid_sb *sb)
{
	uint64_t old = hybrid_sb_sector(sb->member_sectors, 1), end = hybrid_sb_sector(dev->sectors, 1);
	uint64_t sectors = 2 * HYBRID_META_BLOCK_SECTORS;
	int r = 0;

	sb->member_sectors = dev->sectors;
	if (end != old) {
		sb->sequence++;
		r = write_copy(dev, sb, 1);
		if (!r)
			r = zero_tail(dev, old, end - old < sectors ? end - old : sectors);
	}
	if (r)
		return r;
	sb->data_sectors = hybrid_origin_room(dev->sectors, sb->data_sector);
	sb->sequence++;
	return write_superblocks(dev, sb);
}

int hybrid_member_grow(const struct hybrid_device *dev, struct hybrid_sb *sb)
{
	int r = grow(dev, sb);

	return r ? fail_write(dev, r) : 0;
}

/* Read again before it is changed: the kernel wrote nonce and flags while it was in use. */
static int read_origin(const struct hybrid_device *dev, struct hybrid_member *m)
{
	int r = hybrid_member_read(dev, m);

	if (r || !m->ok)
		return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(m, "see hybridctl scan"),
				   "%s has no valid superblock%s%s", dev->path,
				   m->why[0] ? ": " : "", m->why);
	if (m->sb.role == HYBRID_ROLE_CACHE)
		return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan",
				   "%s is a cache device, not an origin", dev->path);
	return 0;
}

/* Writes both copies, with a nonce that no cache knows. */
static int write_changed(const struct hybrid_device *dev, struct hybrid_sb *sb)
{
	if (hybrid_random(&sb->nonce, sizeof(sb->nonce)))
		return fail_random();
	sb->sequence++;
	return hybrid_member_write(dev, sb);
}

static int read_lost_copy(const struct hybrid_device *dev, const struct hybrid_sb *sb,
			  unsigned int copy, struct hybrid_lost_map **map)
{
	u64 sector = hybrid_lost_sector(sb->member_sectors, copy);
	struct hybrid_lost_map *first = hybrid_buffer(HYBRID_META_BLOCK_SIZE), *all = NULL;
	int blocks, r;

	r = first ? hybrid_device_read(dev, sector, first, HYBRID_META_BLOCK_SIZE) : -ENOMEM;
	blocks = r ? r : hybrid_lost_peek(first, sb, copy, NULL);
	free(first);
	if (blocks < 0)
		return blocks;
	all = hybrid_buffer((size_t)blocks * HYBRID_META_BLOCK_SIZE);
	r = -ENOMEM;
	if (all)
		r = hybrid_device_read(dev, sector, all, (size_t)blocks * HYBRID_META_BLOCK_SIZE);
	if (!r)
		r = hybrid_lost_check(all, blocks, NULL);
	if (r)
		free(all);
	else
		*map = all;
	return r;
}

int hybrid_lost_map_read(const struct hybrid_device *dev, const struct hybrid_sb *sb,
			 struct hybrid_lost_map **map)
{
	return read_lost_copy(dev, sb, 0, map) ? read_lost_copy(dev, sb, 1, map) : 0;
}

static bool lost_is_known(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	struct hybrid_lost_map *map = NULL;
	bool known = sb->lost && !hybrid_lost_map_read(dev, sb, &map);

	free(map);
	return known;
}

/* A good lost map stays; without one, anything may be lost. */
static void keep_loss(const struct hybrid_device *dev, struct hybrid_sb *sb)
{
	bool dirty = sb->flags & HYBRID_SB_DIRTY, known = dirty && lost_is_known(dev, sb);

	if (!known)
		sb->lost = 0;
	if (dirty && !known)
		sb->flags |= HYBRID_SB_LOSS_UNKNOWN;
}

/* The loss stays on record until the user acknowledges it. */
static void warn_of_loss(const struct hybrid_sb *sb)
{
	if (sb->lost)
		hybrid_warn("volume %s has lost data with its cache: hybridctl lost %s lists it until hybridctl lost %s --acknowledge",
			    sb->name, sb->name, sb->name);
	else if (sb->flags & HYBRID_SB_LOSS_UNKNOWN)
		hybrid_warn("volume %s has lost data with its cache, and the ranges are unknown; hybridctl lost %s --acknowledge, once the data is restored",
			    sb->name, sb->name);
}

void hybrid_member_pair(struct hybrid_sb *sb, const uint8_t pool_uuid[16], uint32_t id,
			const uint8_t key[16])
{
	sb->role = HYBRID_ROLE_ORIGIN;
	sb->flags &= HYBRID_SB_EPHEMERAL;
	sb->sequence++;
	/* Never opened */
	sb->instance = 0;
	sb->nonce = 0;
	sb->paired_nonce = 0;
	sb->volume_id = id;
	memcpy(sb->pool_uuid, pool_uuid, 16);
	memcpy(sb->pairing_key, key, 16);
}

int hybrid_member_part(const struct hybrid_device *dev, struct hybrid_sb *sb)
{
	int r;

	if (sb->role == HYBRID_ROLE_ORIGIN)
		keep_loss(dev, sb);
	sb->role = HYBRID_ROLE_DETACHED;
	sb->flags &= HYBRID_SB_LOSS_UNKNOWN | HYBRID_SB_EPHEMERAL;
	sb->paired_nonce = 0;
	sb->volume_id = 0;
	memset(sb->pool_uuid, 0, sizeof(sb->pool_uuid));
	memset(sb->pairing_key, 0, sizeof(sb->pairing_key));
	r = write_changed(dev, sb);
	if (!r)
		warn_of_loss(sb);
	return r;
}

int hybrid_member_mark_detached(const struct hybrid_device *dev,
				const struct hybrid_volume_settings *next)
{
	struct hybrid_member m;
	int r;

	r = read_origin(dev, &m);
	if (r)
		return r;
	if (next) {
		m.sb.next.mode = next->mode;
		m.sb.next.cutoff_sectors = next->cutoff_sectors;
	}
	return hybrid_member_part(dev, &m.sb);
}

int hybrid_member_unite(const struct hybrid_device *dev, struct hybrid_member *m)
{
	int r = read_origin(dev, m);

	if (r || !m->apart)
		return r;
	m->sb.sequence++;
	m->apart = false;
	m->copies = 3;
	m->why[0] = '\0';
	return hybrid_member_write(dev, &m->sb);
}

char *hybrid_replaced_name(char name[HYBRID_NAME_SIZE], const struct hybrid_sb *sb)
{
	size_t len, suffix = strlen(HYBRID_NEW_SUFFIX);

	copy_name(name, sb->name, HYBRID_NAME_SIZE);
	len = strlen(name);
	if (len > suffix && !strcmp(name + len - suffix, HYBRID_NEW_SUFFIX))
		name[len - suffix] = '\0';
	return name;
}

/* One copy after the other, and one sector of each, which is written whole or not at all. */
static int unsign(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	unsigned int copy;
	int r = forget_new_tail(dev, sb);

	for (copy = 0; copy < 2 && !r; copy++) {
		r = hybrid_device_zero(dev, hybrid_sb_sector(sb->member_sectors, copy), dev->logical_sectors);
		if (!r)
			r = hybrid_device_flush(dev);
	}
	return r;
}

int hybrid_member_unsign(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	int r = unsign(dev, sb);

	if (!r)
		announce_found(dev->devno, NULL);
	return r ? fail_write(dev, r) : 0;
}

int hybrid_member_wipe(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	int r = hybrid_member_forget_tails(dev, sb->member_sectors);

	if (!r)
		r = unsign(dev, sb);
	if (!r)
		r = hybrid_member_zero(dev, sb->member_sectors);
	if (!r)
		announce_found(dev->devno, NULL);
	return r ? fail_write(dev, r) : 0;
}
