// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "config.h"
#include "errors.h"
#include "policy.h"
#include "sysfs.h"

#define LOCK_DIR	"/run/hybrid"
#define LOCK_FILE	LOCK_DIR "/lock"
#define LOCK_POLL_MS	50
/* Polls before a wait is reported: at boot, activations run in parallel */
#define LOCK_QUIET_POLLS	20

static int lock_fd = -1;

/* Whether a signal is pending that hold_signals() holds, and that would have ended the process. */
static bool ending(void)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGTERM };
	struct sigaction action;
	sigset_t pending;
	unsigned int i;

	sigpending(&pending);
	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		sigaction(ends[i], NULL, &action);
		if (sigismember(&pending, ends[i]) && action.sa_handler != SIG_IGN)
			return true;
	}
	return false;
}

/* Polls, because held signals do not end a wait in the kernel. */
static int wait_for_lock(void)
{
	struct timespec pause = { .tv_nsec = LOCK_POLL_MS * 1000000L };
	unsigned int polls;

	for (polls = 0; !ending(); polls++) {
		if (polls == LOCK_QUIET_POLLS)
			hybrid_warn("another dm-hybrid tool is running: waiting for it (fuser %s)",
				    LOCK_FILE);
		if (!flock(lock_fd, LOCK_EX | LOCK_NB))
			return 0;
		if (errno != EWOULDBLOCK)
			break;
		nanosleep(&pause, NULL);
	}
	return hybrid_fail(HYBRID_BUSY, "wait for the other tool",
			   "%s is held by another tool", LOCK_FILE);
}

int lock_tools(void)
{
	if (lock_fd < 0) {
		mkdir(LOCK_DIR, 0755);
		lock_fd = open(LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	}
	/* Early in a boot /run may be read-only: then no other tool runs */
	if (lock_fd < 0) {
		hybrid_verbose("no lock: %s: %s", LOCK_FILE, strerror(errno));
		return 0;
	}
	return flock(lock_fd, LOCK_EX | LOCK_NB) ? wait_for_lock() : 0;
}

int lock_with_members(struct hybrid_inventory *inv)
{
	int r = hybrid_inventory_load(inv, HYBRID_LOAD_MEMBERS, NULL, 0);

	if (!r)
		r = lock_tools();
	return r ? r : hybrid_inventory_look_again(inv, HYBRID_LOAD_ACTIVE | HYBRID_LOAD_CLOSED);
}

void unlock_tools(void)
{
	if (lock_fd >= 0)
		flock(lock_fd, LOCK_UN);
}

static void mask_signals(int how)
{
	/* The signals of a terminal, its hangup and SIGTERM: a device may be suspended meanwhile */
	static const int held[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP };
	sigset_t set;
	unsigned int i;

	sigemptyset(&set);
	for (i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		sigaddset(&set, held[i]);
	sigprocmask(how, &set, NULL);
}

void hold_signals(void)
{
	mask_signals(SIG_BLOCK);
}

void release_signals(void)
{
	mask_signals(SIG_UNBLOCK);
}

int open_again(struct hybrid_device *dev, const struct hybrid_member *known, dev_t user,
	       struct hybrid_member *now)
{
	bool held = user && hybrid_devno_held(known->devno, user);
	int r = hybrid_device_open(dev, known->path, HYBRID_OPEN_WRITE | (held ? 0 : HYBRID_OPEN_EXCLUSIVE));

	if (r || (dev->devno == known->devno && !hybrid_member_read(dev, now) && now->ok &&
		  now->sb.role == known->sb.role &&
		  !memcmp(now->sb.member_uuid, known->sb.member_uuid, 16)))
		return r;
	return hybrid_fail(HYBRID_BADDEV, "try again", "%s changed since it was scanned", known->path);
}

int open_unchanged(struct hybrid_device *dev, const struct hybrid_member *known, dev_t user,
		   struct hybrid_member *now)
{
	int r = open_again(dev, known, user, now);

	if (r || !memcmp(&now->sb, &known->sb, sizeof(now->sb)))
		return r;
	return hybrid_fail(HYBRID_BUSY, "check its state, then try again", "%s has been used meanwhile", now->sb.name);
}

int fail_refused_origin(const struct hybrid_volume_line *entry, const struct hybrid_member *m)
{
	return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(m, NEXT_OF_COPY),
			   "volume %s: its origin %s is refused: %s", entry->name, m->path, m->why);
}

/* The kernel writes both copies whenever it opens an origin, but not when it loads a pool. */
const char *mend_copies(const struct hybrid_member *m, char buf[MEND_MAX])
{
	if (m->sb.role != HYBRID_ROLE_CACHE)
		return "deactivate it, then activate it";
	snprintf(buf, MEND_MAX, "deactivate its pool, then hybridctl repair %s", m->path);
	return buf;
}

void explain_unknown(const struct hybrid_inventory *inv)
{
	if (!inv->members_known && !hybrid_output.quiet)
		hybrid_warn("no member is announced: only active pools and volumes are known; hybridctl scan reads all disks");
}

int with_active(const struct command_line *cl, unsigned int kinds,
		int (*fn)(const struct command_line *cl, const struct hybrid_inventory *inv,
			  struct hybrid_node *node))
{
	struct hybrid_inventory inv;
	struct hybrid_node *node;
	int r;

	r = hybrid_dm_check(false);
	if (r)
		return r;
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r)
		r = hybrid_find_active(&inv, cl->argv[0], kinds, &node);
	if (!r)
		r = fn(cl, &inv, node);
	hybrid_inventory_free(&inv);
	return r;
}

