// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"

static void __attribute__((noreturn)) become(const char * const argv[], int out)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
	if (out >= 0)
		dup2(out, STDOUT_FILENO);
	/* LVM would warn of each descriptor that it inherits */
	setenv("LVM_SUPPRESS_FD_WARNINGS", "1", 1);
	execvp(argv[0], (char * const *)argv);
	_exit(127);
}

static char *read_all(int fd)
{
	char *text = NULL, chunk[4096];
	size_t len;
	ssize_t n;
	FILE *all = open_memstream(&text, &len);

	while (all && (n = read(fd, chunk, sizeof(chunk))) > 0)
		fwrite(chunk, 1, n, all);
	if (all)
		fclose(all);
	return text;
}

int hybrid_child(const char * const argv[], char **out)
{
	int ends[2] = { -1, -1 }, status;
	pid_t pid;

	if (out)
		*out = NULL;
	fflush(stdout);
	if (out && pipe2(ends, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid)
		become(argv, ends[1]);
	if (out) {
		close(ends[1]);
		*out = pid > 0 ? read_all(ends[0]) : NULL;
		close(ends[0]);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status))
		return WEXITSTATUS(status);
	if (out) {
		free(*out);
		*out = NULL;
	}
	return -1;
}
