// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "format.h"
#include "errors.h"
#include "tables.h"
#include "version.h"

const char * const hybrid_mode_names[HYBRID_NR_MODES + 1] = {
	[HYBRID_MODE_WRITETHROUGH] = "writethrough",
	[HYBRID_MODE_WRITEBACK] = "writeback",
	[HYBRID_MODE_WRITEAROUND] = "writearound",
	[HYBRID_MODE_PASSTHROUGH] = "passthrough",
};

const char *hybrid_mode_name(uint32_t mode)
{
	return mode < HYBRID_NR_MODES ? hybrid_mode_names[mode] : NULL;
}

int hybrid_mode_parse(const char *name)
{
	unsigned int i;

	for (i = 0; i < HYBRID_NR_MODES; i++)
		if (!strcmp(name, hybrid_mode_names[i]))
			return i;
	return -EINVAL;
}

/* Text that grows in a buffer of fixed size; overflow is remembered. */
struct text {
	char *buf;
	size_t len, used;
	bool full;
};

static void text_add(struct text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void text_add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (t->full)
		return;
	va_start(ap, fmt);
	n = vsnprintf(t->buf + t->used, t->len - t->used, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= t->len - t->used)
		t->full = true;
	else
		t->used += n;
}

static int text_end(const struct text *t)
{
	return t->full ? -ENOSPC : (int)t->used;
}

/* Words of a copy of a line, one after the other. */
struct words {
	char *copy, *next;
};

static int words_open(struct words *w, const char *line)
{
	w->copy = strdup(line);
	w->next = w->copy;
	return w->copy ? 0 : -ENOMEM;
}

static const char *words_next(struct words *w)
{
	char *word = w->next;

	word += strspn(word, " \t\n");
	if (!*word)
		return NULL;
	w->next = word + strcspn(word, " \t\n");
	if (*w->next)
		*w->next++ = '\0';
	return word;
}

static void words_close(struct words *w)
{
	free(w->copy);
}

static int word_copy(char *dst, size_t len, const char *word)
{
	if (!word || strlen(word) >= len)
		return -EINVAL;
	strcpy(dst, word);
	return 0;
}

static int word_u64(struct words *w, uint64_t *value)
{
	const char *word = words_next(w);

	return word && !hybrid_parse_u64(word, value) ? 0 : -EINVAL;
}

static int word_u32(struct words *w, uint32_t *value)
{
	uint64_t wide;

	if (word_u64(w, &wide) || wide > UINT32_MAX)
		return -EINVAL;
	*value = wide;
	return 0;
}

static int word_uuid(struct words *w, uint8_t uuid[16])
{
	const char *word = words_next(w);

	return word && hybrid_uuid_parse(word, uuid) ? 0 : -EINVAL;
}

/* Pool table --------------------------------------------------------------- */

void hybrid_pool_table_init(struct hybrid_pool_table *table)
{
	memset(table, 0, sizeof(*table));
#define X(name, unit, lowest, highest) table->name = -1;
	HYBRID_POOL_TUNABLES(X)
#undef X
}

static unsigned int count_words(const char *text)
{
	unsigned int n = 0;

	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		text += strcspn(text, " ");
		n++;
	}
	return n;
}

