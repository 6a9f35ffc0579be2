// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "json.h"
#include "units.h"

/* ---- characters and tokens --------------------------------------------- */

static void advance(struct json *j)
{
	if (j->next == '\n') {
		j->line++;
		j->column = 0;
	}
	j->next = getc_unlocked(j->in);
	j->column++;
}

void json_begin(struct json *j, FILE *in, const char *name)
{
	memset(j, 0, sizeof(*j));
	j->in = in;
	j->name = name;
	j->line = 1;
	advance(j);
}

int json_fail(struct json *j, const char *fmt, ...)
{
	char text[256], place[2 * JSON_TEXT_MAX + 32] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (j->element)
		snprintf(place, sizeof(place), "%s[%llu]%s%s: ", j->section,
			 (unsigned long long)j->element - 1, j->key[0] ? "." : "", j->key);
	else if (j->section[0] || j->key[0])
		snprintf(place, sizeof(place), "%s%s%s: ", j->section,
			 j->section[0] && j->key[0] ? "." : "", j->key);
	return hybrid_fail(HYBRID_BADDEV, "see hybrid-dump(5) for the format of a dump",
			   "%s:%llu:%u: %s%s", j->name, (unsigned long long)j->line, j->column,
			   place, ferror(j->in) ? "it cannot be read" : text);
}

static void skip_blanks(struct json *j)
{
	while (j->next == ' ' || j->next == '\n' || j->next == '\t' || j->next == '\r')
		advance(j);
}

/* The message names only the expected character: no text of a hostile document is printed. */
static int want(struct json *j, char c)
{
	skip_blanks(j);
	if (j->next != c)
		return json_fail(j, "'%c' expected%s", c, j->next == EOF ? ", it ends here" : "");
	advance(j);
	return 0;
}

int json_open(struct json *j, char bracket)
{
	j->first = true;
	return want(j, bracket);
}

int json_more(struct json *j, char closing, bool *more)
{
	int r = 0;

	skip_blanks(j);
	*more = j->next != closing;
	if (!*more)
		advance(j);
	else if (!j->first)
		r = want(j, ',');
	j->first = false;
	return r;
}

/* No string of a dump needs an escape, or a character outside ASCII. */
static int read_string(struct json *j, char text[JSON_TEXT_MAX])
{
	size_t n = 0;
	int r;

	r = want(j, '"');
	if (r)
		return r;
	text[0] = '\0';
	for (; j->next != '"'; advance(j)) {
		if (j->next == EOF)
			return json_fail(j, "the document ends within a string");
		if (j->next < ' ' || j->next > '~' || j->next == '\\')
			return json_fail(j, "a string holds a character that no name or number has");
		if (n + 1 == JSON_TEXT_MAX)
			return json_fail(j, "a string is too long");
		text[n++] = j->next;
		text[n] = '\0';
	}
	advance(j);
	return 0;
}

int json_key(struct json *j, bool *more)
{
	int r;

	j->key[0] = '\0';
	r = json_more(j, '}', more);
	if (r || !*more)
		return r;
	r = read_string(j, j->key);
	return r ? r : want(j, ':');
}

int json_expect(struct json *j, const char *key)
{
	bool more;
	int r;

	r = json_key(j, &more);
	if (r)
		return r;
	if (!more || strcmp(j->key, key))
		return json_fail(j, "\"%s\" expected", key);
	return 0;
}

int json_end(struct json *j)
{
	j->key[0] = '\0';
	skip_blanks(j);
	return j->next == EOF && !ferror(j->in) ? 0 : json_fail(j, "something follows the end");
}

/* ---- values ------------------------------------------------------------ */

static int read_number(struct json *j, u64 *value)
{
	u32 digits = 0;

	skip_blanks(j);
	*value = 0;
	if (j->next < '0' || j->next > '9')
		return json_fail(j, "a whole number expected");
	for (; j->next >= '0' && j->next <= '9'; advance(j)) {
		u32 digit = j->next - '0';

		if (digits++ && !*value)
			return json_fail(j, "a number does not begin with 0");
		if (*value > (U64_MAX - digit) / 10)
			return json_fail(j, "the number is too large");
		*value = *value * 10 + digit;
	}
	if (j->next == '.' || j->next == 'e' || j->next == 'E')
		return json_fail(j, "a whole number expected");
	return 0;
}

static int read_bool(struct json *j, bool *value)
{
	const char *p;

	skip_blanks(j);
	*value = j->next == 't';
	for (p = *value ? "true" : "false"; *p; p++, advance(j))
		if (j->next != *p)
			return json_fail(j, "true or false expected");
	return 0;
}

static int parse_hex(struct json *j, u64 *value)
{
	if (strlen(j->text) != 18 || strncmp(j->text, "0x", 2) ||
	    strspn(j->text + 2, "0123456789abcdef") != 16)
		return json_fail(j, "\"0x\" and 16 lower-case hexadecimal digits expected");
	*value = strtoull(j->text + 2, NULL, 16);
	return 0;
}

