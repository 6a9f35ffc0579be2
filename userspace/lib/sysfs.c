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

#include "devices.h"
#include "errors.h"
#include "sysfs.h"

#define DISKS_MAX	64	/* physical disks below one device */
#define DEPTH_MAX	16

/* A device, an attribute, the neighbours ---------------------------------------- */

/* NULL if memory is short: then libudev finds nothing. */
static struct udev *context(void)
{
	static struct udev *udev;

	if (!udev)
		udev = udev_new();
	return udev;
}

/*
 * The device of a number, to be unreferenced, or NULL.  No caller keeps it: it remembers each
 * attribute as first read.
 */
static struct udev_device *device_of(dev_t devno)
{
	return udev_device_new_from_devnum(context(), 'b', devno);
}

/* The same, by the name that the kernel gave it. */
static struct udev_device *device_of_name(const char *subsystem, const char *name)
{
	return udev_device_new_from_subsystem_sysname(context(), subsystem, name);
}

static bool is_partition(struct udev_device *dev)
{
	const char *type = dev ? udev_device_get_devtype(dev) : NULL;

	return type && !strcmp(type, "partition");
}

/* The disk of a partition; of any other device the device itself. */
static struct udev_device *disk_of(dev_t devno)
{
	struct udev_device *dev = device_of(devno), *disk = dev;

	if (!is_partition(dev))
		return dev;
	disk = udev_device_get_parent_with_subsystem_devtype(dev, "block", "disk");
	udev_device_ref(disk);
	udev_device_unref(dev);
	return disk;
}

/* 0: it has none, or is NULL. */
static dev_t unref_devno(struct udev_device *dev)
{
	dev_t devno = dev ? udev_device_get_devnum(dev) : 0;

	udev_device_unref(dev);
	return devno;
}

static dev_t whole_disk(dev_t devno)
{
	return unref_devno(disk_of(devno)) ?: devno;
}

/* The first line of an attribute, without blanks at its ends; false if empty.  Takes @dev. */
static bool take_attr(struct udev_device *dev, const char *attr, char *buf, size_t len)
{
	const char *text = dev ? udev_device_get_sysattr_value(dev, attr) : NULL;
	size_t n;

	text = text ? text + strspn(text, " ") : "";
	n = strcspn(text, "\n");
	while (n && text[n - 1] == ' ')
		n--;
	snprintf(buf, len, "%.*s", (int)n, text);
	udev_device_unref(dev);
	return n;
}

static bool read_attr(dev_t devno, const char *attr, char *buf, size_t len)
{
	return take_attr(device_of(devno), attr, buf, len);
}

