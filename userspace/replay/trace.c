// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Each format is one function, from a line's fields to a request.  A line may hold
 * two: a write with a flush before it.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/limits.h>
#include <linux/math.h>
#include <linux/minmax.h>

#include "errors.h"
#include "input.h"
#include "trace.h"

#define MAX_FIELDS	12
#define NAME_MAX_BYTES	255

enum line_kind {
	LINE_NOTHING,
	LINE_REQUEST,
	LINE_END,		/* nothing that follows counts */
};

struct trace {
	struct input in;
	char name[256];
	enum trace_format wanted, format;
	u32 fio_version;
	bool over, decided;
	char *field[MAX_FIELDS];
	u32 nr_fields;
	char *source[TRACE_MAX_SOURCES];
	u32 nr_sources;
	u64 clock;			/* us, of fio's version 2: the sum of its waits */
	u64 first, last;		/* us */
	bool begun;
	u64 requests;
	struct trace_request next;	/* behind the one just returned */
	bool pending;
};

static const char * const format_names[] = { "auto", "text", "blkparse", "fio" };

/* ---- errors ---------------------------------------------------------------- */

/* A field as it may be shown: hostile bytes must not reach a terminal. */
static const char *shown(char buf[40], const char *text)
{
	size_t i;

	for (i = 0; text[i] && i < 39; i++)
		buf[i] = isprint((unsigned char)text[i]) ? text[i] : '?';
	buf[i] = '\0';
	if (i == 39)
		memcpy(buf + 36, "...", 3);
	return buf;
}

/* @field counts from 0. */
static int fail_field(const struct trace *t, u32 field, const char *what, const char *why)
{
	char buf[40];

	if (field >= t->nr_fields)
		return hybrid_fail(HYBRID_BADDEV, NULL, "%s:%llu: field %u (%s) is missing", t->name,
				   t->in.line, field + 1, what);
	return hybrid_fail(HYBRID_BADDEV, NULL, "%s:%llu: field %u (%s): '%s' %s", t->name,
			   t->in.line, field + 1, what, shown(buf, t->field[field]), why);
}

static int fail_line(const struct trace *t, const char *next, const char *why)
{
	return hybrid_fail(HYBRID_BADDEV, next, "%s:%llu: %s", t->name, t->in.line, why);
}

/* ---- fields ---------------------------------------------------------------- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static void split(struct trace *t, char *line)
{
	t->nr_fields = 0;
	for (;;) {
		while (is_space(*line))
			line++;
		if (!*line || t->nr_fields == MAX_FIELDS)
			return;
		t->field[t->nr_fields++] = line;
		while (*line && !is_space(*line))
			line++;
		if (*line)
			*line++ = '\0';
	}
}

/* Decimal digits from *@end on, which is moved behind them; false: none, or too many. */
static bool digits(const char **end, u64 *value)
{
	const char *p = *end;

	for (*value = 0; *p >= '0' && *p <= '9'; p++) {
		if (*value > (U64_MAX - (*p - '0')) / 10)
			return false;
		*value = *value * 10 + (*p - '0');
	}
	if (p == *end)
		return false;
	*end = p;
	return true;
}

static int get_number(const struct trace *t, u32 field, const char *what, u64 max, u64 *value)
{
	const char *text = field < t->nr_fields ? t->field[field] : "";

	if (field >= t->nr_fields)
		return fail_field(t, field, what, "");
	if (*text == '-')
		return fail_field(t, field, what, "is negative");
	if (!digits(&text, value))
		return fail_field(t, field, what, isdigit((unsigned char)*text) ?
				  "is too large" : "is not a number");
	if (*text)
		return fail_field(t, field, what, "is not a number");
	if (*value > max)
		return fail_field(t, field, what, "is too large");
	return 0;
}

/* Seconds with a fraction, as us. */
static int get_seconds(const struct trace *t, u32 field, u64 *us)
{
	const char *text = field < t->nr_fields ? t->field[field] : "";
	u64 seconds, part = 0, scale = 1000000;

	if (*text == '-')
		return fail_field(t, field, "time", "is negative");
	if (!digits(&text, &seconds) || seconds > U32_MAX)
		return fail_field(t, field, "time", "is not a number of seconds");
	if (*text == '.')
		while (*++text >= '0' && *text <= '9') {
			scale /= 10;
			part += scale * (*text - '0');
		}
	if (*text)
		return fail_field(t, field, "time", "is not a number of seconds");
	*us = seconds * 1000000 + part;
	return 0;
}

