// SPDX-License-Identifier: GPL-2.0-or-later
/* Any text as a trace: refused, or its requests are valid for a device, and are replayed. */
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../userspace/replay/run.h"

void fuzz_trace(const uint8_t *bytes, size_t len);
__attribute__((format(printf, 1, 2), noreturn))
void found(const char *fmt, ...);

#define MAX_SECTORS	(1 << 15)	/* more would take too long for one input */

/* All it says, once; false: refused, or more than should be replayed. */
static bool read_all(struct trace *t)
{
	struct trace_request r;
	u64 us = 0, sectors = 0;
	bool more = true;

	for (;;) {
		if (trace_next(t, &r, &more))
			return false;
		if (!more)
			return sectors <= MAX_SECTORS;
		if (r.us < us || r.source >= TRACE_MAX_SOURCES || r.source >= trace_sources(t))
			found("a request at %llu after %llu, of source %u", r.us, us, r.source);
		if (r.op == TRACE_FLUSH ? r.count : !r.count)
			found("a length of %u", r.count);
		if (r.sector + r.count > TRACE_MAX_SECTOR)
			found("a sector beyond all devices: %llu", r.sector + r.count);
		us = r.us;
		/* Each block of a discard is looked at, if no more */
		sectors += r.op == TRACE_DISCARD ? 64 + r.count / 256 : r.count;
	}
}

static void check_cache(const struct run *run, const struct cache *c)
{
	const struct survey *s = &run->survey;
	const struct replay_count *n = &c->count;
	u64 parts = s->parts[block_class(c->block_sectors)];

	if (n->blocks[0] + n->blocks[1] > parts ||
	    (c->rate >= 1 && n->blocks[0] + n->blocks[1] != parts))
		found("%llu blocks of %llu", n->blocks[0] + n->blocks[1], parts);
	if (n->missed[0] > n->requests[0] || n->missed[1] > n->requests[1])
		found("more misses than requests");
	if (n->dirty)
		found("%u blocks stay dirty", n->dirty);
}

static void replay(struct trace *t, bool sampled)
{
	struct cache caches[] = {
		{ .block_sectors = 8, .bytes = 256 << 10 },
		{ .block_sectors = 128, .bytes = 1 << 20 },
		{ .block_sectors = 2048, .bytes = 4 << 20 },
	};
	struct run run = {
		.trace = t, .cache = caches, .nr_caches = ARRAY_SIZE(caches),
		.mode = HYBRID_MODE_WRITEBACK, .cutoff = 8192, .max_windows = sampled ? 2 : 0,
	};
	u32 i;
	int r;

	for (i = 0; i < run.nr_caches; i++)
		caches[i].policy = hybrid_policy_get("lru");
	r = run_survey(&run);
	if (!r)
		r = run_caches(&run);
	if (r && (run.survey.requests[0] || run.survey.requests[1]))
		found("a good trace cannot be replayed: %d", r);
	for (i = 0; !r && i < run.nr_caches; i++)
		check_cache(&run, &caches[i]);
	footprint_free(&run.footprint);
}

/* Compressed traces would start another program. */
static bool is_compressed(const uint8_t *bytes, size_t len)
{
	return len && (bytes[0] == 0x1f || bytes[0] == 0x28 || bytes[0] == 0xfd);
}

void fuzz_trace(const uint8_t *bytes, size_t len)
{
	int fd = is_compressed(bytes, len) ? -1 : memfd_create("trace", MFD_CLOEXEC);
	struct trace *t;

	if (fd < 0)
		return;
	if (write(fd, bytes, len) != (ssize_t)len)
		found("no memory");
	if (trace_open_fd(&t, fd, "trace", TRACE_AUTO))
		return;
	/* Replaying takes a hundred times as long as reading. */
	if (read_all(t) && len % 4 == 0 && !trace_rewind(t))
		replay(t, len & 4);
	trace_close(t);
}
