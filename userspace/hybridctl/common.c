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
#include "ephemeral.h"
#include "errors.h"
#include "look.h"
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

/* Neither a boot nor activate looks for members inside volumes, or where hybrid.conf excludes them. */
static int check_found_again(const struct hybrid_device *dev)
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
	char *text, *line, *save, ours[HYBRID_NAME_SIZE + 32];
	struct hybrid_member m;
	int r;

	r = check_found_again(dev);
	if (r)
		return r;
	r = hybrid_member_read(dev, &m);
	if (r && r != -ENODATA)
		return hybrid_fail(HYBRID_BADDEV, "check the device and the kernel log",
				   "%s: cannot read: %s", dev->path, strerror(-r));
	if (!r && m.sb.role != HYBRID_ROLE_DETACHED && !cl->given[OPT_FORCE])
		return hybrid_fail(HYBRID_BUSY,
				   "detach it, or add --force if nothing on it is needed",
				   "%s already belongs to dm-hybrid: %s %s", dev->path,
				   hybrid_role_name(m.sb.role), m.ok ? m.sb.name : m.why);
	snprintf(ours, sizeof(ours), "dm-hybrid %s, \"%s\"", hybrid_role_name(m.sb.role),
		 m.sb.name);
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

/* A new volume ------------------------------------------------------------- */

int check_mode(const struct command_line *cl, bool in_place, uint32_t mode)
{
	if (in_place && mode == HYBRID_MODE_WRITEBACK && !cl->given[OPT_FORCE])
		return hybrid_fail(HYBRID_REFUSED,
				   "use mode writethrough or writearound, or --force",
				   "an in-place origin does not show that its cache has newer data: writeback can lose that data");
	return 0;
}

/* Finds the path of the origin: --origin, or that of the volume without a cache called @name. */
static int find_origin(const struct command_line *cl, const char *name, char path[HYBRID_PATH_MAX])
{
	struct hybrid_inventory inv = {};
	struct hybrid_node *node;
	int r = 0;

	path[0] = '\0';
	if (cl->value[OPT_ORIGIN]) {
		snprintf(path, HYBRID_PATH_MAX, "%s", cl->value[OPT_ORIGIN]);
		return 0;
	}
	if (!cl->given[OPT_IN_PLACE])
		r = hybrid_inventory_load(&inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE, NULL, 0);
	node = r ? NULL : hybrid_find(&inv, name, 1U << HYBRID_VOLUME);
	if (node && hybrid_node_uncached(node) && node->member && node->member->ok)
		snprintf(path, HYBRID_PATH_MAX, "%s", node->member->path);
	hybrid_inventory_free(&inv);
	if (r || path[0])
		return r;
	return hybrid_fail(HYBRID_USAGE, "give the slow device: --origin DEVICE",
			   "no origin given for %s", name);
}

/* Whether a volume without a cache is up: it gets a cache as it is, in use or not. */
static bool is_up(const char *name, const char *origin)
{
	struct hybrid_dm_linear linear;
	uint8_t uuid[16];
	struct stat st;
	bool pool;

	return !stat(origin, &st) && S_ISBLK(st.st_mode) && hybrid_dm_linear(name, &linear) &&
	       linear.below == st.st_rdev && hybrid_dm_uuid_parse(linear.uuid, uuid, &pool);
}

static int parse_data_offset(struct new_volume *nv, const struct command_line *cl)
{
	const char *text = cl->value[OPT_DATA_OFFSET];

	if (!text)
		return 0;
	if (!nv->entry.inplace)
		return hybrid_fail(HYBRID_USAGE, "leave it out, or add --in-place",
				   "--data-offset is only for data that is cached in place");
	if (parse_sectors("--data-offset", text, &nv->plan.data_sector))
		return HYBRID_USAGE;
	if (nv->plan.data_sector % HYBRID_META_BLOCK_SECTORS == 0)
		return 0;
	return hybrid_fail(HYBRID_USAGE, "give a multiple of 4k", "--data-offset %s is not a multiple of 4k", text);
}

