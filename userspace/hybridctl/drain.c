// SPDX-License-Identifier: GPL-2.0-or-later
/* drain, and the wait with progress that detach shares. */
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "errors.h"

#define POLL_MS		250
#define BAR_WIDTH	30
/* Polls without progress and without a running drain before we ask again */
#define IDLE_POLLS	8

static volatile sig_atomic_t interrupted;

struct progress {
	const struct command_line *cl;
	const char *name;
	uint64_t block_bytes;
	uint64_t at_start;	/* dirty blocks */
	uint64_t total;		/* the most seen */
	struct timespec start;
	bool bar;
};

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

static uint64_t dirty_blocks(const struct hybrid_node *node)
{
	return node->kind == HYBRID_POOL ? node->p.status.dirty : node->v.status.dirty;
}

static bool is_draining(const struct hybrid_node *node)
{
	return node->kind == HYBRID_POOL ? node->p.status.draining : node->v.status.draining;
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

static void print_json(const struct progress *p, uint64_t dirty, const char *state, bool last)
{
	struct json_object *line = json_object_new_object();
	char seconds[32];

	json_object_object_add(line, "name", json_object_new_string(p->name));
	json_object_object_add(line, "state", json_object_new_string(state));
	add_number(line, "dirty_blocks", dirty);
	add_number(line, "dirty_bytes", dirty * p->block_bytes);
	add_number(line, "total_blocks", p->total);
	if (last) {
		add_number(line, "dirty_blocks_at_start", p->at_start);
		add_number(line, "written_bytes", p->total * p->block_bytes);
	}
	snprintf(seconds, sizeof(seconds), "%.3f", elapsed(p));
	json_object_object_add(line, "seconds", json_object_new_double_s(elapsed(p), seconds));
	puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN));
	fflush(stdout);
	json_object_put(line);
}

static void print_bar(const struct progress *p, uint64_t dirty)
{
	uint64_t done = p->total - dirty;
	int i, filled = p->total ? (int)(done * BAR_WIDTH / p->total) : BAR_WIDTH;
	char left[32], rate[32];
	double t = elapsed(p);

	hybrid_format_size(left, sizeof(left), dirty * p->block_bytes, 'h');
	hybrid_format_size(rate, sizeof(rate),
			   t > 0 ? (uint64_t)((double)(done * p->block_bytes) / t) : 0, 'h');
	fprintf(stderr, "\r%s [", p->name);
	for (i = 0; i < BAR_WIDTH; i++)
		fputc(i < filled ? '#' : '.', stderr);
	fprintf(stderr, "] %s left, %s/s \033[K", left, rate);
}

static void show(struct progress *p, uint64_t dirty)
{
	/* Writes that come in meanwhile make more dirty */
	if (dirty > p->total)
		p->total = dirty;
	if (p->cl->given[OPT_PROGRESS_JSON])
		print_json(p, dirty, "draining", false);
	else if (p->bar)
		print_bar(p, dirty);
}

/* What was done: the same in words and in JSON. */
static void show_result(const struct progress *p)
{
	char size[32];

	if (p->cl->given[OPT_PROGRESS_JSON] || p->cl->given[OPT_JSON]) {
		print_json(p, 0, "clean", true);
		return;
	}
	if (p->bar)
		print_bar(p, 0);
	if (p->bar)
		fputc('\n', stderr);
	if (!p->total) {
		hybrid_note("%s: nothing is dirty", p->name);
		return;
	}
	hybrid_format_size(size, sizeof(size), p->total * p->block_bytes, 'h');
	hybrid_note("%s: %llu dirty blocks at the start; up to %s written back in %.1f s, nothing is dirty",
		    p->name, (unsigned long long)p->at_start, size, elapsed(p));
}

static uint64_t block_bytes(const struct hybrid_node *node)
{
	if (node->kind == HYBRID_POOL)
		return (uint64_t)node->p.table.block_sectors * 512;
	return node->pool && node->pool->active ?
	       (uint64_t)node->pool->p.table.block_sectors * 512 : 0;
}

static int cancel(struct hybrid_node *node)
{
	hybrid_dm_message(node->name, "drain_cancel", NULL);
	return hybrid_fail(HYBRID_PARTIAL, "start it again to go on",
			   "drain of %s cancelled: %llu blocks are still dirty", node->name,
			   (unsigned long long)dirty_blocks(node));
}

static int check_failed(const struct hybrid_node *node)
{
	const char *state = node->kind == HYBRID_POOL ? node->p.status.state :
			    node->v.status.state;

	if (state[0] == 'r')	/* running */
		return 0;
	return hybrid_fail(HYBRID_DEGRADED, "see hybridctl status",
			   "%s is %s: it cannot be drained", node->name, state);
}

static int wait_clean(struct hybrid_node *node, struct progress *p)
{
	struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };
	unsigned int idle = 0;
	int r;

	for (;;) {
		r = hybrid_node_refresh(node);
		if (!r)
			r = check_failed(node);
		if (r)
			return r;
		if (!dirty_blocks(node) && !is_draining(node))
			return 0;
		show(p, dirty_blocks(node));
		if (interrupted)
			return cancel(node);
		/* Written again after the drain had ended: drain again */
		idle = is_draining(node) ? 0 : idle + 1;
		if (idle == IDLE_POLLS) {
			idle = 0;
			r = hybrid_dm_message(node->name, "drain", NULL);
			if (r)
				return r;
		}
		nanosleep(&pause, NULL);
	}
}

int drain_and_wait(const struct command_line *cl, struct hybrid_node *node)
{
	struct sigaction action = { .sa_handler = on_interrupt };
	struct progress p = {
		.cl = cl, .name = node->name, .block_bytes = block_bytes(node),
		.at_start = dirty_blocks(node), .total = dirty_blocks(node),
		.bar = isatty(STDERR_FILENO) && !hybrid_output.quiet,
	};
	int r;

	clock_gettime(CLOCK_MONOTONIC, &p.start);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	r = hybrid_dm_message(node->name, "drain", NULL);
	if (!r)
		r = wait_clean(node, &p);
	if (!r)
		show_result(&p);
	else if (p.bar && !cl->given[OPT_PROGRESS_JSON])
		fputc('\n', stderr);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	return r;
}

int command_drain(const struct command_line *cl)
{
	struct hybrid_inventory inv;
	struct hybrid_node *node;
	int r;

	r = hybrid_dm_check();
	if (r)
		return r;
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r)
		r = hybrid_find_active(&inv, cl->argv[0], HYBRID_ANY, &node);
	if (r)
		goto out;
	if (cl->given[OPT_TEST]) {
		printf("dmsetup message %s 0 drain\n", node->name);
	} else if (cl->given[OPT_NO_WAIT]) {
		r = hybrid_dm_message(node->name, "drain", NULL);
	} else {
		r = drain_and_wait(cl, node);
	}
out:
	hybrid_inventory_free(&inv);
	return r;
}