/* The number of the device, or file, of that name. */
static int get_source(struct trace *t, u32 field, u32 *source)
{
	const char *name = t->field[field];
	u32 i;

	for (i = 0; i < t->nr_sources; i++)
		if (!strcmp(t->source[i], name))
			break;
	*source = i;
	if (i < t->nr_sources)
		return 0;
	if (strlen(name) > NAME_MAX_BYTES)
		return fail_field(t, field, "device", "is too long");
	if (i == TRACE_MAX_SOURCES)
		return fail_field(t, field, "device", "is one too many: at most 64 can be told apart");
	t->source[i] = strdup(name);
	if (!t->source[i])
		return hybrid_nomem();
	t->nr_sources++;
	return 0;
}

/* The kernel's letters: F for a flush before it, the operation, FUA and others behind. */
static int get_rwbs(struct trace *t, u32 field, struct trace_request *r, bool *preflush)
{
	const char *p = field < t->nr_fields ? t->field[field] : "";
	bool flush = *p == 'F';

	if (field >= t->nr_fields)
		return fail_field(t, field, "direction", "");
	p += flush;
	r->fua = *p && strchr(p + 1, 'F');
	switch (*p) {
	case 'R':
	case '?':
		r->op = TRACE_READ;
		break;
	case 'W':
		r->op = TRACE_WRITE;
		break;
	case 'D':
		r->op = TRACE_DISCARD;
		break;
	case 'N':
	case 'F':
	case 'S':
	case '\0':
		if (flush) {
			r->op = TRACE_FLUSH;
			return 0;
		}
		/* fall through */
	default:
		return fail_field(t, field, "direction",
				  "is none of R, W, D, F and ?, with the kernel's other letters");
	}
	*preflush = flush;
	return 0;
}

/* The sectors of a request that is no flush, from fields @at and @len; @unit of these are a sector. */
static int get_range(const struct trace *t, u32 at, u32 len, u64 unit, struct trace_request *r)
{
	u64 from, n;
	int e;

	e = get_number(t, at, unit == 1 ? "sector" : "offset", U64_MAX, &from);
	if (!e)
		e = get_number(t, len, "length", U64_MAX, &n);
	if (e)
		return e;
	if (!n)
		return fail_field(t, len, "length", "is not a length");
	if (from / unit >= TRACE_MAX_SECTOR)
		return fail_field(t, at, unit == 1 ? "sector" : "offset", "is beyond any device");
	if (n / unit > (r->op == TRACE_DISCARD ? U32_MAX / 2 : TRACE_MAX_COUNT))
		return fail_field(t, len, "length", "is too long for one request");
	r->sector = from / unit;
	r->count = DIV_ROUND_UP(from % unit + n, unit);
	if (r->sector + r->count > TRACE_MAX_SECTOR)
		return fail_field(t, at, unit == 1 ? "sector" : "offset", "is beyond any device");
	return 0;
}

/* ---- formats --------------------------------------------------------------- */

/* A write with a flush before it is two requests. */
static void emit(struct trace *t, struct trace_request *r, bool preflush)
{
	if (!preflush)
		return;
	t->next = *r;
	t->pending = true;
	*r = (struct trace_request) { .us = r->us, .source = r->source, .op = TRACE_FLUSH };
}

/* us direction sector count [device] */
static int text_line(struct trace *t, struct trace_request *r, enum line_kind *kind)
{
	bool preflush = false;
	int e;

	/* The first line of bpftrace itself. */
	if (t->in.line == 1 && !strcmp(t->field[0], "Attaching"))
		return 0;
	e = get_number(t, 0, "time", U64_MAX / 2, &r->us);
	if (!e)
		e = get_rwbs(t, 1, r, &preflush);
	if (!e && r->op != TRACE_FLUSH)
		e = get_range(t, 2, 3, 1, r);
	if (!e && t->nr_fields > 4)
		e = get_source(t, 4, &r->source);
	if (!e && t->nr_fields > 5)
		e = fail_field(t, 5, "none", "is one field too many");
	if (!e)
		emit(t, r, preflush);
	*kind = LINE_REQUEST;
	return e;
}

