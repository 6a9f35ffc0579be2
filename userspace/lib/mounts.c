// SPDX-License-Identifier: GPL-2.0-or-later
#include <libmount.h>
#include <stdio.h>
#include <sys/stat.h>

#include "devices.h"

/* The first mount of a device number; *table is to be unreferenced. */
static struct libmnt_fs *find_mount(dev_t devno, struct libmnt_table **table)
{
	*table = mnt_new_table_from_file("/proc/self/mountinfo");
	return *table ? mnt_table_find_devno(*table, devno, MNT_ITER_FORWARD) : NULL;
}

bool hybrid_devno_mounted(dev_t devno, char *where, size_t len)
{
	struct libmnt_table *table;
	struct libmnt_fs *fs = find_mount(devno, &table);

	if (fs)
		snprintf(where, len, "%s", mnt_fs_get_target(fs));
	mnt_unref_table(table);
	return fs;
}

dev_t hybrid_devno_of_mount(dev_t devno)
{
	struct libmnt_table *table;
	struct libmnt_fs *fs = find_mount(devno, &table);
	const char *source = fs ? mnt_fs_get_source(fs) : NULL;
	dev_t found = 0;
	struct stat st;

	if (source && !stat(source, &st) && S_ISBLK(st.st_mode))
		found = st.st_rdev;
	mnt_unref_table(table);
	return found;
}
