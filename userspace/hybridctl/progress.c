// SPDX-License-Identifier: GPL-2.0-or-later
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "errors.h"
#include "progress.h"
#include "units.h"

#define LEAST_BAR	10	/* columns; a narrower bar is left out */
#define LINE_SECONDS	10	/* between two lines where there is no terminal */
#define SPEED_SECONDS	5	/* the speed is that of the last 5 to 10 s */

static const int interrupts[] = { SIGHUP, SIGINT, SIGTERM };
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/* Leaves ignored signals alone, such as SIGHUP after nohup. */
static void handle_interrupts(void (*handler)(int signal))
{
	struct sigaction action;
	unsigned int i;

	for (i = 0; i < sizeof(interrupts) / sizeof(interrupts[0]); i++) {
		sigaction(interrupts[i], NULL, &action);
		if (action.sa_handler == SIG_IGN)
			continue;
		action = (struct sigaction) { .sa_handler = handler };
		sigaction(interrupts[i], &action, NULL);
	}
}

void progress_begin(struct progress *p, const struct command_line *cl, const char *name,
		    struct amount dirty)
{
	*p = (struct progress) {
		.cl = cl, .name = name, .at_start = dirty, .total = dirty, .dirty = dirty,
		.bar = isatty(STDERR_FILENO),
	};
	clock_gettime(CLOCK_MONOTONIC, &p->start);
	handle_interrupts(on_interrupt);
}

bool progress_interrupted(void)
{
	return interrupted;
}

double progress_seconds(const struct progress *p)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - p->start.tv_sec) +
	       (double)(now.tv_nsec - p->start.tv_nsec) / 1e9;
}

static uint64_t done_bytes(const struct progress *p)
{
	return p->total.bytes - p->dirty.bytes;
}

/* Returns the part of @whole that is done. */
static unsigned int share(const struct progress *p, unsigned int whole)
{
	if (!p->total.bytes)
		return whole;
	return (unsigned int)((double)done_bytes(p) / (double)p->total.bytes * whole);
}

static void note_speed(struct progress *p)
{
	struct progress_sample now = { .seconds = progress_seconds(p), .done = done_bytes(p) };
	double t;

	if (now.seconds - p->recent.seconds >= SPEED_SECONDS) {
		p->earlier = p->recent;
		p->recent = now;
	}
	t = now.seconds - p->earlier.seconds;
	p->speed = t >= 1 && now.done > p->earlier.done ?
		   (double)(now.done - p->earlier.done) / t : 0;
}

static double seconds_left(const struct progress *p)
{
	return p->speed > 0 ? (double)p->dirty.bytes / p->speed : 0;
}

static void add_number(struct json_object *line, const char *key, uint64_t value)
{
	json_object_object_add(line, key, json_object_new_uint64(value));
}

static void print_json(const struct progress *p, const char *state, bool last)
{
	struct json_object *line = json_object_new_object();
	char seconds[32];

	json_object_object_add(line, "name", json_object_new_string(p->name));
	json_object_object_add(line, "state", json_object_new_string(state));
	add_number(line, "dirty_blocks", p->dirty.blocks);
	add_number(line, "dirty_bytes", p->dirty.bytes);
	add_number(line, "total_blocks", p->total.blocks);
	add_number(line, "total_bytes", p->total.bytes);
	add_number(line, "percent", share(p, 100));
	if (!last && p->speed > 0) {
		add_number(line, "bytes_per_second", (uint64_t)p->speed);
		add_number(line, "seconds_left", (uint64_t)seconds_left(p));
	}
	if (last) {
		add_number(line, "dirty_blocks_at_start", p->at_start.blocks);
		add_number(line, "written_bytes", done_bytes(p));
	}
	if (last && p->other_dirty)
		json_object_object_add(line, "other_dirty", p->other_dirty);
	if (last && p->unwritten)
		json_object_object_add(line, "unwritten", p->unwritten);
	snprintf(seconds, sizeof(seconds), "%.3f", progress_seconds(p));
	json_object_object_add(line, "seconds",
			       json_object_new_double_s(progress_seconds(p), seconds));
	puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN));
	fflush(stdout);
	json_object_put(line);
}

