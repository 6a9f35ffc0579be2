// SPDX-License-Identifier: GPL-2.0-or-later
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apart.h"
#include "child.h"
#include "sysfs.h"
#include "wear.h"

/* A disk that retries a bad read, often for seven seconds, serves nothing else meanwhile */
#define SECONDS		10
#define USED_MAX	255
#define HOUR		3600
#define YEAR		(365 * 24 * HOUR)
#define YEARS_MAX	100
#define HOURS_MAX	(YEARS_MAX * (YEAR / HOUR))

#define LOW_SPARE	(1U << 0)
#define FAILING		(1U << 8)	/* the only warning of drives other than NVMe's */

/* By the bits of NVMe's critical warning, the worst first. */
static const struct {
	unsigned int bit;
	const char *says;
	bool replace;
} warnings[] = {
	{ 1U << 3, "it no longer takes writes", true },
	{ 1U << 2, "it is no longer reliable", true },
	{ FAILING, "it expects to fail soon", true },
	{ LOW_SPARE, "its spare is running out", true },
	{ 1U << 4, "its protection against power cuts has failed", true },
	{ 1U << 1, "it is too hot or too cold", false },
};

/* All results of the process that asks one drive. */
struct drive {
	char path[HYBRID_PATH_MAX];
	bool answers;
	int used, spare, hours;		/* -1: not known */
	unsigned int warnings;
};

/* Output of smartctl ------------------------------------------------------------ */

/* NULL: there is none, or it is of another type. */
static struct json_object *get(struct json_object *top, const char *path, enum json_type type)
{
	struct json_object *o;

	return !json_pointer_get(top, path, &o) && json_object_is_type(o, type) ? o : NULL;
}

/* -1: there is none, or it is out of range. */
static int number(struct json_object *top, const char *path, int max)
{
	struct json_object *o = get(top, path, json_type_int);
	int64_t n = o ? json_object_get_int64(o) : -1;

	return n >= 0 && n <= max ? n : -1;
}

/* False also if it is missing. */
static bool is_false(struct json_object *top, const char *path)
{
	struct json_object *o = get(top, path, json_type_boolean);

	return o && !json_object_get_boolean(o);
}

static bool is_indicator(struct json_object *entry)
{
	struct json_object *name = get(entry, "/name", json_type_string);

	return name && !is_false(entry, "/flags/valid") &&
	       !strcmp(json_object_get_string(name), "Percentage Used Endurance Indicator");
}

/* Looks at the device statistics of an ATA drive: smartctl 7.3 has its wear nowhere else. */
static int ata_used(struct json_object *top)
{
	struct json_object *pages = get(top, "/ata_device_statistics/pages", json_type_array);
	struct json_object *table, *entry;
	size_t p, i;

	for (p = 0; pages && p < json_object_array_length(pages); p++) {
		table = get(json_object_array_get_idx(pages, p), "/table", json_type_array);
		for (i = 0; table && i < json_object_array_length(table); i++) {
			entry = json_object_array_get_idx(table, i);
			if (is_indicator(entry))
				return number(entry, "/value", USED_MAX);
		}
	}
	return -1;
}

/* The first number that is there. */
static int first(struct json_object *top, const char * const *paths, unsigned int nr, int max)
{
	unsigned int i;
	int n = -1;

	for (i = 0; i < nr && n < 0; i++)
		n = number(top, paths[i], max);
	return n;
}

#define FIRST(top, paths, max) first(top, paths, sizeof(paths) / sizeof(paths[0]), max)

static void parse(struct drive *d, struct json_object *top)
{
	static const char * const used[] = {
		"/nvme_smart_health_information_log/percentage_used",
		"/endurance_used/current_percent",
		"/scsi_percentage_used_endurance_indicator",
	};
	static const char * const spare[] = {
		"/nvme_smart_health_information_log/available_spare",
		"/spare_available/current_percent",
	};
	static const char * const threshold[] = {
		"/nvme_smart_health_information_log/available_spare_threshold",
		"/spare_available/threshold_percent",
	};
	int critical = number(top, "/nvme_smart_health_information_log/critical_warning", 255);
	int least = FIRST(top, threshold, 100);

	d->used = FIRST(top, used, USED_MAX);
	if (d->used < 0)
		d->used = ata_used(top);
	d->spare = FIRST(top, spare, 100);
	d->hours = number(top, "/power_on_time/hours", HOURS_MAX);
	if (critical >= 0)
		d->warnings = critical;
	else if (is_false(top, "/smart_status/passed"))
		d->warnings = FAILING;
	/* QEMU's drives have 0 for both, some others a threshold of 100 */
	if (!d->spare && least <= 0)
		d->spare = -1;
	else if (d->spare >= 0 && d->spare < 100 && d->spare <= least)
		d->warnings |= LOW_SPARE;
}

