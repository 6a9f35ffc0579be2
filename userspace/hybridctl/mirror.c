// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * create with two --cache: what only the cache has is on both.  The array is md's, as mdadm makes it,
 * with a bitmap, so that after a power cut it compares what was being written, and no more.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "errors.h"
#include "look.h"
#include "mirror.h"

extern char **environ;

/* Its exit status, or -1: it could not be run.  What it says goes to our standard error. */
static int run_mdadm(const char * const *argv)
{
	posix_spawn_file_actions_t files;
	int status, r;
	pid_t child;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
	r = posix_spawnp(&child, "mdadm", &files, NULL, (char **)argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (r)
		return -1;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define CREATE_WORDS	12

/* --run: it asks nothing; what the devices hold we have asked about. */
static void create_words(const struct mirror *m, const char *words[CREATE_WORDS])
{
	const char * const all[CREATE_WORDS] = {
		"mdadm", "--create", m->path, "--quiet", "--run", "--level=1", "--raid-devices=2",
		"--metadata=1.2", "--bitmap=internal", m->leg[0].path, m->leg[1].path, NULL,
	};

	memcpy(words, all, sizeof(all));
}

static int check_mdadm(void)
{
	static const char * const version[] = { "mdadm", "--quiet", "--version", NULL };

	if (run_mdadm(version) >= 0)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "install it (package mdadm)",
			   "mdadm, which makes one device of two caches, is not here");
}

static int check_name(const struct mirror *m)
{
	if (access(m->path, F_OK))
		return 0;
	return hybrid_fail(HYBRID_BUSY, "give another name with --pool",
			   "%s is there already", m->path);
}

static int check_legs(const struct mirror *m, const struct command_line *cl)
{
	const char * const *leg = cl->caches;
	int r;

	r = hybrid_devices_distinct(leg[0], leg[1], cl->given[OPT_FORCE]);
	if (!r && cl->value[OPT_ORIGIN])
		r = hybrid_devices_distinct(leg[1], cl->value[OPT_ORIGIN], cl->given[OPT_FORCE]);
	return r ? r : check_name(m);
}

int mirror_parse(struct mirror *m, const struct command_line *cl, const char *pool)
{
	int r;

	snprintf(m->leg[0].path, sizeof(m->leg[0].path), "%s", cl->caches[0]);
	snprintf(m->path, sizeof(m->path), "/dev/md/%s", pool);
	r = check_legs(m, cl);
	if (!r)
		r = check_mdadm();
	if (!r)
		r = hybrid_device_answers(cl->caches[1]);
	return r ? r : hybrid_device_open(&m->leg[1], cl->caches[1], HYBRID_OPEN_EXCLUSIVE);
}

void mirror_close(struct mirror *m)
{
	hybrid_device_close(&m->leg[0]);
	hybrid_device_close(&m->leg[1]);
}

void mirror_print_test(const struct mirror *m)
{
	const char *words[CREATE_WORDS];
	int i;

	create_words(m, words);
	for (i = 0; words[i]; i++)
		printf("%s%s", i ? " " : "", words[i]);
	printf("\n# then, of the array:\n");
}

/* Signatures that the array's superblock leaves would make two things of one device. */
static int clear_leg(struct hybrid_device *leg)
{
	uint64_t mib = 2048;
	int r;

	r = hybrid_device_reopen(leg, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE);
	if (r)
		return r;
	hybrid_verbose("wipe %s", leg->path);
	r = hybrid_device_zero(leg, 0, mib);
	if (!r)
		r = hybrid_device_zero(leg, (leg->sectors - mib) & ~(uint64_t)7, mib);
	if (!r)
		r = hybrid_device_flush(leg);
	hybrid_device_close(leg);
	return r ? hybrid_fail(hybrid_exit_of_errno(-r), "check the device and the kernel log",
			       "%s: cannot write: %s", leg->path, strerror(-r)) : 0;
}

static int start_array(struct mirror *m)
{
	const char *words[CREATE_WORDS];

	create_words(m, words);
	hybrid_verbose("mdadm --create %s", m->path);
	m->made = true;
	if (!run_mdadm(words))
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see what mdadm says above, and the kernel log",
			   "mdadm could not make %s of %s and %s", m->path, m->leg[0].path,
			   m->leg[1].path);
}

int mirror_make(struct mirror *m, struct hybrid_device *cache)
{
	struct hybrid_device first = *cache;
	int r;

	hybrid_device_close(cache);
	m->leg[0] = first;
	m->leg[0].fd = -1;
	m->written = true;
	r = clear_leg(&m->leg[0]);
	if (!r)
		r = clear_leg(&m->leg[1]);
	if (!r)
		r = start_array(m);
	if (!r)
		r = hybrid_device_open(cache, m->path, HYBRID_OPEN_EXCLUSIVE);
	return r;
}

void mirror_undo(struct mirror *m)
{
	const char * const stop[] = { "mdadm", "--quiet", "--stop", m->path, NULL };
	const char * const zero[] = { "mdadm", "--quiet", "--zero-superblock", "--force",
				      m->leg[0].path, m->leg[1].path, NULL };

	if (m->made) {
		hybrid_verbose("undo: stop %s", m->path);
		/* Where there is no udev its name stays */
		if (!run_mdadm(stop))
			unlink(m->path);
		run_mdadm(zero);
	}
	if (m->written)
		hybrid_warn("what %s and %s held in their first MiB and their last one is lost",
			    m->leg[0].path, m->leg[1].path);
	m->made = false;
	m->written = false;
}
