// SPDX-License-Identifier: GPL-2.0-or-later
/* probe shows a member on one device, and wipe removes it. */
#include <blkid/blkid.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "config.h"
#include "errors.h"
#include "look.h"
#include "probe.h"

#define ENCODED_MAX	(4 * HYBRID_NAME_SIZE + 1)

/* Text from a device is not trusted: only harmless characters go to udev. */
void export_text(const char *key, const char *value)
{
	printf("%s=", key);
	for (; *value; value++)
		putchar(isalnum((unsigned char)*value) || strchr(" +-._/:@%,()", *value) ?
			*value : '_');
	putchar('\n');
}

/* As blkid does it: the plain text, and one that is fit for a path. */
static void export_both(const char *key, const char *value)
{
	char name[64], encoded[ENCODED_MAX];

	export_text(key, value);
	snprintf(name, sizeof(name), "%s_ENC", key);
	if (!blkid_encode_string(value, encoded, sizeof(encoded)))
		printf("%s=%s\n", name, encoded);
}

void export_member(const struct hybrid_member *m)
{
	char text[HYBRID_UUID_TEXT];

	puts("ID_FS_TYPE=dm_hybrid_member\nID_FS_USAGE=raid");
	export_text("HYBRID_ROLE", hybrid_role_name(m->sb.role));
	if (m->why[0])
		export_text("HYBRID_WHY", m->why);
	if (!m->sb.role)
		return;
	printf("ID_FS_VERSION=%u\n", HYBRID_FORMAT_VERSION);
	if (!hybrid_uuid_is_null(m->sb.pool_uuid)) {
		export_both("ID_FS_UUID", hybrid_uuid_text(text, m->sb.pool_uuid));
		export_text("HYBRID_POOL_UUID", text);
	}
	export_both("ID_FS_UUID_SUB", hybrid_uuid_text(text, m->sb.member_uuid));
	export_text("HYBRID_MEMBER_UUID", text);
	export_both("ID_FS_LABEL", m->sb.name);
	export_text("HYBRID_NAME", m->sb.name);
	if (!hybrid_uuid_is_null(m->sb.host_id))
		export_text("HYBRID_HOST_ID", hybrid_uuid_text(text, m->sb.host_id));
	if (m->sb.role == HYBRID_ROLE_CACHE)
		return;
	export_text("HYBRID_VOLUME_UUID", hybrid_uuid_text(text, m->sb.volume_uuid));
	export_text("HYBRID_DIRTY", m->sb.flags & HYBRID_SB_DIRTY ? "yes" : "no");
}

static void print_member(const struct hybrid_member *m)
{
	char text[HYBRID_UUID_TEXT];

	printf("%s: dm-hybrid member\n", m->path);
	printf("  role         %s\n", hybrid_role_name(m->sb.role));
	printf("  state        %s%s%s\n", !m->ok ? "refused" : m->copies == 3 ? "ok" : "one copy",
	       m->why[0] ? ": " : "", m->why);
	if (!m->sb.role)
		return;
	printf("  name         %s\n", m->sb.name);
	if (!hybrid_uuid_is_null(m->sb.pool_uuid))
		printf("  pool UUID    %s\n", hybrid_uuid_text(text, m->sb.pool_uuid));
	if (m->sb.role != HYBRID_ROLE_CACHE)
		printf("  volume UUID  %s\n", hybrid_uuid_text(text, m->sb.volume_uuid));
	printf("  member UUID  %s\n", hybrid_uuid_text(text, m->sb.member_uuid));
	printf("  host id      %s%s\n", hybrid_uuid_is_null(m->sb.host_id) ? "none" :
	       hybrid_uuid_text(text, m->sb.host_id),
	       hybrid_config_foreign(m->sb.host_id) ? " (another host)" : "");
	if (m->sb.role != HYBRID_ROLE_CACHE)
		printf("  data         sector %llu, %llu MiB%s\n",
		       (unsigned long long)m->sb.data_sector,
		       (unsigned long long)m->sb.data_sectors >> 11,
		       m->sb.flags & HYBRID_SB_DIRTY ? "; its cache may have newer data" : "");
}

/* An open device that is or claims to be a member. */
static int read_claimed(const struct hybrid_device *dev, struct hybrid_member *m)
{
	int r = hybrid_member_read(dev, m);

	if (r == -ENODATA)
		return hybrid_fail(HYBRID_BADDEV, NULL, "%s is not a member", dev->path);
	if (r)
		return hybrid_fail(HYBRID_BADDEV, "check the device and the kernel log",
				   "%s: cannot read: %s", dev->path, strerror(-r));
	return 0;
}

