// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <ctype.h>
#include <json-c/json.h>
#include <libdevmapper.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "report.h"
#include "units.h"

#define ROW_TYPE	1
#define MAX_FIELDS	64
#define TEXT_MAX	64	/* of a number */

struct hybrid_report {
	const char *name, *defaults;
	const struct hybrid_field *fields;
	unsigned int nr_fields;
	struct hybrid_value **rows;
	unsigned int nr_rows;
	char unit;
	bool plain;		/* sizes as bytes, without a unit */
};

/* Fields in the order asked for; sort keys in their order of weight. */
struct key_list {
	unsigned int field[MAX_FIELDS];
	bool descending[MAX_FIELDS];
	unsigned int nr;
};

struct hybrid_report *hybrid_report_new(const char *name, const struct hybrid_fields *fields)
{
	struct hybrid_report *report = calloc(1, sizeof(*report));

	if (!report)
		return NULL;
	report->name = name;
	report->fields = fields->list;
	report->nr_fields = fields->nr < MAX_FIELDS ? fields->nr : MAX_FIELDS;
	report->defaults = fields->defaults;
	return report;
}

static void free_row(const struct hybrid_report *report, struct hybrid_value *row)
{
	unsigned int i;

	for (i = 0; i < report->nr_fields; i++)
		free(row[i].text);
	free(row);
}

void hybrid_report_free(struct hybrid_report *report)
{
	unsigned int i;

	if (!report)
		return;
	for (i = 0; i < report->nr_rows; i++)
		free_row(report, report->rows[i]);
	free(report->rows);
	free(report);
}

struct hybrid_value *hybrid_report_row(struct hybrid_report *report)
{
	struct hybrid_value **rows, *row;

	rows = realloc(report->rows, (report->nr_rows + 1) * sizeof(*rows));
	if (!rows)
		return NULL;
	report->rows = rows;
	row = calloc(report->nr_fields, sizeof(*row));
	if (row)
		rows[report->nr_rows++] = row;
	return row;
}

unsigned int hybrid_report_rows(const struct hybrid_report *report)
{
	return report->nr_rows;
}

void hybrid_set_text(struct hybrid_value *value, const char *text)
{
	free(value->text);
	value->text = text ? strdup(text) : NULL;
	value->set = value->text;
}

void hybrid_set_number(struct hybrid_value *value, uint64_t number)
{
	value->number = number;
	value->set = true;
}

static char *value_text(const struct hybrid_report *report, const struct hybrid_field *field,
			const struct hybrid_value *value, char buf[TEXT_MAX])
{
	buf[0] = '\0';
	if (!value->set)
		return buf;
	switch (field->type) {
	case HYBRID_FIELD_TEXT:
		return value->text;
	case HYBRID_FIELD_SIZE:
		if (report->plain)
			break;
		return hybrid_format_size(buf, TEXT_MAX, value->number, report->unit);
	case HYBRID_FIELD_PERCENT:
		snprintf(buf, TEXT_MAX, "%llu.%02llu", (unsigned long long)value->number / 100,
			 (unsigned long long)value->number % 100);
		return buf;
	default:
		break;
	}
	snprintf(buf, TEXT_MAX, "%llu", (unsigned long long)value->number);
	return buf;
}

/* Which fields, in which order ------------------------------------------------ */

static int find_field(const struct hybrid_report *report, const char *id)
{
	unsigned int i;

	for (i = 0; i < report->nr_fields; i++)
		if (!strcmp(report->fields[i].id, id))
			return i;
	return -1;
}

static int add_key(const struct hybrid_report *report, struct key_list *list, const char *word)
{
	bool descending = word[0] == '-';
	int field;

	if (word[0] == '-' || word[0] == '+')
		word++;
	if (!strcmp(word, "all")) {
		for (list->nr = 0; list->nr < report->nr_fields; list->nr++)
			list->field[list->nr] = list->nr;
		return 0;
	}
	field = find_field(report, word);
	if (field < 0)
		return hybrid_fail(HYBRID_USAGE, "-o help lists the fields",
				   "no such field: %s", word);
	if (list->nr < MAX_FIELDS) {
		list->descending[list->nr] = descending;
		list->field[list->nr++] = field;
	}
	return 0;
}

static int add_keys(const struct hybrid_report *report, struct key_list *list,
		    const char *words)
{
	char *copy = strdup(words), *word, *save;
	int r = copy ? 0 : hybrid_nomem();

	for (word = copy ? strtok_r(copy, ", ", &save) : NULL; word && !r;
	     word = strtok_r(NULL, ", ", &save))
		r = add_key(report, list, word);
	free(copy);
	return r;
}

static int choose_fields(const struct hybrid_report *report, const char *asked,
			 struct key_list *list)
{
	int r = 0;

	list->nr = 0;
	if (!asked || asked[0] == '+')
		r = add_keys(report, list, report->defaults);
	if (!r && asked)
		r = add_keys(report, list, asked[0] == '+' ? asked + 1 : asked);
	if (!r && !list->nr)
		r = hybrid_fail(HYBRID_USAGE, "-o help lists the fields", "no fields given");
	return r;
}

