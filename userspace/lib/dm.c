// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libdevmapper.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices.h"
#include "dm.h"
#include "errors.h"
#include "sysfs.h"

/* libdevmapper's levels; log_print() is a warning without the stderr bit. */
#define LOG_LEVEL_MASK	0x07
#define LOG_LEVEL_ERR	3
#define LOG_LEVEL_WARN	4
#define LOG_STDERR	0x80

#define CONTROL_NODE	"/dev/mapper/control"

static char last_log[256];

static void dm_log_line(int level, const char *file, int line, int err, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

static void dm_log_line(int level, const char *file __attribute__((unused)),
			int line __attribute__((unused)), int err __attribute__((unused)),
			const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	if ((level & LOG_LEVEL_MASK) == LOG_LEVEL_WARN && !(level & LOG_STDERR)) {
		/* Rows of a report: of any length */
		vprintf(fmt, ap);
		putchar('\n');
	} else {
		vsnprintf(text, sizeof(text), fmt, ap);
		if ((level & LOG_LEVEL_MASK) <= LOG_LEVEL_ERR)
			memcpy(last_log, text, sizeof(last_log));
		if (hybrid_output.verbose > 1 ||
		    ((level & LOG_LEVEL_MASK) <= LOG_LEVEL_WARN && hybrid_output.verbose))
			hybrid_verbose("libdevmapper: %s", text);
	}
	va_end(ap);
}

void hybrid_dm_init(void)
{
	dm_log_with_errno_init(dm_log_line);
}

/* Run a task on @name; NULL on failure. */
static struct dm_task *run_on(int type, const char *name)
{
	struct dm_task *task = dm_task_create(type);

	if (task && dm_task_set_name(task, name) && dm_task_run(task))
		return task;
	if (task)
		dm_task_destroy(task);
	return NULL;
}

/* The kernel's log ------------------------------------------------------------- */

#define DEVICES_MAX	16

/* Our place in the kernel's log, and the devices whose lines from there on are about our request. */
struct kmsg {
	int fd;
	dev_t devices[DEVICES_MAX];
	unsigned int nr;
};

static void kmsg_open(struct kmsg *k)
{
	k->nr = 0;
	k->fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (k->fd >= 0)
		lseek(k->fd, 0, SEEK_END);
}

static void kmsg_close(const struct kmsg *k)
{
	if (k->fd >= 0)
		close(k->fd);
}

static void add_device(struct kmsg *k, dev_t devno)
{
	if (k->nr < DEVICES_MAX)
		k->devices[k->nr++] = devno;
}

/* Adds the devices that a table names: a volume's pool and origin, a pool's cache device. */
static void add_devices_of_table(struct kmsg *k, const char *params)
{
	char word[32];
	dev_t devno;
	int n;

	for (; sscanf(params, "%31s%n", word, &n) == 1; params += n)
		if (!hybrid_devno_parse(word, &devno))
			add_device(k, devno);
}

/* Adds a device and the devices directly below it. */
static void add_device_of_name(struct kmsg *k, const char *name)
{
	struct dm_task *task = run_on(DM_DEVICE_DEPS, name);
	struct dm_deps *deps = task ? dm_task_get_deps(task) : NULL;
	struct dm_info info;
	uint32_t i;

	if (task && dm_task_get_info(task, &info) && info.exists)
		add_device(k, makedev(info.major, info.minor));
	for (i = 0; deps && i < deps->count; i++)
		add_device(k, deps->device[i]);
	if (task)
		dm_task_destroy(task);
}

/* The device at the beginning of @text, "253:0: ..." or "dm-0: ..."; false: it names none. */
static bool named_device(const char *text, dev_t *devno)
{
	unsigned int maj, min;
	char name[64];
	int end = 0;

	if (sscanf(text, "%u:%u:%n", &maj, &min, &end) == 2 && end) {
		*devno = makedev(maj, min);
		return true;
	}
	return sscanf(text, "%63[^ :]:%n", name, &end) == 1 && end &&
	       hybrid_sysfs_devno(name, devno);
}

/*
 * Whether a log line is about our request: "hybrid: 253:0: ..." by the module, about that device,
 * or without a device in answer to a message; or "table: 253:0: hybrid-pool: ..." by
 * device-mapper, about a table that it refuses.
 */
static bool is_ours(const struct kmsg *k, const char *text)
{
	const char *target = text;
	dev_t devno;
	unsigned int i;

	if (!strncmp(text, "table: ", 7)) {
		text += 7;
		target = strstr(text, ": ");
		target = target ? target + 2 : text;
	} else if (!strncmp(text, "hybrid: ", 8)) {
		text += 8;
	}
	if (strncmp(target, "hybrid", 6))
		return false;
	if (!named_device(text, &devno))
		return true;
	for (i = 0; i < k->nr; i++)
		if (k->devices[i] == devno)
			return true;
	return false;
}

/* Prints the kernel's log lines about our request. */
static void kmsg_print(const struct kmsg *k)
{
	char record[1024], *text;
	ssize_t n;

	while (k->fd >= 0 && (n = read(k->fd, record, sizeof(record) - 1)) > 0) {
		record[n] = '\0';
		text = strchr(record, ';');
		if (!text || strncmp(++text, "device-mapper: ", 15) || !is_ours(k, text + 15))
			continue;
		text[strcspn(text, "\n")] = '\0';
		fprintf(stderr, "  kernel: %s\n", text);
	}
}

static const char *next_step(int err)
{
	switch (err) {
	case EPERM:
	case EACCES:
		return "run this as root";
	case EBUSY:
		return "find its users: lsblk, fuser, dmsetup info";
	case ENXIO:
	case ENODEV:
		return "see hybridctl list for the active pools and volumes";
	default:
		return "see the kernel log (dmesg) for the reason";
	}
}

/* Report a failed task; takes the kernel's log since @kmsg, unless that is NULL. */
static int fail_task(const char *what, const char *name, int err, struct kmsg *kmsg)
{
	int code = hybrid_exit_of_errno(err);

	if (err == ENXIO || err == ENODEV)
		code = HYBRID_BADDEV;
	hybrid_fail(code, NULL, "%s %s: %s", what, name,
		    err ? strerror(err) : last_log[0] ? last_log : "libdevmapper refused it");
	if (kmsg) {
		add_device_of_name(kmsg, name);
		kmsg_print(kmsg);
	}
	fprintf(stderr, "  next: %s\n", next_step(err));
	return code;
}

/* Checks ------------------------------------------------------------------- */

static bool target_version(const char *target, uint32_t version[3])
{
	struct dm_versions *v, *last;
	struct dm_task *task;
	bool found = false;

	task = dm_task_create(DM_DEVICE_LIST_VERSIONS);
	if (!task)
		return false;
	if (dm_task_run(task)) {
		v = dm_task_get_versions(task);
		do {
			last = v;
			if (!strcmp(v->name, target)) {
				memcpy(version, v->version, sizeof(v->version));
				found = true;
			}
			v = (void *)((char *)v + v->next);
		} while (last->next);
	}
	dm_task_destroy(task);
	return found;
}

/* Asking for a target's version makes the kernel load its module (5.x). */
static void load_target(const char *target)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_GET_TARGET_VERSION);

	if (!task)
		return;
	if (dm_task_set_name(task, target))
		dm_task_run(task);
	dm_task_destroy(task);
}

