// SPDX-License-Identifier: GPL-2.0-or-later
/* doctor: will the root of this system come up at the next boot? */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "errors.h"
#include "sysfs.h"

extern char **environ;

#define RULES	"62-dm-hybrid-member.rules"

struct doctor {
	const char *dir;		/* of the system, "" for this one */
	struct hybrid_inventory inv;
	struct hybrid_node *root;	/* volume under it; NULL: none */
	unsigned int problems;
};

static void good(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void bad(struct doctor *d, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void good(const char *fmt, ...)
{
	va_list ap;

	if (hybrid_output.quiet)
		return;
	va_start(ap, fmt);
	fputs("ok       ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
}

static void bad(struct doctor *d, const char *next, const char *fmt, ...)
{
	va_list ap;

	d->problems++;
	va_start(ap, fmt);
	fputs("problem  ", stdout);
	vprintf(fmt, ap);
	printf("\n         next: %s\n", next);
	va_end(ap);
}

static bool exists(const struct doctor *d, const char *dir, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s/%s", d->dir, dir, name);
	return !access(path, F_OK);
}

/* Whether a file has @word anywhere. */
static bool file_has(FILE *f, const char *word)
{
	char *line = NULL;
	bool found = false;
	size_t size = 0;

	while (!found && getline(&line, &size, f) > 0)
		found = strstr(line, word);
	free(line);
	return found;
}

static bool path_has(const struct doctor *d, const char *name, const char *word)
{
	char path[PATH_MAX];
	bool found;
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", d->dir, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	found = file_has(f, word);
	fclose(f);
	return found;
}

/* The root's volume ---------------------------------------------------------- */

static bool find_root(struct doctor *d)
{
	struct hybrid_node *node;
	struct stat st;

	if (stat(d->dir[0] ? d->dir : "/", &st))
		return false;
	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes; node++)
		if (node->kind == HYBRID_VOLUME && node->active &&
		    (node->dm.devno == st.st_dev ||
		     hybrid_sysfs_built_on(st.st_dev, node->dm.devno)))
			d->root = node;
	return d->root;
}

static void check_member(struct doctor *d, const struct hybrid_node *node)
{
	const struct hybrid_member *m = node->member;

	if (!m)
		bad(d, "see hybridctl scan", "%s: its member is not found on any device", node->name);
	else if (!m->ok)
		bad(d, "disconnect the copy, or repair it", "%s is refused: %s", m->path, m->why);
	else if (m->copies != 3)
		bad(d, "deactivate, and activate", "%s has one good superblock only: %s", m->path,
		    m->why);
	else if (hybrid_sysfs_removable(m->devno))
		bad(d, "move it to a disk that stays", "%s can be taken out: it is never activated by itself",
		    m->path);
	else
		good("%s is found by its superblocks: %s", node->name, m->path);
}

static void check_volume(struct doctor *d)
{
	const struct hybrid_node *pool = d->root->pool;

	if (d->root->dm.alone || !pool || !pool->active) {
		bad(d, "connect the cache device", "%s runs without its pool", d->root->name);
		return;
	}
	if (d->root->v.table.inplace)
		bad(d, "detach it and create it anew, not in place",
		    "%s is in place: an initramfs would mount its origin itself", d->root->name);
	else
		check_member(d, d->root);
	check_member(d, pool);
}

/* Kernels and images --------------------------------------------------------- */

/* What `lsinitramfs` or `lsinitrd` says of it; NULL: neither is there. */
static FILE *list_image(const char *path, pid_t *pid)
{
	static const char * const tools[] = { "lsinitramfs", "lsinitrd" };
	posix_spawn_file_actions_t actions;
	unsigned int i;
	int fds[2];
	int r = -1;

	if (pipe2(fds, O_CLOEXEC))
		return NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	for (i = 0; i < sizeof(tools) / sizeof(tools[0]) && r; i++) {
		char *argv[] = { (char *)tools[i], (char *)path, NULL };

		r = posix_spawnp(pid, tools[i], &actions, NULL, argv, environ);
	}
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (!r)
		return fdopen(fds[0], "r");
	close(fds[0]);
	return NULL;
}

/* One pass over the list for all @words; returns those that are not there. */
static unsigned int missing_in(FILE *f, const char * const *words, unsigned int nr)
{
	unsigned int i, missing = (1U << nr) - 1;
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, f) > 0)
		for (i = 0; i < nr; i++)
			if (strstr(line, words[i]))
				missing &= ~(1U << i);
	free(line);
	return missing;
}