/* major,minor cpu sequence seconds pid action rwbs [sector + count] [process] */
static int blkparse_line(struct trace *t, struct trace_request *r, enum line_kind *kind)
{
	bool preflush = false, plus;
	int e;

	if (!strncmp(t->field[0], "CPU", 3) || !strcmp(t->field[0], "Total")) {
		*kind = LINE_END;
		return 0;
	}
	if (t->nr_fields < 6 || !strchr(t->field[0], ','))
		return fail_line(t, NULL, "not a line of blkparse's default output");
	if (strcmp(t->field[5], "Q"))
		return 0;
	e = get_seconds(t, 3, &r->us);
	if (!e)
		e = get_rwbs(t, 6, r, &preflush);
	plus = t->nr_fields > 8 && !strcmp(t->field[8], "+");
	/* A flush without data is printed as a write without sectors. */
	if (!e && preflush && !plus) {
		*r = (struct trace_request) { .us = r->us, .op = TRACE_FLUSH };
		preflush = false;
	}
	if (!e && r->op != TRACE_FLUSH)
		e = plus ? get_range(t, 7, 9, 1, r) : fail_field(t, 8, "plus sign", "is not +");
	if (!e)
		e = get_source(t, 0, &r->source);
	if (!e)
		emit(t, r, preflush);
	*kind = LINE_REQUEST;
	return e;
}

static int fio_head(struct trace *t)
{
	u64 version;
	int e;

	e = get_number(t, 2, "version", U32_MAX, &version);
	if (e)
		return e;
	if (version != 2 && version != 3)
		return fail_field(t, 2, "version", "is neither 2 nor 3");
	t->fio_version = version;
	return 0;
}

static int fio_wait(struct trace *t, u32 field)
{
	u64 us;
	int e;

	e = get_number(t, field, "wait", U32_MAX, &us);
	if (!e)
		t->clock += us;
	return e;
}

/* 2: file action [offset length]; 3: ms file action [offset length] */
static int fio_line(struct trace *t, struct trace_request *r, enum line_kind *kind)
{
	static const char * const quiet[] = { "add", "open", "close" };
	const char *action;
	u32 at, i;
	int e = 0;

	if (!t->fio_version)
		return fio_head(t);
	at = t->fio_version - 2;
	if (t->nr_fields < at + 2)
		return fail_field(t, at + 1, "action", "");
	if (at)
		e = get_number(t, 0, "time", U64_MAX / 2000, &r->us);
	r->us = at ? r->us * 1000 : t->clock;
	action = t->field[at + 1];
	for (i = 0; i < 3; i++)
		if (e || !strcmp(action, quiet[i]))
			return e;
	if (!at && !strcmp(action, "wait"))
		return fio_wait(t, at + 2);
	if (!strcmp(action, "read"))
		r->op = TRACE_READ;
	else if (!strcmp(action, "write"))
		r->op = TRACE_WRITE;
	else if (!strcmp(action, "trim"))
		r->op = TRACE_DISCARD;
	else if (!strcmp(action, "sync") || !strcmp(action, "datasync"))
		r->op = TRACE_FLUSH;
	else
		return fail_field(t, at + 1, "action", "is not an action that fio writes");
	if (r->op != TRACE_FLUSH)
		e = get_range(t, at + 2, at + 3, 512, r);
	if (!e)
		e = get_source(t, at, &r->source);
	*kind = LINE_REQUEST;
	return e;
}

/* Decides on the format by the first line that is neither empty nor a comment. */
static int decide(struct trace *t)
{
	t->decided = true;
	t->format = t->wanted;
	if (t->wanted != TRACE_AUTO)
		return 0;
	if (t->nr_fields >= 3 && !strcmp(t->field[0], "fio") && !strcmp(t->field[1], "version"))
		t->format = TRACE_FIO;
	else if (t->nr_fields >= 6 && strchr(t->field[0], ','))
		t->format = TRACE_BLKPARSE;
	else if (isdigit((unsigned char)t->field[0][0]) || t->field[0][0] == '-' ||
		 !strcmp(t->field[0], "Attaching"))
		t->format = TRACE_TEXT;
	else
		return fail_line(t, "see hybrid_replay(8), or give --format",
				 "not a trace as text, blkparse's output or fio's log");
	return 0;
}

static int parse_line(struct trace *t, struct trace_request *r, enum line_kind *kind)
{
	int e = 0;

	*kind = LINE_NOTHING;
	if (!t->nr_fields || t->field[0][0] == '#')
		return 0;
	if (!t->decided)
		e = decide(t);
	if (e)
		return e;
	*r = (struct trace_request) { .us = 0 };
	switch (t->format) {
	case TRACE_BLKPARSE:
		return blkparse_line(t, r, kind);
	case TRACE_FIO:
		return fio_line(t, r, kind);
	default:
		return text_line(t, r, kind);
	}
}

