// SPDX-License-Identifier: GPL-2.0-or-later
/* drain, and the wait with progress that detach shares. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common.h"
#include "errors.h"
#include "progress.h"
#include "units.h"

#define POLL_MS		250
/*
 * Polls without a running drain before we ask for it again, and polls in which nothing becomes clean
 * before we look for volumes that are not active
 */
#define IDLE_POLLS	8
/* If I/O fails and nothing becomes clean for so long, the rest cannot be written back */
#define STALL_SECONDS	20

/* The last time that data became clean, and the polls since then. */
struct stall {
	uint64_t dirty, errors;
	time_t since;
	unsigned int polls;
};

static uint64_t dirty_blocks(const struct hybrid_node *node)
{
	return node->kind == HYBRID_POOL ? node->p.status.dirty : node->v.status.dirty;
}

static bool is_draining(const struct hybrid_node *node)
{
	return node->kind == HYBRID_POOL ? node->p.status.draining : node->v.status.draining;
}

static uint64_t block_sectors(const struct hybrid_node *node)
{
	const struct hybrid_node *pool = node->kind == HYBRID_POOL ? node : node->pool;

	return pool && pool->active ? pool->p.table.block_sectors : 0;
}

uint64_t dirty_bytes(const struct hybrid_node *node)
{
	uint64_t sectors = node->kind == HYBRID_POOL ? node->p.status.dirty_sectors :
			   node->v.status.dirty_sectors;

	return 512 * (sectors ? sectors : dirty_blocks(node) * block_sectors(node));
}

static struct amount what_is_dirty(const struct hybrid_node *node)
{
	return (struct amount){ .blocks = dirty_blocks(node), .bytes = dirty_bytes(node) };
}

int drain_cancel(const uint8_t uuid[16], bool pool)
{
	char name[HYBRID_DM_NAME_MAX];
	/* Another command may have renamed the device, or removed it, and with it the drain */
	int r = hybrid_dm_name(uuid, pool, name) ? hybrid_dm_message(name, "drain_cancel", NULL) : 0;

	if (r)
		hybrid_warn("%s is still draining; to end the drain: hybridctl drain %s --cancel", name,
			    name);
	return r;
}

static int fail_interrupted(const struct hybrid_node *node)
{
	char size[32];

	hybrid_format_size(size, sizeof(size), dirty_bytes(node), 'h');
	return hybrid_fail(HYBRID_PARTIAL, "start it again to continue",
			   "drain of %s cancelled: %s is still dirty", node->name, size);
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

/* Errors of both devices that this volume met; of a pool, errors of its cache device. */
static uint64_t io_errors(const struct hybrid_node *node)
{
	const struct hybrid_pool_status *pool = &node->p.status;

	if (node->kind == HYBRID_VOLUME)
		return node->v.status.cache_errors + node->v.status.origin_errors;
	return pool->errors + pool->read_errors + pool->write_errors + pool->flush_errors;
}

/* I/O fails, and nothing becomes clean.  Called at each poll. */
static bool is_stalled(struct stall *s, const struct hybrid_node *node)
{
	uint64_t dirty = dirty_bytes(node);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!s->since || dirty < s->dirty)
		*s = (struct stall) { .errors = io_errors(node), .since = now.tv_sec };
	s->dirty = dirty;
	s->polls++;
	return now.tv_sec - s->since > STALL_SECONDS && io_errors(node) > s->errors;
}

static int fail_stalled(const struct hybrid_node *node)
{
	char next[HYBRID_NAME_SIZE + 160], size[32];

	snprintf(next, sizeof(next),
		 "see the kernel log for the device whose I/O fails; if it cannot be repaired, hybridctl detach --drop-dirty %s gives that data up",
		 node->kind == HYBRID_POOL ? "VOLUME" : node->name);
	hybrid_format_size(size, sizeof(size), dirty_bytes(node), 'h');
	return hybrid_fail(HYBRID_DEGRADED, next,
			   "drain of %s cancelled: %s cannot be written back", node->name, size);
}

static int fail_closed(const struct hybrid_node *pool, const struct hybrid_node *volume)
{
	char next[HYBRID_NAME_SIZE + 64], size[32];

	snprintf(next, sizeof(next), volume->given_up ? "hybridctl detach --drop-dirty %s gives that data up" :
		 "hybridctl activate %s, then start it again", volume->name);
	hybrid_format_size(size, sizeof(size), dirty_bytes(volume), 'h');
	return hybrid_fail(HYBRID_DEGRADED, next,
			   "drain of %s cancelled: volume %s is not active, and %s of it is still dirty",
			   pool->name, volume->name, size);
}