static int parse_word(struct json *j, const struct json_field *f, u32 *value)
{
	for (*value = 0; f->words[*value]; ++*value)
		if (!strcmp(f->words[*value], j->text))
			return 0;
	return json_fail(j, "there is no such word");
}

static int parse_name(struct json *j, const struct json_field *f, char *name)
{
	if (strlen(j->text) >= f->size)
		return json_fail(j, "the name is too long");
	memset(name, 0, f->size);
	memcpy(name, j->text, strlen(j->text));
	return 0;
}

static int parse_string(struct json *j, const struct json_field *f, void *at)
{
	int r = read_string(j, j->text);

	if (r)
		return r;
	switch (f->kind) {
	case JSON_HEX:
		return parse_hex(j, at);
	case JSON_UUID:
		return hybrid_uuid_parse(j->text, at) ? 0 : json_fail(j, "a UUID expected");
	case JSON_KEY:
		return hybrid_key_parse(j->text, at) ? 0 :
		       json_fail(j, "32 hexadecimal digits expected");
	case JSON_WORD:
		return parse_word(j, f, at);
	default:
		return parse_name(j, f, at);
	}
}

static int parse_number(struct json *j, const struct json_field *f, void *at)
{
	u64 value;
	int r = read_number(j, &value);

	if (r)
		return r;
	if (value > f->max)
		return json_fail(j, "%llu is more than %llu", (unsigned long long)value,
				 (unsigned long long)f->max);
	if (f->size == sizeof(u8))
		*(u8 *)at = value;
	else if (f->size == sizeof(u32))
		*(u32 *)at = value;
	else
		*(u64 *)at = value;
	return 0;
}

static int parse_bool(struct json *j, const struct json_field *f, u32 *at)
{
	bool value;
	int r = read_bool(j, &value);

	*at &= ~(1U << f->max);
	*at |= (u32)(value && !r) << f->max;
	return r;
}

static int parse_field(struct json *j, const struct json_field *f, void *at)
{
	if (f->kind == JSON_NUMBER)
		return parse_number(j, f, at);
	return f->kind == JSON_BOOL ? parse_bool(j, f, at) : parse_string(j, f, at);
}

/* ---- records ----------------------------------------------------------- */

int json_record(struct json *j, const struct json_field *fields, void *record)
{
	const struct json_field *f;
	u64 seen = 0;
	bool more;
	int r;

	j->key[0] = '\0';
	r = json_open(j, '{');
	for (;;) {
		if (!r)
			r = json_key(j, &more);
		if (r || !more)
			break;
		for (f = fields; f->name && strcmp(f->name, j->key); f++)
			;
		if (!f->name)
			return json_fail(j, "there is no such field");
		if (seen & 1ULL << (f - fields))
			return json_fail(j, "it occurs twice");
		seen |= 1ULL << (f - fields);
		r = parse_field(j, f, (char *)record + f->offset);
	}
	j->key[0] = '\0';
	for (f = fields; !r && f->name; f++)
		if (!(seen & 1ULL << (f - fields)))
			return json_fail(j, "\"%s\" is missing", f->name);
	return r;
}

static void print_number(FILE *out, const struct json_field *f, const void *at)
{
	u64 value = *(const u8 *)at;

	if (f->size == sizeof(u32))
		value = *(const u32 *)at;
	else if (f->size == sizeof(u64))
		value = *(const u64 *)at;
	fprintf(out, "%llu", (unsigned long long)value);
}

/* Names are of the characters that the codec lets through: none needs an escape. */
static void print_field(FILE *out, const struct json_field *f, const void *at)
{
	char text[HYBRID_UUID_TEXT];

	switch (f->kind) {
	case JSON_NUMBER:
		print_number(out, f, at);
		break;
	case JSON_HEX:
		fprintf(out, "\"0x%016llx\"", (unsigned long long)*(const u64 *)at);
		break;
	case JSON_UUID:
		fprintf(out, "\"%s\"", hybrid_uuid_text(text, at));
		break;
	case JSON_KEY:
		fprintf(out, "\"%s\"", hybrid_key_text(text, at));
		break;
	case JSON_NAME:
		fprintf(out, "\"%s\"", (const char *)at);
		break;
	case JSON_WORD:
		fprintf(out, "\"%s\"", f->words[*(const u32 *)at]);
		break;
	case JSON_BOOL:
		fputs(*(const u32 *)at >> f->max & 1 ? "true" : "false", out);
		break;
	}
}

void json_print(FILE *out, const struct json_field *fields, const void *record)
{
	const struct json_field *f;

	for (f = fields; f->name; f++) {
		fprintf(out, "%s\"%s\": ", f == fields ? "{" : ", ", f->name);
		print_field(out, f, (const char *)record + f->offset);
	}
	fputc('}', out);
}
