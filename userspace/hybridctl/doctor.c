// SPDX-License-Identifier: GPL-2.0-or-later
/* doctor: will the root of this system come up at the next boot? */
#define _GNU_SOURCE
#include <blkid/blkid.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <mntent.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "config.h"
#include "errors.h"
#include "health.h"
#include "owner.h"
#include "sysfs.h"
#include "wear.h"

extern char **environ;

#define RULES	"62-dm-hybrid-member.rules"
#define REMAKE	"update-initramfs -u -k all, or dracut --regenerate-all --force"

struct doctor {
	const char *dir;		/* of the system, "" for this one */
	struct hybrid_inventory inv;
	dev_t root[2];			/* devices that its / and /usr are mounted from */
	struct hybrid_config config;	/* its hybrid.conf */
	bool on_volume;			/* / or /usr is on a volume */
	bool owned;			/* that volume belongs to a host */
	bool *named;			/* nodes named by the kernel command line at hand */
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

static FILE *open_file(const struct doctor *d, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s", d->dir, name);
	return fopen(path, "re");
}

static bool is_volume(const struct hybrid_node *node)
{
	return node->kind == HYBRID_VOLUME && node->active;
}

static bool carries(const struct hybrid_node *node, dev_t devno)
{
	return is_volume(node) && (node->dm.devno == devno ||
				   hybrid_sysfs_built_on(devno, node->dm.devno));
}

/* Whether / or /usr lies on it, alone or among others: an initramfs mounts both. */
static bool carries_root(const struct doctor *d, const struct hybrid_node *node)
{
	return carries(node, d->root[0]) || carries(node, d->root[1]);
}

/*
 * The path of a device that fstab or crypttab names, allocated; NULL: not there.  Resolves as
 * libblkid does, but reads no disk for a device that udev does not know.
 */
static char *resolve(const char *spec)
{
	char *tag, *value, encoded[256], path[PATH_MAX], *c;

	if (!strchr(spec, '='))
		return realpath(spec, NULL);
	if (blkid_parse_tag_string(spec, &tag, &value))
		return NULL;
	for (c = tag; *c; c++)
		*c = tolower((unsigned char)*c);
	path[0] = '\0';
	if (!blkid_encode_string(value, encoded, sizeof(encoded)))
		snprintf(path, sizeof(path), "/dev/disk/by-%s/%s", tag, encoded);
	free(tag);
	free(value);
	return realpath(path, NULL);
}

/* The volume, active or not, that a line of fstab or crypttab needs. */
static struct hybrid_node *volume_of(struct doctor *d, const char *spec)
{
	char *path = resolve(spec);
	struct hybrid_node *node, *found;
	struct stat st;

	found = hybrid_find(&d->inv, path ?: spec, 1U << HYBRID_VOLUME);
	if (!path || stat(path, &st) || !S_ISBLK(st.st_mode))
		goto out;
	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes; node++)
		if (is_volume(node) && hybrid_sysfs_built_on(st.st_rdev, node->dm.devno))
			found = node;
out:
	free(path);
	return found;
}

/* The root's volumes --------------------------------------------------------- */

/* 0: unknown */
static dev_t device_of(const char *dir)
{
	struct stat st;

	if (stat(dir, &st))
		return 0;
	return major(st.st_dev) ? st.st_dev : hybrid_devno_of_mount(st.st_dev);
}

static int find_root(struct doctor *d)
{
	const char *dir = d->dir[0] ? d->dir : "/";
	char usr[PATH_MAX];

	d->root[0] = device_of(dir);
	if (!d->root[0] && access(dir, F_OK))
		return hybrid_fail(HYBRID_USAGE, "give the directory where it is mounted",
				   "%s: %s", dir, strerror(errno));
	snprintf(usr, sizeof(usr), "%s/usr", d->dir);
	d->root[1] = device_of(usr);
	return 0;
}