static int find_target(const char *target, uint32_t version[3])
{
	if (!target_version(target, version))
		load_target(target);
	if (target_version(target, version))
		return 0;
	return hybrid_fail(HYBRID_NOTARGET,
			   "load the module (modprobe dm-hybrid), or install it for this kernel",
			   "the kernel has no target %s", target);
}

int hybrid_dm_check(bool format)
{
	uint32_t version[3];
	char driver[32];
	int r;

	if (geteuid() != 0)
		return hybrid_fail(HYBRID_REFUSED, "run this as root",
				   "no permission to use device-mapper");
	if (!dm_driver_version(driver, sizeof(driver)))
		return hybrid_fail(HYBRID_NOTARGET, "load it (modprobe dm-mod)",
				   "the kernel has no device-mapper: %s", last_log);
	r = find_target(HYBRID_VOLUME_TARGET, version);
	if (!r)
		r = find_target(HYBRID_POOL_TARGET, version);
	/* Both are one module's, with one version */
	return r ? r : hybrid_check_version(HYBRID_POOL_TARGET, version, format);
}

static bool policy_loaded(const char *name)
{
	char module[64], state[16], *c;

	snprintf(module, sizeof(module), "dm_hybrid_%s", name);
	for (c = module; *c; c++)
		if (*c == '-')
			*c = '_';
	return hybrid_sysfs_module(module, "initstate", state, sizeof(state));
}

