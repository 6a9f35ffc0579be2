// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <libudev.h>
#include <limits.h>
#include <linux/major.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "config.h"
#include "devices.h"
#include "sysfs.h"

#define DISKS_MAX	64	/* physical disks below one device */
#define DEPTH_MAX	16

static FILE *open_attr(dev_t devno, const char *attr)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(devno), minor(devno),
		 attr);
	return fopen(path, "re");
}

/* First line of an attribute, without blanks at its ends; false if empty. */
static bool read_attr(dev_t devno, const char *attr, char *buf, size_t len)
{
	FILE *f = open_attr(devno, attr);
	size_t n;

	if (!f)
		return false;
	buf[0] = '\0';
	if (!fgets(buf, len, f))
		buf[0] = '\0';
	fclose(f);
	n = strlen(buf);
	while (n && strchr(" \n", buf[n - 1]))
		buf[--n] = '\0';
	n = strspn(buf, " ");
	memmove(buf, buf + n, strlen(buf + n) + 1);
	return buf[0];
}

static bool has_attr(dev_t devno, const char *attr)
{
	FILE *f = open_attr(devno, attr);

	if (f)
		fclose(f);
	return f;
}

static DIR *open_subdir(dev_t devno, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(devno), minor(devno),
		 name);
	return opendir(path);
}

/* Next entry that is no dot file; NULL at the end. */
static const char *next_entry(DIR *dir)
{
	struct dirent *e;

	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			return e->d_name;
	return NULL;
}

bool hybrid_sysfs_devno(const char *kname, dev_t *devno)
{
	char path[PATH_MAX], text[32];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "/sys/class/block/%s/dev", kname);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fscanf(f, "%31s", text) == 1 && !hybrid_devno_parse(text, devno);
	fclose(f);
	return ok;
}

bool hybrid_sysfs_holders(dev_t devno, char *buf, size_t len)
{
	DIR *dir = open_subdir(devno, "holders");
	char dm_name[NAME_MAX];
	const char *name;
	size_t used = 0;
	dev_t holder;

	buf[0] = '\0';
	while (dir && (name = next_entry(dir))) {
		/* dm-0 says nothing */
		if (hybrid_sysfs_devno(name, &holder) &&
		    read_attr(holder, "dm/name", dm_name, sizeof(dm_name)))
			name = dm_name;
		if (used + strlen(name) + 2 < len)
			used += sprintf(buf + used, used ? " %s" : "%s", name);
	}
	if (dir)
		closedir(dir);
	return used;
}

bool hybrid_devno_held(dev_t devno, dev_t holder)
{
	DIR *dir = open_subdir(devno, "holders");
	const char *name;
	bool held = false;
	dev_t found;

	while (dir && !held && (name = next_entry(dir)))
		held = !holder || (hybrid_sysfs_devno(name, &found) && found == holder);
	if (dir)
		closedir(dir);
	return held;
}

bool hybrid_devno_has_partitions(dev_t devno)
{
	DIR *dir = open_subdir(devno, "");
	char attr[NAME_MAX + 16];
	const char *name;
	bool found = false;

	while (dir && !found && (name = next_entry(dir))) {
		snprintf(attr, sizeof(attr), "%s/partition", name);
		found = has_attr(devno, attr);
	}
	if (dir)
		closedir(dir);
	return found;
}

bool hybrid_sysfs_partition(dev_t devno)
{
	return has_attr(devno, "partition");
}

/* The disk of a partition; any other device itself. */
static dev_t whole_disk(dev_t devno)
{
	char text[32];
	dev_t disk;

	if (hybrid_sysfs_partition(devno) && read_attr(devno, "../dev", text, sizeof(text)) &&
	    !hybrid_devno_parse(text, &disk))
		return disk;
	return devno;
}