int confirm(const struct command_line *cl, const char *question)
{
	char answer[16];

	if (cl->given[OPT_YES])
		return 0;
	if (!isatty(STDIN_FILENO))
		return hybrid_fail(HYBRID_REFUSED, "add --yes if you are sure",
				   "cannot ask without a terminal: %s", question);
	fprintf(stderr, "%s Type \"yes\" to go on: ", question);
	if (!fgets(answer, sizeof(answer), stdin) || strcmp(answer, "yes\n"))
		return hybrid_fail(HYBRID_REFUSED, NULL, "nothing was changed");
	return 0;
}

static void show(const struct hybrid_device *dev, const char *what, unsigned int *found)
{
	++*found;
	if (!hybrid_output.silent)
		fprintf(stderr, "  %s: %s\n", dev->path, what);
}

int check_found_again(const struct hybrid_device *dev)
{
	if (!dev->file && hybrid_sysfs_ours(dev->devno))
		return hybrid_fail(HYBRID_REFUSED, "give a disk, or a logical volume on it",
				   "%s is itself a volume or pool: a member on it would not be found again",
				   dev->path);
	if (!dev->file && !hybrid_config_looks_at(dev->devno))
		return hybrid_fail(HYBRID_REFUSED, "see devices and ignore_devices in hybrid.conf(5)",
				   "%s is not searched for members: a member on it would not be found again",
				   dev->path);
	return 0;
}

/* Lists the contents of one device; a member of a pool needs --force.  Counts lines in *found. */
static int show_contents(const struct command_line *cl, const struct hybrid_device *dev,
			 unsigned int *found)
{
	char *text, *line, *save, ours[HYBRID_WHY_MAX + 32];
	struct hybrid_member m;
	int r;

	r = check_found_again(dev);
	if (r)
		return r;
	r = hybrid_member_read(dev, &m);
	if (r && r != -ENODATA)
		return hybrid_fail(HYBRID_BADDEV, "check the device and the kernel log",
				   "%s: cannot read: %s", dev->path, strerror(-r));
	if (!r && (m.sb.role != HYBRID_ROLE_DETACHED || m.unknown) && !cl->given[OPT_FORCE])
		return hybrid_member_fail(dev, &m, "detach it, or add --force if nothing on it is needed");
	if (m.sb.role)
		snprintf(ours, sizeof(ours), "dm-hybrid %s, \"%s\"", hybrid_role_name(m.sb.role),
			 m.sb.name);
	else
		snprintf(ours, sizeof(ours), "dm-hybrid member: %s", m.why);
	if (!r)
		show(dev, ours, found);
	r = hybrid_device_signatures(dev, &text);
	if (r)
		return r;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		show(dev, line, found);
	free(text);
	return 0;
}

int confirm_format(const struct command_line *cl, const struct hybrid_device * const *devs,
		   unsigned int nr)
{
	unsigned int i, found = 0;
	int r;

	for (i = 0; i < nr; i++) {
		r = show_contents(cl, devs[i], &found);
		if (r)
			return r;
	}
	if (cl->given[OPT_TEST])
		return 0;
	if (found && cl->given[OPT_YES] && !cl->given[OPT_WIPE_SIGNATURES])
		return hybrid_fail(HYBRID_REFUSED,
				   "add --wipe-signatures if the listed data may be lost",
				   "data was found on the devices");
	if (found && !cl->given[OPT_YES])
		return confirm(cl, "The data listed above will be lost.");
	return confirm(cl, "All data on the devices will be lost.");
}

int check_policy(const char *name, bool test)
{
	bool valid = hybrid_name_valid(name) && strlen(name) < HYBRID_POLICY_NAME_SIZE;
	bool known = valid && hybrid_policy_get(name);

	if (valid && (hybrid_dm_policy(name, test) || (test && known)))
		return 0;
	if (known)
		return hybrid_fail(HYBRID_NOTARGET,
				   "install all modules of dm-hybrid for this kernel",
				   "the kernel has no module for policy %s", name);
	return hybrid_fail(HYBRID_USAGE, "dm-hybrid(7) names them", "no such policy: %s", name);
}