static void check_member(struct doctor *d, const struct hybrid_node *node)
{
	const struct hybrid_member *m = node->member;
	char next[MEND_MAX];

	if (m ? !m->ok : node->refused != NULL)
		;	/* check_refused() says so */
	else if (!m)
		bad(d, "see hybridctl scan", "%s: its member is not found on any device", node->name);
	else if (m->copies != 3)
		bad(d, mend_copies(m, next), "%s has only one good superblock: %s", m->path, m->why);
	else if (hybrid_sysfs_removable(m->devno))
		bad(d, "move it to a disk that is not removable", "%s is removable: it never comes up by itself",
		    m->path);
	else
		good("%s is found by its superblocks: %s", node->name, m->path);
}

static void check_health(struct doctor *d, const struct hybrid_node *node)
{
	struct health health;

	judge(node, &health);
	if (!health.healthy)
		bad(d, health.action, "%s is %s: %s", node->name, health.state, health.reason);
}

/* At a boot the root must belong to the host, or to nobody, and be listed. */
static void check_whose(struct doctor *d, const struct hybrid_node *volume)
{
	const struct hybrid_member *m = owning_member(volume);
	const struct hybrid_node *pool = volume->pool;
	bool named = pool && hybrid_config_lists(&d->config, pool->name, pool->uuid);

	if (!named && !hybrid_config_lists(&d->config, volume->name, volume->uuid))
		bad(d, "list it, or its pool, in autoactivate_list",
		    "%s" HYBRID_CONF " does not let %s come up by itself", d->dir, volume->name);
	if (!m || !m->ok || hybrid_uuid_is_null(m->sb.host_id))
		return;
	d->owned = true;
	if (memcmp(m->sb.host_id, d->config.host_id, 16))
		bad(d, "hybridctl release it when it is not active; or correct host_id in the file",
		    "%s belongs to a host other than the one in %s" HYBRID_CONF, volume->name, d->dir);
}

static void check_volume(struct doctor *d, const struct hybrid_node *volume)
{
	const struct hybrid_node *pool = volume->pool;

	check_whose(d, volume);
	good("%s is on volume %s", carries(volume, d->root[0]) ? "the root" : "/usr",
	     volume->name);
	check_health(d, volume);
	if (volume->dm.alone || !pool || !pool->active)
		return;
	check_health(d, pool);
	if (volume->v.table.inplace)
		bad(d, "detach it and create it anew, not in place",
		    "%s is in place: an initramfs would mount its origin itself", volume->name);
	else
		check_member(d, volume);
	check_member(d, pool);
}

/* Kernels and images --------------------------------------------------------- */

/* The path of a module of a kernel, from modules.dep; empty: it has none. */
static const char *module_path(const struct doctor *d, const char *release, const char *file,
			       char *buf, size_t len)
{
	char dep[PATH_MAX], *line = NULL, *colon;
	size_t size = 0;
	FILE *f;

	snprintf(dep, sizeof(dep), "/lib/modules/%s/modules.dep", release);
	f = open_file(d, dep);
	buf[0] = '\0';
	while (f && !buf[0] && getline(&line, &size, f) > 0) {
		colon = strchr(line, ':');
		if (!colon)
			continue;
		*colon = '\0';
		if (strstr(line, file))
			snprintf(buf, len, "/lib/modules/%s/%s", release, line);
	}
	free(line);
	if (f)
		fclose(f);
	return buf;
}

#define WORDS_MAX	16

/* A file that an image must have: one of two words in the list of its files. */
struct wanted {
	char word[HYBRID_WORD_MAX + 32];
	const char *or;
	const char *what;
};

