/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lines of a file that may be compressed, in constant memory. */
#ifndef HYBRID_REPLAY_INPUT_H
#define HYBRID_REPLAY_INPUT_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define INPUT_LINE_MAX	4096		/* bytes, with the newline */

struct input {
	const char *name;		/* for messages */
	int file;			/* as it is on the disk */
	int fd;				/* to read from: the file, or a pipe from @child */
	pid_t child;			/* a decompressor, 0: none */
	const char *tool;
	char buf[1 << 16];
	size_t at, end;
	bool over;
	u64 line;			/* number of the last line returned */
};

/*
 * All but input_close() return 0 or an exit code, after a message.  input_open()
 * takes over @fd, which must be seekable, even if it fails.
 */
int input_open(struct input *in, int fd, const char *name);
void input_close(struct input *in);
int input_rewind(struct input *in);

/* The next line without its end, valid until the next call; NULL: no more. */
int input_line(struct input *in, char **line);

#endif