static uint64_t take_number(struct udev_device *dev, const char *attr)
{
	char text[32];

	return take_attr(dev, attr, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

/* A property of the kernel's event or of udev's database; false: there is none. */
static bool read_property(dev_t devno, const char *name, char *buf, size_t len)
{
	struct udev_device *dev = device_of(devno);
	const char *value = dev ? udev_device_get_property_value(dev, name) : NULL;

	snprintf(buf, len, "%s", value ?: "");
	udev_device_unref(dev);
	return buf[0];
}

/* The "holders" above a device or the "slaves" below it: links, for which libudev has no call. */
static DIR *open_neighbours(dev_t devno, const char *side)
{
	struct udev_device *dev = device_of(devno);
	char path[PATH_MAX];
	DIR *dir = NULL;

	if (dev) {
		snprintf(path, sizeof(path), "%s/%s", udev_device_get_syspath(dev), side);
		dir = opendir(path);
	}
	udev_device_unref(dev);
	return dir;
}

/* Closes @dir, which may be NULL, after the last. */
static bool next_neighbour(DIR *dir, dev_t *devno)
{
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && hybrid_sysfs_devno(e->d_name, devno))
			return true;
	if (dir)
		closedir(dir);
	return false;
}

/* One device ------------------------------------------------------------------- */

bool hybrid_sysfs_devno(const char *kname, dev_t *devno)
{
	*devno = unref_devno(device_of_name("block", kname));
	return *devno;
}

uint64_t hybrid_devno_sectors(dev_t devno)
{
	return take_number(device_of(devno), "size");
}

uint64_t hybrid_devno_sequence(dev_t devno)
{
	return take_number(disk_of(devno), "diskseq");
}

bool hybrid_sysfs_queue(dev_t devno, const char *attr, unsigned int *value)
{
	char name[64], text[32];

	snprintf(name, sizeof(name), "queue/%s", attr);
	if (!take_attr(disk_of(devno), name, text, sizeof(text)))
		return false;
	*value = strtoul(text, NULL, 10);
	return true;
}

bool hybrid_sysfs_partition(dev_t devno)
{
	struct udev_device *dev = device_of(devno);
	bool partition = is_partition(dev);

	udev_device_unref(dev);
	return partition;
}

bool hybrid_devno_has_partitions(dev_t devno)
{
	struct udev_device *disk = device_of(devno);
	struct udev_enumerate *below = disk ? udev_enumerate_new(context()) : NULL;
	bool found;

	/* It would find a partition itself, too */
	found = below && !is_partition(disk) && udev_enumerate_add_match_parent(below, disk) >= 0 &&
		udev_enumerate_add_match_sysattr(below, "partition", NULL) >= 0 &&
		udev_enumerate_scan_devices(below) >= 0 && udev_enumerate_get_list_entry(below);
	udev_enumerate_unref(below);
	udev_device_unref(disk);
	return found;
}

/*
 * dm-crypt's UUIDs are "CRYPT-<type>-<UUID of the header>-<name of the mapping>".  The name does not
 * count: it may change, and another device may get it.  False if the header has no UUID, or there is
 * no header.
 */
static bool cut_mapping_name(char *id)
{
	int part = 0, uuid = 0;
	size_t n;

	/* kpartx: a partition of one */
	sscanf(id, "part%*u-%n", &part);
	if (strncmp(id + part, "CRYPT-", 6))
		return true;
	sscanf(id + part, "CRYPT-%*[A-Z0-9]-%n", &uuid);
	n = strspn(id + part + uuid, "0123456789abcdef");
	if (!uuid || n != 32 || id[part + uuid + n] != '-')
		return false;
	id[part + uuid + n] = '\0';
	return true;
}

bool hybrid_sysfs_disk_id(dev_t devno, char *buf, size_t len)
{
	static const char * const attrs[] = {
		"dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial",
	};
	char id[192], part[16] = "", start[24] = "";
	dev_t disk = whole_disk(devno);
	unsigned int i;

	/* None if it is a disk.  Numbers of partitions change hands, but not with the first sector. */
	if (read_attr(devno, "partition", part, sizeof(part)))
		read_attr(devno, "start", start, sizeof(start));
	for (i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
		/* Some drivers print a missing string */
		if (!read_attr(disk, attrs[i], id, sizeof(id)) || !strcmp(id, "(null)") ||
		    !cut_mapping_name(id))
			continue;
		snprintf(buf, len, "%s=%s%s%s%s%s", attrs[i], id, part[0] ? "/" : "", part,
			 part[0] ? "@" : "", start);
		return true;
	}
	return false;
}

bool hybrid_sysfs_ours(dev_t devno)
{
	char uuid[192];

	return read_attr(devno, "dm/uuid", uuid, sizeof(uuid)) && !strncmp(uuid, "HYBRID-", 7);
}

bool hybrid_sysfs_degraded(dev_t devno)
{
	return take_number(device_of(devno), "md/degraded");
}

bool hybrid_udev_multipath(dev_t devno)
{
	char path[8];

	return read_property(devno, "DM_MULTIPATH_DEVICE_PATH", path, sizeof(path)) &&
	       !strcmp(path, "1");
}

bool hybrid_sysfs_partition_of(dev_t devno, dev_t *disk, unsigned int *number, uint64_t *start)
{
	if (!hybrid_sysfs_partition(devno))
		return false;
	*disk = whole_disk(devno);
	*number = take_number(device_of(devno), "partition");
	*start = take_number(device_of(devno), "start");
	return true;
}

bool hybrid_sysfs_bcache(dev_t devno, char *state, char *dirty, size_t len)
{
	return read_attr(devno, "bcache/state", state, len) &&
	       read_attr(devno, "bcache/dirty_data", dirty, len);
}

bool hybrid_sysfs_lvm(dev_t devno)
{
	char uuid[192];

	return read_attr(devno, "dm/uuid", uuid, sizeof(uuid)) && !strncmp(uuid, "LVM-", 4);
}

bool hybrid_sysfs_mapped(dev_t devno)
{
	char text[192];

	return read_attr(devno, "dm/name", text, sizeof(text)) &&
	       !(read_attr(devno, "dm/uuid", text, sizeof(text)) && !strncmp(text, "mpath-", 6));
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
	struct udev_device *dev = device_of(devno);

	if (dev)
		udev_device_set_sysattr_value(dev, "uevent", action);
	udev_device_unref(dev);
}

bool hybrid_sysfs_module(const char *name, const char *attr, char *buf, size_t len)
{
	return take_attr(device_of_name("module", name), attr, buf, len);
}

/* Above and below -------------------------------------------------------------- */

bool hybrid_sysfs_holders(dev_t devno, char *buf, size_t len)
{
	DIR *dir = open_neighbours(devno, "holders");
	char name[HYBRID_PATH_MAX];
	size_t used = 0;

	buf[0] = '\0';
	while (next_neighbour(dir, &devno)) {
		/* dm-0 says nothing */
		if (!read_attr(devno, "dm/name", name, sizeof(name)))
			hybrid_devno_path(devno, name, sizeof(name));
		if (used + strlen(name) + 2 < len)
			used += sprintf(buf + used, used ? " %s" : "%s", name);
	}
	return used;
}

bool hybrid_devno_held(dev_t devno, dev_t holder)
{
	DIR *dir = open_neighbours(devno, "holders");
	bool held = false;

	while (next_neighbour(dir, &devno))
		held |= !holder || devno == holder;
	return held;
}

/* Collect the disks at the bottom of a stack of devices. */
static unsigned int bottom_disks(dev_t devno, dev_t *disks, unsigned int nr, int depth)
{
	dev_t disk = whole_disk(devno), slave;
	DIR *dir = depth < DEPTH_MAX ? open_neighbours(disk, "slaves") : NULL;
	bool bottom = true;

	while (next_neighbour(dir, &slave)) {
		bottom = false;
		nr = bottom_disks(slave, disks, nr, depth + 1);
	}
	if (bottom && nr < DISKS_MAX)
		disks[nr++] = disk;
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

static bool is_among(dev_t disk, const dev_t *disks, unsigned int nr)
{
	char id[256], other[256];
	bool known = hybrid_sysfs_disk_id(disk, id, sizeof(id));

	while (nr--)
		if (disks[nr] == disk || (known && hybrid_sysfs_disk_id(disks[nr], other, sizeof(other)) &&
					  !strcmp(id, other)))
			return true;
	return false;
}

unsigned int hybrid_sysfs_disks(dev_t devno, dev_t *disks, unsigned int max)
{
	dev_t all[DISKS_MAX];
	unsigned int n = bottom_disks(devno, all, 0, 0), nr = 0, i;

	for (i = 0; i < n && nr < max; i++)
		if (!is_among(all[i], disks, nr))
			disks[nr++] = all[i];
	return nr;
}

bool hybrid_sysfs_removable(dev_t devno)
{
	dev_t disks[DISKS_MAX];
	unsigned int nr = bottom_disks(devno, disks, 0, 0);

	while (nr)
		if (take_number(device_of(disks[--nr]), "removable"))
			return true;
	return false;
}

/* @disk: the disk of the partition @lower, or @lower itself.  multipath holds disks, not partitions. */
static bool built_on(dev_t upper, dev_t lower, dev_t disk, int depth)
{
	DIR *dir = depth < DEPTH_MAX ? open_neighbours(whole_disk(upper), "slaves") : NULL;
	bool found = false;
	dev_t slave;

	while (next_neighbour(dir, &slave))
		found = found || slave == lower || slave == disk ||
			built_on(slave, lower, disk, depth + 1);
	return found;
}

bool hybrid_sysfs_built_on(dev_t upper, dev_t lower)
{
	return built_on(upper, lower, whole_disk(lower), 0);
}

/* Whether the DM_UUID of @layer is @uuid and @suffix. */
static bool is_layer(const char *layer, const char *uuid, const char *suffix)
{
	size_t len = strlen(uuid);

	return !strncmp(layer, uuid, len) && !strcmp(layer + len, suffix);
}

/*
 * The UUIDs of the two devices below an LVM snapshot are "LVM-<its own>-cow", which has the
 * differences, and "LVM-<the other volume's>-real".  The other volume is built on the latter, too,
 * and on both while a snapshot is merged into it; but then the UUID before "-cow" is not its own.
 */
dev_t hybrid_sysfs_snapshot_of(dev_t devno)
{
	char uuid[192], layer[192];
	bool snapshot = false;
	dev_t real = 0;
	size_t len;
	DIR *dir;

	if (!read_attr(devno, "dm/uuid", uuid, sizeof(uuid)) || strncmp(uuid, "LVM-", 4))
		return 0;
	dir = open_neighbours(devno, "slaves");
	while (next_neighbour(dir, &devno)) {
		if (!read_attr(devno, "dm/uuid", layer, sizeof(layer)))
			continue;
		len = strlen(layer);
		if (is_layer(layer, uuid, "-cow"))
			snapshot = true;
		else if (len > 5 && !strcmp(layer + len - 5, "-real"))
			real = devno;
	}
	return snapshot ? real : 0;
}

/* Names ------------------------------------------------------------------------ */

/* Whether @matches is true of any link to @dev.  Takes @dev, which may be NULL. */
static bool any_link(struct udev_device *dev, bool (*matches)(const char *name, void *arg),
		     void *arg)
{
	struct udev_list_entry *link = dev ? udev_device_get_devlinks_list_entry(dev) : NULL;
	bool found = false;

	for (; link && !found; link = udev_list_entry_get_next(link))
		found = matches(udev_list_entry_get_name(link), arg);
	udev_device_unref(dev);
	return found;
}

/* The same of a list with blanks between, which may be NULL. */
static bool any_word(const char *list, bool (*matches)(const char *name, void *arg), void *arg)
{
	char *copy = strdup(list ?: ""), *save, *word;
	bool found = false;

	for (word = copy ? strtok_r(copy, " ", &save) : NULL; word && !found;
	     word = strtok_r(NULL, " ", &save))
		found = matches(word, arg);
	free(copy);
	return found;
}

/*
 * DEVLINKS of the event in which this process runs.  udev's database does not have them yet.
 * libudev's udev_device_new_from_environment() would cut the environment to pieces.
 */
static bool any_link_of_event(dev_t devno, bool (*matches)(const char *name, void *arg), void *arg)
{
	const char *maj = getenv("MAJOR"), *min = getenv("MINOR");

	return maj && min && strtoul(maj, NULL, 10) == major(devno) &&
	       strtoul(min, NULL, 10) == minor(devno) && any_word(getenv("DEVLINKS"), matches, arg);
}

bool hybrid_devno_any_name(dev_t devno, bool (*matches)(const char *name, void *arg), void *arg)
{
	char path[HYBRID_PATH_MAX];

	return matches(hybrid_devno_path(devno, path, sizeof(path)), arg) ||
	       any_link_of_event(devno, matches, arg) || any_link(device_of(devno), matches, arg);
}

static bool leads_to(const char *path, dev_t devno)
{
	struct stat st;

	return !stat(path, &st) && st.st_rdev == devno;
}

char *hybrid_devno_path(dev_t devno, char *buf, size_t len)
{
	struct udev_device *dev = device_of(devno);
	const char *name = dev ? udev_device_get_sysattr_value(dev, "dm/name") : NULL;
	const char *node = dev ? udev_device_get_devnode(dev) : NULL;

	buf[0] = '\0';
	if (name)
		snprintf(buf, len, "/dev/mapper/%s", name);
	if (node && !leads_to(buf, devno))
		snprintf(buf, len, "%s", node);
	if (!leads_to(buf, devno))
		hybrid_devno_text(devno, buf, len);
	udev_device_unref(dev);
	return buf;
}

bool hybrid_udev_runs(void)
{
	struct udev_queue *queue = udev_queue_new(context());
	bool runs = queue && udev_queue_get_udev_is_active(queue);

	udev_queue_unref(queue);
	return runs;
}

/* All devices ------------------------------------------------------------------ */

/* As the kernel counts: sda2 before sda10. */
static int by_kname(const void *a, const void *b)
{
	const char * const *x = a, * const *y = b;

	return strverscmp(strrchr(*x, '/'), strrchr(*y, '/'));
}

/* All block devices in the order of their names, ended by 0; free() it.  NULL: no memory. */
static dev_t *all_devices(void)
{
	struct udev_enumerate *all = udev_enumerate_new(context());
	struct udev_list_entry *first = NULL, *e;
	unsigned int i = 0, nr = 0;
	dev_t *devices, *d;
	const char **paths;

	if (all && udev_enumerate_add_match_subsystem(all, "block") >= 0 &&
	    udev_enumerate_scan_devices(all) >= 0)
		first = udev_enumerate_get_list_entry(all);
	udev_list_entry_foreach(e, first)
		nr++;
	paths = calloc(nr + 1, sizeof(*paths));
	d = devices = paths ? calloc(nr + 1, sizeof(*devices)) : NULL;
	udev_list_entry_foreach(e, devices ? first : NULL)
		paths[i++] = udev_list_entry_get_name(e);
	qsort(paths, i, sizeof(*paths), by_kname);
	for (nr = i, i = 0; i < nr; i++, d += *d != 0)
		*d = unref_devno(udev_device_new_from_syspath(context(), paths[i]));
	free(paths);
	udev_enumerate_unref(all);
	return devices;
}

static bool is_same_name(const char *name, void *arg)
{
	return !strcmp(name, arg);
}

unsigned int hybrid_udev_claims(const char *name)
{
	dev_t *all = all_devices(), *d;
	unsigned int claims = 0;

	for (d = all; d && *d; d++)
		claims += any_link(device_of(*d), is_same_name, (void *)name);
	free(all);
	return claims;
}

static bool is_kname(const char *name, void *arg)
{
	const dev_t *devno = arg;
	dev_t found;

	return hybrid_sysfs_devno(name, &found) && found == *devno;
}

int hybrid_sysfs_each(int (*fn)(dev_t devno, void *arg), void *arg)
{
	const char *only = getenv("HYBRID_SCAN_ONLY");
	dev_t *all = all_devices(), *d;
	int r = all ? 0 : hybrid_nomem();

	for (d = all; d && *d && !r; d++)
		if ((!only || !*only || any_word(only, is_kname, d)) &&
		    !hybrid_devno_no_disk(*d))
			r = fn(*d, arg);
	free(all);
	return r;
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