/* Starts a program that lists an image; NULL: it is not there. */
static FILE *start_list(const char *program, const char *path, pid_t *pid)
{
	char *argv[] = { (char *)program, (char *)path, NULL };
	posix_spawn_file_actions_t actions;
	int fds[2];
	FILE *f;
	int r;

	if (pipe2(fds, O_CLOEXEC))
		return NULL;
	f = fdopen(fds[0], "r");
	if (!f) {
		close(fds[0]);
		close(fds[1]);
		return NULL;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	r = posix_spawnp(pid, program, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (!r)
		return f;
	fclose(f);
	return NULL;
}

/* Clears the bits in *missing of files that the image has; false: @program cannot read the image. */
static bool look_into(const char *program, const char *path, const struct wanted *wanted,
		      unsigned int nr, unsigned int *missing)
{
	unsigned int i, found = 0, lines = 0;
	char *line = NULL;
	size_t size = 0;
	pid_t pid;
	FILE *f;

	f = start_list(program, path, &pid);
	if (!f)
		return false;
	for (; getline(&line, &size, f) > 0; lines++)
		for (i = 0; i < nr; i++)
			if (strstr(line, wanted[i].word) ||
			    (wanted[i].or && strstr(line, wanted[i].or)))
				found |= 1U << i;
	free(line);
	fclose(f);
	/* lsinitramfs misses the end of an image that is not compressed: its exit status does not count */
	waitpid(pid, NULL, 0);
	*missing &= ~found;
	return lines;
}

static void want(struct wanted *wanted, unsigned int *nr, const char *word, const char *or,
		 const char *what)
{
	snprintf(wanted[*nr].word, sizeof(wanted[*nr].word), "%s", word);
	wanted[*nr].or = or;
	wanted[(*nr)++].what = what;
}

static unsigned int all_wanted(struct doctor *d, const char *release, struct wanted *wanted)
{
	char word[HYBRID_WORD_MAX + 16], path[PATH_MAX];
	struct hybrid_node *node;
	unsigned int nr = 0;

	want(wanted, &nr, "/hybridctl", NULL, "the tool hybridctl");
	want(wanted, &nr, "/dm-hybrid.ko", NULL, "the module dm-hybrid");
	want(wanted, &nr, RULES, NULL, "the udev rules " RULES);
	want(wanted, &nr, "/hybrid-activate", "/local-block/dm-hybrid",
	     "the script that activates volumes");
	if (d->owned)
		want(wanted, &nr, "/hybrid/hybrid.conf", NULL, "the id of this host");
	if (module_path(d, release, "/crc32c_generic.ko", path, sizeof(path))[0])
		want(wanted, &nr, "/crc32c", NULL, "the module crc32c_generic");
	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes; node++) {
		if (!carries_root(d, node) || nr == WORDS_MAX)
			continue;
		snprintf(word, sizeof(word), "/dm-hybrid-%s.ko", node->pool && node->pool->active ?
			 node->pool->p.status.policy : DEFAULT_POLICY);
		want(wanted, &nr, word, NULL, "the module of the pool's policy");
	}
	return nr;
}

/* When the contents of a file changed or came to this place; 0: it is not there. */
static time_t changed(const struct doctor *d, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", d->dir, name);
	return stat(path, &st) ? 0 : st.st_ctime;
}

/* Finds files of the image that were installed after it was made. */
static void check_age(struct doctor *d, const char *path, const char *module)
{
	const char *files[] = { "/usr/sbin/hybridctl", "/usr/local/sbin/hybridctl", HYBRID_CONF,
				module };
	struct stat st;
	unsigned int i;

	if (stat(path, &st))
		return;
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (changed(d, files[i]) > st.st_mtime)
			bad(d, REMAKE, "%s is older than %s%s", path, d->dir, files[i]);
}

static void check_image(struct doctor *d, const char *path, const char *release)
{
	struct wanted wanted[WORDS_MAX];
	unsigned int nr = all_wanted(d, release, wanted), missing = (1U << nr) - 1, i;
	bool read;

	/* Each knows more of its own images */
	read = look_into("lsinitramfs", path, wanted, nr, &missing);
	if (missing)
		read |= look_into("lsinitrd", path, wanted, nr, &missing);
	if (!read) {
		bad(d, "install lsinitramfs or lsinitrd, and the program that unpacks it; or make it anew",
		    "cannot list the contents of %s", path);
		return;
	}
	for (i = 0; i < nr; i++)
		if (missing & (1U << i))
			bad(d, REMAKE, "%s has no %s: %s", path, wanted[i].word, wanted[i].what);
	if (!missing)
		good("%s has everything that is needed", path);
}

/* The policy of a pool, active or not; empty: unknown. */
static const char *policy_of(const struct hybrid_node *pool)
{
	if (pool->active && pool->dm.live)
		return pool->p.status.policy;
	return pool->member ? pool->member->sb.policy : "";
}

static bool check_module(struct doctor *d, const char *release, const char *name)
{
	char file[HYBRID_WORD_MAX + 32], path[PATH_MAX];

	snprintf(file, sizeof(file), "/%s.ko", name);
	if (module_path(d, release, file, path, sizeof(path))[0])
		return true;
	bad(d, "build it (DKMS, or make install KDIR=...), or remove that kernel",
	    "kernel %s has no module %s", release, name);
	return false;
}

/* Without its modules no volume comes up, wherever the root is. */
static void check_modules(struct doctor *d, const char *release)
{
	bool all = check_module(d, release, "dm-hybrid");
	char name[HYBRID_WORD_MAX + 16];
	struct hybrid_node *node;

	if (!all)
		return;
	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes; node++) {
		if (node->kind != HYBRID_POOL || !policy_of(node)[0])
			continue;
		snprintf(name, sizeof(name), "dm-hybrid-%s", policy_of(node));
		all = check_module(d, release, name) && all;
	}
	if (all)
		good("kernel %s has the modules", release);
}