static uint64_t read_number(dev_t devno, const char *attr)
{
	char text[32];

	return read_attr(devno, attr, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

uint64_t hybrid_devno_sectors(dev_t devno)
{
	return read_number(devno, "size");
}

uint64_t hybrid_devno_sequence(dev_t devno)
{
	return read_number(whole_disk(devno), "diskseq");
}

bool hybrid_sysfs_queue(dev_t devno, const char *attr, unsigned int *value)
{
	char name[64], text[32];

	snprintf(name, sizeof(name), "queue/%s", attr);
	if (!read_attr(whole_disk(devno), name, text, sizeof(text)))
		return false;
	*value = strtoul(text, NULL, 10);
	return true;
}

/* PARTUUID of a partition, from udev's copy in its uevent (5.x and newer). */
static bool partition_uuid(dev_t devno, char *buf, size_t len)
{
	FILE *f = open_attr(devno, "uevent");
	char line[256];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "PARTUUID=", 9))
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(buf, len, "%s", line);
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

bool hybrid_sysfs_disk_id(dev_t devno, char *buf, size_t len)
{
	static const char * const attrs[] = {
		"dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial",
	};
	char id[192], part[16] = "";
	dev_t disk = whole_disk(devno);
	unsigned int i;

	if (partition_uuid(devno, buf, len))
		return true;
	if (disk != devno)
		read_attr(devno, "partition", part, sizeof(part));
	for (i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
		/* Some drivers print a missing string */
		if (!read_attr(disk, attrs[i], id, sizeof(id)) || !strcmp(id, "(null)"))
			continue;
		snprintf(buf, len, "%s=%s%s%s", attrs[i], id, part[0] ? "/" : "", part);
		return true;
	}
	return false;
}

/* Collect the disks at the bottom of a stack of devices. */
static unsigned int bottom_disks(dev_t devno, dev_t *disks, unsigned int nr, int depth)
{
	DIR *dir = open_subdir(devno, "slaves");
	bool bottom = true;
	const char *name;
	dev_t slave;

	while (dir && depth < DEPTH_MAX && (name = next_entry(dir))) {
		if (!hybrid_sysfs_devno(name, &slave))
			continue;
		bottom = false;
		nr = bottom_disks(slave, disks, nr, depth + 1);
	}
	if (dir)
		closedir(dir);
	if (bottom && nr < DISKS_MAX)
		disks[nr++] = whole_disk(devno);
	return nr;
}

bool hybrid_sysfs_share_disk(dev_t a, dev_t b)
{
	dev_t of_a[DISKS_MAX], of_b[DISKS_MAX];
	unsigned int na, nb, i, j;

	na = bottom_disks(a, of_a, 0, 0);
	nb = bottom_disks(b, of_b, 0, 0);
	for (i = 0; i < na; i++)
		for (j = 0; j < nb; j++)
			if (of_a[i] == of_b[j])
				return true;
	return false;
}

bool hybrid_sysfs_removable(dev_t devno)
{
	dev_t disks[DISKS_MAX];
	unsigned int nr = bottom_disks(devno, disks, 0, 0), i;
	char text[8];

	for (i = 0; i < nr; i++)
		if (read_attr(disks[i], "removable", text, sizeof(text)) && !strcmp(text, "1"))
			return true;
	return false;
}

bool hybrid_udev_multipath(dev_t devno)
{
	struct udev *udev = udev_new();
	struct udev_device *dev = udev ? udev_device_new_from_devnum(udev, 'b', devno) : NULL;
	const char *value;
	bool path;

	value = dev ? udev_device_get_property_value(dev, "DM_MULTIPATH_DEVICE_PATH") : NULL;
	path = value && !strcmp(value, "1");
	udev_device_unref(dev);
	udev_unref(udev);
	return path;
}

/* DEVLINKS of the event that this runs in, which udev does not yet tell others. */
static bool any_link_of_event(dev_t devno, bool (*matches)(const char *name, void *arg), void *arg)
{
	const char *maj = getenv("MAJOR"), *min = getenv("MINOR"), *links = getenv("DEVLINKS");
	char *copy, *name, *save;
	bool found = false;

	if (!maj || !min || !links || strtoul(maj, NULL, 10) != major(devno) ||
	    strtoul(min, NULL, 10) != minor(devno))
		return false;
	copy = strdup(links);
	for (name = copy ? strtok_r(copy, " ", &save) : NULL; name && !found;
	     name = strtok_r(NULL, " ", &save))
		found = matches(name, arg);
	free(copy);
	return found;
}

static bool any_link(dev_t devno, bool (*matches)(const char *name, void *arg), void *arg)
{
	struct udev *udev = udev_new();
	struct udev_device *dev = udev ? udev_device_new_from_devnum(udev, 'b', devno) : NULL;
	struct udev_list_entry *link = dev ? udev_device_get_devlinks_list_entry(dev) : NULL;
	bool found = false;

	for (; link && !found; link = udev_list_entry_get_next(link))
		found = matches(udev_list_entry_get_name(link), arg);
	udev_device_unref(dev);
	udev_unref(udev);
	return found;
}

bool hybrid_devno_any_name(dev_t devno, bool (*matches)(const char *name, void *arg), void *arg)
{
	char path[HYBRID_PATH_MAX];

	return matches(hybrid_devno_path(devno, path, sizeof(path)), arg) ||
	       any_link_of_event(devno, matches, arg) || any_link(devno, matches, arg);
}

static bool is_same_name(const char *name, void *arg)
{
	return !strcmp(name, arg);
}

unsigned int hybrid_udev_claims(const char *name)
{
	struct udev *udev = udev_new();
	struct udev_enumerate *all = udev ? udev_enumerate_new(udev) : NULL;
	struct udev_list_entry *entry = NULL;
	struct udev_device *dev;
	unsigned int claims = 0;

	if (all && !udev_enumerate_add_match_subsystem(all, "block") &&
	    !udev_enumerate_scan_devices(all))
		entry = udev_enumerate_get_list_entry(all);
	for (; entry; entry = udev_list_entry_get_next(entry)) {
		dev = udev_device_new_from_syspath(udev, udev_list_entry_get_name(entry));
		if (dev && any_link(udev_device_get_devnum(dev), is_same_name, (void *)name))
			claims++;
		udev_device_unref(dev);
	}
	udev_enumerate_unref(all);
	udev_unref(udev);
	return claims;
}

bool hybrid_sysfs_ours(dev_t devno)
{
	char uuid[192];

	return read_attr(devno, "dm/uuid", uuid, sizeof(uuid)) && !strncmp(uuid, "HYBRID-", 7);
}

bool hybrid_devno_no_disk(dev_t devno)
{
	switch (major(devno)) {
	case FLOPPY_MAJOR:
	case SCSI_CDROM_MAJOR:
	case MTD_BLOCK_MAJOR:
		return true;
	}
	return false;
}

void hybrid_sysfs_uevent(dev_t devno, const char *action)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/uevent", major(devno), minor(devno));
	f = fopen(path, "we");
	if (!f)
		return;
	fputs(action, f);
	fclose(f);
}