static void check_image(struct doctor *d, const char *path)
{
	char policy[HYBRID_WORD_MAX + 16];
	const char *words[] = { "/hybridctl", "/dm-hybrid.ko", RULES, policy };
	unsigned int nr = sizeof(words) / sizeof(words[0]), missing, i;
	pid_t pid;
	FILE *f;

	snprintf(policy, sizeof(policy), "/dm-hybrid-%s.ko", d->root->pool && d->root->pool->active ?
		 d->root->pool->p.status.policy : "lru");
	f = list_image(path, &pid);
	if (!f) {
		bad(d, "install initramfs-tools or dracut", "cannot look into %s", path);
		return;
	}
	missing = missing_in(f, words, nr);
	fclose(f);
	waitpid(pid, NULL, 0);
	for (i = 0; i < nr; i++)
		if (missing & (1U << i))
			bad(d, "update-initramfs -u -k all, or dracut --regenerate-all --force",
			    "%s has no %s", path, words[i] + (words[i][0] == '/'));
	if (!missing)
		good("%s has all that is needed", path);
}

/* Of one kernel: its modules, and its image under either name. */
static void check_kernel(struct doctor *d, const char *release)
{
	static const char * const names[] = { "%s/boot/initrd.img-%s", "%s/boot/initramfs-%s.img" };
	char path[PATH_MAX], dep[PATH_MAX];
	unsigned int i;

	snprintf(dep, sizeof(dep), "/lib/modules/%s/modules.dep", release);
	if (path_has(d, dep, "/dm-hybrid.ko"))
		good("kernel %s has the module", release);
	else
		bad(d, "build it for this kernel (DKMS, or make install KDIR=...), or remove the kernel",
		    "kernel %s has no module dm-hybrid", release);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), names[i], d->dir, release);
		if (!access(path, R_OK)) {
			check_image(d, path);
			return;
		}
	}
	bad(d, "make one: update-initramfs -c, or dracut", "kernel %s has no initramfs", release);
}

static void check_kernels(struct doctor *d)
{
	char path[PATH_MAX];
	struct dirent **entries;
	int i, n, kernels = 0;

	snprintf(path, sizeof(path), "%s/boot", d->dir);
	n = scandir(path, &entries, NULL, versionsort);
	for (i = 0; i < n; i++) {
		if (!strncmp(entries[i]->d_name, "vmlinuz-", 8) && ++kernels)
			check_kernel(d, entries[i]->d_name + 8);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	if (!kernels)
		bad(d, "mount /boot, and ask again", "no kernel is found in %s/boot", d->dir);
}

/* The rest ------------------------------------------------------------------- */

static void check_rules(struct doctor *d)
{
	static const char * const dirs[] = {
		"/etc/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d",
		"/usr/local/lib/udev/rules.d",
	};
	unsigned int i;

	for (i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		if (exists(d, dirs[i], RULES)) {
			good("udev knows members: %s/" RULES, dirs[i]);
			return;
		}
	}
	bad(d, "make -C boot install", "the udev rules are not installed");
}

static void check_arguments(struct doctor *d)
{
	if (!d->dir[0] && path_has(d, "/proc/cmdline", "rd.hybrid=0"))
		bad(d, "take it off the boot loader's configuration",
		    "this kernel was started with rd.hybrid=0");
}

/* A volume that is missing must not hold up the boot. */
static void check_fstab(struct doctor *d)
{
	char path[PATH_MAX];
	struct hybrid_node *node;
	struct mntent *m;
	FILE *f;

	snprintf(path, sizeof(path), "%s/etc/fstab", d->dir);
	f = setmntent(path, "re");
	while (f && (m = getmntent(f))) {
		if (!strcmp(m->mnt_dir, "/") || strncmp(m->mnt_fsname, "/dev/mapper/", 12) ||
		    hasmntopt(m, "nofail") || hasmntopt(m, "noauto"))
			continue;
		node = hybrid_find(&d->inv, m->mnt_fsname, 1U << HYBRID_VOLUME);
		if (node && node != d->root)
			bad(d, "add nofail to its options", "%s: %s is mounted without nofail", path,
			    m->mnt_dir);
	}
	if (f)
		endmntent(f);
}

static int diagnose(struct doctor *d)
{
	check_rules(d);
	check_fstab(d);
	if (!find_root(d)) {
		good("the root is on no volume of dm-hybrid: it needs nothing of it");
		return d->problems ? HYBRID_DEGRADED : 0;
	}
	good("the root is on volume %s", d->root->name);
	check_volume(d);
	check_kernels(d);
	check_arguments(d);
	hybrid_note(d->problems ? "The root may not come up." : "The root will come up.");
	return d->problems ? HYBRID_DEGRADED : 0;
}

int command_doctor(const struct command_line *cl)
{
	struct doctor d = { .dir = cl->argc && strcmp(cl->argv[0], "/") ? cl->argv[0] : "" };
	int r;

	r = hybrid_inventory_load(&d.inv, HYBRID_LOAD_ALL, NULL, 0);
	if (!r)
		r = diagnose(&d);
	hybrid_inventory_free(&d.inv);
	return r;
}