/* Checks the image of one kernel, under one of its names. */
static void check_initramfs(struct doctor *d, const char *release)
{
	static const char * const names[] = {
		"%s/boot/initrd.img-%s", "%s/boot/initramfs-%s.img", "%s/boot/initrd-%s",
		"%s/lib/modules/%s/initrd",
	};
	char path[PATH_MAX], module[PATH_MAX];
	unsigned int i;

	module_path(d, release, "/dm-hybrid.ko", module, sizeof(module));
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), names[i], d->dir, release);
		if (!access(path, R_OK)) {
			check_image(d, path, release);
			check_age(d, path, module);
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
		if (!strncmp(entries[i]->d_name, "vmlinuz-", 8) && ++kernels) {
			check_modules(d, entries[i]->d_name + 8);
			if (d->on_volume)
				check_initramfs(d, entries[i]->d_name + 8);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	if (!kernels && d->on_volume)
		bad(d, "mount /boot, and try again", "no kernel is found in %s/boot", d->dir);
	else if (!kernels)
		good("no kernel is found in %s/boot: it is not known whether the next kernel has the module",
		     d->dir);
}

/* The module that runs, and the one that the next boot loads ------------------ */

/* "version" or "srcversion" of dm-hybrid in memory and on disk; false unless both are known. */
static bool both_modules(const char *field, char memory[64], char disk[64])
{
	char command[96];
	FILE *f;

	if (!hybrid_sysfs_module("dm_hybrid", field, memory, 64))
		return false;
	snprintf(command, sizeof(command), "modinfo -F %s dm-hybrid 2>/dev/null", field);
	f = popen(command, "re");
	if (!f || !fgets(disk, 64, f))
		disk[0] = '\0';
	disk[strcspn(disk, "\n")] = '\0';
	if (f)
		pclose(f);
	return disk[0];
}

/* The version's last number: see version.h */
static const char *disk_format(const char *version)
{
	const char *dot = strrchr(version, '.');

	return dot ? dot + 1 : version;
}

static void check_running(struct doctor *d)
{
	char memory[64], disk[64];

	if (d->dir[0] || !both_modules("version", memory, disk))
		return;
	if (strcmp(disk_format(memory), disk_format(disk)))
		bad(d, "before the reboot: hybridctl detach POOL, or install the module of the old release again",
		    "the module in memory is version %s; the one on disk, %s, reads another disk format and refuses the present pools",
		    memory, disk);
	else if (strcmp(memory, disk))
		good("the module in memory is version %s; the one on disk, %s, takes effect at the next boot",
		     memory, disk);
	else if (both_modules("srcversion", memory, disk) && strcmp(memory, disk))
		good("the module on disk is a different build from the one in memory: it takes effect at the next boot");
}

/* The rest ------------------------------------------------------------------- */

static void check_rules(struct doctor *d)
{
	static const char * const names[] = {
		"/etc/udev/rules.d/" RULES, "/usr/lib/udev/rules.d/" RULES,
		"/lib/udev/rules.d/" RULES, "/usr/local/lib/udev/rules.d/" RULES,
	};
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (changed(d, names[i])) {
			good("udev recognises members: %s", names[i]);
			return;
		}
	}
	bad(d, "install them: make install, or the package", "the udev rules are not installed");
}

