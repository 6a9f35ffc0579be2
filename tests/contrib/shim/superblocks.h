/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a prober sees of libblkid's internals; the values it sets are printed. */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BLKID_PROBE_OK		0
#define BLKID_PROBE_NONE	1
#define BLKID_USAGE_RAID	(1 << 2)
#define BLKID_NONE_MAGIC	{ { NULL } }
#define le32_to_cpu(x)		(x)
#define le64_to_cpu(x)		(x)

struct blkid_struct_probe {
	int fd;
	uint64_t size;
	unsigned char buffer[4096];
};
typedef struct blkid_struct_probe *blkid_probe;

struct blkid_idmag {
	const char *magic;
};

struct blkid_idinfo {
	const char *name;
	int usage;
	int (*probefunc)(blkid_probe pr, const struct blkid_idmag *mag);
	struct blkid_idmag magics[1];
};

static inline const unsigned char *blkid_probe_get_buffer(blkid_probe pr, uint64_t off,
							  uint64_t len)
{
	errno = 0;
	return pread(pr->fd, pr->buffer, len, off) == (ssize_t)len ? pr->buffer : NULL;
}

static inline int blkid_probe_verify_csum(blkid_probe pr, uint64_t csum, uint64_t expected)
{
	(void)pr;
	return csum == expected;
}

static inline int blkid_probe_set_uuid_as(blkid_probe pr, const unsigned char *uuid,
					  const char *name)
{
	int i;

	(void)pr;
	printf("%s=", name ? name : "UUID");
	for (i = 0; i < 16; i++)
		printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	putchar('\n');
	return 0;
}

static inline int blkid_probe_set_uuid(blkid_probe pr, const unsigned char *uuid)
{
	return blkid_probe_set_uuid_as(pr, uuid, NULL);
}

static inline int blkid_probe_set_label(blkid_probe pr, const unsigned char *label, size_t len)
{
	(void)pr;
	printf("LABEL=%.*s\n", (int)len, label);
	return 0;
}

static inline int blkid_probe_sprintf_version(blkid_probe pr, const char *fmt, ...)
{
	va_list ap;

	(void)pr;
	va_start(ap, fmt);
	printf("VERSION=");
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
	return 0;
}

static inline int blkid_probe_set_magic(blkid_probe pr, uint64_t off, size_t len,
					const unsigned char *magic)
{
	(void)pr;
	printf("MAGIC=%llu:%.*s\n", (unsigned long long)off, (int)len, magic);
	return 0;
}
