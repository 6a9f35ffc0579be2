/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Records as JSON, both ways, from one table of fields; and the reader below them:
 * one token at a time, in constant memory, strict.  The input may be hostile.
 *
 * Functions that read return 0 or an exit code, after a message with line, column
 * and the place in the document.  Nothing may be read after a failure.
 */
#ifndef HYBRID_JSON_H
#define HYBRID_JSON_H

#include <linux/limits.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define JSON_TEXT_MAX	128	/* bytes of a string, with its NUL */

struct json {
	FILE *in;
	const char *name;		/* of the document */
	u64 line;
	u32 column;
	int next;			/* the character to come, or EOF */
	bool first;			/* nothing was read yet in this object or array */
	char section[JSON_TEXT_MAX];	/* where in the document, for messages */
	u64 element;			/* ... in an array: which; 0: not in one */
	char key[JSON_TEXT_MAX];
	char text[JSON_TEXT_MAX];
};

void json_begin(struct json *j, FILE *in, const char *name);

/* Prints an error about the last text read.  Returns HYBRID_BADDEV. */
int json_fail(struct json *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Reads '{' or '['. */
int json_open(struct json *j, char bracket);

/*
 * After json_open(): at the end of the object or array, *more is false, and it is
 * closed.  json_key() reads the next key into j->key.
 */
int json_more(struct json *j, char closing, bool *more);
int json_key(struct json *j, bool *more);

/* The next key must be @key. */
int json_expect(struct json *j, const char *key);

/* Nothing but white space may follow. */
int json_end(struct json *j);

enum json_kind {
	JSON_NUMBER,	/* 0 ... max, in @size bytes of memory */
	JSON_HEX,	/* a u64 as a string: 0x and 16 digits; programs read numbers as doubles */
	JSON_UUID,	/* 16 bytes */
	JSON_KEY,	/* 16 bytes, 32 digits */
	JSON_NAME,	/* a string of up to @size - 1 bytes, of the characters of names */
	JSON_WORD,	/* a u32: index of @words, which end with NULL */
	JSON_BOOL,	/* a u32: bit @max, others untouched */
};

struct json_field {
	const char *name;
	enum json_kind kind;
	size_t offset, size;
	u64 max;
	const char * const *words;
};

/* The record as an object in one line, without a newline. */
void json_print(FILE *out, const struct json_field *fields, const void *record);

/* An object with exactly these fields, in any order. */
int json_record(struct json *j, const struct json_field *fields, void *record);

#endif