/* Marks a volume, or a pool and its volumes. */
static void mark_named(struct doctor *d, const char *name)
{
	const struct hybrid_node *named = hybrid_find(&d->inv, name, HYBRID_ANY);
	unsigned int i;

	for (i = 0; named && i < d->inv.nr_nodes; i++)
		if (&d->inv.nodes[i] == named || d->inv.nodes[i].pool == named)
			d->named[i] = true;
}

static const struct hybrid_node *root_not_named(const struct doctor *d)
{
	unsigned int i;

	for (i = 0; i < d->inv.nr_nodes; i++)
		if (carries_root(d, &d->inv.nodes[i]) && !d->named[i])
			return &d->inv.nodes[i];
	return NULL;
}

/* Checks one command line of a kernel: it may keep the initramfs from bringing up the root. */
static bool check_words(struct doctor *d, const char *where, char *line)
{
	const struct hybrid_node *missing = NULL;
	bool limited = false;
	char *word, *save;

	memset(d->named, 0, d->inv.nr_nodes * sizeof(*d->named));
	for (word = strtok_r(line, " \t\n\"'", &save); word;
	     word = strtok_r(NULL, " \t\n\"'", &save)) {
		if (!strcmp(word, "rd.hybrid=0")) {
			bad(d, "remove it from the boot loader's configuration", "%s has rd.hybrid=0",
			    where);
			return false;
		}
		if (strncmp(word, "rd.hybrid.uuid=", 15) && strncmp(word, "rd.hybrid.name=", 15))
			continue;
		limited = true;
		mark_named(d, word + 15);
	}
	if (limited)
		missing = root_not_named(d);
	if (missing)
		bad(d, "add the volume, or its pool, there",
		    "%s has rd.hybrid.uuid= or rd.hybrid.name= for others, but not for %s", where,
		    missing->name);
	return !missing;
}

static void check_arguments_in(struct doctor *d, const char *where)
{
	char *line = NULL;
	size_t size = 0;
	FILE *f;

	f = fopen(where, "re");
	while (f && getline(&line, &size, f) > 0)
		if (line[strspn(line, " \t")] != '#' && !check_words(d, where, line))
			break;
	free(line);
	if (f)
		fclose(f);
}

/* Checks the command lines of this boot and of the next. */
static void check_arguments(struct doctor *d)
{
	static const char * const names[] = {
		"/boot/grub/grub.cfg", "/boot/grub2/grub.cfg", "/etc/kernel/cmdline",
		"/boot/loader/entries/*.conf",
	};
	char path[PATH_MAX];
	unsigned int i;
	glob_t found;
	size_t n;

	if (!d->dir[0])
		check_arguments_in(d, "/proc/cmdline");
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", d->dir, names[i]);
		if (glob(path, 0, NULL, &found))
			continue;
		for (n = 0; n < found.gl_pathc; n++)
			check_arguments_in(d, found.gl_pathv[n]);
		globfree(&found);
	}
}