bool hybrid_dm_policy(const char *name, bool test)
{
	char program[256] = "", alias[128], quiet[] = "-q", dry[] = "-n", end[] = "--";
	char *argv[] = { program, quiet, test ? dry : end, alias, NULL };
	FILE *f = fopen("/proc/sys/kernel/modprobe", "re");
	int status;
	pid_t pid;

	if (f && fgets(program, sizeof(program), f))
		program[strcspn(program, "\n")] = '\0';
	if (f)
		fclose(f);
	snprintf(alias, sizeof(alias), "dm-hybrid-policy-%s", name);
	if (policy_loaded(name))
		return true;
	return program[0] && !posix_spawn(&pid, program, NULL, NULL, argv, environ) &&
	       waitpid(pid, &status, 0) == pid && !status;
}

/* Devices ------------------------------------------------------------------ */

static bool kernel_has_dm(void)
{
	char line[128];
	bool found = false;
	FILE *f;

	if (access(CONTROL_NODE, R_OK | W_OK) && geteuid())
		return false;
	f = fopen("/proc/devices", "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "device-mapper");
	if (f)
		fclose(f);
	return found;
}

/* Whether the table maps only an origin, apart from holes. */
static bool is_alone(struct dm_task *task, uint64_t *sectors)
{
	uint64_t start, length;
	char *target, *params;
	bool linear = false;
	void *next = NULL;

	do {
		next = dm_get_next_target(task, next, &start, &length, &target, &params);
		if (!target || (strcmp(target, HYBRID_LINEAR_TARGET) &&
				strcmp(target, HYBRID_ERROR_TARGET)))
			return false;
		linear |= !strcmp(target, HYBRID_LINEAR_TARGET);
	} while (next);
	*sectors = start + length;
	return linear;
}

static bool device_info(const char *name, struct hybrid_dm_device *dev)
{
	struct dm_task *task = run_on(DM_DEVICE_TABLE, name);
	uint64_t start = 0, length = 0;
	char *target, *params;
	struct dm_info info;
	const char *uuid;
	bool ours;

	if (!task)
		return false;
	memset(dev, 0, sizeof(*dev));
	uuid = dm_task_get_uuid(task);
	ours = dm_task_get_info(task, &info) && info.exists && uuid &&
	       hybrid_dm_uuid_parse(uuid, dev->uuid, &dev->pool);
	if (ours) {
		dm_get_next_target(task, NULL, &start, &length, &target, &params);
		snprintf(dev->name, sizeof(dev->name), "%s", name);
		dev->devno = makedev(info.major, info.minor);
		dev->open_count = info.open_count;
		dev->suspended = info.suspended;
		dev->sectors = length;
		dev->alone = !dev->pool && is_alone(task, &dev->sectors);
		dev->readonly = info.read_only;
		/* dmsetup remove --force leaves the target "error" to users that have it open */
		dev->live = info.live_table && target &&
			    (dev->alone || !strcmp(target, dev->pool ? HYBRID_POOL_TARGET :
						   HYBRID_VOLUME_TARGET));
	}
	dm_task_destroy(task);
	return ours;
}

static unsigned int count_names(struct dm_names *names)
{
	unsigned int n = 1;

	for (; names->next; names = (void *)((char *)names + names->next))
		n++;
	return n;
}

int hybrid_dm_list(struct hybrid_dm_device **devices, unsigned int *nr)
{
	struct hybrid_dm_device *array;
	struct dm_names *names;
	struct dm_task *task;
	unsigned int n = 0;

	*devices = NULL;
	*nr = 0;
	if (!kernel_has_dm())
		return 0;
	task = dm_task_create(DM_DEVICE_LIST);
	if (!task || !dm_task_run(task)) {
		if (task)
			dm_task_destroy(task);
		return hybrid_fail(HYBRID_NOTARGET, "see the kernel log (dmesg)",
				   "device-mapper does not list its devices: %s", last_log);
	}
	names = dm_task_get_names(task);
	array = calloc(count_names(names), sizeof(*array));
	if (!array) {
		dm_task_destroy(task);
		return hybrid_nomem();
	}
	while (names->dev) {
		if (device_info(names->name, &array[n]))
			n++;
		if (!names->next)
			break;
		names = (void *)((char *)names + names->next);
	}
	dm_task_destroy(task);
	*devices = array;
	*nr = n;
	return 0;
}

/* Returns a task with the name and numbers of an active pool or volume, or NULL. */
static struct dm_task *ask_uuid(const uint8_t uuid[16], bool pool, struct dm_info *info)
{
	struct dm_task *task = kernel_has_dm() ? dm_task_create(DM_DEVICE_INFO) : NULL;
	char text[HYBRID_DM_UUID_TEXT];

	if (!task)
		return NULL;
	if (dm_task_set_uuid(task, hybrid_dm_uuid(text, uuid, pool)) && dm_task_run(task) &&
	    dm_task_get_info(task, info) && info->exists)
		return task;
	dm_task_destroy(task);
	return NULL;
}

dev_t hybrid_dm_find(const uint8_t uuid[16], bool pool)
{
	struct dm_info info;
	struct dm_task *task = ask_uuid(uuid, pool, &info);

	if (!task)
		return 0;
	dm_task_destroy(task);
	return makedev(info.major, info.minor);
}

bool hybrid_dm_name(const uint8_t uuid[16], bool pool, char name[HYBRID_DM_NAME_MAX])
{
	struct dm_info info;
	struct dm_task *task = ask_uuid(uuid, pool, &info);

	if (!task)
		return false;
	snprintf(name, HYBRID_DM_NAME_MAX, "%s", dm_task_get_name(task));
	dm_task_destroy(task);
	return true;
}

bool hybrid_dm_name_taken(const char *name)
{
	struct dm_task *task = kernel_has_dm() ? run_on(DM_DEVICE_INFO, name) : NULL;
	struct dm_info info;
	bool taken;

	if (!task)
		return false;
	taken = dm_task_get_info(task, &info) && info.exists;
	dm_task_destroy(task);
	return taken;
}

/* Create and remove -------------------------------------------------------- */

/* Pools are inner devices: nobody looks for filesystems on them. */
static uint16_t udev_flags(bool pool)
{
	return pool ? DM_UDEV_DISABLE_DISK_RULES_FLAG | DM_UDEV_DISABLE_OTHER_RULES_FLAG |
		      DM_UDEV_DISABLE_SUBSYSTEM_RULES_FLAG : 0;
}

/* A table of any number of lines. */
struct table {
	bool (*add)(const struct table *t, const char *name, struct dm_task *task);
	uint64_t sectors;
	const char *target, *params;
	dev_t origin;
	uint64_t data_sector;
	const struct hybrid_dm_hole *holes;
	size_t nr_holes;
};

static bool add_line(const struct table *t, const char *name, struct dm_task *task)
{
	hybrid_verbose("load %s: 0 %llu %s %s", name, (unsigned long long)t->sectors, t->target,
		       t->params);
	return dm_task_add_target(task, 0, t->sectors, t->target, t->params);
}

/* The part of the origin before a hole, or behind the last one. */
static bool add_origin(const struct table *t, const char *name, struct dm_task *task,
		       uint64_t from, uint64_t to)
{
	char params[HYBRID_PARAMS_MAX];

	if (from == to)
		return true;
	hybrid_linear_params(params, t->origin, t->data_sector + from);
	hybrid_verbose("load %s: %llu %llu %s %s", name, (unsigned long long)from,
		       (unsigned long long)(to - from), HYBRID_LINEAR_TARGET, params);
	return dm_task_add_target(task, from, to - from, HYBRID_LINEAR_TARGET, params);
}

static bool add_lines_around_holes(const struct table *t, const char *name,
				   struct dm_task *task)
{
	const struct hybrid_dm_hole *hole;
	uint64_t at = 0;

	for (hole = t->holes; hole < t->holes + t->nr_holes; hole++) {
		if (!add_origin(t, name, task, at, hole->sector) ||
		    !dm_task_add_target(task, hole->sector, hole->count, HYBRID_ERROR_TARGET, ""))
			return false;
		at = hole->sector + hole->count;
	}
	return add_origin(t, name, task, at, t->sectors) && dm_task_set_ro(task);
}

static int load_table(const char *name, const struct table *table, struct kmsg *kmsg)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_RELOAD);
	int r = 0;

	if (table->params)
		add_devices_of_table(kmsg, table->params);
	if (!task || !dm_task_set_name(task, name) || !table->add(table, name, task) ||
	    !dm_task_run(task))
		r = fail_task("cannot load a table for", name,
			      task ? dm_task_get_errno(task) : ENOMEM, kmsg);
	if (task)
		dm_task_destroy(task);
	return r;
}

