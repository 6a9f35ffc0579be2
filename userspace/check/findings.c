// SPDX-License-Identifier: GPL-2.0-or-later
#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "findings.h"

#define TEXT_MAX	320

struct hybrid_finding {
	enum hybrid_finding_id id;
	char device[256], where[64], text[TEXT_MAX];
};

static const struct kind {
	const char *name, *meaning, *next;
	enum hybrid_severity severity;
} kinds[HYBRID_FOUND_MAX] = {
#define FINDING(number, id, text, how_bad, means, then) \
	[number] = { .name = text, .severity = HYBRID_##how_bad, .meaning = means, .next = then },
#include "findings.def"
};

static const char * const severity_name[] = {
	[HYBRID_NOTE] = "note",
	[HYBRID_RECOVERABLE] = "recoverable",
	[HYBRID_UNKNOWN] = "unknown",
	[HYBRID_DAMAGE] = "damage",
};

void hybrid_findings_free(struct hybrid_findings *f)
{
	free(f->list);
	memset(f, 0, sizeof(*f));
}

const char *hybrid_where(struct hybrid_findings *f, const char *what, u64 nr)
{
	snprintf(f->where, sizeof(f->where), "%s %llu", what, (unsigned long long)nr);
	return f->where;
}

void hybrid_found(struct hybrid_findings *f, enum hybrid_finding_id id, const char *where,
		  const char *fmt, ...)
{
	struct hybrid_finding *found, *list;
	va_list ap;

	if (f->count[id]++ >= HYBRID_FINDINGS_KEPT)
		return;
	list = realloc(f->list, (f->nr + 1) * sizeof(*list));
	if (!list) {
		f->nomem = true;
		return;
	}
	f->list = list;
	found = &list[f->nr++];
	found->id = id;
	snprintf(found->device, sizeof(found->device), "%s", f->device ? f->device : "");
	snprintf(found->where, sizeof(found->where), "%s", where ? where : "");
	va_start(ap, fmt);
	vsnprintf(found->text, sizeof(found->text), fmt, ap);
	va_end(ap);
}

enum hybrid_severity hybrid_findings_worst(const struct hybrid_findings *f)
{
	enum hybrid_severity worst = HYBRID_NOTE;
	unsigned int i;

	for (i = 0; i < HYBRID_FOUND_MAX; i++)
		if (f->count[i] && kinds[i].severity > worst)
			worst = kinds[i].severity;
	return worst;
}

const char *hybrid_verdict(const struct hybrid_findings *f)
{
	static const char * const name[] = { "clean", "recoverable", "unknown", "damaged" };

	return name[hybrid_findings_worst(f)];
}

int hybrid_verdict_exit(const struct hybrid_findings *f)
{
	static const int code[] = { HYBRID_OK, HYBRID_DEGRADED, HYBRID_BADDEV, HYBRID_BADDEV };

	return code[hybrid_findings_worst(f)];
}

/* Prints all findings of one kind, then their meaning. */
static void print_kind(const struct hybrid_findings *f, unsigned int id, FILE *out)
{
	const struct kind *kind = &kinds[id];
	u64 shown = 0;
	unsigned int i;

	for (i = 0; i < f->nr; i++) {
		const struct hybrid_finding *found = &f->list[i];

		if (found->id != id)
			continue;
		shown++;
		fprintf(out, "%s: %s %u (%s): %s%s%s\n", found->device,
			severity_name[kind->severity], id, kind->name, found->where,
			found->where[0] ? ": " : "", found->text);
	}
	if (f->count[id] > shown)
		fprintf(out, "  and %llu more\n", (unsigned long long)(f->count[id] - shown));
	fprintf(out, "  meaning: %s\n  next: %s\n", kind->meaning, kind->next);
}

void hybrid_findings_print(const struct hybrid_findings *f, FILE *out)
{
	unsigned int i;
	int severity;

	if (hybrid_output.silent)
		return;
	for (severity = HYBRID_DAMAGE; severity >= HYBRID_NOTE; severity--)
		for (i = 0; i < HYBRID_FOUND_MAX; i++)
			if (f->count[i] && (int)kinds[i].severity == severity)
				print_kind(f, i, out);
}

static int fail_unknown(const struct hybrid_findings *f)
{
	const struct hybrid_finding *found;

	for (found = f->list; found < f->list + f->nr; found++)
		if (found->id == HYBRID_FOUND_SB_FEATURE)
			return hybrid_fail(HYBRID_BADDEV, kinds[found->id].next, "%s: %s",
					   found->device, found->text);
	return hybrid_nomem();
}

int hybrid_findings_fail(const struct hybrid_findings *f, const char *next, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	if (f->count[HYBRID_FOUND_SB_FEATURE])
		return fail_unknown(f);
	if (!hybrid_output.quiet)
		hybrid_findings_print(f, stderr);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return hybrid_fail(HYBRID_BADDEV, next, "%s", text);
}

static void add_string(struct json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, json_object_new_string(text));
}

static struct json_object *finding_json(const struct hybrid_finding *found)
{
	const struct kind *kind = &kinds[found->id];
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "number", json_object_new_int(found->id));
	add_string(o, "id", kind->name);
	add_string(o, "severity", severity_name[kind->severity]);
	add_string(o, "device", found->device);
	add_string(o, "where", found->where);
	add_string(o, "text", found->text);
	add_string(o, "meaning", kind->meaning);
	add_string(o, "next", kind->next);
	return o;
}

void hybrid_findings_json(const struct hybrid_findings *f, struct json_object *object)
{
	struct json_object *list = json_object_new_array();
	struct json_object *counts = json_object_new_object();
	unsigned int i;

	add_string(object, "verdict", hybrid_verdict(f));
	for (i = 0; i < f->nr; i++)
		json_object_array_add(list, finding_json(&f->list[i]));
	for (i = 0; i < HYBRID_FOUND_MAX; i++)
		if (f->count[i])
			json_object_object_add(counts, kinds[i].name,
					       json_object_new_uint64(f->count[i]));
	json_object_object_add(object, "findings", list);
	json_object_object_add(object, "counts", counts);
}