int check_new_name(const char *what, const char *name, bool ask_kernel)
{
	if (!hybrid_name_valid(name))
		return hybrid_fail(HYBRID_USAGE,
				   "use up to 63 letters, digits, \"+\", \"-\", \".\", \"_\"",
				   "\"%s\" cannot be the name of a %s", name, what);
	if (ask_kernel && hybrid_dm_name_taken(name))
		return hybrid_fail(HYBRID_BUSY, "choose another name",
				   "a device-mapper device %s exists already", name);
	return 0;
}

/* Whether the superblock is of this pool or volume. */
static bool is_member_of(const struct hybrid_member *m, enum hybrid_kind kind, const uint8_t uuid[16])
{
	bool cache = m->sb.role == HYBRID_ROLE_CACHE;

	return cache == (kind == HYBRID_POOL) &&
	       !memcmp(cache ? m->sb.pool_uuid : m->sb.volume_uuid, uuid, 16);
}

static bool is_on(const struct hybrid_member *m, const dev_t *devs)
{
	for (; m && devs && *devs; devs++)
		if (m->devno == *devs || hybrid_sysfs_built_on(*devs, m->devno))
			return true;
	return false;
}

static int fail_name_used(const struct hybrid_node *node)
{
	char next[2 * HYBRID_PATH_MAX + 128] = "choose another name", path[HYBRID_PATH_MAX];
	bool here = hybrid_node_device(node, path, sizeof(path))[0] == '/';

	if (here && !node->active && !hybrid_config_foreign(node->member->sb.host_id))
		snprintf(next, sizeof(next),
			 "choose another name; or hybridctl rename %s NEWNAME; or hybridctl wipe %s, if its data may be lost",
			 path, path);
	return hybrid_fail(HYBRID_BUSY, next, "a %s %s already exists%s%s", hybrid_kind_name(node->kind),
			   node->name, here ? ", on " : "", here ? path : "");
}

/* Pools and volumes, active or not, share /dev/mapper. */
int check_name_unused(const struct hybrid_inventory *inv, enum hybrid_kind kind,
		      const uint8_t uuid[16], const char *name, const dev_t *devs)
{
	const struct hybrid_node *node;
	const struct hybrid_member *m;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++)
		if (!strcmp(node->name, name) && !hybrid_node_is(node, kind, uuid) && !is_on(node->member, devs))
			return fail_name_used(node);
	for (m = inv->members; m < inv->members + inv->nr_members; m++)
		if (!m->ok && !strcmp(m->sb.name, name) && !is_member_of(m, kind, uuid) && !is_on(m, devs))
			return hybrid_fail(HYBRID_BUSY, "choose another name; or see hybridctl scan",
					   "%s, which is refused, has the name %s", m->path, name);
	return 0;
}

/* Starting ----------------------------------------------------------------- */

/* Tunables are left out: the pool takes them as recorded. */
static void pool_params(char params[HYBRID_PARAMS_MAX], const struct hybrid_sb *sb,
			const char *cache)
{
	struct hybrid_pool_table table;

	hybrid_pool_table_init(&table);
	snprintf(table.cache_dev, sizeof(table.cache_dev), "%s", cache);
	table.block_sectors = sb->geometry.block_sectors;
	hybrid_uuid_text(table.uuid, sb->pool_uuid);
	snprintf(table.policy, sizeof(table.policy), "%s", sb->policy);
	hybrid_pool_table_build(params, HYBRID_PARAMS_MAX, &table);
}

void print_pool_command(const struct hybrid_sb *sb, const char *cache)
{
	char params[HYBRID_PARAMS_MAX], uuid[HYBRID_DM_UUID_TEXT];

	pool_params(params, sb, cache);
	printf("dmsetup create %s --uuid %s --table '0 %llu %s %s'\n", sb->name,
	       hybrid_dm_uuid(uuid, sb->pool_uuid, true),
	       (unsigned long long)sb->member_sectors, HYBRID_POOL_TARGET, params);
}

int start_pool(const struct hybrid_sb *sb, dev_t cache, dev_t *devno)
{
	char params[HYBRID_PARAMS_MAX], text[32];

	pool_params(params, sb, hybrid_devno_text(cache, text, sizeof(text)));
	return hybrid_dm_create(sb->name, sb->pool_uuid, true, sb->member_sectors, params,
				devno);
}