static void list_fields(const struct hybrid_report *report)
{
	unsigned int i;

	for (i = 0; i < report->nr_fields; i++)
		printf("  %-18s %s\n", report->fields[i].id, report->fields[i].description);
}

/* Sorting ------------------------------------------------------------------ */

struct sort_context {
	const struct hybrid_report *report;
	const struct key_list *keys;
};

static int compare_values(const struct hybrid_field *field, const struct hybrid_value *a,
			  const struct hybrid_value *b)
{
	if (!a->set || !b->set)
		return a->set - b->set;
	if (field->type == HYBRID_FIELD_TEXT)
		return strcmp(a->text, b->text);
	return a->number < b->number ? -1 : a->number > b->number;
}

static int compare_rows(const void *pa, const void *pb, void *arg)
{
	const struct hybrid_value *a = *(struct hybrid_value * const *)pa;
	const struct hybrid_value *b = *(struct hybrid_value * const *)pb;
	const struct sort_context *ctx = arg;
	unsigned int i, f;
	int r;

	for (i = 0; i < ctx->keys->nr; i++) {
		f = ctx->keys->field[i];
		r = compare_values(&ctx->report->fields[f], &a[f], &b[f]);
		if (r)
			return ctx->keys->descending[i] ? -r : r;
	}
	return 0;
}

static int sort_rows(struct hybrid_report *report, const char *asked)
{
	struct key_list keys = { .nr = 0 };
	struct sort_context ctx = { .report = report, .keys = &keys };
	int r;

	if (!asked)
		return 0;
	r = add_keys(report, &keys, asked);
	if (!r && report->nr_rows)
		qsort_r(report->rows, report->nr_rows, sizeof(*report->rows), compare_rows,
			&ctx);
	return r;
}

/* Selection and text: libdevmapper's reports ----------------------------------- */

static void *row_data(void *row)
{
	return row;
}

static int display(struct dm_report *rh __attribute__((unused)), struct dm_pool *mem,
		   struct dm_report_field *field, const struct hybrid_value *value,
		   const struct hybrid_report *report, enum hybrid_field_type type)
{
	struct hybrid_field plain = { .type = type };
	char buf[TEXT_MAX];
	uint64_t *sort;
	double *size;
	char *text;

	text = dm_pool_strdup(mem, value_text(report, &plain, value, buf));
	if (!text)
		return 0;
	if (type == HYBRID_FIELD_TEXT) {
		dm_report_field_set_value(field, text, NULL);
	} else if (type == HYBRID_FIELD_SIZE) {
		/* Selections compare sizes in sectors, as doubles */
		size = dm_pool_alloc(mem, sizeof(*size));
		if (!size)
			return 0;
		*size = (double)value->number / 512;
		dm_report_field_set_value(field, text, size);
	} else {
		sort = dm_pool_alloc(mem, sizeof(*sort));
		if (!sort)
			return 0;
		*sort = value->number;
		if (type == HYBRID_FIELD_PERCENT)
			*sort /= 100;
		dm_report_field_set_value(field, text, sort);
	}
	return 1;
}

#define DISPLAY(name, type) \
static int display_##name(struct dm_report *rh, struct dm_pool *mem, \
			  struct dm_report_field *field, const void *data, void *private) \
{ \
	return display(rh, mem, field, data, private, type); \
}

DISPLAY(text, HYBRID_FIELD_TEXT)
DISPLAY(number, HYBRID_FIELD_NUMBER)
DISPLAY(size, HYBRID_FIELD_SIZE)
DISPLAY(percent, HYBRID_FIELD_PERCENT)

static void describe_field(struct dm_report_field_type *to, const struct hybrid_field *from,
			   unsigned int index)
{
	to->type = ROW_TYPE;
	to->offset = index * sizeof(struct hybrid_value);
	snprintf((char *)to->id, sizeof(to->id), "%s", from->id);
	snprintf((char *)to->heading, sizeof(to->heading), "%s", from->heading);
	to->desc = from->description;
	to->width = strlen(from->heading);
	/* The type alone: libdevmapper's selection does not see it beside other flags */
	switch (from->type) {
	case HYBRID_FIELD_TEXT:
		to->flags = DM_REPORT_FIELD_TYPE_STRING;
		to->report_fn = display_text;
		break;
	case HYBRID_FIELD_SIZE:
		to->flags = DM_REPORT_FIELD_TYPE_SIZE;
		to->report_fn = display_size;
		break;
	case HYBRID_FIELD_PERCENT:
		to->flags = DM_REPORT_FIELD_TYPE_NUMBER;
		to->report_fn = display_percent;
		break;
	default:
		to->flags = DM_REPORT_FIELD_TYPE_NUMBER;
		to->report_fn = display_number;
	}
}

static char *join_fields(const struct hybrid_report *report, const struct key_list *list)
{
	char *text = NULL;
	unsigned int i;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	for (i = 0; i < list->nr; i++)
		fprintf(out, "%s%s", i ? "," : "", report->fields[list->field[i]].id);
	fclose(out);
	return text;
}