/* @disk: that @lower is a partition of, or @lower.  multipath holds disks, not partitions. */
static bool built_on(dev_t upper, dev_t lower, dev_t disk, int depth)
{
	DIR *dir = open_subdir(whole_disk(upper), "slaves");
	const char *name;
	bool found = false;
	dev_t slave;

	while (dir && !found && depth < DEPTH_MAX && (name = next_entry(dir)))
		found = hybrid_sysfs_devno(name, &slave) &&
			(slave == lower || slave == disk ||
			 built_on(slave, lower, disk, depth + 1));
	if (dir)
		closedir(dir);
	return found;
}

bool hybrid_sysfs_built_on(dev_t upper, dev_t lower)
{
	return upper && lower && built_on(upper, lower, whole_disk(lower), 0);
}

/* Whether the DM_UUID of @layer is @uuid and @suffix. */
static bool is_layer(const char *layer, const char *uuid, const char *suffix)
{
	size_t len = strlen(uuid);

	return !strncmp(layer, uuid, len) && !strcmp(layer + len, suffix);
}

/*
 * LVM names what is below a snapshot by UUIDs: "LVM-<its own>-cow", where both differ, and
 * "LVM-<the other volume's>-real".  The other volume is made of the latter, too; while a
 * snapshot is merged into it of both, but then the UUID that goes with "-cow" is not its own.
 */