/* "45 s", "12 min", "3 h 05 min" */
static void format_seconds(char *buf, size_t len, double seconds)
{
	uint64_t minutes = (uint64_t)(seconds / 60 + 0.5);

	if (seconds < 99.5)
		snprintf(buf, len, "%.0f s", seconds);
	else if (minutes < 60)
		snprintf(buf, len, "%u min", (unsigned int)minutes);
	else
		snprintf(buf, len, "%llu h %02u min", (unsigned long long)(minutes / 60),
			 (unsigned int)(minutes % 60));
}

/* "45% 1.20g left, 80.00m/s, 15 s" */
static void describe(const struct progress *p, char *buf, size_t len)
{
	char size[32], rate[32], eta[32];
	int n;

	hybrid_format_size(size, sizeof(size), p->dirty.bytes, 'h');
	n = snprintf(buf, len, "%u%% %s left", share(p, 100), size);
	if (p->speed <= 0 || n < 0 || (size_t)n >= len)
		return;
	hybrid_format_size(rate, sizeof(rate), (uint64_t)p->speed, 'h');
	format_seconds(eta, sizeof(eta), seconds_left(p));
	snprintf(buf + n, len - n, ", %s/s, %s", rate, eta);
}

/* Columns that a line may take on the terminal: a character in the last one would break the line. */
static int columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2)
		return 79;
	return size.ws_col - 1;
}

/* The bar takes the columns that name and figures leave; without room for it the name is cut. */
static void print_bar(const struct progress *p)
{
	int width = columns(), name = strlen(p->name), bar, filled, i;
	char figures[128];

	describe(p, figures, sizeof(figures));
	bar = width - name - (int)strlen(figures) - (int)strlen(" [] ");
	if (bar < LEAST_BAR) {
		name = width - (int)strlen(figures) - 1;
		fprintf(stderr, "\r%.*s%s%.*s\033[K", name > 0 ? name : 0, p->name,
			name > 0 ? " " : "", width, figures);
		return;
	}
	filled = (int)share(p, (unsigned int)bar);
	fprintf(stderr, "\r%s [", p->name);
	for (i = 0; i < bar; i++)
		fputc(i < filled ? '#' : '.', stderr);
	fprintf(stderr, "] %s\033[K", figures);
}

/* For a log: a line every LINE_SECONDS, but none at the start. */
static void print_line(struct progress *p)
{
	char figures[128];

	if (progress_seconds(p) - p->last_line < LINE_SECONDS)
		return;
	p->last_line = progress_seconds(p);
	describe(p, figures, sizeof(figures));
	fprintf(stderr, "%s: %s\n", p->name, figures);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void progress_show(struct progress *p, struct amount dirty)
{
	/* Writes that come in meanwhile make more data dirty */
	p->total.blocks = larger(p->total.blocks, dirty.blocks);
	p->total.bytes = larger(p->total.bytes, dirty.bytes);
	p->dirty = dirty;
	note_speed(p);
	if (p->cl->given[OPT_PROGRESS_JSON])
		print_json(p, "draining", false);
	else if (hybrid_output.quiet)
		return;
	else if (p->bar)
		print_bar(p);
	else
		print_line(p);
}

static void print_result(const struct progress *p)
{
	const char *now = p->others ? "other volumes are dirty: " : "nothing is dirty";
	const char *others = p->others ? p->others : "";
	char size[32];

	if (!p->total.blocks) {
		hybrid_note("%s: %s%s", p->name, now, others);
		return;
	}
	hybrid_format_size(size, sizeof(size), p->total.bytes, 'h');
	hybrid_note("%s: %llu dirty blocks at the start; up to %s written back in %.1f s, %s%s",
		    p->name, (unsigned long long)p->at_start.blocks, size, progress_seconds(p), now,
		    others);
}

void progress_end(struct progress *p, const char *state)
{
	bool clean = state && !strcmp(state, "clean");
	bool json = p->cl->given[OPT_PROGRESS_JSON] || p->cl->given[OPT_JSON];

	handle_interrupts(SIG_DFL);
	if (clean)
		p->dirty = (struct amount){};
	if (json && state)
		print_json(p, state, true);
	if (p->bar && !hybrid_output.quiet && !p->cl->given[OPT_PROGRESS_JSON]) {
		if (clean && !json)
			print_bar(p);
		fputc('\n', stderr);
	}
	if (clean && !json)
		print_result(p);
}