/* ---- the trace ------------------------------------------------------------- */

/* Times count from the first request; times of several CPUs may be a little out of order. */
static void set_time(struct trace *t, struct trace_request *r)
{
	if (!t->begun)
		t->first = r->us;
	t->begun = true;
	r->us = r->us > t->first ? r->us - t->first : 0;
	r->us = max(r->us, t->last);
	t->last = r->us;
	t->requests++;
}

static int empty(const struct trace *t)
{
	return hybrid_fail(HYBRID_BADDEV, t->format == TRACE_BLKPARSE ?
			   "record with blktrace -a queue: only queued requests (Q) count" : NULL,
			   "%s holds no request", t->name);
}

int trace_next(struct trace *t, struct trace_request *r, bool *more)
{
	enum line_kind kind = LINE_NOTHING;
	char *line;
	int e;

	*more = true;
	if (t->pending) {
		t->pending = false;
		*r = t->next;
		set_time(t, r);
		return 0;
	}
	while (!t->over) {
		e = input_line(&t->in, &line);
		if (e)
			return e;
		t->over = !line;
		if (!line)
			break;
		split(t, line);
		e = parse_line(t, r, &kind);
		if (e)
			return e;
		t->over = kind == LINE_END;
		if (kind == LINE_REQUEST) {
			set_time(t, r);
			return 0;
		}
	}
	*more = false;
	return t->requests ? 0 : empty(t);
}

static void begin(struct trace *t)
{
	t->over = false;
	t->decided = false;
	t->pending = false;
	t->begun = false;
	t->fio_version = 0;
	t->clock = 0;
	t->last = 0;
	t->requests = 0;
}

int trace_rewind(struct trace *t)
{
	begin(t);
	return input_rewind(&t->in);
}

int trace_open_fd(struct trace **trace, int fd, const char *name, enum trace_format format)
{
	struct trace *t = calloc(1, sizeof(*t));
	int e;

	if (!t) {
		close(fd);
		return hybrid_nomem();
	}
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->wanted = format;
	begin(t);
	e = input_open(&t->in, fd, t->name);
	if (e)
		trace_close(t);
	else
		*trace = t;
	return e;
}

void trace_close(struct trace *t)
{
	u32 i;

	if (!t)
		return;
	input_close(&t->in);
	for (i = 0; i < t->nr_sources; i++)
		free(t->source[i]);
	free(t);
}

/* Copies into a file that has no name. */
static int copy(int from, const char *name, int *to)
{
	FILE *file = tmpfile();
	char buf[1 << 16];
	ssize_t n = -1;

	*to = file ? fcntl(fileno(file), F_DUPFD_CLOEXEC, 0) : -1;
	if (file)
		fclose(file);
	while (*to >= 0) {
		n = read(from, buf, sizeof(buf));
		if (n > 0 && write(*to, buf, n) == n)
			continue;
		if (n < 0 && errno == EINTR)
			continue;
		break;
	}
	if (!n)
		return 0;
	if (*to >= 0)
		close(*to);
	return hybrid_fail(HYBRID_BADDEV, "give it as a file",
			   "%s cannot be copied to a temporary file: %s", name, strerror(errno));
}

int trace_open(struct trace **trace, const char *path, enum trace_format format)
{
	bool input = !strcmp(path, "-");
	const char *name = input ? "standard input" : path;
	int fd, file, e;

	fd = input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return hybrid_fail(hybrid_exit_of_errno(errno), NULL, "%s: %s", name,
				   strerror(errno));
	if (lseek(fd, 0, SEEK_CUR) < 0) {
		e = copy(fd, name, &file);
		close(fd);
		if (e)
			return e;
		fd = file;
	}
	return trace_open_fd(trace, fd, name, format);
}

u64 trace_lines(const struct trace *t)
{
	return t->in.line;
}

u32 trace_sources(const struct trace *t)
{
	return max(t->nr_sources, 1U);
}

const char *trace_format_name(const struct trace *t)
{
	return format_names[t->format];
}

enum trace_format trace_format_parse(const char *name)
{
	unsigned int i;

	for (i = TRACE_TEXT; i <= TRACE_FIO; i++)
		if (!strcmp(name, format_names[i]))
			return i;
	return TRACE_AUTO;
}
