// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "announce.h"
#include "dm.h"
#include "errors.h"
#include "sysfs.h"
#include "units.h"

#define NOTE_MAX	128

/* A member, by the name of its file: "8:16.cache.<pool UUID>.<member UUID>"; an unknown UUID is null. */
struct note {
	char name[NOTE_MAX];
	dev_t devno;
	uint32_t role;
	uint8_t pool[16], member[16];
};

/* Flags in its file */
#define NOTE_OK		1
#define NOTE_GPT	2
#define NOTE_UNREAD	4

/* Content of its file, without secrets. */
struct content {
	struct hybrid_superblock sb;	/* that of the head, or zeroes */
	char text[HYBRID_WHY_MAX + 64];	/* "<disk sequence> <copies> <flags> <why>" */
};

static void run_path(char *buf, size_t len, const char *what, const char *name)
{
	snprintf(buf, len, "%s/%s%s", hybrid_run_dir(), what, name);
}

static DIR *open_notes(const char *what)
{
	char path[HYBRID_PATH_MAX];

	run_path(path, sizeof(path), what, "");
	return opendir(path);
}

/*
 * Each note has its own file, so that concurrent events do not clash.  The file appears as a
 * whole, so that nobody reads half of it.
 */
static void make_note(const char *what, const char *name, const void *content, size_t len)
{
	char path[HYBRID_PATH_MAX + NOTE_MAX], new[HYBRID_PATH_MAX + NOTE_MAX];
	bool made;
	int fd;

	run_path(path, sizeof(path), "", "");
	mkdir(path, 0755);
	run_path(path, sizeof(path), what, "");
	mkdir(path, 0755);
	run_path(path, sizeof(path), what, name);
	run_path(new, sizeof(new), what, ".XXXXXX");
	fd = mkstemp(new);
	made = fd >= 0 && write(fd, content, len) == (ssize_t)len && !fchmod(fd, 0644) &&
	       !rename(new, path);
	if (!made)
		hybrid_warn("%s: %s", path, strerror(errno));
	if (!made && fd >= 0)
		unlink(new);
	if (fd >= 0)
		close(fd);
}

/* Members ------------------------------------------------------------------ */

static void name_note(struct note *n, dev_t devno, const struct hybrid_member *m)
{
	char pool[HYBRID_UUID_TEXT], member[HYBRID_UUID_TEXT], text[32];

	snprintf(n->name, sizeof(n->name), "%s.%s.%s.%s",
		 hybrid_devno_text(devno, text, sizeof(text)), hybrid_role_name(m->sb.role),
		 hybrid_uuid_text(pool, m->sb.pool_uuid),
		 hybrid_uuid_text(member, m->sb.member_uuid));
}

static void write_note(const struct note *n, const struct hybrid_member *m)
{
	struct content c = {};
	struct hybrid_sb sb = m->sb;

	memset(sb.pairing_key, 0, sizeof(sb.pairing_key));
	sb.nonce = 0;
	sb.paired_nonce = 0;
	if (sb.role)
		hybrid_sb_encode(&c.sb, &sb, HYBRID_SB_SECTOR);
	snprintf(c.text, sizeof(c.text), "%llu %u %d %s",
		 (unsigned long long)hybrid_devno_sequence(n->devno), m->copies,
		 (m->ok ? NOTE_OK : 0) | (m->gpt ? NOTE_GPT : 0) | (m->unread ? NOTE_UNREAD : 0), m->why);
	make_note("members/", n->name, &c, sizeof(c));
}

