// SPDX-License-Identifier: GPL-2.0-or-later
/* The library's parsers: they print each text that they accept, and read it back as the same. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tables.h"

void fuzz_table(const uint8_t *bytes, size_t len);
void fuzz_status(const uint8_t *bytes, size_t len);
char *text_of(const uint8_t *bytes, size_t len);
__attribute__((format(printf, 1, 2), noreturn))
void found(const char *fmt, ...);
/* kernel.c */
void kernel_table(const char *text);

char *text_of(const uint8_t *bytes, size_t len)
{
	char *text = malloc(len + 1);

	if (!text)
		abort();
	memcpy(text, bytes, len);
	text[len] = '\0';
	return text;
}

#define LONG	65536

/* @parse, @build as in tables.h */
#define ROUND_TRIP(type, parse, build, text) do {				\
	static char once_[LONG], twice_[LONG];					\
	static type value_;							\
	int n_;									\
										\
	if (parse(text, &value_))						\
		break;								\
	n_ = build(once_, sizeof(once_), &value_);				\
	if (n_ < 0 || (size_t)n_ != strlen(once_))				\
		found(#build ": %d", n_);					\
	if (parse(once_, &value_))						\
		found("its own output is refused: %s", once_);			\
	n_ = build(twice_, sizeof(twice_), &value_);				\
	if (strcmp(once_, twice_))						\
		found("%s became %s", once_, twice_);				\
} while (0)

void fuzz_table(const uint8_t *bytes, size_t len)
{
	char *text = text_of(bytes, len);

	ROUND_TRIP(struct hybrid_pool_table, hybrid_pool_table_parse, hybrid_pool_table_build,
		   text);
	ROUND_TRIP(struct hybrid_volume_table, hybrid_volume_table_parse,
		   hybrid_volume_table_build, text);
	kernel_table(text);
	free(text);
}

static void volume_lines(const char *text)
{
	struct hybrid_volume_line *entries = NULL;
	unsigned int nr, i;
	char line[1024];

	if (hybrid_volume_lines_parse(text, &entries, &nr))
		return;
	for (i = 0; i < nr; i++) {
		if (hybrid_volume_line_build(line, sizeof(line), &entries[i]) < 0)
			found("a volume's line does not fit");
		ROUND_TRIP(struct hybrid_volume_line, hybrid_volume_line_parse,
			   hybrid_volume_line_build, line);
	}
	free(entries);
}

void fuzz_status(const uint8_t *bytes, size_t len)
{
	char *text = text_of(bytes, len), *again, buf[HYBRID_DM_UUID_TEXT];
	uint8_t uuid[16];
	bool pool;

	ROUND_TRIP(struct hybrid_pool_status, hybrid_pool_status_parse, hybrid_pool_status_build,
		   text);
	ROUND_TRIP(struct hybrid_volume_status, hybrid_volume_status_parse,
		   hybrid_volume_status_build, text);
	volume_lines(text);
	if (hybrid_dm_uuid_parse(text, uuid, &pool)) {
		again = hybrid_dm_uuid(buf, uuid, pool);
		if (strcasecmp(again, text))
			found("uuid %s became %s", text, again);
	}
	free(text);
}