int hybrid_pool_table_build(char *buf, size_t len, const struct hybrid_pool_table *table)
{
	struct text t = { .buf = buf, .len = len };
	unsigned int nr = table->uuid[0] ? 2 : 0;

#define X(name, unit, lowest, highest) nr += table->name >= 0 ? 2 : 0;
	HYBRID_POOL_TUNABLES(X)
#undef X
	text_add(&t, "%s %u %u", table->cache_dev, table->block_sectors, nr);
	if (table->uuid[0])
		text_add(&t, " uuid %s", table->uuid);
#define X(name, unit, lowest, highest) \
	if (table->name >= 0) \
		text_add(&t, " " #name " %lld", (long long)table->name);
	HYBRID_POOL_TUNABLES(X)
#undef X
	text_add(&t, " %s %u", table->policy, count_words(table->policy_args));
	if (table->policy_args[0])
		text_add(&t, " %s", table->policy_args);
	return text_end(&t);
}

static int pool_feature(struct words *w, const char *name, struct hybrid_pool_table *table)
{
	uint64_t value;

	if (!strcmp(name, "uuid"))
		return word_copy(table->uuid, sizeof(table->uuid), words_next(w));
	if (word_u64(w, &value) || value > UINT32_MAX)
		return -EINVAL;
#define X(tunable, unit, lowest, highest) \
	if (!strcmp(name, #tunable)) { \
		table->tunable = value; \
		return 0; \
	}
	HYBRID_POOL_TUNABLES(X)
#undef X
	return -EINVAL;
}

static int pool_features(struct words *w, struct hybrid_pool_table *table)
{
	const char *word;
	uint32_t nr, i;
	int r;

	if (word_u32(w, &nr) || nr % 2)
		return -EINVAL;
	for (i = 0; i < nr; i += 2) {
		word = words_next(w);
		r = word ? pool_feature(w, word, table) : -EINVAL;
		if (r)
			return r;
	}
	return 0;
}

static int policy_args(struct words *w, struct hybrid_pool_table *table)
{
	struct text t = { .buf = table->policy_args, .len = sizeof(table->policy_args) };
	const char *word;
	uint32_t nr, i;

	if (word_u32(w, &nr))
		return -EINVAL;
	for (i = 0; i < nr; i++) {
		word = words_next(w);
		if (!word)
			return -EINVAL;
		text_add(&t, i ? " %s" : "%s", word);
	}
	return t.full || words_next(w) ? -EINVAL : 0;
}

int hybrid_pool_table_parse(const char *params, struct hybrid_pool_table *table)
{
	struct words w;
	int r;

	hybrid_pool_table_init(table);
	r = words_open(&w, params);
	if (r)
		return r;
	r = word_copy(table->cache_dev, sizeof(table->cache_dev), words_next(&w));
	if (!r)
		r = word_u32(&w, &table->block_sectors);
	if (!r)
		r = pool_features(&w, table);
	if (!r)
		r = word_copy(table->policy, sizeof(table->policy), words_next(&w));
	if (!r)
		r = policy_args(&w, table);
	words_close(&w);
	return r;
}

/* Volume table ------------------------------------------------------------- */

int hybrid_volume_table_build(char *buf, size_t len,
			      const struct hybrid_volume_table *table)
{
	struct text t = { .buf = buf, .len = len };
	unsigned int nr = (table->mode >= 0) + (table->cutoff_sectors >= 0 ? 2 : 0) +
			  table->inplace;

	text_add(&t, "%s %u %s %u", table->pool_dev, table->id, table->origin_dev, nr);
	if (table->mode >= 0)
		text_add(&t, " %s", hybrid_mode_name(table->mode));
	if (table->cutoff_sectors >= 0)
		text_add(&t, " cutoff %lld", (long long)table->cutoff_sectors);
	if (table->inplace)
		text_add(&t, " inplace");
	return text_end(&t);
}

static int volume_features(struct words *w, struct hybrid_volume_table *table)
{
	const char *word;
	uint64_t cutoff;
	uint32_t nr, i;
	int mode;

	if (word_u32(w, &nr))
		return -EINVAL;
	for (i = 0; i < nr; i++) {
		word = words_next(w);
		if (!word)
			return -EINVAL;
		mode = hybrid_mode_parse(word);
		if (mode >= 0) {
			table->mode = mode;
		} else if (!strcmp(word, "inplace")) {
			table->inplace = true;
		} else if (!strcmp(word, "cutoff")) {
			if (word_u64(w, &cutoff) || cutoff > INT64_MAX || ++i == nr)
				return -EINVAL;
			table->cutoff_sectors = cutoff;
		} else {
			return -EINVAL;
		}
	}
	return words_next(w) ? -EINVAL : 0;
}

int hybrid_volume_table_parse(const char *params, struct hybrid_volume_table *table)
{
	struct words w;
	int r;

	memset(table, 0, sizeof(*table));
	table->mode = -1;
	table->cutoff_sectors = -1;
	r = words_open(&w, params);
	if (r)
		return r;
	r = word_copy(table->pool_dev, sizeof(table->pool_dev), words_next(&w));
	if (!r)
		r = word_u32(&w, &table->id);
	if (!r)
		r = word_copy(table->origin_dev, sizeof(table->origin_dev), words_next(&w));
	if (!r)
		r = volume_features(&w, table);
	words_close(&w);
	return r;
}

/* Status ------------------------------------------------------------------- */

/* Where a key's value goes: a word, or a number. */
struct status_key {
	const char *name;
	char *word;
	uint64_t *number;
};

static int status_value(const struct status_key *key, const char *value)
{
	if (key->word)
		return word_copy(key->word, HYBRID_WORD_MAX, value);
	return hybrid_parse_u64(value, key->number) ? -EINVAL : 0;
}

/* keys[0] is "state", which must be there; the array ends with a NULL name. */
static int status_parse(const char *text, const struct status_key *keys)
{
	const struct status_key *key;
	const char *name, *value;
	struct words w;
	int r;

	r = words_open(&w, text);
	if (r)
		return r;
	while (!r && (name = words_next(&w))) {
		value = words_next(&w);
		if (!value) {
			r = -EINVAL;
			break;
		}
		for (key = keys; key->name && strcmp(key->name, name); key++)
			;
		if (key->name)
			r = status_value(key, value);
	}
	words_close(&w);
	return !r && !keys->word[0] ? -EINVAL : r;
}

static int status_build(char *buf, size_t len, const struct status_key *keys)
{
	struct text t = { .buf = buf, .len = len };
	const struct status_key *key;

	for (key = keys; key->name; key++) {
		text_add(&t, key == keys ? "%s " : " %s ", key->name);
		if (key->word)
			text_add(&t, "%s", key->word[0] ? key->word : "-");
		else
			text_add(&t, "%llu", (unsigned long long)*key->number);
	}
	return text_end(&t);
}

#define WORD(key)	{ .name = #key, .word = s->key },
#define NUMBER(key)	{ .name = #key, .number = &s->key },

int hybrid_pool_status_parse(const char *text, struct hybrid_pool_status *s)
{
	const struct status_key keys[] = {
		HYBRID_POOL_STATUS_WORDS(WORD) HYBRID_POOL_STATUS_NUMBERS(NUMBER) {}
	};

	memset(s, 0, sizeof(*s));
	return status_parse(text, keys);
}

int hybrid_volume_status_parse(const char *text, struct hybrid_volume_status *s)
{
	const struct status_key keys[] = {
		HYBRID_VOLUME_STATUS_WORDS(WORD) HYBRID_VOLUME_STATUS_NUMBERS(NUMBER) {}
	};

	memset(s, 0, sizeof(*s));
	return status_parse(text, keys);
}

int hybrid_pool_status_build(char *buf, size_t len, const struct hybrid_pool_status *status)
{
	struct hybrid_pool_status copy = *status, *s = &copy;
	const struct status_key keys[] = {
		HYBRID_POOL_STATUS_WORDS(WORD) HYBRID_POOL_STATUS_NUMBERS(NUMBER) {}
	};

	return status_build(buf, len, keys);
}

int hybrid_volume_status_build(char *buf, size_t len,
			       const struct hybrid_volume_status *status)
{
	struct hybrid_volume_status copy = *status, *s = &copy;
	const struct status_key keys[] = {
		HYBRID_VOLUME_STATUS_WORDS(WORD) HYBRID_VOLUME_STATUS_NUMBERS(NUMBER) {}
	};

	return status_build(buf, len, keys);
}

/* Volume list and create_volume -------------------------------------------- */

static int volume_line_words(struct words *w, struct hybrid_volume_line *e)
{
	const char *word;
	int mode;

	if (word_u32(w, &e->id) || e->id >= HYBRID_MAX_VOLUMES)
		return -EINVAL;
	word = words_next(w);
	if (!word || (strcmp(word, "active") && strcmp(word, "tombstone")))
		return -EINVAL;
	e->tombstone = !strcmp(word, "tombstone");
	if (word_uuid(w, e->uuid) || word_copy(e->name, sizeof(e->name), words_next(w)) ||
	    word_uuid(w, e->member_uuid))
		return -EINVAL;
	word = words_next(w);
	mode = word ? hybrid_mode_parse(word) : -EINVAL;
	if (mode < 0)
		return -EINVAL;
	e->mode = mode;
	if (word_u64(w, &e->data_sector) || word_u64(w, &e->data_sectors) ||
	    word_u64(w, &e->cutoff_sectors))
		return -EINVAL;
	word = words_next(w);
	if (!word || (strcmp(word, "inplace") && strcmp(word, "formatted")))
		return -EINVAL;
	e->inplace = !strcmp(word, "inplace");
	if (word_u32(w, &e->dirty))
		return -EINVAL;
	word = words_next(w);
	if (word && hybrid_parse_u64(word, &e->dirty_sectors))
		return -EINVAL;
	word = words_next(w);
	return word ? hybrid_parse_u64(word, &e->data_sectors_new) : 0;
}

int hybrid_volume_line_parse(const char *line, struct hybrid_volume_line *entry)
{
	struct words w;
	int r;

	memset(entry, 0, sizeof(*entry));
	r = words_open(&w, line);
	if (r)
		return r;
	r = volume_line_words(&w, entry);
	words_close(&w);
	return r;
}

int hybrid_volume_line_build(char *buf, size_t len, const struct hybrid_volume_line *entry)
{
	struct text t = { .buf = buf, .len = len };
	char uuid[HYBRID_UUID_TEXT], member[HYBRID_UUID_TEXT];

	text_add(&t, "%u %s %s %s %s %s %llu %llu %llu %s %u %llu %llu", entry->id,
		 entry->tombstone ? "tombstone" : "active",
		 hybrid_uuid_text(uuid, entry->uuid), entry->name,
		 hybrid_uuid_text(member, entry->member_uuid), hybrid_mode_name(entry->mode),
		 (unsigned long long)entry->data_sector,
		 (unsigned long long)entry->data_sectors,
		 (unsigned long long)entry->cutoff_sectors,
		 entry->inplace ? "inplace" : "formatted", entry->dirty,
		 (unsigned long long)entry->dirty_sectors,
		 (unsigned long long)entry->data_sectors_new);
	return text_end(&t);
}

int hybrid_volume_lines_parse(const char *reply, struct hybrid_volume_line **entries,
			      unsigned int *nr)
{
	unsigned int lines = 1, n = 0;
	struct hybrid_volume_line *array;
	char *copy, *line, *save;
	const char *p;
	int r = 0;

	for (p = reply; *p; p++)
		lines += *p == '\n';
	array = calloc(lines, sizeof(*array));
	copy = strdup(reply);
	if (!array || !copy) {
		r = -ENOMEM;
		goto out;
	}
	for (line = strtok_r(copy, "\n", &save); line && !r; line = strtok_r(NULL, "\n", &save))
		r = hybrid_volume_line_parse(line, &array[n++]);
out:
	free(copy);
	if (r) {
		free(array);
		return r;
	}
	*entries = array;
	*nr = n;
	return 0;
}

int hybrid_create_message_build(char *buf, size_t len, const struct hybrid_volume_line *entry,
				const uint8_t pairing_key[16])
{
	struct text t = { .buf = buf, .len = len };
	char uuid[HYBRID_UUID_TEXT], member[HYBRID_UUID_TEXT], key[HYBRID_KEY_TEXT];

	text_add(&t, "create_volume %u %s %s %s %s %llu %llu %s %llu", entry->id,
		 hybrid_uuid_text(uuid, entry->uuid), entry->name,
		 hybrid_uuid_text(member, entry->member_uuid),
		 hybrid_key_text(key, pairing_key), (unsigned long long)entry->data_sector,
		 (unsigned long long)entry->data_sectors, hybrid_mode_name(entry->mode),
		 (unsigned long long)entry->cutoff_sectors);
	if (entry->inplace)
		text_add(&t, " inplace");
	return text_end(&t);
}

/* DM_UUID ------------------------------------------------------------------ */

char *hybrid_dm_uuid(char buf[HYBRID_DM_UUID_TEXT], const uint8_t uuid[16], bool pool)
{
	char text[HYBRID_UUID_TEXT];

	snprintf(buf, HYBRID_DM_UUID_TEXT, HYBRID_DM_UUID_PREFIX "%s%s",
		 hybrid_uuid_text(text, uuid), pool ? HYBRID_DM_POOL_SUFFIX : "");
	return buf;
}

bool hybrid_dm_uuid_parse(const char *text, uint8_t uuid[16], bool *pool)
{
	const size_t prefix = strlen(HYBRID_DM_UUID_PREFIX);
	char copy[HYBRID_UUID_TEXT];

	if (strncmp(text, HYBRID_DM_UUID_PREFIX, prefix) ||
	    strlen(text + prefix) < HYBRID_UUID_TEXT - 1)
		return false;
	memcpy(copy, text + prefix, HYBRID_UUID_TEXT - 1);
	copy[HYBRID_UUID_TEXT - 1] = '\0';
	text += prefix + HYBRID_UUID_TEXT - 1;
	*pool = !strcmp(text, HYBRID_DM_POOL_SUFFIX);
	return hybrid_uuid_parse(copy, uuid) && (*pool || !*text);
}

char *hybrid_linear_params(char params[HYBRID_PARAMS_MAX], dev_t below, uint64_t start)
{
	snprintf(params, HYBRID_PARAMS_MAX, "%u:%u %llu", major(below), minor(below),
		 (unsigned long long)start);
	return params;
}

/* Versions ----------------------------------------------------------------- */

int hybrid_check_version(const char *target, const uint32_t version[3], bool format)
{
	const uint32_t mine[] = { HYBRID_TARGET_MAJOR, HYBRID_TARGET_MINOR, HYBRID_FORMAT_VERSION };
	const char *next;

	if (version[0] != mine[0]) {
		next = version[0] < mine[0] ?
		       "reboot into the new module, or install tools of the module's release" :
		       "install the tools of the module's release";
		return hybrid_fail(HYBRID_NOTARGET, next,
				   "the module in memory (%s %u.%u.%u) is %s than this tool, which needs %u",
				   target, version[0], version[1], version[2],
				   version[0] < mine[0] ? "older" : "newer", mine[0]);
	}
	if (format && version[2] != mine[2])
		return hybrid_fail(HYBRID_NOTARGET,
				   "reboot into the module of this tool's release; nothing was written",
				   "the module in memory (%s %u.%u.%u) does not read the disk format %u of this tool",
				   target, version[0], version[1], version[2], mine[2]);
	if (version[1] != mine[1])
		hybrid_warn("the module in memory (%s %u.%u) is %s than this tool (%u.%u): features that only one of them knows do not work",
			    target, version[0], version[1],
			    version[1] < mine[1] ? "older" : "newer", mine[0], mine[1]);
	return 0;
}