int command_probe(const struct command_line *cl)
{
	struct hybrid_device dev;
	struct hybrid_member m;
	int r;

	r = hybrid_device_answers(cl->argv[0]);
	if (!r)
		r = hybrid_device_open(&dev, cl->argv[0], HYBRID_OPEN_FILES);
	if (r)
		return r;
	r = read_claimed(&dev, &m);
	hybrid_device_close(&dev);
	if (r)
		return r;
	if (cl->given[OPT_EXPORT])
		export_member(&m);
	else
		print_member(&m);
	return m.ok ? 0 : HYBRID_BADDEV;
}

/* wipe --------------------------------------------------------------------- */

/* Describes the data that is lost with the superblocks, and the data that stays. */
static void wipe_loses(const struct hybrid_member *m, const char *tense, char *buf, size_t len)
{
	const struct hybrid_sb *sb = &m->sb;

	if (!sb->role)
		snprintf(buf, len, "the contents of its superblocks %s lost", tense);
	else if (sb->role == HYBRID_ROLE_CACHE)
		snprintf(buf, len, "the pool %s, with the data of its volumes that only it has, %s lost", sb->name, tense);
	else
		snprintf(buf, len, "the volume %s %s lost; its data stays where it is, from sector %llu on (%llu sectors)%s",
			 sb->name, tense, (unsigned long long)sb->data_sector,
			 (unsigned long long)sb->data_sectors,
			 sb->flags & HYBRID_SB_DIRTY && sb->role == HYBRID_ROLE_ORIGIN ?
			 ", except the data that only its cache has" : "");
}

static int confirm_wipe(const struct command_line *cl, const struct hybrid_member *m)
{
	bool used = m->sb.role != HYBRID_ROLE_DETACHED;
	bool unasked = cl->given[OPT_YES] && !cl->given[OPT_WIPE_SIGNATURES];
	char question[HYBRID_NAME_SIZE + 256] = "Its first and its last MiB will be zeroed: ";
	size_t len = strlen(question);

	if (unasked && m->unknown)
		return hybrid_fail(HYBRID_REFUSED, HYBRID_FORMAT_NEXT, "%s: %s", m->path, m->why);
	if (m->sb.role)
		fprintf(stderr, "  %s: dm-hybrid %s, \"%s\"%s\n", m->path,
			hybrid_role_name(m->sb.role), m->sb.name,
			m->sb.flags & HYBRID_SB_DIRTY ? ", its cache has newer data" : "");
	else
		fprintf(stderr, "  %s: dm-hybrid member: %s\n", m->path, m->why);
	if (used && unasked)
		return hybrid_fail(HYBRID_REFUSED,
				   m->sb.role == HYBRID_ROLE_CACHE ?
				   "hybridctl destroy, if it has no volumes; or add --wipe-signatures if it may be lost" :
				   "detach it; or add --wipe-signatures if it may be lost",
				   "%s belongs to a pool", m->path);
	wipe_loses(m, "will be", question + len, sizeof(question) - len - 1);
	strcat(question, ".");
	return confirm(cl, question);
}

static void print_wiped(const struct hybrid_device *dev, const struct hybrid_member *m)
{
	char lost[HYBRID_NAME_SIZE + 192];

	wipe_loses(m, "is", lost, sizeof(lost));
	hybrid_note("%s is no longer a member: its first and its last MiB are zeroed", dev->path);
	hybrid_note("%s", lost);
}

/* While the user was asked, the device may have become another member. */
static int check_same(const struct hybrid_device *dev, const struct hybrid_member *m)
{
	struct hybrid_member now;
	int r = read_claimed(dev, &now);

	if (r || (now.sb.role == m->sb.role && now.sb.sequence == m->sb.sequence &&
		  !memcmp(now.sb.member_uuid, m->sb.member_uuid, 16)))
		return r;
	return hybrid_fail(HYBRID_BUSY, "check it, then start over",
			   "%s has changed meanwhile", dev->path);
}

static int wipe(const struct command_line *cl, struct hybrid_device *dev)
{
	struct hybrid_member m;
	int r;

	r = read_claimed(dev, &m);
	if (r)
		return r;
	if (cl->given[OPT_TEST]) {
		printf("write %s: zero the first and the last MiB\n", dev->path);
		return 0;
	}
	r = confirm_wipe(cl, &m);
	if (!r)
		r = lock_tools();
	if (!r)
		r = hybrid_device_reopen(dev, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE |
					 HYBRID_OPEN_FILES);
	if (!r)
		r = check_same(dev, &m);
	/* A member that cannot be read may have had any size: take that of the device */
	if (!m.sb.member_sectors)
		m.sb.member_sectors = dev->sectors;
	if (!r)
		r = hybrid_member_wipe(dev, &m.sb);
	if (!r)
		print_wiped(dev, &m);
	return r;
}

int command_wipe(const struct command_line *cl)
{
	struct hybrid_device dev;
	int r;

	r = hybrid_device_answers(cl->argv[0]);
	if (r)
		return r;
	r = hybrid_device_open(&dev, cl->argv[0], HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (!r)
		r = wipe(cl, &dev);
	hybrid_device_close(&dev);
	return r;
}
