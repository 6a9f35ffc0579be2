/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Text of sizes, UUIDs, keys and names, both ways.  No I/O, no messages. */
#ifndef HYBRID_UNITS_H
#define HYBRID_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HYBRID_UUID_TEXT	37	/* 8-4-4-4-12 and a NUL */
#define HYBRID_KEY_TEXT		33	/* 32 hex digits and a NUL */

/*
 * A number with an optional unit (b, s = 512 bytes, k, m, g, t, p; powers of
 * 1024; without a unit: bytes) as bytes.  Returns 0 or -EINVAL, -ERANGE.
 */
int hybrid_parse_size(const char *text, uint64_t *bytes);

/* A decimal number, all of @text.  Returns 0 or -EINVAL, -ERANGE. */
int hybrid_parse_u64(const char *text, uint64_t *value);

/*
 * Parses a setting whose value counts in @unit: "percent", "ms", "KiB/s" or "MiB a day".  The text
 * is a bare number, a percentage with %, a time with ms or s, or a size as above.
 * Returns 0, -EINVAL, -ERANGE, or -EDOM: it is no whole number of @unit.
 */
int hybrid_parse_setting(const char *text, const char *unit, uint64_t *value);

/*
 * Bytes as text.  Unit 'h' chooses a unit that gives a short number ("64.00k");
 * b s k m g t stand for themselves.  Returns @buf.
 */
char *hybrid_format_size(char *buf, size_t len, uint64_t bytes, char unit);

/* The same in a unit that gives a short number. */
static inline const char *hybrid_size_text(char buf[32], uint64_t bytes)
{
	return hybrid_format_size(buf, 32, bytes, 'h');
}

/* Whether @unit is one that hybrid_format_size() knows. */
bool hybrid_unit_valid(const char *unit);

/* "cache", "origin", "detached", or "unknown". */
const char *hybrid_role_name(uint32_t role);

void hybrid_uuid_new(uint8_t uuid[16]);
char *hybrid_uuid_text(char buf[HYBRID_UUID_TEXT], const uint8_t uuid[16]);
bool hybrid_uuid_parse(const char *text, uint8_t uuid[16]);
bool hybrid_uuid_is_null(const uint8_t uuid[16]);

/*
 * UUID made of @identity: the same text gives the same UUID.  Stands for the
 * member UUID of an in-place origin, which carries none itself.
 */
void hybrid_uuid_of_identity(uint8_t uuid[16], const char *identity);

char *hybrid_key_text(char buf[HYBRID_KEY_TEXT], const uint8_t key[16]);
bool hybrid_key_parse(const char *text, uint8_t key[16]);

/* Random bytes from the kernel.  Returns 0 or -errno. */
int hybrid_random(void *buf, size_t len);

/*
 * Whether @name may be the name of a pool or a volume: 1 to 63 letters, digits
 * and "+-._", the first not "-" or ".", and not "control".
 */
bool hybrid_name_valid(const char *name);

#endif