static int load(const char *name, const char *target, uint64_t sectors, const char *params,
		struct kmsg *kmsg)
{
	const struct table table = {
		.add = add_line,
		.sectors = sectors,
		.target = target,
		.params = params,
	};

	return load_table(name, &table, kmsg);
}

static int resume(const char *name, bool pool, struct kmsg *kmsg)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_RESUME);
	uint32_t cookie = 0;
	int r = 0;

	hybrid_verbose("resume %s", name);
	/* A volume in use may be suspended by this: its file system is not to be frozen */
	if (!task || !dm_task_set_name(task, name) || !dm_task_skip_lockfs(task) ||
	    !dm_task_set_cookie(task, &cookie, udev_flags(pool)) || !dm_task_run(task))
		r = fail_task("cannot resume", name, task ? dm_task_get_errno(task) : ENOMEM,
			      kmsg);
	dm_udev_wait(cookie);
	if (task)
		dm_task_destroy(task);
	return r;
}

/* Without a table yet. */
static int create_empty(const char *name, const uint8_t uuid[16], bool pool, dev_t *devno,
			struct kmsg *kmsg)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_CREATE);
	char text[HYBRID_DM_UUID_TEXT];
	struct dm_info info;
	int r = 0;

	if (!task || !dm_task_set_name(task, name) ||
	    !dm_task_set_uuid(task, hybrid_dm_uuid(text, uuid, pool)) || !dm_task_run(task))
		r = fail_task("cannot create", name, task ? dm_task_get_errno(task) : ENOMEM,
			      kmsg);
	else if (devno && dm_task_get_info(task, &info))
		*devno = makedev(info.major, info.minor);
	if (task)
		dm_task_destroy(task);
	return r;
}