/* A volume that is missing must not hold up the boot; the root's are not missing. */
static bool holds_up(struct doctor *d, const char *spec)
{
	const struct hybrid_node *node = volume_of(d, spec);

	return node && !carries_root(d, node);
}

/*
 * The origin of a volume in place shows the same contents, and at a boot it is there before the
 * volume: a mount by UUID or label gets the origin.
 */
static void check_in_place(struct doctor *d, const char *path, const char *spec)
{
	struct hybrid_node *node;
	char *device, next[HYBRID_NAME_SIZE + 32];
	struct stat st;

	if (!strchr(spec, '=') && strncmp(spec, "/dev/disk/", 10))
		return;
	device = resolve(spec);
	if (!device || stat(device, &st) || !S_ISBLK(st.st_mode))
		goto out;
	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes; node++) {
		if (!is_volume(node) || !node->v.table.inplace || node->dm.devno != st.st_rdev ||
		    carries_root(d, node))
			continue;
		snprintf(next, sizeof(next), "write /dev/mapper/%s", node->name);
		bad(d, next, "%s: %s may lead to the origin of %s and bypass its cache", path, spec,
		    node->name);
	}
out:
	free(device);
}

static void check_mount(struct doctor *d, const char *path, const struct mntent *m)
{
	if (!strcmp(m->mnt_dir, "/") || hasmntopt(m, "noauto"))
		return;
	if (!hasmntopt(m, "nofail") && holds_up(d, m->mnt_fsname))
		bad(d, "add nofail to its options", "%s: %s is mounted without nofail", path,
		    strcmp(m->mnt_dir, "none") ? m->mnt_dir : m->mnt_fsname);
	check_in_place(d, path, m->mnt_fsname);
}

static void check_fstab(struct doctor *d)
{
	char path[PATH_MAX];
	struct mntent *m;
	FILE *f;

	snprintf(path, sizeof(path), "%s/etc/fstab", d->dir);
	f = setmntent(path, "re");
	while (f && (m = getmntent(f)))
		check_mount(d, path, m);
	if (f)
		endmntent(f);
}

static bool has_option(const char *options, const char *name)
{
	size_t len = strlen(name);
	const char *at;

	for (at = options; (at = strstr(at, name)); at += len)
		if ((at == options || at[-1] == ',') && (!at[len] || at[len] == ','))
			return true;
	return false;
}

static void check_crypttab(struct doctor *d)
{
	char path[PATH_MAX], name[256], spec[1024], options[1024];
	char *line = NULL;
	size_t size = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/etc/crypttab", d->dir);
	f = fopen(path, "re");
	while (f && getline(&line, &size, f) > 0) {
		options[0] = '\0';
		if (sscanf(line, " %255[^# \t\n] %1023s %*s %1023s", name, spec, options) < 2)
			continue;
		if (has_option(options, "noauto"))
			continue;
		if (!has_option(options, "nofail") && holds_up(d, spec))
			bad(d, "add nofail to its options", "%s: %s is opened without nofail", path,
			    name);
		check_in_place(d, path, spec);
	}
	free(line);
	if (f)
		fclose(f);
}

/* The owner does not matter: of two clones, one may have newer data. */
static void check_refused(struct doctor *d)
{
	struct hybrid_member *m;

	for (m = d->inv.members; m < d->inv.members + d->inv.nr_members; m++)
		if (!m->ok)
			bad(d, hybrid_member_next(m, "disconnect the copy, or repair it"),
			    "%s is refused: %s", m->path, m->why);
}