void volume_params(char params[HYBRID_PARAMS_MAX], const struct hybrid_volume_line *entry,
		   const char *pool, const char *origin)
{
	struct hybrid_volume_table table = {
		.id = entry->id,
		.mode = entry->mode,
		.cutoff_sectors = entry->cutoff_sectors,
		.inplace = entry->inplace,
	};

	snprintf(table.pool_dev, sizeof(table.pool_dev), "%s", pool);
	snprintf(table.origin_dev, sizeof(table.origin_dev), "%s", origin);
	hybrid_volume_table_build(params, HYBRID_PARAMS_MAX, &table);
}

void kernel_params(char params[HYBRID_PARAMS_MAX], const struct hybrid_volume_line *entry,
		   dev_t pool, dev_t origin)
{
	char pool_dev[32], origin_dev[32];

	volume_params(params, entry, hybrid_devno_text(pool, pool_dev, sizeof(pool_dev)),
		      hybrid_devno_text(origin, origin_dev, sizeof(origin_dev)));
}

struct hybrid_volume_settings settings_of(const struct hybrid_volume_line *entry)
{
	return (struct hybrid_volume_settings) {
		.mode = (uint64_t)entry->mode + 1,
		.cutoff_sectors = entry->cutoff_sectors + 1,
	};
}

uint64_t length_on(const struct hybrid_volume_line *entry, dev_t origin)
{
	struct hybrid_volume_info info = {
		.flags = entry->inplace ? HYBRID_VOLUME_INPLACE : 0,
		.data_sector = entry->data_sector,
		.data_sectors = entry->data_sectors,
		.data_sectors_new = entry->data_sectors_new,
	};

	return entry->data_sectors_new ? hybrid_volume_length(&info, hybrid_devno_sectors(origin)) :
					 entry->data_sectors;
}

int start_volume(const struct hybrid_volume_line *entry, dev_t pool, dev_t origin)
{
	char params[HYBRID_PARAMS_MAX];

	kernel_params(params, entry, pool, origin);
	return hybrid_dm_create(entry->name, entry->uuid, false, length_on(entry, origin), params,
				NULL);
}

/* New volumes -------------------------------------------------------------- */

int check_mode(const struct command_line *cl, bool in_place, uint32_t mode)
{
	if (in_place && mode == HYBRID_MODE_WRITEBACK && !cl->given[OPT_FORCE])
		return hybrid_fail(HYBRID_REFUSED,
				   "use mode writethrough or writearound, or --force",
				   "an in-place origin does not show that its cache has newer data: writeback can lose that data");
	return 0;
}

int check_sectors(dev_t cache, dev_t used, const char *name, const char *next)
{
	unsigned int fast, now;

	if (hybrid_sysfs_queue(cache, "logical_block_size", &fast) &&
	    hybrid_sysfs_queue(used, "logical_block_size", &now) && fast > now)
		return hybrid_fail(HYBRID_REFUSED, next,
				   "%s is used with sectors of %u bytes, and the cache device has sectors of %u",
				   name, now, fast);
	return 0;
}

void explain_guard(const struct hybrid_device *dev, bool guard)
{
	if (guard && !hybrid_can_guard(dev))
		hybrid_note("%s is a partition; its GPT type can mark it for other tools: sfdisk --part-type DISK NUMBER "
			    HYBRID_GPT_TYPE, dev->path);
}

void print_guard_test(const struct hybrid_device *dev, bool guard)
{
	if (guard && hybrid_can_guard(dev))
		printf("write %s: a protective MBR at sector 0\n", dev->path);
}

int forget_entry(const char *pool, uint32_t id, bool tombstone)
{
	char message[64];
	int r = 0;

	snprintf(message, sizeof(message), "delete_volume %u", id);
	if (!tombstone)
		r = hybrid_dm_message(pool, message, NULL);
	snprintf(message, sizeof(message), "forget_volume %u", id);
	return r ? r : hybrid_dm_message(pool, message, NULL);
}

int choose_volume_id(const char *pool, const char *name, uint32_t *id)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	bool *used;
	int r;

	r = hybrid_pool_volumes(pool, &entries, &nr);
	if (r)
		return r;
	used = calloc(HYBRID_MAX_VOLUMES + 1, sizeof(*used));
	if (!used)
		r = hybrid_nomem();
	for (i = 0; i < nr && !r; i++) {
		used[entries[i].id] = true;
		if (!entries[i].tombstone && !strcmp(entries[i].name, name))
			r = hybrid_fail(HYBRID_BUSY, "choose another name, or activate it",
					"pool %s already has a volume %s", pool, name);
	}
	for (i = 0; !r && used[i]; i++)
		;
	if (!r && i == HYBRID_MAX_VOLUMES)
		r = hybrid_fail(HYBRID_BUSY, "detach one, or make another pool",
				"pool %s has %u volumes: it is full", pool, i);
	if (!r)
		*id = i;
	free(used);
	free(entries);
	return r;
}