int new_volume_parse(struct new_volume *nv, const struct command_line *cl, const char *name)
{
	unsigned int flags = HYBRID_OPEN_EXCLUSIVE;
	char path[HYBRID_PATH_MAX];
	int r;

	memset(nv, 0, sizeof(*nv));
	nv->origin.fd = -1;
	nv->entry.inplace = cl->given[OPT_IN_PLACE];
	r = find_origin(cl, name, path);
	if (r)
		return r;
	nv->live = cl->given[OPT_LIVE] || is_up(name, path);
	nv->force = cl->given[OPT_FORCE];
	nv->ephemeral = cl->given[OPT_EPHEMERAL];
	nv->mode_given = cl->value[OPT_MODE];
	nv->cutoff_given = cl->value[OPT_CUTOFF];
	r = check_new_name("volume", name, !cl->given[OPT_TEST] && !nv->live);
	if (!r)
		r = parse_volume_options(cl, &nv->entry.mode, &nv->entry.cutoff_sectors);
	if (!r)
		r = check_mode(cl, cl->given[OPT_IN_PLACE], nv->entry.mode);
	if (!r && nv->ephemeral && nv->entry.inplace)
		r = hybrid_fail(HYBRID_REFUSED, "leave out one of them",
				"--ephemeral writes a mark to the origin, and --in-place writes nothing there");
	if (!r && nv->ephemeral && nv->entry.mode == HYBRID_MODE_WRITEBACK)
		r = fail_ephemeral_writeback(name);
	if (r)
		return r;
	r = parse_data_offset(nv, cl);
	if (r)
		return r;
	strcpy(nv->entry.name, name);
	strcpy(nv->plan.name, name);
	nv->plan.inplace = nv->entry.inplace;
	nv->plan.guard = cl->given[OPT_GUARD_MBR];
	if (cl->given[OPT_TEST])
		flags |= HYBRID_OPEN_FILES;
	/* The volume's device holds the origin; live_find() looks for other holders */
	if (nv->live)
		flags = 0;
	r = hybrid_device_answers(path);
	if (!r)
		r = hybrid_device_open(&nv->origin, path, flags);
	return r || !nv->live ? r : live_find(nv);
}

/* LVM, md ... find the origin by its contents, and at a boot it is there before the volume. */
static int check_not_in_array(const struct hybrid_device *origin)
{
	char type[64];

	if (!hybrid_device_in_array(origin, type, sizeof(type)))
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   !strcmp(type, "bcache") ? "hybridctl import removes bcache" :
			   "cache the resulting device (the logical volume, the array); or leave out --in-place "
			   "on an empty disk, and move the data there (pvmove, zpool replace)",
			   "%s is part of a device that other tools assemble at boot (%s): they would use the "
			   "origin and bypass its cache, or use both", origin->path, type);
}