/* Of several with one name, a boot brings up the one that appears first. */
static void check_names(struct doctor *d)
{
	const struct hybrid_node *a, *b, *end = d->inv.nodes + d->inv.nr_nodes;
	char next[HYBRID_PATH_MAX + 64], first[HYBRID_PATH_MAX], second[HYBRID_PATH_MAX];

	for (a = d->inv.nodes; a < end; a++)
		for (b = a + 1; b < end; b++) {
			if (strcmp(a->name, b->name) || hybrid_node_is(b, a->kind, a->uuid) ||
			    is_foreign(a) || is_foreign(b))
				continue;
			hybrid_node_device(a, first, sizeof(first));
			hybrid_node_device(b, second, sizeof(second));
			snprintf(next, sizeof(next), "hybridctl rename %s NEWNAME", b->active ? first : second);
			bad(d, next, "%s %s on %s and %s %s on %s have the same name", hybrid_kind_name(a->kind),
			    a->name, first, hybrid_kind_name(b->kind), b->name, second);
		}
}

/* A volume that could grow does not hold up a boot. */
static void check_size(const struct hybrid_node *node)
{
	uint64_t more = may_grow_by(node);

	if (more)
		good("the origin of %s has grown by %llu MiB: hybridctl resize %s", node->name,
		     (unsigned long long)more >> 11, node->name);
}

/* The first SSD below it; 0: there is none. */
static dev_t ssd_below(const struct hybrid_node *pool)
{
	dev_t disks[WEAR_MAX];
	unsigned int nr = hybrid_sysfs_disks(pool->below, disks, WEAR_MAX), i, rotational;

	for (i = 0; i < nr; i++)
		if (hybrid_sysfs_queue(disks[i], "rotational", &rotational) && !rotational)
			return disks[i];
	return 0;
}

/* A missing smartctl does not hold up a boot either. */
static void check_wear(const struct doctor *d)
{
	char path[HYBRID_PATH_MAX];
	struct hybrid_node *node;
	dev_t ssd = 0;

	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes && !ssd; node++)
		if (node->kind == HYBRID_POOL && node->active)
			ssd = ssd_below(node);
	if (ssd && !d->dir[0] && !wear_can_be_read())
		good("smartctl (package smartmontools) is not installed: with it, hybridctl status shows the wear of %s",
		     hybrid_devno_path(ssd, path, sizeof(path)));
}

static int diagnose(struct doctor *d)
{
	struct hybrid_node *node;
	int r;

	r = find_root(d);
	if (r)
		return r;
	if (d->inv.nr_nodes)
		check_rules(d);
	if (d->config.errors)
		bad(d, "see hybrid.conf(5)", "%s" HYBRID_CONF ": %u of its lines are wrong, or it cannot be read",
		    d->dir, d->config.errors);
	check_refused(d);
	check_names(d);
	check_fstab(d);
	check_crypttab(d);
	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes; node++) {
		check_size(node);
		if (!carries_root(d, node))
			continue;
		d->on_volume = true;
		check_volume(d, node);
	}
	if (d->inv.nr_nodes)
		check_kernels(d);
	check_running(d);
	check_wear(d);
	if (!d->on_volume) {
		good("the root is not on a volume of dm-hybrid, and needs nothing from it");
		return d->problems ? HYBRID_DEGRADED : 0;
	}
	check_arguments(d);
	hybrid_note(d->problems ? "The root may not come up." : "The root will come up.");
	return d->problems ? HYBRID_DEGRADED : 0;
}

int command_doctor(const struct command_line *cl)
{
	struct doctor d = { .dir = cl->argc && strcmp(cl->argv[0], "/") ? cl->argv[0] : "" };
	char conf[PATH_MAX];
	int r;

	snprintf(conf, sizeof(conf), "%s" HYBRID_CONF, d.dir);
	hybrid_config_read(&d.config, conf);
	r = hybrid_inventory_load(&d.inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r) {
		d.named = calloc(d.inv.nr_nodes + 1, sizeof(*d.named));
		r = d.named ? diagnose(&d) : hybrid_nomem();
	}
	free(d.named);
	hybrid_inventory_free(&d.inv);
	hybrid_config_free(&d.config);
	return r;
}
