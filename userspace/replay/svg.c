// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two charts over the size of the cache, one above the other: the miss ratio, and the time
 * that the disk takes for a request.  A line for each policy and block size.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "output.h"
#include "units.h"

#define WIDTH		860
#define HEIGHT		700
#define LEFT		70
#define RIGHT		690		/* of the charts; the legend is beside them */
#define X_TICKS		8
#define Y_TICKS		5
#define LABEL		16	/* bytes */

/* Okabe and Ito's colours, which everybody can tell apart. */
static const char * const colors[] = {
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b",
};

struct chart {
	const char *title;
	int top, bottom;
	double most;			/* at the top of the axis */
	int digits;
	double (*value)(const struct run *run, const struct cache *c);
	double without;			/* a cache; 0: not drawn */
};

struct axis {
	double low, high;		/* log2 of bytes */
};

static double value_miss(const struct run *run, const struct cache *c)
{
	(void)run;
	return c->miss[0][0];
}

static double value_time(const struct run *run, const struct cache *c)
{
	return c->disk_ms / (run->survey.requests[0] + run->survey.requests[1]);
}

static double x_of(const struct axis *axis, double bytes)
{
	return LEFT + (RIGHT - LEFT) * (log2(bytes) - axis->low) / (axis->high - axis->low);
}

static double y_of(const struct chart *chart, double value)
{
	return chart->bottom - (chart->bottom - chart->top) * value / chart->most;
}

/* A power of two of bytes. */
static const char *size_label(char buf[LABEL], u64 bytes)
{
	static const char * const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	u32 i;

	for (i = 0; bytes >= 1024 && i < ARRAY_SIZE(units) - 1; i++)
		bytes /= 1024;
	snprintf(buf, LABEL, "%u %s", (u32)bytes, units[i]);
	return buf;
}

/* Whole powers of two around all sizes. */
static struct axis size_axis(const struct run *run)
{
	struct axis axis = { .low = 64, .high = 0 };
	u32 i;

	for (i = 0; i < run->nr_caches; i++) {
		axis.low = fmin(axis.low, floor(log2(run->cache[i].bytes)));
		axis.high = fmax(axis.high, ceil(log2(run->cache[i].bytes)));
	}
	if (axis.high <= axis.low)
		axis.high = axis.low + 1;
	return axis;
}

/* The step of the ticks is 1, 2 or 5 times a power of ten, so that all of them together hold @most. */
static void scale_axis(struct chart *chart, double most)
{
	static const double steps[] = { 1, 2, 5, 10 };
	double unit = pow(10, floor(log10(fmax(most, 1e-9) / Y_TICKS)));
	u32 i = 0;

	while (i < 3 && unit * steps[i] * Y_TICKS < most)
		i++;
	chart->most = unit * steps[i] * Y_TICKS;
	chart->digits = (int)fmax(0, -floor(log10(unit * steps[i]) + 1e-9));
}

/* A name may hold anything, but no markup may be printed, and no bytes that are no text. */
static void put_text(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (*text == '&')
			fputs("&amp;", f);
		else if (*text == '<')
			fputs("&lt;", f);
		else
			fputc(*text < ' ' || *text > '~' ? '?' : *text, f);
	}
}

static void put_axes(FILE *f, const struct chart *chart, const struct axis *axis)
{
	double step = ceil((axis->high - axis->low) / X_TICKS), at;
	char buf[LABEL];
	int i;

	fprintf(f, "<text x=\"%d\" y=\"%d\" class=\"t\">%s</text>\n", LEFT, chart->top - 12,
		chart->title);
	for (i = 0; i <= Y_TICKS; i++) {
		double value = chart->most * i / Y_TICKS, y = y_of(chart, value);

		fprintf(f, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"%s\"/>\n", LEFT, y,
			RIGHT, y, i ? "g" : "a");
		fprintf(f, "<text x=\"%d\" y=\"%.1f\" class=\"e\">%.*f</text>\n", LEFT - 8, y + 4,
			chart->digits, value);
	}
	for (at = axis->low; at <= axis->high; at += step) {
		double x = x_of(axis, exp2(at));

		fprintf(f, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" class=\"a\"/>\n", x,
			chart->bottom, x, chart->bottom + 5);
		fprintf(f, "<text x=\"%.1f\" y=\"%d\" class=\"m\">%s</text>\n", x, chart->bottom + 20,
			size_label(buf, exp2(at)));
	}
}

