// SPDX-License-Identifier: GPL-2.0-or-later
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"
#include "progress.h"
#include "units.h"

#define BAR_WIDTH	30

static const int interrupts[] = { SIGHUP, SIGINT, SIGTERM };
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/* But for what is ignored, as SIGHUP is by nohup. */
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
		.bar = isatty(STDERR_FILENO) && !hybrid_output.quiet,
	};
	clock_gettime(CLOCK_MONOTONIC, &p->start);
	handle_interrupts(on_interrupt);
}

bool progress_interrupted(void)
{
	return interrupted;
}

static double elapsed(const struct progress *p)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - p->start.tv_sec) +
	       (double)(now.tv_nsec - p->start.tv_nsec) / 1e9;
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
	if (last) {
		add_number(line, "dirty_blocks_at_start", p->at_start.blocks);
		add_number(line, "written_bytes", p->total.bytes - p->dirty.bytes);
	}
	if (last && p->unwritten)
		json_object_object_add(line, "unwritten", p->unwritten);
	snprintf(seconds, sizeof(seconds), "%.3f", elapsed(p));
	json_object_object_add(line, "seconds", json_object_new_double_s(elapsed(p), seconds));
	puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN));
	fflush(stdout);
	json_object_put(line);
}

static void print_bar(const struct progress *p)
{
	uint64_t total = p->total.bytes, done = total - p->dirty.bytes;
	int i, filled = total ? (int)((double)done * BAR_WIDTH / (double)total) : BAR_WIDTH;
	char left[32], rate[32];
	double t = elapsed(p);

	hybrid_format_size(left, sizeof(left), p->dirty.bytes, 'h');
	hybrid_format_size(rate, sizeof(rate), t > 0 ? (uint64_t)((double)done / t) : 0, 'h');
	fprintf(stderr, "\r%s [", p->name);
	for (i = 0; i < BAR_WIDTH; i++)
		fputc(i < filled ? '#' : '.', stderr);
	fprintf(stderr, "] %s left, %s/s \033[K", left, rate);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void progress_show(struct progress *p, struct amount dirty)
{
	/* Writes that come in meanwhile make more dirty */
	p->total.blocks = larger(p->total.blocks, dirty.blocks);
	p->total.bytes = larger(p->total.bytes, dirty.bytes);
	p->dirty = dirty;
	if (p->cl->given[OPT_PROGRESS_JSON])
		print_json(p, "draining", false);
	else if (p->bar)
		print_bar(p);
}

static void print_result(const struct progress *p)
{
	char size[32];

	if (!p->total.blocks) {
		hybrid_note("%s: nothing is dirty", p->name);
		return;
	}
	hybrid_format_size(size, sizeof(size), p->total.bytes, 'h');
	hybrid_note("%s: %llu dirty blocks at the start; up to %s written back in %.1f s, nothing is dirty",
		    p->name, (unsigned long long)p->at_start.blocks, size, elapsed(p));
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
	if (p->bar && !p->cl->given[OPT_PROGRESS_JSON]) {
		if (clean && !json)
			print_bar(p);
		fputc('\n', stderr);
	}
	if (clean && !json)
		print_result(p);
}