static const struct dm_report_object_type row_types[] = {
	{ .id = ROW_TYPE, .desc = "Row", .prefix = "", .data_fn = row_data },
	{ .id = 0, .desc = "", .prefix = "", .data_fn = NULL },
};

/* Prints the selected rows, or (not @print) drops all others. */
static int with_dm_report(struct hybrid_report *report, const struct key_list *list,
			  const struct hybrid_report_options *opts, bool print)
{
	struct dm_report_field_type types[MAX_FIELDS + 1] = {};
	uint32_t flags = DM_REPORT_OUTPUT_BUFFERED | DM_REPORT_OUTPUT_ALIGNED;
	uint32_t row_type = ROW_TYPE;
	char *fields = join_fields(report, list);
	unsigned int i, kept = 0;
	struct dm_report *rh;
	int selected;

	if (!fields)
		return hybrid_nomem();
	for (i = 0; i < report->nr_fields; i++)
		describe_field(&types[i], &report->fields[i], i);
	if (!opts->noheadings)
		flags |= DM_REPORT_OUTPUT_HEADINGS;
	rh = dm_report_init_with_selection(&row_type, row_types, types, fields, " ", flags, "",
					   opts->select, NULL, report);
	free(fields);
	if (!rh)
		return hybrid_fail(HYBRID_USAGE,
				   "write conditions as in 'dirty>0 && mode=writeback'",
				   "bad selection: %s", opts->select ? opts->select : "");
	for (i = 0; i < report->nr_rows; i++) {
		selected = 1;
		if (!dm_report_object_is_selected(rh, report->rows[i], print, &selected))
			break;
		if (selected || print)
			report->rows[kept++] = report->rows[i];
		else
			free_row(report, report->rows[i]);
	}
	report->nr_rows = kept;
	if (print && report->nr_rows)
		dm_report_output(rh);
	dm_report_free(rh);
	return 0;
}

/* JSON and KEY=VALUE ------------------------------------------------------- */

static struct json_object *value_json(const struct hybrid_field *field,
				      const struct hybrid_value *value)
{
	char buf[TEXT_MAX];

	if (!value->set)
		return NULL;
	switch (field->type) {
	case HYBRID_FIELD_TEXT:
		return json_object_new_string(value->text);
	case HYBRID_FIELD_PERCENT:
		snprintf(buf, sizeof(buf), "%.2f", (double)value->number / 100);
		return json_object_new_double_s((double)value->number / 100, buf);
	default:
		return json_object_new_uint64(value->number);
	}
}

static void print_json(const struct hybrid_report *report, const struct key_list *list)
{
	struct json_object *top = json_object_new_object();
	struct json_object *rows = json_object_new_array(), *row;
	const struct hybrid_field *field;
	unsigned int i, j;

	json_object_object_add(top, report->name, rows);
	for (i = 0; i < report->nr_rows; i++) {
		row = json_object_new_object();
		for (j = 0; j < list->nr; j++) {
			field = &report->fields[list->field[j]];
			json_object_object_add(row, field->id,
					       value_json(field,
							  &report->rows[i][list->field[j]]));
		}
		json_object_array_add(rows, row);
	}
	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY |
					    JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(top);
}

void hybrid_export(const char *key, const char *value)
{
	const char *p;

	for (p = key; *p; p++)
		putchar(toupper((unsigned char)*p));
	putchar('=');
	for (p = value; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("+-._/:@%,", *p))
			break;
	if (!*p) {
		puts(value);
		return;
	}
	putchar('"');
	for (p = value; *p; p++) {
		if (strchr("\"\\$`", *p))
			putchar('\\');
		putchar(*p == '\n' ? ' ' : *p);
	}
	puts("\"");
}

static void print_export(const struct hybrid_report *report, const struct key_list *list)
{
	const struct hybrid_field *field;
	const struct hybrid_value *value;
	char buf[TEXT_MAX], key[64];
	unsigned int i, j;

	for (i = 0; i < report->nr_rows; i++) {
		if (i)
			putchar('\n');
		for (j = 0; j < list->nr; j++) {
			field = &report->fields[list->field[j]];
			value = &report->rows[i][list->field[j]];
			if (!value->set)
				continue;
			snprintf(key, sizeof(key), "HYBRID_%s", field->id);
			hybrid_export(key, value_text(report, field, value, buf));
		}
	}
}

int hybrid_report_print(struct hybrid_report *report, const struct hybrid_report_options *opts)
{
	struct key_list list;
	int r;

	if (opts->fields && !strcmp(opts->fields, "help")) {
		list_fields(report);
		return 0;
	}
	report->unit = opts->unit;
	/* A shell wants numbers */
	report->plain = opts->export && opts->unit == 'h';
	r = choose_fields(report, opts->fields, &list);
	if (!r)
		r = sort_rows(report, opts->sort);
	if (r)
		return r;
	if (!opts->json && !opts->export)
		return with_dm_report(report, &list, opts, true);
	if (opts->select)
		r = with_dm_report(report, &list, opts, false);
	if (r)
		return r;
	if (opts->json)
		print_json(report, &list);
	else
		print_export(report, &list);
	return 0;
}
