// SPDX-License-Identifier: GPL-2.0-or-later
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uuid/uuid.h>

#include "format.h"
#include "units.h"

#define NAME_MAX_LEN	63

/* Namespace of the UUIDs of in-place origins; never changes. */
static const uint8_t identity_namespace[16] = {
	0x6b, 0x1d, 0x07, 0x3e, 0x52, 0x9f, 0x4c, 0x41,
	0x8a, 0x66, 0x1b, 0x3c, 0xd0, 0x94, 0xe8, 0x25,
};

const char *hybrid_role_name(uint32_t role)
{
	switch (role) {
	case HYBRID_ROLE_CACHE:
		return "cache";
	case HYBRID_ROLE_ORIGIN:
		return "origin";
	case HYBRID_ROLE_DETACHED:
		return "detached";
	default:
		return "unknown";
	}
}

static int unit_shift(char unit)
{
	switch (tolower((unsigned char)unit)) {
	case 'b':
		return 0;
	case 's':
		return 9;
	case 'k':
		return 10;
	case 'm':
		return 20;
	case 'g':
		return 30;
	case 't':
		return 40;
	case 'p':
		return 50;
	default:
		return -1;
	}
}

static int parse_number(const char *text, char **end, uint64_t *value)
{
	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	*value = strtoull(text, end, 10);
	return errno ? -ERANGE : 0;
}

int hybrid_parse_u64(const char *text, uint64_t *value)
{
	char *end;
	int r;

	r = parse_number(text, &end, value);
	if (r)
		return r;
	return *end ? -EINVAL : 0;
}

int hybrid_parse_size(const char *text, uint64_t *bytes)
{
	uint64_t value;
	char *end;
	int r, shift = 0;

	r = parse_number(text, &end, &value);
	if (r)
		return r;
	if (*end) {
		shift = unit_shift(*end++);
		if (shift < 0)
			return -EINVAL;
		/* "KiB" and "iB" read as "k" */
		if (end[0] == 'i')
			end++;
		if (end[0] == 'B')
			end++;
		if (*end)
			return -EINVAL;
	}
	if (shift && value >> (64 - shift))
		return -ERANGE;
	*bytes = value << shift;
	return 0;
}

/* Suffixes of a number other than the units of sizes; each is worth @times of @unit. */
static const struct {
	const char *unit, *suffix;
	unsigned int times;
} suffixes[] = {
	{ "percent", "%", 1 }, { "ms", "ms", 1 }, { "ms", "s", 1000 },
};

int hybrid_parse_setting(const char *text, const char *unit, uint64_t *value)
{
	int shift = unit_shift(unit[0]);
	char *end;
	size_t i;
	int r;

	r = parse_number(text, &end, value);
	if (r || !*end)
		return r;
	for (i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (!strcmp(unit, suffixes[i].unit) && !strcmp(end, suffixes[i].suffix))
			return __builtin_mul_overflow(*value, suffixes[i].times, value) ?
			       -ERANGE : 0;
	/* Of the units, only KiB and MiB take a size */
	if (strncmp(unit + 1, "iB", 2))
		return -EINVAL;
	r = hybrid_parse_size(text, value);
	if (!r && *value & ((1ULL << shift) - 1))
		return -EDOM;
	*value >>= shift;
	return r;
}

char *hybrid_format_size(char *buf, size_t len, uint64_t bytes, char unit)
{
	static const char units[] = "bkmgtp";
	unsigned int i = 0;
	int shift;

	if (unit == 'h') {
		while (i < 5 && bytes >> (10 * (i + 1)))
			i++;
		unit = units[i];
	}
	shift = unit_shift(unit);
	if (shift <= 9)
		snprintf(buf, len, "%llu%c", (unsigned long long)bytes >> shift, unit);
	else
		snprintf(buf, len, "%.2f%c", (double)bytes / (double)(1ULL << shift), unit);
	return buf;
}

bool hybrid_unit_valid(const char *unit)
{
	return unit[0] && !unit[1] && strchr("hbskmgt", unit[0]);
}

void hybrid_uuid_new(uint8_t uuid[16])
{
	uuid_generate_random(uuid);
}

char *hybrid_uuid_text(char buf[HYBRID_UUID_TEXT], const uint8_t uuid[16])
{
	uuid_unparse_lower(uuid, buf);
	return buf;
}

bool hybrid_uuid_parse(const char *text, uint8_t uuid[16])
{
	return uuid_parse(text, uuid) == 0;
}

bool hybrid_uuid_is_null(const uint8_t uuid[16])
{
	return uuid_is_null(uuid);
}

void hybrid_uuid_of_identity(uint8_t uuid[16], const char *identity)
{
	uuid_generate_sha1(uuid, identity_namespace, identity, strlen(identity));
}

char *hybrid_key_text(char buf[HYBRID_KEY_TEXT], const uint8_t key[16])
{
	unsigned int i;

	for (i = 0; i < 16; i++)
		snprintf(buf + 2 * i, 3, "%02x", key[i]);
	return buf;
}

bool hybrid_key_parse(const char *text, uint8_t key[16])
{
	unsigned int i, byte;

	if (strlen(text) != 32 || strspn(text, "0123456789abcdefABCDEF") != 32)
		return false;
	for (i = 0; i < 16; i++) {
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return false;
		key[i] = byte;
	}
	return true;
}

int hybrid_random(void *buf, size_t len)
{
	ssize_t n = getrandom(buf, len, 0);

	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

bool hybrid_name_valid(const char *name)
{
	size_t len = strlen(name), i;

	if (!len || len > NAME_MAX_LEN || name[0] == '-' || name[0] == '.')
		return false;
	for (i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("+-._", name[i]))
			return false;
	return strcmp(name, "control") != 0;
}
