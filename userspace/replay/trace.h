/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Block traces as text, read line by line in constant memory: the project's own
 * form, blkparse's default output, fio's logs (iolog versions 2 and 3); plain, or
 * compressed by gzip, zstd or xz.  The input may be hostile.
 *
 * Functions that can fail return 0 or an exit code, after a message with file,
 * line and field.
 */
#ifndef HYBRID_REPLAY_TRACE_H
#define HYBRID_REPLAY_TRACE_H

#include <linux/types.h>
#include <stdbool.h>

#define TRACE_MAX_SOURCES	64
/* Sectors: of a device, and of one request (a discard may be longer). */
#define TRACE_MAX_SECTOR	(1ULL << 54)
#define TRACE_MAX_COUNT		(1U << 17)

enum trace_format {
	TRACE_AUTO,
	TRACE_TEXT,
	TRACE_BLKPARSE,
	TRACE_FIO,
};

enum trace_op {
	TRACE_READ,
	TRACE_WRITE,
	TRACE_DISCARD,
	TRACE_FLUSH,		/* no data: sector and count are 0 */
};

struct trace_request {
	u64 us;			/* since the first request; never goes back */
	u64 sector;
	u32 count;		/* at least 1, except for a flush */
	u32 source;		/* which device, or file, from 0 on */
	enum trace_op op;
	bool fua;
};

struct trace;

/*
 * Opens the trace at @path, "-" for the standard input.  Input that cannot be read twice is
 * copied to a temporary file first.
 */
int trace_open(struct trace **trace, const char *path, enum trace_format format);

/* Does the same for an open file, which is closed with the trace.  @name is for messages. */
int trace_open_fd(struct trace **trace, int fd, const char *name, enum trace_format format);

void trace_close(struct trace *t);

/* Begin again. */
int trace_rewind(struct trace *t);

/* The next request; *more is false at the end. */
int trace_next(struct trace *t, struct trace_request *r, bool *more);

u64 trace_lines(const struct trace *t);		/* read so far */
u32 trace_sources(const struct trace *t);	/* found so far, at least 1 */
const char *trace_format_name(const struct trace *t);

/* The format of that name; TRACE_AUTO: none has it. */
enum trace_format trace_format_parse(const char *name);

#endif