/* Removes a device whose creation failed. */
static void undo_create(const char *name)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_REMOVE);
	uint32_t cookie = 0;

	if (task && dm_task_set_name(task, name) && dm_task_retry_remove(task) &&
	    dm_task_set_cookie(task, &cookie, 0))
		dm_task_run(task);
	dm_udev_wait(cookie);
	if (task)
		dm_task_destroy(task);
}

/* In separate steps: libdevmapper's task for all of them does not report its errno. */
static int create(const char *name, const uint8_t uuid[16], bool pool, const struct table *table,
		  dev_t *devno)
{
	struct kmsg kmsg;
	int r;

	hybrid_verbose("create %s", name);
	last_log[0] = '\0';
	kmsg_open(&kmsg);
	r = create_empty(name, uuid, pool, devno, &kmsg);
	if (!r) {
		r = load_table(name, table, &kmsg);
		if (!r)
			r = resume(name, pool, &kmsg);
		if (r)
			undo_create(name);
		dm_task_update_nodes();
	}
	kmsg_close(&kmsg);
	return r;
}

int hybrid_dm_create(const char *name, const uint8_t uuid[16], bool pool, uint64_t sectors,
		     const char *params, dev_t *devno)
{
	const struct table table = {
		.add = add_line,
		.sectors = sectors,
		.target = pool ? HYBRID_POOL_TARGET : HYBRID_VOLUME_TARGET,
		.params = params,
	};

	return create(name, uuid, pool, &table, devno);
}

int hybrid_dm_create_alone(const char *name, const uint8_t uuid[16], uint64_t sectors,
			   dev_t origin, uint64_t data_sector)
{
	char params[HYBRID_PARAMS_MAX];
	const struct table table = {
		.add = add_line,
		.sectors = sectors,
		.target = HYBRID_LINEAR_TARGET,
		.params = hybrid_linear_params(params, origin, data_sector),
	};

	return create(name, uuid, false, &table, NULL);
}

int hybrid_dm_create_readonly(const char *name, const uint8_t uuid[16], uint64_t sectors,
			      dev_t origin, uint64_t data_sector,
			      const struct hybrid_dm_hole *holes, size_t nr)
{
	const struct table table = {
		.add = add_lines_around_holes,
		.sectors = sectors,
		.origin = origin,
		.data_sector = data_sector,
		.holes = holes,
		.nr_holes = nr,
	};

	return create(name, uuid, false, &table, NULL);
}