static void put_line(FILE *f, const struct run *run, const struct chart *chart,
		     const struct axis *axis, u32 first, u32 n, const char *color)
{
	const struct cache *c = &run->cache[first];
	u32 i;

	fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", color);
	for (i = 0; i < n; i++)
		fprintf(f, "%.1f,%.1f ", x_of(axis, c[i].bytes),
			y_of(chart, chart->value(run, &c[i])));
	fputs("\"/>\n", f);
	for (i = 0; i < n; i++)
		fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
			x_of(axis, c[i].bytes), y_of(chart, chart->value(run, &c[i])), color);
}

static void put_legend(FILE *f, const struct cache *c, u32 nr, const char *color)
{
	char block[LABEL];
	int y = 60 + 20 * nr;

	fprintf(f, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/>\n",
		RIGHT + 20, y, RIGHT + 44, y, color);
	fprintf(f, "<text x=\"%d\" y=\"%d\">", RIGHT + 50, y + 4);
	put_text(f, c->policy->name);
	fprintf(f, " %s</text>\n", size_label(block, c->block_sectors * 512ULL));
}

static void put_chart(FILE *f, const struct run *run, struct chart *chart, const struct axis *axis)
{
	u32 first, n, nr = 0, i;
	double most = chart->without, y;

	for (i = 0; i < run->nr_caches; i++)
		most = fmax(most, chart->value(run, &run->cache[i]));
	if (chart->most <= 0)
		scale_axis(chart, most);
	put_axes(f, chart, axis);
	y = y_of(chart, chart->without);
	if (chart->without > 0)
		fprintf(f, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"n\"/>\n", LEFT, y,
			RIGHT, y);
	for (first = 0; first < run->nr_caches; first += n, nr++) {
		n = series_length(run, first);
		put_line(f, run, chart, axis, first, n, colors[nr % ARRAY_SIZE(colors)]);
	}
}

static void put_all(FILE *f, const struct run *run, const char *trace)
{
	struct chart charts[] = {
		{ "Miss ratio, by requests", 60, 340, 1, 1, value_miss, 0 },
		{ "Disk time, ms a request", 410, 640, 0, 0, value_time, 0 },
	};
	double requests = run->survey.requests[0] + run->survey.requests[1];
	struct axis axis = size_axis(run);
	u32 first, n, nr = 0;

	charts[1].without = run->survey.disk_ms / requests;

	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n", WIDTH, HEIGHT);
	fputs("<style>.g{stroke:#ddd}.a{stroke:#444}.t{font-size:14px;font-weight:bold}"
	      ".n{stroke:#888;stroke-dasharray:6 4}.e{text-anchor:end}.m{text-anchor:middle}</style>\n"
	      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", f);
	fprintf(f, "<text x=\"%d\" y=\"24\" font-size=\"16\">", LEFT);
	put_text(f, trace);
	fputs("</text>\n", f);
	put_chart(f, run, &charts[0], &axis);
	put_chart(f, run, &charts[1], &axis);
	fprintf(f, "<text x=\"%d\" y=\"%d\" class=\"m\">size of the cache</text>\n",
		(LEFT + RIGHT) / 2, HEIGHT - 16);
	fprintf(f, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" class=\"n\"/>\n"
		"<text x=\"%d\" y=\"%d\">no cache</text>\n", RIGHT + 20, charts[1].top, RIGHT + 44,
		charts[1].top, RIGHT + 50, charts[1].top + 4);
	for (first = 0; first < run->nr_caches; first += n, nr++) {
		n = series_length(run, first);
		put_legend(f, &run->cache[first], nr, colors[nr % ARRAY_SIZE(colors)]);
	}
	fputs("</svg>\n", f);
}

int svg_write(const struct run *run, const char *trace, const char *path)
{
	FILE *f = fopen(path, "we");
	bool bad = !f;

	if (f) {
		put_all(f, run, trace);
		bad = ferror(f);
		bad |= !!fclose(f);
	}
	if (!bad)
		return 0;
	return hybrid_fail(HYBRID_PARTIAL, NULL, "%s cannot be written: %s", path,
			   strerror(errno));
}
