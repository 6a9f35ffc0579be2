/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reports: rows of named fields, printed as an aligned table (libdevmapper's
 * reports, with their selection language), as JSON, or as KEY=VALUE lines.
 */
#ifndef HYBRID_REPORT_H
#define HYBRID_REPORT_H

#include <stdbool.h>
#include <stdint.h>

enum hybrid_field_type {
	HYBRID_FIELD_TEXT,
	HYBRID_FIELD_NUMBER,
	HYBRID_FIELD_SIZE,	/* bytes */
	HYBRID_FIELD_PERCENT,	/* in hundredths of a percent */
};

struct hybrid_field {
	const char *id;
	const char *heading;
	enum hybrid_field_type type;
	const char *description;
};

/* Fields of a report, and its default fields (without -o). */
struct hybrid_fields {
	const struct hybrid_field *list;
	unsigned int nr;
	const char *defaults;
};

struct hybrid_value {
	char *text;		/* HYBRID_FIELD_TEXT; owned by the report */
	uint64_t number;	/* the others */
	bool set;		/* else: empty, null in JSON */
};

/* The user's options; strings as typed, NULL: not given. */
struct hybrid_report_options {
	const char *fields;	/* -o; "+a,b" adds to the default; "all"; "help" */
	const char *sort;	/* -O: "a,-b" */
	const char *select;	/* -S */
	char unit;		/* 'h' or one of hybrid_format_size()'s */
	bool noheadings;
	bool json;
	bool export;
};

struct hybrid_report;

/*
 * A report whose rows have these fields; @fields and @name (of the JSON array) must outlive it.
 * NULL: no memory.
 */
struct hybrid_report *hybrid_report_new(const char *name, const struct hybrid_fields *fields);
void hybrid_report_free(struct hybrid_report *report);

/*
 * A new row, nothing set: one value for each field.  Valid until the next call.
 * NULL: no memory.
 */
struct hybrid_value *hybrid_report_row(struct hybrid_report *report);
unsigned int hybrid_report_rows(const struct hybrid_report *report);

void hybrid_set_text(struct hybrid_value *value, const char *text);
void hybrid_set_number(struct hybrid_value *value, uint64_t number);

/*
 * Print it.  Returns 0, HYBRID_USAGE for an unknown field or a bad selection
 * (printed), or HYBRID_NOMEM.
 */
int hybrid_report_print(struct hybrid_report *report, const struct hybrid_report_options *opts);

/* Print KEY="VALUE" or KEY=VALUE, fit for a shell; @key in capitals. */
void hybrid_export(const char *key, const char *value);

#endif