/* Fails if only volumes that are not active are dirty: a pool cannot write these back. */
static int check_closed(const struct hybrid_node *pool)
{
	const struct hybrid_node *node, *end;
	struct hybrid_inventory inv;
	uint64_t dirty = 0;
	int r;

	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ALL | HYBRID_LOAD_CLOSED, NULL, 0);
	end = inv.nodes + inv.nr_nodes;
	for (node = inv.nodes; node < end && !r; node++)
		if (node->closed && !memcmp(node->pool_uuid, pool->uuid, 16))
			dirty += node->v.status.dirty;
	for (node = inv.nodes; node < end && !r && dirty >= pool->p.status.dirty; node++)
		if (node->closed && node->v.status.dirty && !memcmp(node->pool_uuid, pool->uuid, 16))
			fail_closed(pool, node);
	hybrid_inventory_free(&inv);
	return r || dirty < pool->p.status.dirty ? r : HYBRID_DEGRADED;
}

static int fail_out_of_time(const struct hybrid_node *node, uint64_t seconds)
{
	char size[32];

	hybrid_format_size(size, sizeof(size), dirty_bytes(node), 'h');
	return hybrid_fail(HYBRID_PARTIAL, "start it again to continue",
			   "drain of %s cancelled after %llu s: %s is still dirty", node->name,
			   (unsigned long long)seconds, size);
}

static int send_drain(const struct command_line *cl, const char *name)
{
	char message[32] = "drain";

	if (cl->given[OPT_CANCEL])
		strcpy(message, "drain_cancel");
	else if (cl->rate)
		snprintf(message, sizeof(message), "drain %llu", (unsigned long long)cl->rate);
	if (!cl->given[OPT_TEST])
		return hybrid_dm_message(name, message, NULL);
	printf("dmsetup message %s 0 %s\n", name, message);
	return 0;
}

/* Another command may have renamed it. */
static void follow_name(struct hybrid_node *node)
{
	if (hybrid_dm_name(node->uuid, node->kind == HYBRID_POOL, node->dm.name))
		snprintf(node->name, sizeof(node->name), "%.63s", node->dm.name);
}

static int wait_clean(struct hybrid_node *node, struct progress *p)
{
	struct stall stall = {};
	struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };
	unsigned int idle = 0;
	int r;

	for (;;) {
		follow_name(node);
		r = hybrid_node_refresh(node);
		if (!r)
			r = check_failed(node);
		if (r)
			return r;
		if (!dirty_blocks(node) && !is_draining(node))
			return 0;
		progress_show(p, what_is_dirty(node));
		if (progress_interrupted())
			return fail_interrupted(node);
		if (p->cl->wait && progress_seconds(p) >= (double)p->cl->wait)
			return fail_out_of_time(node, p->cl->wait);
		if (is_stalled(&stall, node))
			return fail_stalled(node);
		if (node->kind == HYBRID_POOL && dirty_blocks(node) && !(stall.polls % IDLE_POLLS))
			r = check_closed(node);
		if (r)
			return r;
		/* Writes made data dirty after the drain had ended: drain again */
		idle = is_draining(node) ? 0 : idle + 1;
		if (idle == IDLE_POLLS) {
			idle = 0;
			r = send_drain(p->cl, node->name);
			if (r)
				return r;
		}
		nanosleep(&pause, NULL);
	}
}

int drain_and_wait(const struct command_line *cl, struct hybrid_node *node)
{
	struct progress p;
	int r;

	progress_begin(&p, cl, node->name, what_is_dirty(node));
	/* From here on a signal that the caller held ends the drain, and not the process */
	release_signals();
	r = send_drain(cl, node->name);
	if (!r) {
		r = wait_clean(node, &p);
		if (r)
			drain_cancel(node->uuid, node->kind == HYBRID_POOL);
	}
	hold_signals();
	progress_end(&p, r ? NULL : "clean");
	return r;
}

static int drain(const struct command_line *cl, const struct hybrid_inventory *inv,
		 struct hybrid_node *node)
{
	int r;

	(void)inv;
	if (cl->given[OPT_CANCEL] || cl->given[OPT_NO_WAIT] || cl->given[OPT_TEST])
		return send_drain(cl, node->name);
	r = drain_and_wait(cl, node);
	/* The drain stays on in the kernel until it is cancelled: then the next writes are cached again */
	return r ? r : drain_cancel(node->uuid, node->kind == HYBRID_POOL);
}

int command_drain(const struct command_line *cl)
{
	if (cl->given[OPT_CANCEL] + cl->given[OPT_NO_WAIT] + cl->given[OPT_WAIT] > 1 ||
	    (cl->given[OPT_CANCEL] && cl->given[OPT_RATE]))
		return hybrid_fail(HYBRID_USAGE, "see hybridctl drain --help",
				   "--cancel, --no-wait and --wait exclude each other, and so do --cancel and --rate");
	return with_active(cl, HYBRID_ANY, drain);
}
