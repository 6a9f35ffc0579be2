// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "apart.h"
#include "errors.h"

#define BATCH		64
#define TEXT_MAX	(1U << 16)	/* output of one child, in bytes */

int hybrid_patience = 30;

/* A child sends its output, and its element at the end. */
struct child {
	pid_t pid;
	int fd;			/* -1: it has ended */
	char *buf;
	size_t len;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static void run_child(void (*fn)(void *element), void *element, size_t size, int out)
{
	ssize_t n;

	if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0 ||
	    close(STDIN_FILENO) < 0 || close_range(STDERR_FILENO + 1, ~0U, 0))
		_exit(1);
	fn(element);
	fflush(NULL);
	n = write(STDOUT_FILENO, element, size);
	_exit(n != (ssize_t)size);
}

static int start(struct child *c, void (*fn)(void *element), void *element, size_t size)
{
	int ends[2];

	c->buf = malloc(size + TEXT_MAX);
	if (!c->buf)
		return hybrid_nomem();
	if (pipe2(ends, O_CLOEXEC))
		return hybrid_fail(HYBRID_NOMEM, "see ulimit -n", "cannot make a pipe: %s",
				   strerror(errno));
	/* Otherwise the child would print the buffered output, too */
	fflush(NULL);
	c->pid = fork();
	if (!c->pid)
		run_child(fn, element, size, ends[1]);
	close(ends[1]);
	c->fd = ends[0];
	return c->pid < 0 ? hybrid_fail(HYBRID_NOMEM, "see ulimit -u", "cannot start a process: %s",
					strerror(errno)) : 0;
}

/* Its last close of the device may hang: nobody waits for it. */
static void end(struct child *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->pid > 0)
		waitpid(c->pid, NULL, WNOHANG);
	c->fd = -1;
}

static void take(struct child *c, void *element, size_t size)
{
	ssize_t n = read(c->fd, c->buf + c->len, size + TEXT_MAX - c->len);

	if (n > 0) {
		c->len += n;
		return;
	}
	end(c);
	if (c->len < size)
		return;
	fwrite(c->buf, 1, c->len - size, stderr);
	memcpy(element, c->buf + c->len - size, size);
}

/* Until all have ended, or @end is past. */
static void wait_for(struct child *children, char *array, size_t size, unsigned int nr, int64_t end)
{
	struct pollfd polls[BATCH];
	unsigned int i, open;
	int64_t left;

	for (;;) {
		for (i = 0, open = 0; i < nr; i++) {
			polls[i] = (struct pollfd){ .fd = children[i].fd, .events = POLLIN };
			open += children[i].fd >= 0;
		}
		left = end - now_ms();
		if (!open || left <= 0 || (poll(polls, nr, left) < 0 && errno != EINTR))
			return;
		for (i = 0; i < nr; i++)
			if (children[i].fd >= 0 && polls[i].revents)
				take(&children[i], array + i * size, size);
	}
}

static int run_batch(void (*fn)(void *element), char *array, size_t size, unsigned int nr, int seconds)
{
	int64_t until = now_ms() + seconds * INT64_C(1000);
	struct child children[BATCH];
	unsigned int i;
	int r = 0;

	for (i = 0; i < nr; i++)
		children[i] = (struct child){ .fd = -1 };
	for (i = 0; i < nr && !r; i++)
		r = start(&children[i], fn, array + i * size, size);
	if (!r)
		wait_for(children, array, size, nr, until);
	for (i = 0; i < nr; i++) {
		end(&children[i]);
		free(children[i].buf);
	}
	return r;
}

int hybrid_apart(void (*fn)(void *element), void *array, size_t size, unsigned int nr, int seconds)
{
	unsigned int i, n;
	int r = 0;

	for (i = 0; i < nr && !r; i += n) {
		n = nr - i < BATCH ? nr - i : BATCH;
		r = run_batch(fn, (char *)array + i * size, size, n, seconds);
	}
	return r;
}
