/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_UUID_H
#define SHIM_LINUX_UUID_H

#include <stdio.h>
#include <linux/device-mapper.h>

#define UUID_STRING_LEN 36

typedef struct {
	u8 b[16];
} uuid_t;

static inline int uuid_parse(const char *text, uuid_t *uuid)
{
	unsigned int i, at = 0, digits;

	for (i = 0; i < UUID_STRING_LEN; i++)
		if (i == 8 || i == 13 || i == 18 || i == 23 ? text[i] != '-' :
		    !isxdigit((unsigned char)text[i]))
			return -EINVAL;
	for (i = 0; i < 16; i++) {
		at += text[at] == '-';
		if (sscanf(text + at, "%2x", &digits) != 1)
			return -EINVAL;
		uuid->b[i] = digits;
		at += 2;
	}
	return 0;
}

static inline void export_uuid(u8 *to, const uuid_t *uuid)
{
	memcpy(to, uuid->b, sizeof(uuid->b));
}

#endif
