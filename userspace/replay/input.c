// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Decompressors are other programs, without a shell between: each reads the file and
 * writes to a pipe.  Their output from a hostile file is as bounded as any other text.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "errors.h"
#include "input.h"

extern char **environ;

static const struct {
	const char *tool;
	size_t len;
	unsigned char magic[6];
} compressions[] = {
	{ "gzip", 2, { 0x1f, 0x8b } },
	{ "zstd", 4, { 0x28, 0xb5, 0x2f, 0xfd } },
	{ "xz", 6, { 0xfd, '7', 'z', 'X', 'Z', 0 } },
};

static int fail_read(const struct input *in)
{
	return hybrid_fail(HYBRID_BADDEV, NULL, "%s cannot be read: %s", in->name, strerror(errno));
}

/* The tool that decompresses it, NULL: none is needed. */
static const char *tool_for(const struct input *in)
{
	unsigned char head[6];
	ssize_t n = pread(in->file, head, sizeof(head), 0);
	size_t i;

	for (i = 0; i < sizeof(compressions) / sizeof(compressions[0]); i++)
		if (n >= (ssize_t)compressions[i].len &&
		    !memcmp(head, compressions[i].magic, compressions[i].len))
			return compressions[i].tool;
	return NULL;
}

/* SIGPIPE, which we ignore, ends the child when nobody reads its output any more. */
static int spawn(struct input *in, int out)
{
	char *argv[] = { (char *)in->tool, "-dc", NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t pipe;
	int r;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, in->file, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&attr);
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	posix_spawnattr_setsigdefault(&attr, &pipe);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
	r = posix_spawnp(&in->child, in->tool, &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	if (!r)
		return 0;
	in->child = 0;
	return hybrid_fail(HYBRID_BADDEV, "install it, or decompress the trace first",
			   "%s cannot be decompressed: %s: %s", in->name, in->tool, strerror(r));
}

static int start(struct input *in)
{
	int ends[2], r;

	in->at = 0;
	in->end = 0;
	in->over = false;
	in->line = 0;
	if (lseek(in->file, 0, SEEK_SET))
		return fail_read(in);
	in->tool = tool_for(in);
	in->fd = in->file;
	if (!in->tool)
		return 0;
	if (pipe2(ends, O_CLOEXEC))
		return fail_read(in);
	r = spawn(in, ends[1]);
	close(ends[1]);
	in->fd = ends[0];
	return r;
}

/* Whether the decompressor ended without an error. */
static bool stop(struct input *in)
{
	int status = 0;

	if (in->fd >= 0 && in->fd != in->file)
		close(in->fd);
	in->fd = -1;
	while (in->child && waitpid(in->child, &status, 0) < 0 && errno == EINTR)
		;
	in->child = 0;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

int input_open(struct input *in, int fd, const char *name)
{
	in->name = name;
	in->file = fd;
	in->child = 0;
	in->fd = -1;
	return start(in);
}

void input_close(struct input *in)
{
	stop(in);
	close(in->file);
}

int input_rewind(struct input *in)
{
	stop(in);
	return start(in);
}

static int fill(struct input *in)
{
	ssize_t n;

	memmove(in->buf, in->buf + in->at, in->end - in->at);
	in->end -= in->at;
	in->at = 0;
	do {
		n = read(in->fd, in->buf + in->end, sizeof(in->buf) - in->end);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return fail_read(in);
	in->end += n;
	in->over = !n;
	if (in->over && in->child && !stop(in))
		return hybrid_fail(HYBRID_BADDEV, NULL,
				   "%s: after line %llu: %s cannot decompress it: cut off, or damaged",
				   in->name, in->line, in->tool);
	return 0;
}

int input_line(struct input *in, char **line)
{
	char *end;
	int r;

	while (!(end = memchr(in->buf + in->at, '\n', in->end - in->at)) && !in->over &&
	       in->end - in->at < INPUT_LINE_MAX) {
		r = fill(in);
		if (r)
			return r;
	}
	*line = NULL;
	if (!end && in->end == in->at)
		return 0;
	in->line++;
	*line = in->buf + in->at;
	/* The last line may have no newline; the buffer has room behind it then. */
	if (!end)
		end = in->buf + in->end;
	if (end - *line >= INPUT_LINE_MAX)
		return hybrid_fail(HYBRID_BADDEV, NULL, "%s:%llu: the line is longer than %u bytes",
				   in->name, in->line, INPUT_LINE_MAX - 1);
	in->at = end - in->buf + (end < in->buf + in->end);
	*end = '\0';
	if (strlen(*line) != (size_t)(end - *line))
		return hybrid_fail(HYBRID_BADDEV, "give it the text that blkparse prints",
				   "%s:%llu: not text: a zero byte", in->name, in->line);
	return 0;
}