/* The refusals of confirm_format(), for an origin that is not formatted. */
static int check_inplace(const struct new_volume *nv)
{
	struct hybrid_member m;
	int r;

	r = check_found_again(&nv->origin);
	if (r)
		return r;
	if (hybrid_member_read(&nv->origin, &m))
		return nv->other ? 0 : check_not_in_array(&nv->origin);
	if (m.sb.role == HYBRID_ROLE_DETACHED)
		return hybrid_fail(HYBRID_REFUSED, "leave out --in-place: its data stays where it is",
				   "%s was detached: its data begins at sector %llu, not at 0",
				   nv->origin.path, (unsigned long long)m.sb.data_sector);
	return hybrid_fail(HYBRID_BUSY, "detach it first",
			   "%s already belongs to dm-hybrid: %s %s", nv->origin.path,
			   hybrid_role_name(m.sb.role), m.ok ? m.sb.name : m.why);
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

/*
 * Plans for the origin of a volume without a cache: data, UUIDs and name stay, and so do the
 * settings of its last cache.
 */
static int plan_kept(struct new_volume *nv, const struct hybrid_member *m)
{
	const struct hybrid_sb *old = &m->sb;
	struct hybrid_sb *sb = &nv->plan.sb;
	uint8_t key[16];

	if (strcmp(old->name, nv->entry.name))
		return hybrid_fail(HYBRID_REFUSED,
				   "give that name; or hybridctl wipe it, if its data may be lost",
				   "%s is the origin of volume %s", nv->origin.path, old->name);
	if (old->lost || old->flags & HYBRID_SB_LOSS_UNKNOWN)
		return hybrid_fail(HYBRID_REFUSED,
				   "restore it, then hybridctl lost --acknowledge",
				   "some of the data of %s was lost with its last cache", old->name);
	/* The partition bypasses the cache: it must not be mounted while the cache has newer data */
	if (m->gpt)
		return hybrid_fail(HYBRID_REFUSED,
				   "hybridctl export finishes it; or wipefs --all removes the table, and keeps the volume",
				   "the export of %s was interrupted: %s has a partition table", old->name,
				   nv->origin.path);
	memcpy(key, sb->pairing_key, sizeof(key));
	*sb = *old;
	hybrid_member_pair(sb, nv->plan.pool_uuid, nv->plan.volume_id, key);
	if (!nv->mode_given && sb->next.mode)
		nv->entry.mode = sb->next.mode - 1;
	if (!nv->cutoff_given && sb->next.cutoff_sectors)
		nv->entry.cutoff_sectors = sb->next.cutoff_sectors - 1;
	return 0;
}

/* Whether the origin has all data of the volume: it has no cache, or lost one that had nothing newer. */
static bool is_kept(const struct new_volume *nv, const struct hybrid_member *m)
{
	if (!nv->follows)
		return m->ok && m->sb.role == HYBRID_ROLE_DETACHED;
	return m->ok && ephemeral_of(m) && !memcmp(m->sb.pool_uuid, nv->follows, 16);
}

int new_volume_plan(struct new_volume *nv)
{
	struct hybrid_member m;
	int r;

	nv->kept = !nv->plan.inplace && !hybrid_member_read(&nv->origin, &m) && is_kept(nv, &m);
	if (nv->follows && !nv->kept)
		return hybrid_fail(HYBRID_BADDEV, "try again", "%s changed since it was scanned",
				   nv->origin.path);
	r = nv->plan.inplace ? check_inplace(nv) : 0;
	if (!r && (nv->plan.inplace || nv->kept) && !nv->live && !nv->force)
		r = check_sectors(nv->fast, nv->origin.devno, nv->origin.path,
				  "use a cache device with smaller sectors, or --force if all its contents use larger ones");
	if (r)
		return r;
	nv->plan.volume_id = nv->entry.id;
	if (nv->other)
		nv->plan.data_sector = nv->other->data_sector;
	r = hybrid_origin_plan(&nv->origin, &nv->plan);
	if (!r && nv->kept)
		r = plan_kept(nv, &m);
	if (!r)
		r = mark_ephemeral(nv);
	if (!r && nv->live)
		r = live_plan(nv);
	if (r)
		return r;
	memcpy(nv->entry.uuid, nv->plan.sb.volume_uuid, 16);
	memcpy(nv->entry.member_uuid, nv->plan.sb.member_uuid, 16);
	nv->entry.data_sector = nv->plan.sb.data_sector;
	nv->entry.data_sectors = nv->plan.sb.data_sectors;
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

static int reopen_origin(struct new_volume *nv)
{
	return hybrid_device_reopen(&nv->origin, HYBRID_OPEN_WRITE |
				    (nv->live ? 0 : HYBRID_OPEN_EXCLUSIVE));
}

int new_volume_check_writable(struct new_volume *nv)
{
	/* The kernel opens it in the same way, also in place */
	return reopen_origin(nv);
}

int new_volume_write(struct new_volume *nv)
{
	int r;

	if (nv->plan.inplace || nv->kept)
		return 0;
	r = reopen_origin(nv);
	if (r)
		return r;
	hybrid_verbose("format origin %s", nv->origin.path);
	nv->written = true;
	explain_guard(&nv->origin, nv->plan.guard);
	r = hybrid_origin_format(&nv->origin, &nv->plan);
	if (r)
		hybrid_member_wipe(&nv->origin, &nv->plan.sb);
	/* The kernel opens it exclusively next */
	hybrid_device_close(&nv->origin);
	return r;
}

void undo_volume_write(struct new_volume *nv)
{
	if (nv->plan.inplace || nv->kept)
		return;
	hybrid_verbose("undo: wipe %s", nv->origin.path);
	if (!reopen_origin(nv))
		hybrid_member_wipe(&nv->origin, &nv->plan.sb);
	hybrid_device_close(&nv->origin);
}

/*
 * Writes both copies of an origin that is kept: paired with the pool, or if not @paired, without a
 * cache again.
 */
static int mark_kept(struct new_volume *nv, bool paired)
{
	int r = reopen_origin(nv);

	hybrid_verbose("mark origin %s: %s", nv->origin.path, paired ? "paired" : "without cache");
	if (!r)
		r = paired ? hybrid_member_write(&nv->origin, &nv->plan.sb) :
			     hybrid_member_mark_detached(&nv->origin, NULL);
	hybrid_device_close(&nv->origin);
	return r;
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

static void undo_create_volume(struct new_volume *nv)
{
	char message[64];

	/* The origin stays this pool's as long as a copy may name the pool */
	if (nv->follows || (nv->kept && mark_kept(nv, false)))
		return;
	snprintf(message, sizeof(message), "delete_volume %u drop_dirty", nv->entry.id);
	if (hybrid_dm_message(nv->pool_name, message, NULL))
		return;
	snprintf(message, sizeof(message), "forget_volume %u", nv->entry.id);
	hybrid_dm_message(nv->pool_name, message, NULL);
}

/*
 * Removes the superblock of the cache that the origin had or, if @back, writes it again.  Until
 * then the origin stays open: when a device that was open for writing is closed, udev calls the
 * tools that look for such a superblock.
 */
static int replace_other(struct new_volume *nv, bool back)
{
	const struct other_cache *other = nv->other;
	size_t len = nv->origin.logical_sectors * 512;
	void *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	int r;

	if (!other || !block) {
		free(block);
		return other ? hybrid_nomem() : 0;
	}
	hybrid_verbose("%s: the superblock of %s is %s", nv->origin.path, other->type, back ? "restored" : "removed");
	if (back)
		memcpy(block, other->block, len);
	r = hybrid_device_writable(&nv->origin) ? 0 : reopen_origin(nv);
	if (!r) {
		r = hybrid_device_write(&nv->origin, other->sector, block, len);
		if (!r)
			r = hybrid_device_flush(&nv->origin);
		if (r)
			r = hybrid_fail(hybrid_exit_of_errno(-r), "check the device and the kernel log",
					"%s: cannot write: %s", nv->origin.path, strerror(-r));
	}
	free(block);
	hybrid_device_close(&nv->origin);
	return r;
}

int new_volume_enter(struct new_volume *nv)
{
	char message[HYBRID_PARAMS_MAX];
	int r;

	if (!nv->other)
		hybrid_device_close(&nv->origin);
	hybrid_create_message_build(message, sizeof(message), &nv->entry,
				    nv->plan.sb.pairing_key);
	r = hybrid_dm_message(nv->pool_name, message, NULL);
	if (r)
		return r;
	/* A cut before this leaves an entry that the origin does not know: the next activation deletes it */
	if (nv->kept)
		r = mark_kept(nv, true);
	if (r)
		undo_create_volume(nv);
	return r;
}

int new_volume_start(struct new_volume *nv)
{
	char params[HYBRID_PARAMS_MAX];
	int r = new_volume_enter(nv);

	if (r)
		return r;
	kernel_params(params, &nv->entry, nv->pool, nv->origin.devno);
	r = replace_other(nv, false);
	if (!r)
		r = nv->live ? live_start(nv, params) :
		    start_volume(&nv->entry, nv->pool, nv->origin.devno);
	if (r) {
		replace_other(nv, true);
		undo_create_volume(nv);
	}
	return r;
}

void print_volume_test(const struct new_volume *nv)
{
	char params[HYBRID_PARAMS_MAX], message[HYBRID_PARAMS_MAX], pool[HYBRID_DEVICE_MAX];
	char uuid[HYBRID_DM_UUID_TEXT];

	if (!nv->plan.inplace) {
		printf("write %s: %ssuperblocks at sectors %llu and %llu\n", nv->origin.path,
		       nv->kept ? "" : "zero the first and the last MiB, ",
		       (unsigned long long)hybrid_sb_sector(nv->plan.sb.member_sectors, 0),
		       (unsigned long long)hybrid_sb_sector(nv->plan.sb.member_sectors, 1));
		print_guard_test(&nv->origin, nv->plan.guard && !nv->kept);
	} else if (nv->other) {
		printf("write %s: zero the superblock of %s at sector %llu; the data begins at sector %llu\n",
		       nv->origin.path, nv->other->type, (unsigned long long)nv->other->sector,
		       (unsigned long long)nv->other->data_sector);
	}
	hybrid_create_message_build(message, sizeof(message), &nv->entry,
				    nv->plan.sb.pairing_key);
	printf("dmsetup message %s 0 '%s'\n", nv->pool_name, message);
	snprintf(pool, sizeof(pool), "/dev/mapper/%s", nv->pool_name);
	volume_params(params, &nv->entry, pool, nv->origin.path);
	hybrid_dm_uuid(uuid, nv->entry.uuid, false);
	if (nv->live && !nv->linear.uuid[0])
		printf("dmsetup rename %s --setuuid %s\n", nv->entry.name, uuid);
	if (nv->live)
		printf("dmsetup load %s", nv->entry.name);
	else
		printf("dmsetup create %s --uuid %s", nv->entry.name, uuid);
	printf(" --table '0 %llu %s %s'\n", (unsigned long long)nv->entry.data_sectors,
	       HYBRID_VOLUME_TARGET, params);
	if (nv->live)
		printf("dmsetup resume --nolockfs %s\n", nv->entry.name);
}

void new_volume_close(struct new_volume *nv)
{
	hybrid_device_close(&nv->origin);
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