/* Live --------------------------------------------------------------------- */

bool hybrid_dm_linear(const char *name, struct hybrid_dm_linear *linear)
{
	struct dm_task *task = run_on(DM_DEVICE_TABLE, name);
	uint64_t start = 0;
	char *target = NULL, *params = NULL;
	struct dm_info info;
	void *next = NULL;
	bool found = false;
	char below[32];

	memset(linear, 0, sizeof(*linear));
	if (!task)
		return false;
	if (dm_task_get_info(task, &info) && info.exists && info.live_table)
		next = dm_get_next_target(task, NULL, &start, &linear->sectors, &target, &params);
	if (!next && target && !strcmp(target, HYBRID_LINEAR_TARGET) &&
	    sscanf(params, "%31s %llu", below, &linear->start) == 2) {
		linear->devno = makedev(info.major, info.minor);
		linear->suspended = info.suspended;
		snprintf(linear->uuid, sizeof(linear->uuid), "%s", dm_task_get_uuid(task));
		found = !hybrid_devno_parse(below, &linear->below);
	}
	dm_task_destroy(task);
	return found;
}

/* A task without arguments of its own. */
static int simple_task(int type, const char *what, const char *name)
{
	struct dm_task *task = dm_task_create(type);
	struct kmsg kmsg;
	int r = 0;

	last_log[0] = '\0';
	kmsg_open(&kmsg);
	if (!task || !dm_task_set_name(task, name) || !dm_task_skip_lockfs(task) ||
	    !dm_task_run(task))
		r = fail_task(what, name, task ? dm_task_get_errno(task) : ENOMEM, &kmsg);
	if (task)
		dm_task_destroy(task);
	kmsg_close(&kmsg);
	return r;
}

int hybrid_dm_suspend(const char *name)
{
	return simple_task(DM_DEVICE_SUSPEND, "cannot suspend", name);
}

/* A table that was loaded, and is not to be used, would be the next resume's. */
static int clear(const char *name)
{
	return simple_task(DM_DEVICE_CLEAR, "cannot clear the table of", name);
}

int hybrid_dm_try(const char *name, const char *target, uint64_t sectors, const char *params)
{
	struct kmsg kmsg;
	int r;

	last_log[0] = '\0';
	kmsg_open(&kmsg);
	r = load(name, target, sectors, params, &kmsg);
	kmsg_close(&kmsg);
	return r ? r : clear(name);
}

int hybrid_dm_resume(const char *name)
{
	struct kmsg kmsg;
	int r = clear(name);

	if (r)
		return r;
	last_log[0] = '\0';
	kmsg_open(&kmsg);
	r = resume(name, false, &kmsg);
	kmsg_close(&kmsg);
	return r;
}

int hybrid_dm_switch(const char *name, const char *target, uint64_t sectors, const char *params)
{
	struct kmsg kmsg;
	int r;

	last_log[0] = '\0';
	kmsg_open(&kmsg);
	r = load(name, target, sectors, params, &kmsg);
	if (!r) {
		r = resume(name, false, &kmsg);
		if (r)
			clear(name);
	}
	kmsg_close(&kmsg);
	return r;
}

/* One of @new_name and @uuid is NULL. */
static int rename_device(const char *name, const char *new_name, const char *uuid, bool pool)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_RENAME);
	struct kmsg kmsg;
	int r = 0;
	uint32_t cookie = 0;

	last_log[0] = '\0';
	kmsg_open(&kmsg);
	if (!task || !dm_task_set_name(task, name) ||
	    !(uuid ? dm_task_set_newuuid(task, uuid) : dm_task_set_newname(task, new_name)) ||
	    !dm_task_set_cookie(task, &cookie, udev_flags(pool)) || !dm_task_run(task))
		r = fail_task(uuid ? "cannot give a UUID to" : "cannot rename", name,
			      task ? dm_task_get_errno(task) : ENOMEM, &kmsg);
	dm_udev_wait(cookie);
	dm_task_update_nodes();
	if (task)
		dm_task_destroy(task);
	kmsg_close(&kmsg);
	return r;
}

int hybrid_dm_set_uuid(const char *name, const uint8_t uuid[16])
{
	char text[HYBRID_DM_UUID_TEXT];

	return rename_device(name, NULL, hybrid_dm_uuid(text, uuid, false), false);
}