static void ask(void *element)
{
	struct drive *d = element;
	const char * const argv[] = { "smartctl", "--json", "--nocheck=standby", "--health",
				      "--attributes", "--log=ssd", d->path, NULL };
	struct json_object *top;
	char *text = NULL;

	/* Complaints of smartctl are not for our user */
	if (freopen("/dev/null", "w", stderr))
		hybrid_child(argv, &text);
	top = text ? json_tokener_parse(text) : NULL;
	parse(d, top);
	json_object_put(top);
	free(text);
	d->answers = true;
}

/* Conclusions -------------------------------------------------------------------- */

static void project(struct wear *w)
{
	time_t now = time(NULL), end;
	struct tm tm;
	int64_t left;

	if (w->used <= 0 || w->used >= 100)
		return;
	left = (int64_t)w->hours * HOUR * (100 - w->used) / w->used;
	end = now + left;
	/* Where time_t has 32 bits, it may not be a date */
	if (left && left < (int64_t)YEARS_MAX * YEAR && end > now && localtime_r(&end, &tm))
		strftime(w->end, sizeof(w->end), "%Y-%m-%d", &tm);
}

/* False: the drive told nothing useful. */
static bool understand(struct wear *w, const struct drive *d)
{
	unsigned int i = 0;

	*w = (struct wear) { .silent = !d->answers, .used = d->used, .spare = d->spare };
	memcpy(w->path, d->path, sizeof(w->path));
	w->hours = d->hours > 0 ? d->hours : 0;
	project(w);
	while (i < sizeof(warnings) / sizeof(warnings[0]) && !(d->warnings & warnings[i].bit))
		i++;
	if (i < sizeof(warnings) / sizeof(warnings[0])) {
		w->warning = warnings[i].says;
		w->replace = warnings[i].replace;
	}
	return w->silent || w->used >= 0 || w->warning;
}

void wear_read(dev_t devno, struct wears *wears)
{
	struct drive drives[WEAR_MAX];
	dev_t disks[WEAR_MAX];
	unsigned int n, i;

	n = hybrid_sysfs_disks(devno, disks, WEAR_MAX);
	for (i = 0; i < n; i++) {
		drives[i] = (struct drive) { .used = -1, .spare = -1, .hours = -1 };
		hybrid_devno_path(disks[i], drives[i].path, sizeof(drives[i].path));
	}
	wears->nr = 0;
	if (hybrid_apart(ask, drives, sizeof(drives[0]), n, SECONDS))
		return;
	for (i = 0; i < n; i++)
		wears->nr += understand(&wears->drive[wears->nr], &drives[i]);
}

char *wear_text(const struct wear *w, char *buf, size_t len)
{
	char used[HYBRID_PATH_MAX + 48], spare[32] = "", end[64] = "";

	if (w->silent) {
		snprintf(buf, len, "unknown: %s does not answer", w->path);
		return buf;
	}
	if (w->used >= 0)
		snprintf(used, sizeof(used), "%d%% of the endurance of %s used", w->used, w->path);
	else
		snprintf(used, sizeof(used), "unknown, of %s", w->path);
	if (w->spare >= 0)
		snprintf(spare, sizeof(spare), ", %d%% spare left", w->spare);
	if (w->end[0])
		snprintf(end, sizeof(end), "; used up by %s at the pace so far", w->end);
	else if (w->used >= 100)
		snprintf(end, sizeof(end), "; used up: plan to replace it");
	if (w->warning)
		snprintf(buf, len, "%s%s%s; %s: %s", used, spare, end, w->warning,
			 w->replace ? "replace it (hybridctl replace-cache)" : "check its cooling");
	else
		snprintf(buf, len, "%s%s%s", used, spare, end);
	return buf;
}

bool wear_can_be_read(void)
{
	static const char * const version[] = { "smartctl", "--version", NULL };
	char *said;
	int r = hybrid_child(version, &said);

	free(said);
	return r >= 0 && r != 127;
}