dev_t hybrid_sysfs_snapshot_of(dev_t devno)
{
	char uuid[192], layer[192];
	bool snapshot = false;
	dev_t slave, real = 0;
	const char *name;
	size_t len;
	DIR *dir;

	if (!read_attr(devno, "dm/uuid", uuid, sizeof(uuid)) || strncmp(uuid, "LVM-", 4))
		return 0;
	dir = open_subdir(devno, "slaves");
	while (dir && (name = next_entry(dir))) {
		if (!hybrid_sysfs_devno(name, &slave) ||
		    !read_attr(slave, "dm/uuid", layer, sizeof(layer)))
			continue;
		len = strlen(layer);
		if (is_layer(layer, uuid, "-cow"))
			snapshot = true;
		else if (len > 5 && !strcmp(layer + len - 5, "-real"))
			real = slave;
	}
	if (dir)
		closedir(dir);
	return snapshot ? real : 0;
}

/* Whether $HYBRID_SCAN_ONLY, kernel names with blanks between, allows it. */
static bool scan_allowed(const char *kname)
{
	const char *list = getenv("HYBRID_SCAN_ONLY");
	size_t len = strlen(kname), n;

	if (!list || !*list)
		return true;
	for (list += strspn(list, " "); *list; list += n + strspn(list + n, " ")) {
		n = strcspn(list, " ");
		if (n == len && !strncmp(list, kname, n))
			return true;
	}
	return false;
}

int hybrid_sysfs_each(int (*fn)(const char *kname, dev_t devno, void *arg), void *arg)
{
	struct dirent **entries;
	int i, n, r = 0;
	dev_t devno;

	n = scandir("/sys/class/block", &entries, NULL, versionsort);
	for (i = 0; i < n; i++) {
		if (!r && entries[i]->d_name[0] != '.' && scan_allowed(entries[i]->d_name) &&
		    hybrid_sysfs_devno(entries[i]->d_name, &devno) &&
		    !hybrid_devno_no_disk(devno) && hybrid_config_looks_at(devno))
			r = fn(entries[i]->d_name, devno, arg);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return r;
}

char *hybrid_devno_path(dev_t devno, char *buf, size_t len)
{
	char name[HYBRID_PATH_MAX - 16], link[PATH_MAX], target[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (read_attr(devno, "dm/name", name, sizeof(name))) {
		snprintf(buf, len, "/dev/mapper/%s", name);
		if (!stat(buf, &st) && st.st_rdev == devno)
			return buf;
	}
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(devno), minor(devno));
	n = readlink(link, target, sizeof(target) - 1);
	if (n > 0) {
		target[n] = '\0';
		snprintf(buf, len, "/dev/%s", strrchr(target, '/') ? strrchr(target, '/') + 1 :
			 target);
		/* A name with a slash (cciss/c0d0) has "!" there in sysfs */
		for (char *p = buf; *p; p++)
			if (*p == '!')
				*p = '/';
		if (!stat(buf, &st) && st.st_rdev == devno)
			return buf;
	}
	return hybrid_devno_text(devno, buf, len);
}

char *hybrid_devno_text(dev_t devno, char *buf, size_t len)
{
	snprintf(buf, len, "%u:%u", major(devno), minor(devno));
	return buf;
}

int hybrid_devno_parse(const char *text, dev_t *devno)
{
	unsigned int maj, min;
	int end = 0;

	if (sscanf(text, "%u:%u%n", &maj, &min, &end) != 2 || text[end])
		return -EINVAL;
	*devno = makedev(maj, min);
	return 0;
}