static uint32_t parse_role(const char *name)
{
	static const uint32_t roles[] = {
		HYBRID_ROLE_CACHE, HYBRID_ROLE_ORIGIN, HYBRID_ROLE_DETACHED,
	};
	unsigned int i;

	for (i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (!strcmp(name, hybrid_role_name(roles[i])))
			return roles[i];
	return 0;
}

static bool parse_note(const char *name, struct note *n)
{
	char devno[32], role[16], pool[HYBRID_UUID_TEXT], member[HYBRID_UUID_TEXT];

	if (sscanf(name, "%31[0-9:].%15[a-z].%36[0-9a-f-].%36[0-9a-f-]", devno, role, pool,
		   member) != 4)
		return false;
	snprintf(n->name, sizeof(n->name), "%.127s", name);
	n->role = parse_role(role);
	return !hybrid_devno_parse(devno, &n->devno) && hybrid_uuid_parse(pool, n->pool) &&
	       hybrid_uuid_parse(member, n->member);
}

static bool next_note(DIR *dir, struct note *n)
{
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (parse_note(e->d_name, n))
			return true;
	return false;
}

/* A member may have been refused because of this copy: it is treated as if plugged in now. */
static void look_again(const struct note *gone)
{
	DIR *dir = open_notes("members/");
	struct note n;

	while (next_note(dir, &n))
		if (n.devno != gone->devno && !hybrid_uuid_is_null(n.member) &&
		    !memcmp(n.member, gone->member, 16))
			hybrid_sysfs_uevent(n.devno, "add");
	if (dir)
		closedir(dir);
}

void announce(dev_t devno, const struct hybrid_member *m)
{
	DIR *dir = open_notes("members/");
	struct note n, now = { .devno = devno };

	if (m)
		name_note(&now, devno, m);
	while (next_note(dir, &n)) {
		if (n.devno != devno || !strcmp(n.name, now.name))
			continue;
		unlinkat(dirfd(dir), n.name, 0);
		if (!m || memcmp(n.member, m->sb.member_uuid, 16))
			look_again(&n);
	}
	if (dir)
		closedir(dir);
	if (m)
		write_note(&now, m);
}

static bool is_noted(dev_t devno)
{
	DIR *dir = open_notes("members/");
	bool found = false;
	struct note n;

	while (!found && next_note(dir, &n))
		found = n.devno == devno;
	if (dir)
		closedir(dir);
	return found;
}

void announce_found(dev_t devno, const struct hybrid_member *m)
{
	if (devno && (!m || is_noted(devno) || !hybrid_udev_runs()))
		announce(devno, m);
}

bool announced_any(void)
{
	DIR *dir = open_notes("members/");

	if (dir)
		closedir(dir);
	return dir;
}

static bool concerns(const struct note *n, const struct hybrid_member *m)
{
	return n->devno == m->devno ||
	       (m->sb.role && !memcmp(n->member, m->sb.member_uuid, 16)) ||
	       (m->sb.role && n->role == HYBRID_ROLE_CACHE && !memcmp(n->pool, m->sb.pool_uuid, 16));
}

/* False: the device is gone, or another has its number. */
static bool read_note(DIR *dir, const struct note *n, struct hybrid_member *m)
{
	unsigned long long sequence;
	struct content c = {};
	const char *why;
	int fd, end, flags;
	ssize_t len;

	fd = openat(dirfd(dir), n->name, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? -1 : read(fd, &c, sizeof(c));
	if (fd >= 0)
		close(fd);
	c.text[sizeof(c.text) - 1] = '\0';
	if (len != sizeof(c) || sscanf(c.text, "%llu %u %d %n", &sequence, &m->copies, &flags, &end) != 3) {
		snprintf(m->why, sizeof(m->why), "it is announced without its superblock");
		return true;
	}
	if (sequence != hybrid_devno_sequence(n->devno))
		return false;
	m->ok = flags & NOTE_OK;
	m->gpt = flags & NOTE_GPT;
	m->unread = flags & NOTE_UNREAD;
	snprintf(m->why, sizeof(m->why), "%.159s", c.text + end);
	if (m->sb.role &&
	    hybrid_sb_decode(&c.sb, HYBRID_SB_SECTOR, m->sectors, &m->sb, &why)) {
		m->ok = false;
		snprintf(m->why, sizeof(m->why), "it differs from its announcement");
	}
	return true;
}

static bool remember(DIR *dir, const struct note *n, struct hybrid_member *m)
{
	memset(m, 0, sizeof(*m));
	m->devno = n->devno;
	m->sectors = hybrid_devno_sectors(n->devno);
	m->sb.role = n->role;
	memcpy(m->sb.pool_uuid, n->pool, 16);
	memcpy(m->sb.member_uuid, n->member, 16);
	/* No path, but a number: the device is gone */
	return hybrid_devno_path(n->devno, m->path, sizeof(m->path))[0] == '/' &&
	       read_note(dir, n, m);
}

static int compare_paths(const void *a, const void *b)
{
	const struct hybrid_member *one = a, *two = b;

	return strverscmp(one->path, two->path);
}

int announced(const struct hybrid_member *about, struct hybrid_member **known, unsigned int *nr)
{
	DIR *dir = open_notes("members/");
	struct hybrid_member *array;
	struct note n;
	int r = 0;

	*known = NULL;
	*nr = 0;
	while (!r && next_note(dir, &n)) {
		if (about && !concerns(&n, about))
			continue;
		array = realloc(*known, (*nr + 1) * sizeof(*array));
		if (!array) {
			r = hybrid_nomem();
			break;
		}
		*known = array;
		if (remember(dir, &n, &array[*nr]))
			++*nr;
	}
	if (dir)
		closedir(dir);
	if (*nr)
		qsort(*known, *nr, sizeof(**known), compare_paths);
	return r;
}

void announce_unreadable(dev_t devno, const char *why)
{
	DIR *dir = open_notes("members/");
	struct hybrid_member m;
	struct note n;

	while (next_note(dir, &n)) {
		if (n.devno != devno || !remember(dir, &n, &m))
			continue;
		m.ok = false;
		m.unread = true;
		snprintf(m.why, sizeof(m.why), "%s", why);
		write_note(&n, &m);
	}
	if (dir)
		closedir(dir);
}

/* Origins in place --------------------------------------------------------- */

/* "<identity>.<pool UUID>" */
static void name_awaited(char name[NOTE_MAX], const uint8_t identity[16],
			 const uint8_t pool[16])
{
	char a[HYBRID_UUID_TEXT], b[HYBRID_UUID_TEXT];

	snprintf(name, NOTE_MAX, "%s.%s", hybrid_uuid_text(a, identity),
		 hybrid_uuid_text(b, pool));
}

void await_origin(const uint8_t identity[16], const uint8_t pool[16])
{
	char name[NOTE_MAX];

	name_awaited(name, identity, pool);
	make_note("awaited/", name, "", 0);
}

/* The directory goes with the last of them: udev rules look for it. */
void await_no_longer(const uint8_t identity[16], const uint8_t pool[16])
{
	char path[HYBRID_PATH_MAX + NOTE_MAX], name[NOTE_MAX];

	name_awaited(name, identity, pool);
	run_path(path, sizeof(path), "awaited/", name);
	if (unlink(path))
		return;
	run_path(path, sizeof(path), "awaited/", "");
	rmdir(path);
}

bool awaits_any(void)
{
	DIR *dir = open_notes("awaited/");

	if (dir)
		closedir(dir);
	return dir;
}

bool awaited(const uint8_t identity[16], uint8_t pool[16])
{
	char a[HYBRID_UUID_TEXT], b[HYBRID_UUID_TEXT];
	DIR *dir = open_notes("awaited/");
	bool found = false;
	struct dirent *e;
	uint8_t uuid[16];

	while (dir && !found && (e = readdir(dir)))
		found = sscanf(e->d_name, "%36[0-9a-f-].%36[0-9a-f-]", a, b) == 2 &&
			hybrid_uuid_parse(a, uuid) && !memcmp(uuid, identity, 16) &&
			hybrid_uuid_parse(b, pool) && hybrid_dm_find(pool, true);
	if (dir)
		closedir(dir);
	return found;
}
