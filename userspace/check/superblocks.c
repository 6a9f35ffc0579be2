// SPDX-License-Identifier: GPL-2.0-or-later
/* Both superblocks of a member, read as the kernel reads them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "members.h"
#include "metadata.h"

static const char * const place[] = { "superblock in the head", "superblock in the tail" };

struct copy {
	struct hybrid_sb sb;
	const char *why;
	int error;
	u32 version;	/* if error is -EPROTONOSUPPORT */
};

static void read_copy(const struct hybrid_device *dev, uint64_t sector, struct copy *c)
{
	struct hybrid_superblock *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);

	memset(c, 0, sizeof(*c));
	c->error = -ENODATA;
	if (!block)
		c->error = -ENOMEM;
	else if (sector + HYBRID_META_BLOCK_SECTORS <= dev->sectors)
		c->error = hybrid_device_read(dev, sector, block, HYBRID_META_BLOCK_SIZE);
	if (block && !c->error)
		c->error = hybrid_sb_decode(block, sector, dev->sectors, &c->sb, &c->why);
	if (c->error == -EPROTONOSUPPORT)
		c->version = le32_to_cpu(block->version);
	free(block);
}

const char *hybrid_codec_text(char buf[HYBRID_CODEC_TEXT], int error, const char *why)
{
	const char *text = strerror(-error);

	if (error == -ENODATA)
		text = "there is none";
	else if (error == -EBADMSG)
		text = "its checksum does not match";
	else if (error == -EINVAL)
		text = "a field is out of bounds";
	else if (error == -ESTALE)
		text = "it is another one, or its write was lost";
	snprintf(buf, HYBRID_CODEC_TEXT, why ? "%s (%s)" : "%s", text, why);
	return buf;
}

static const char *copy_text(char buf[HYBRID_CODEC_TEXT], const struct copy *c)
{
	if (c->error == -EPROTONOSUPPORT)
		return hybrid_unknown_format(buf, c->version);
	return hybrid_codec_text(buf, c->error, c->why);
}

_Static_assert(HYBRID_FORMAT_TEXT <= HYBRID_CODEC_TEXT, "copy_text()");

static bool shrunk(const struct copy *c)
{
	return c->error == -EINVAL && c->why && !strcmp(c->why, "member_sectors");
}

/* Another release wrote one of them: for that release, the member may be good. */
static bool is_unknown(struct hybrid_findings *f, const struct copy c[2])
{
	const struct copy *other = c[0].error == -EPROTONOSUPPORT ? &c[0] : &c[1];
	char text[HYBRID_CODEC_TEXT];

	if (other->error != -EPROTONOSUPPORT)
		return false;
	hybrid_found(f, HYBRID_FOUND_SB_FEATURE, "superblocks", "%s", copy_text(text, other));
	return true;
}

/* Neither is good: reports the reason that says most. */
static int none_good(struct hybrid_findings *f, const struct copy c[2])
{
	enum hybrid_finding_id id = HYBRID_FOUND_SB_BOTH;
	char text[2][HYBRID_CODEC_TEXT];
	int i;

	if (is_unknown(f, c))
		return HYBRID_BADDEV;
	for (i = 0; i < 2; i++) {
		hybrid_codec_text(text[i], c[i].error, c[i].why);
		if (shrunk(&c[i]))
			id = HYBRID_FOUND_SB_SHRUNK;
		else if (c[i].error == -EIO)
			id = HYBRID_FOUND_UNREADABLE;
	}
	if (c[0].error == -ENODATA && c[1].error == -ENODATA)
		id = HYBRID_FOUND_SB_NONE;
	hybrid_found(f, id, "superblocks", "head: %s; tail: %s", text[0], text[1]);
	return HYBRID_BADDEV;
}

/* Both are good: do they belong together? */
static int compare(struct hybrid_findings *f, const struct copy c[2])
{
	const struct hybrid_sb *head = &c[0].sb, *tail = &c[1].sb;

	if (memcmp(head->member_uuid, tail->member_uuid, HYBRID_UUID_SIZE)) {
		hybrid_found(f, HYBRID_FOUND_SB_MEMBERS, "superblocks",
			     "head and tail have different member UUIDs");
		return HYBRID_BADDEV;
	}
	if (head->sequence != tail->sequence)
		hybrid_found(f, HYBRID_FOUND_SB_OLDER, place[tail->sequence < head->sequence],
			     "its sequence is %llu, the other's %llu",
			     (unsigned long long)min(head->sequence, tail->sequence),
			     (unsigned long long)max(head->sequence, tail->sequence));
	else if (memcmp(head, tail, sizeof(*head)))
		hybrid_found(f, HYBRID_FOUND_SB_DIFFER, "superblocks",
			     "head and tail have sequence %llu, but are not equal",
			     (unsigned long long)head->sequence);
	return 0;
}

static int choose(const struct hybrid_device *dev, struct hybrid_findings *f,
		  const struct copy c[2], struct hybrid_sb *sb)
{
	char text[HYBRID_CODEC_TEXT];
	int i, r = 0;

	if (c[0].error && c[1].error)
		return none_good(f, c);
	for (i = 0; i < 2; i++)
		if (c[i].error)
			hybrid_found(f, HYBRID_FOUND_SB_COPY, place[i], "%s",
				     copy_text(text, &c[i]));
	if (!c[0].error && !c[1].error)
		r = compare(f, c);
	*sb = c[c[0].error || (!c[1].error && c[1].sb.sequence > c[0].sb.sequence)].sb;
	if (sb->ro_compat & ~HYBRID_RO_COMPAT_KNOWN) {
		hybrid_found(f, HYBRID_FOUND_SB_FEATURE, "superblocks",
			     "features allow only reading (ro_compat %llx)",
			     (unsigned long long)sb->ro_compat);
		r = HYBRID_BADDEV;
	}
	if (hybrid_number_ends(sb->sequence))
		hybrid_found(f, HYBRID_FOUND_NUMBERS, "superblocks", "the sequence is %llu",
			     (unsigned long long)sb->sequence);
	if (dev->sectors > sb->member_sectors)
		hybrid_found(f, HYBRID_FOUND_SB_GROWN, NULL,
			     "formatted with %llu sectors, has %llu",
			     (unsigned long long)sb->member_sectors,
			     (unsigned long long)dev->sectors);
	return r;
}

int hybrid_superblocks_read(const struct hybrid_device *dev, struct hybrid_findings *f,
			    struct hybrid_superblocks *s)
{
	uint64_t end = dev->sectors;
	struct copy c[2];
	int i;

	memset(s, 0, sizeof(*s));
	if (dev->sectors < HYBRID_HEAD_SECTORS + HYBRID_TAIL_SECTORS) {
		hybrid_found(f, HYBRID_FOUND_SB_NONE, NULL,
			     "%llu sectors are too few for a member",
			     (unsigned long long)dev->sectors);
		return HYBRID_BADDEV;
	}
	read_copy(dev, hybrid_sb_sector(end, 0), &c[0]);
	/* A device that has grown keeps its tail where it was */
	if (!c[0].error)
		end = c[0].sb.member_sectors;
	read_copy(dev, hybrid_sb_sector(end, 1), &c[1]);
	if (c[0].error == -ENOMEM || c[1].error == -ENOMEM)
		return hybrid_nomem();
	for (i = 0; i < 2; i++) {
		s->copy[i] = c[i].sb;
		s->good |= (c[i].error ? 0 : 1) << i;
	}
	return choose(dev, f, c, &s->sb);
}