int hybrid_dm_rename(const char *name, const char *new_name, bool pool)
{
	hybrid_verbose("rename %s to %s", name, new_name);
	return rename_device(name, new_name, NULL, pool);
}

static int remove_device(const char *name, bool deferred)
{
	struct dm_task *task;
	uint32_t cookie = 0;
	struct kmsg kmsg;
	int r = 0;

	hybrid_verbose("remove %s", name);
	last_log[0] = '\0';
	kmsg_open(&kmsg);
	task = dm_task_create(DM_DEVICE_REMOVE);
	/* udev may still have it open for a moment after a change */
	if (!task || !dm_task_set_name(task, name) ||
	    !(deferred ? dm_task_deferred_remove(task) : dm_task_retry_remove(task)) ||
	    !dm_task_set_cookie(task, &cookie, 0) || !dm_task_run(task))
		r = fail_task("cannot remove", name, task ? dm_task_get_errno(task) : ENOMEM,
			      &kmsg);
	dm_udev_wait(cookie);
	dm_task_update_nodes();
	if (task)
		dm_task_destroy(task);
	kmsg_close(&kmsg);
	return r;
}

int hybrid_dm_remove(const char *name)
{
	return remove_device(name, false);
}

int hybrid_dm_give_up(const char *name, uint64_t sectors)
{
	int r = hybrid_dm_switch(name, HYBRID_ERROR_TARGET, sectors, "");

	return r ? r : remove_device(name, true);
}

/* Messages, status, tables ------------------------------------------------- */

static int reply_of(struct dm_task *task, char **reply)
{
	const char *text = dm_task_get_message_response(task);

	*reply = strdup(text ? text : "");
	return *reply ? 0 : hybrid_nomem();
}

int hybrid_dm_message(const char *name, const char *message, char **reply)
{
	struct dm_task *task;
	struct kmsg kmsg;
	int r = 0;

	hybrid_verbose("message %s: %s", name, message);
	last_log[0] = '\0';
	kmsg_open(&kmsg);
	task = dm_task_create(DM_DEVICE_TARGET_MSG);
	if (!task || !dm_task_set_name(task, name) || !dm_task_set_sector(task, 0) ||
	    !dm_task_set_message(task, message) || !dm_task_run(task))
		r = fail_task("message refused by", name,
			      task ? dm_task_get_errno(task) : ENOMEM, &kmsg);
	else if (reply)
		r = reply_of(task, reply);
	if (task)
		dm_task_destroy(task);
	kmsg_close(&kmsg);
	return r;
}

int hybrid_dm_message_try(const char *name, const char *message)
{
	struct dm_task *task = dm_task_create(DM_DEVICE_TARGET_MSG);
	int err = ENOMEM;

	hybrid_verbose("message %s: %s", name, message);
	if (task && dm_task_set_name(task, name) && dm_task_set_sector(task, 0) &&
	    dm_task_set_message(task, message))
		err = dm_task_run(task) ? 0 : dm_task_get_errno(task);
	if (task)
		dm_task_destroy(task);
	return err;
}

static int first_target(int type, const char *name, char **params)
{
	uint64_t start = 0, length = 0;
	char *target = NULL, *text = NULL;
	struct dm_task *task;
	void *next = NULL;
	int r = 0;

	last_log[0] = '\0';
	task = dm_task_create(type);
	/* A status must not wait for, or cause, metadata writes */
	if (!task || !dm_task_set_name(task, name) || !dm_task_no_flush(task) ||
	    !dm_task_run(task)) {
		r = fail_task("cannot read the state of", name,
			      task ? dm_task_get_errno(task) : ENOMEM, NULL);
		goto out;
	}
	do
		next = dm_get_next_target(task, next, &start, &length, &target, &text);
	while (next && target && !strcmp(target, HYBRID_ERROR_TARGET));
	if (!target) {
		r = hybrid_fail(HYBRID_BADDEV, "remove it: dmsetup remove NAME",
				"%s has no table", name);
		goto out;
	}
	*params = strdup(text ? text : "");
	if (!*params)
		r = hybrid_nomem();
out:
	if (task)
		dm_task_destroy(task);
	return r;
}

int hybrid_dm_status(const char *name, char **params)
{
	return first_target(DM_DEVICE_STATUS, name, params);
}

int hybrid_dm_table(const char *name, char **params)
{
	return first_target(DM_DEVICE_TABLE, name, params);
}
