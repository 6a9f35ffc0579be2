// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * LD_PRELOAD=bad-sectors.so BAD_SECTORS=FILE:FROM:TO ...: reads of these sectors of
 * the file (a basename) fail, as on a disk that has lost them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_bad(int fd, size_t len, off_t offset)
{
	const char *spec = getenv("BAD_SECTORS");
	unsigned long long from, to;
	char self[64], path[4096], name[256];
	ssize_t n;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, path, sizeof(path) - 1);
	if (!spec || n < 0 || sscanf(spec, "%255[^:]:%llu:%llu", name, &from, &to) != 3)
		return 0;
	path[n] = '\0';
	return !strcmp(basename(path), name) && (unsigned long long)offset < to * 512 &&
	       offset + len > from * 512;
}

ssize_t pread64(int fd, void *buf, size_t len, off64_t offset)
{
	ssize_t (*real)(int fd, void *buf, size_t len, off64_t offset) =
		(ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");

	if (is_bad(fd, len, offset)) {
		errno = EIO;
		return -1;
	}
	return real(fd, buf, len, offset);
}
