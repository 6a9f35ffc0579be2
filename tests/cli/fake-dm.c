// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A model of device-mapper and the two targets behind lib/dm.h, for tests on
 * machines without them.  It keeps what the kernel and the cache device would
 * keep in the JSON file $HYBRID_FAKE_DM, appends what it is asked to do to that
 * file's name with ".log", and refuses what the kernel would refuse.
 *
 * $HYBRID_FAKE_FAIL: prefixes of the log lines at which to fail, with "|" between.
 * $HYBRID_FAKE_SIGNAL: "1 prefix", the signal that comes at a line of the log.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <libdevmapper.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "announce.h"
#include "config.h"
#include "devices.h"
#include "dm.h"
#include "errors.h"
#include "format.h"
#include "members.h"
#include "policy.h"
#include "version.h"

#define FAKE_MAJOR	4000
#define GRANULE		8
#define DRAIN_STEP	40	/* dirty blocks written between two looks */
#define DIRTY_GRANULES	2	/* in each of them; no more of the volume is in the cache only */

static struct json_object *state;	/* { devices: [], volumes: { pool uuid: [] } } */

static void dm_log_line(int level, const char *file, int line, int err, const char *fmt, ...)
{
	va_list ap;

	(void)file;
	(void)line;
	(void)err;
	if ((level & 0x87) != 4)
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static const char *state_path(void)
{
	const char *path = getenv("HYBRID_FAKE_DM");

	return path ? path : "fake-dm.json";
}

static const char *beside_state(char *path, size_t len, const char *name)
{
	const char *slash = strrchr(state_path(), '/');

	snprintf(path, len, "%.*s%s", slash ? (int)(slash + 1 - state_path()) : 0,
		 state_path(), name);
	return path;
}

const char *hybrid_run_dir(void)
{
	static char path[512];

	return beside_state(path, sizeof(path), "run");
}

const char *hybrid_config_path(void)
{
	static char path[512];

	return beside_state(path, sizeof(path), "hybrid.conf");
}

const char *hybrid_etc_path(char *buf, size_t len, const char *name)
{
	return beside_state(buf, len, name);
}

/* Whole, though we may be killed meanwhile. */
static void save(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s.new", state_path());
	json_object_to_file_ext(path, state, JSON_C_TO_STRING_PRETTY);
	rename(path, state_path());
}

/* What others have done meanwhile. */
static void load(void)
{
	json_object_put(state);
	state = json_object_from_file(state_path());
	if (state)
		return;
	state = json_object_new_object();
	json_object_object_add(state, "devices", json_object_new_array());
	json_object_object_add(state, "volumes", json_object_new_object());
}

void hybrid_dm_init(void)
{
	dm_log_with_errno_init(dm_log_line);
	load();
}

static void disturb(const char *line)
{
	const char *when = getenv("HYBRID_FAKE_SIGNAL");
	int number, n;

	if (when && sscanf(when, "%d %n", &number, &n) == 1 &&
	    !strncmp(line, when + n, strlen(when + n)))
		raise(number);
}

static bool may_succeed(const char *line)
{
	const char *fail = getenv("HYBRID_FAKE_FAIL");

	for (; fail && *fail; fail += strcspn(fail, "|"), fail += *fail == '|')
		if (!strncmp(line, fail, strcspn(fail, "|")))
			return false;
	return true;
}

/* Log a request; false if it is to fail. */
static bool asked(const char *fmt, ...)
{
	char line[2048], path[512];
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s.log", state_path());
	f = fopen(path, "a");
	if (f) {
		fprintf(f, "%s\n", line);
		fclose(f);
	}
	disturb(line);
	return may_succeed(line);
}

static int refuse(const char *name, const char *why)
{
	return hybrid_fail(HYBRID_BADDEV, NULL, "%s: fake kernel: %s", name, why);
}

/* Fields of the state ------------------------------------------------------ */

static struct json_object *field(struct json_object *o, const char *key)
{
	return json_object_object_get(o, key);
}

static const char *text(struct json_object *o, const char *key)
{
	return json_object_get_string(field(o, key));
}

static int64_t number(struct json_object *o, const char *key)
{
	return json_object_get_int64(field(o, key));
}

static void set_number(struct json_object *o, const char *key, int64_t value)
{
	json_object_object_add(o, key, json_object_new_int64(value));
}

static void set_text(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

static size_t nr_devices(void)
{
	return json_object_array_length(field(state, "devices"));
}

static struct json_object *device(size_t i)
{
	return json_object_array_get_idx(field(state, "devices"), i);
}

static struct json_object *find(const char *name)
{
	size_t i;

	for (i = 0; i < nr_devices(); i++)
		if (!strcmp(text(device(i), "name"), name))
			return device(i);
	return NULL;
}

static struct json_object *find_minor(const char *devno)
{
	char mine[32];
	size_t i;

	for (i = 0; i < nr_devices(); i++) {
		snprintf(mine, sizeof(mine), "%u:%u", FAKE_MAJOR,
			 (unsigned int)number(device(i), "minor"));
		if (!strcmp(mine, devno))
			return device(i);
	}
	return NULL;
}

/* The volume table of a pool, made when first asked for. */
static struct json_object *volumes_of(struct json_object *pool)
{
	struct json_object *all = field(state, "volumes"), *list;

	list = field(all, text(pool, "uuid"));
	if (!list) {
		list = json_object_new_array();
		json_object_object_add(all, text(pool, "uuid"), list);
	}
	return list;
}

static int find_volume(struct json_object *list, uint32_t id, struct hybrid_volume_line *entry)
{
	size_t i;

	for (i = 0; i < json_object_array_length(list); i++) {
		hybrid_volume_line_parse(json_object_get_string(
						 json_object_array_get_idx(list, i)), entry);
		if (entry->id == id)
			return i;
	}
	return -1;
}

static void put_volume(struct json_object *list, int index,
		       const struct hybrid_volume_line *entry)
{
	char line[512];

	hybrid_volume_line_build(line, sizeof(line), entry);
	if (index < 0)
		json_object_array_add(list, json_object_new_string(line));
	else
		json_object_array_put_idx(list, index, json_object_new_string(line));
}

/* Devices ------------------------------------------------------------------ */

/* Version of the targets: as this tool's, or what tests put into the state: "1.0.2". */
int hybrid_dm_check(bool format)
{
	uint32_t v[] = { HYBRID_TARGET_MAJOR, HYBRID_TARGET_MINOR, HYBRID_FORMAT_VERSION };

	if (!asked("check"))
		return hybrid_fail(HYBRID_NOTARGET, NULL, "fake kernel: no target");
	if (field(state, "version"))
		sscanf(text(state, "version"), "%u.%u.%u", &v[0], &v[1], &v[2]);
	return hybrid_check_version(HYBRID_POOL_TARGET, v, format);
}

/* Those that are linked in.  Not logged: nothing changes. */
bool hybrid_dm_policy(const char *name, bool test)
{
	char line[128];

	(void)test;
	snprintf(line, sizeof(line), "policy %s", name);
	return may_succeed(line) && hybrid_policy_get(name);
}

int hybrid_dm_list(struct hybrid_dm_device **devices, unsigned int *nr)
{
	struct hybrid_dm_device *array;
	struct json_object *o;
	unsigned int i = 0, k;

	load();
	array = calloc(nr_devices() + 1, sizeof(*array));
	for (k = 0; k < nr_devices(); k++) {
		o = device(k);
		if (!*text(o, "uuid"))
			continue;
		snprintf(array[i].name, sizeof(array[i].name), "%s", text(o, "name"));
		hybrid_uuid_parse(text(o, "uuid"), array[i].uuid);
		array[i].pool = json_object_get_boolean(field(o, "pool"));
		array[i].devno = makedev(FAKE_MAJOR, number(o, "minor"));
		array[i].open_count = number(o, "open_count");
		array[i].suspended = number(o, "suspended");
		array[i].alone = json_object_get_boolean(field(o, "alone"));
		array[i].readonly = json_object_get_boolean(field(o, "readonly"));
		array[i].live = true;
		array[i++].sectors = number(o, "sectors");
	}
	*devices = array;
	*nr = i;
	return 0;
}

static struct json_object *find_uuid(const uint8_t uuid[16], bool pool)
{
	char mine[HYBRID_UUID_TEXT];
	size_t i;

	hybrid_uuid_text(mine, uuid);
	for (i = 0; i < nr_devices(); i++)
		if (!strcmp(text(device(i), "uuid"), mine) &&
		    json_object_get_boolean(field(device(i), "pool")) == pool)
			return device(i);
	return NULL;
}

dev_t hybrid_dm_find(const uint8_t uuid[16], bool pool)
{
	struct json_object *o = find_uuid(uuid, pool);

	return o ? makedev(FAKE_MAJOR, number(o, "minor")) : 0;
}

bool hybrid_dm_name(const uint8_t uuid[16], bool pool, char name[HYBRID_DM_NAME_MAX])
{
	struct json_object *o = find_uuid(uuid, pool);

	if (o)
		snprintf(name, HYBRID_DM_NAME_MAX, "%s", text(o, "name"));
	return o;
}

bool hybrid_dm_name_taken(const char *name)
{
	return find(name);
}

/* As dm_get_device does: the tool must have closed it. */
static bool can_open(const char *devno)
{
	char path[HYBRID_PATH_MAX];
	dev_t dev;
	int fd;

	if (hybrid_devno_parse(devno, &dev))
		return false;
	fd = open(hybrid_devno_path(dev, path, sizeof(path)), O_RDWR | O_EXCL);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static const char *check_pool(const char *params, struct json_object *o)
{
	struct hybrid_pool_table table;

	if (hybrid_pool_table_parse(params, &table))
		return "bad pool table";
	if (!can_open(table.cache_dev))
		return "cache device cannot be opened";
	if (strcmp(table.uuid, text(o, "uuid")))
		return "uuid differs";
	return NULL;
}

static struct hybrid_volume_info info_of(const struct hybrid_volume_line *entry)
{
	return (struct hybrid_volume_info) {
		.flags = entry->inplace ? HYBRID_VOLUME_INPLACE : 0,
		.data_sector = entry->data_sector,
		.data_sectors = entry->data_sectors,
		.data_sectors_new = entry->data_sectors_new,
	};
}

/* As the kernel has it: one that is being grown is as long as its origin lets it be. */
static uint64_t length_of(const struct hybrid_volume_line *entry, const char *origin)
{
	struct hybrid_volume_info info = info_of(entry);
	dev_t devno;

	return hybrid_devno_parse(origin, &devno) ? 0 :
	       hybrid_volume_length(&info, hybrid_devno_sectors(devno));
}

static const char *check_volume(const char *params, struct json_object *o)
{
	struct hybrid_volume_table table;
	struct hybrid_volume_line entry;
	struct json_object *pool;
	char uuid[HYBRID_UUID_TEXT];

	if (hybrid_volume_table_parse(params, &table))
		return "bad volume table";
	if (!can_open(table.origin_dev))
		return "origin cannot be opened";
	pool = find_minor(table.pool_dev);
	if (!pool)
		return "no such pool";
	if (find_volume(volumes_of(pool), table.id, &entry) < 0 || entry.tombstone)
		return "no such volume";
	if (strcmp(hybrid_uuid_text(uuid, entry.uuid), text(o, "uuid")) ||
	    (int64_t)length_of(&entry, table.origin_dev) != number(o, "sectors") ||
	    entry.inplace != table.inplace)
		return "table and volume differ";
	return NULL;
}

/* In both superblocks of a member, as the kernel does it. */
static int rename_member(dev_t devno, const char *name)
{
	struct hybrid_device dev;
	struct hybrid_member m;
	char path[HYBRID_PATH_MAX];
	int r;

	r = hybrid_device_open(&dev, hybrid_devno_path(devno, path, sizeof(path)), HYBRID_OPEN_WRITE);
	if (!r && (hybrid_member_read(&dev, &m) || !m.ok))
		r = refuse(path, "no superblock");
	if (!r) {
		snprintf(m.sb.name, sizeof(m.sb.name), "%s", name);
		if (m.sb.role == HYBRID_ROLE_CACHE && !(m.sb.flags & HYBRID_SB_EPHEMERAL))
			memset(m.sb.replaces, 0, sizeof(m.sb.replaces));
		m.sb.sequence++;
		r = hybrid_member_write(&dev, &m.sb);
	}
	hybrid_device_close(&dev);
	return r;
}

/* As the kernel does when it opens a volume: the pool's entry has the newer name. */
static void follow_entry(const char *params)
{
	struct hybrid_volume_table table;
	struct hybrid_volume_line entry;
	struct hybrid_device dev;
	struct hybrid_member m;
	char path[HYBRID_PATH_MAX];
	bool differs;
	dev_t devno;

	if (hybrid_volume_table_parse(params, &table) || table.inplace ||
	    hybrid_devno_parse(table.origin_dev, &devno) ||
	    find_volume(volumes_of(find_minor(table.pool_dev)), table.id, &entry) < 0 ||
	    hybrid_device_open(&dev, hybrid_devno_path(devno, path, sizeof(path)), HYBRID_OPEN_QUIET))
		return;
	differs = !hybrid_member_read(&dev, &m) && m.ok && (m.apart || strcmp(m.sb.name, entry.name));
	hybrid_device_close(&dev);
	if (differs)
		rename_member(devno, entry.name);
}

/* Both superblocks of an origin, in the kernel's order: the same function is a tool's. */
static int grow_member(dev_t devno)
{
	struct hybrid_device dev;
	struct hybrid_member m;
	char path[HYBRID_PATH_MAX];
	int r;

	r = hybrid_device_open(&dev, hybrid_devno_path(devno, path, sizeof(path)), HYBRID_OPEN_WRITE);
	if (!r && (hybrid_member_read(&dev, &m) || !m.ok))
		r = refuse(path, "no superblock");
	if (!r)
		r = hybrid_member_grow(&dev, &m.sb);
	hybrid_device_close(&dev);
	return r;
}

/* As an open does: it goes on with a growth that was cut, or the origin has shrunk again. */
static void finish_growing(const char *params)
{
	struct hybrid_volume_table table;
	struct hybrid_volume_line entry;
	struct json_object *list;
	dev_t devno;
	int index;

	if (hybrid_volume_table_parse(params, &table) || hybrid_devno_parse(table.origin_dev, &devno))
		return;
	list = volumes_of(find_minor(table.pool_dev));
	index = find_volume(list, table.id, &entry);
	if (index < 0 || !entry.data_sectors_new)
		return;
	if (length_of(&entry, table.origin_dev) == entry.data_sectors_new && !entry.inplace)
		grow_member(devno);
	entry.data_sectors = length_of(&entry, table.origin_dev);
	entry.data_sectors_new = 0;
	put_volume(list, index, &entry);
}

int hybrid_dm_create(const char *name, const uint8_t uuid[16], bool pool, uint64_t sectors,
		     const char *params, dev_t *devno)
{
	struct json_object *o = json_object_new_object();
	char uuid_text[HYBRID_UUID_TEXT];
	const char *why;

	set_text(o, "name", name);
	set_text(o, "uuid", hybrid_uuid_text(uuid_text, uuid));
	json_object_object_add(o, "pool", json_object_new_boolean(pool));
	set_number(o, "sectors", sectors);
	set_text(o, "params", params);
	set_number(o, "minor", number(state, "next_minor"));
	why = pool ? check_pool(params, o) : check_volume(params, o);
	if (!asked("create %s %llu %s", name, (unsigned long long)sectors, params))
		why = "injected";
	if (find(name))
		why = "name exists";
	if (why) {
		json_object_put(o);
		return refuse(name, why);
	}
	if (!pool) {
		follow_entry(params);
		finish_growing(params);
	}
	json_object_array_add(field(state, "devices"), o);
	if (devno)
		*devno = makedev(FAKE_MAJOR, number(o, "minor"));
	set_number(state, "next_minor", number(state, "next_minor") + 1);
	save();
	return 0;
}

static int create_alone(const char *what, const char *name, const uint8_t uuid[16],
			uint64_t sectors, dev_t origin, uint64_t data_sector, const char *holes)
{
	struct json_object *o = json_object_new_object();
	char uuid_text[HYBRID_UUID_TEXT], params[64];

	snprintf(params, sizeof(params), "%u:%u %llu", major(origin), minor(origin),
		 (unsigned long long)data_sector);
	set_text(o, "name", name);
	set_text(o, "uuid", hybrid_uuid_text(uuid_text, uuid));
	json_object_object_add(o, "alone", json_object_new_boolean(true));
	set_number(o, "sectors", sectors);
	set_text(o, "params", params);
	set_number(o, "minor", number(state, "next_minor"));
	json_object_object_add(o, "readonly", json_object_new_boolean(*holes));
	if (!asked("%s %s %llu %s%s", what, name, (unsigned long long)sectors, params, holes) ||
	    find(name)) {
		json_object_put(o);
		return refuse(name, "injected, or name exists");
	}
	json_object_array_add(field(state, "devices"), o);
	set_number(state, "next_minor", number(state, "next_minor") + 1);
	save();
	return 0;
}

int hybrid_dm_create_alone(const char *name, const uint8_t uuid[16], uint64_t sectors,
			   dev_t origin, uint64_t data_sector)
{
	return create_alone("create_alone", name, uuid, sectors, origin, data_sector, "");
}

int hybrid_dm_create_readonly(const char *name, const uint8_t uuid[16], uint64_t sectors,
			      dev_t origin, uint64_t data_sector,
			      const struct hybrid_dm_hole *holes, size_t nr)
{
	char *list;
	size_t i, len;
	FILE *out = open_memstream(&list, &len);
	int r;

	fprintf(out, " but");
	for (i = 0; i < nr; i++)
		fprintf(out, " %llu+%llu", (unsigned long long)holes[i].sector,
			(unsigned long long)holes[i].count);
	fclose(out);
	r = create_alone("create_readonly", name, uuid, sectors, origin, data_sector, list);
	free(list);
	return r;
}

/* Whether a volume is on this pool device. */
static bool in_use(struct json_object *pool)
{
	struct hybrid_volume_table table;
	size_t i;

	for (i = 0; i < nr_devices(); i++)
		if (!json_object_get_boolean(field(device(i), "pool")) &&
		    !hybrid_volume_table_parse(text(device(i), "params"), &table) &&
		    find_minor(table.pool_dev) == pool)
			return true;
	return false;
}

/* Live: a table of either target, and the device goes on under its name. */

bool hybrid_dm_linear(const char *name, struct hybrid_dm_linear *linear)
{
	struct json_object *o;
	uint8_t uuid[16];
	char below[32];

	load();
	o = find(name);
	memset(linear, 0, sizeof(*linear));
	if (!o || !json_object_get_boolean(field(o, "alone")) ||
	    sscanf(text(o, "params"), "%31s %llu", below, &linear->start) != 2)
		return false;
	/* A user's own device has none */
	if (hybrid_uuid_parse(text(o, "uuid"), uuid))
		hybrid_dm_uuid(linear->uuid, uuid, false);
	linear->devno = makedev(FAKE_MAJOR, number(o, "minor"));
	linear->sectors = number(o, "sectors");
	return !hybrid_devno_parse(below, &linear->below);
}

int hybrid_dm_try(const char *name, const char *target, uint64_t sectors, const char *params)
{
	return asked("try %s %llu %s %s", name, (unsigned long long)sectors, target, params) ?
	       0 : refuse(name, "injected");
}

int hybrid_dm_suspend(const char *name)
{
	if (!asked("suspend %s", name))
		return refuse(name, "injected");
	set_number(find(name), "suspended", 1);
	save();
	return 0;
}

static struct json_object *entry_of(struct json_object *o);

int hybrid_dm_resume(const char *name)
{
	struct json_object *o = find(name);

	if (!asked("resume %s", name) ||
	    (!json_object_get_boolean(field(o, "alone")) && !entry_of(o)))
		return refuse(name, "volume was deleted");
	set_number(o, "suspended", 0);
	save();
	return 0;
}

/* No kernel refuses that: no tool may ask for it. */
static bool is_apart(const char *params)
{
	char below[32], path[HYBRID_PATH_MAX];
	struct hybrid_device dev;
	struct hybrid_member m;
	bool apart = false;
	dev_t devno;

	if (sscanf(params, "%31s", below) != 1 || hybrid_devno_parse(below, &devno))
		return false;
	if (!hybrid_device_open(&dev, hybrid_devno_path(devno, path, sizeof(path)), 0))
		apart = !hybrid_member_read(&dev, &m) && m.apart;
	hybrid_device_close(&dev);
	return apart;
}

static bool has_failed(struct json_object *pool)
{
	return pool && field(pool, "state") && !strcmp(text(pool, "state"), "failed");
}

/*
 * No kernel refuses that either: the pool of the volume failed, its record of the detach may be
 * lost, and the origin would let the pool use its data again.
 */
static bool is_still_paired(struct json_object *o)
{
	struct hybrid_volume_table table;
	struct hybrid_device dev;
	struct hybrid_member m;
	char path[HYBRID_PATH_MAX];
	bool paired = false;
	dev_t devno;

	if (json_object_get_boolean(field(o, "alone")) ||
	    hybrid_volume_table_parse(text(o, "params"), &table) || table.inplace ||
	    !has_failed(find_minor(table.pool_dev)) || hybrid_devno_parse(table.origin_dev, &devno))
		return false;
	if (!hybrid_device_open(&dev, hybrid_devno_path(devno, path, sizeof(path)), 0))
		paired = !hybrid_member_read(&dev, &m) && m.sb.role == HYBRID_ROLE_ORIGIN;
	hybrid_device_close(&dev);
	return paired;
}

/* An origin is one volume's at a time, and knows whose. */
static const char *switch_refused(struct json_object *o, const char *params)
{
	struct hybrid_volume_table table, now;
	struct hybrid_device dev;
	struct hybrid_member m;
	uint8_t uuid[16];
	dev_t devno;
	char path[HYBRID_PATH_MAX];
	bool other;

	hybrid_volume_table_parse(params, &table);
	if (!json_object_get_boolean(field(o, "alone")) &&
	    !hybrid_volume_table_parse(text(o, "params"), &now) && strcmp(now.pool_dev, table.pool_dev))
		return "origin is in use by another volume";
	if (table.inplace || hybrid_devno_parse(table.origin_dev, &devno) || !find_minor(table.pool_dev))
		return NULL;
	hybrid_uuid_parse(text(find_minor(table.pool_dev), "uuid"), uuid);
	if (hybrid_device_open(&dev, hybrid_devno_path(devno, path, sizeof(path)), 0))
		return NULL;
	other = hybrid_member_read(&dev, &m) || m.sb.role != HYBRID_ROLE_ORIGIN ||
		memcmp(m.sb.pool_uuid, uuid, 16);
	hybrid_device_close(&dev);
	return other ? "origin is another pool's" : NULL;
}

static const struct hybrid_volume_line *entry_in(const char *params)
{
	static struct hybrid_volume_line entry;
	struct hybrid_volume_table table;

	if (hybrid_volume_table_parse(params, &table) || !find_minor(table.pool_dev) ||
	    find_volume(volumes_of(find_minor(table.pool_dev)), table.id, &entry) < 0)
		return NULL;
	return &entry;
}

static const char *origin_in(const char *params)
{
	static struct hybrid_volume_table table;

	hybrid_volume_table_parse(params, &table);
	return table.origin_dev;
}

int hybrid_dm_switch(const char *name, const char *target, uint64_t sectors, const char *params)
{
	struct json_object *o = find(name);

	if (!asked("switch %s %llu %s %s", name, (unsigned long long)sectors, target, params))
		return refuse(name, "injected");
	if (!strcmp(target, HYBRID_VOLUME_TARGET) && switch_refused(o, params))
		return refuse(name, switch_refused(o, params));
	if (!strcmp(target, HYBRID_LINEAR_TARGET) && is_apart(params))
		return refuse(name, "linear, but a copy of the superblock is old");
	if (!strcmp(target, HYBRID_LINEAR_TARGET) && is_still_paired(o))
		return refuse(name, "linear, but its pool has failed and the origin is not marked");
	if (!strcmp(target, HYBRID_VOLUME_TARGET)) {
		const struct hybrid_volume_line *entry = entry_in(params);

		if (entry && length_of(entry, origin_in(params)) != sectors)
			return refuse(name, "length of the table is not the size of the volume");
		finish_growing(params);
	}
	set_number(o, "sectors", sectors);
	json_object_object_add(o, "alone",
			       json_object_new_boolean(!strcmp(target, HYBRID_LINEAR_TARGET)));
	set_text(o, "params", params);
	set_number(o, "suspended", 0);
	/* Of the volume that was closed */
	set_number(o, "drain_on", 0);
	set_number(o, "draining", 0);
	save();
	return 0;
}

int hybrid_dm_rename(const char *name, const char *new_name, bool pool)
{
	if (!asked("rename %s %s", name, new_name) || !find(name) || find(new_name) ||
	    json_object_get_boolean(field(find(name), "pool")) != pool)
		return refuse(name, "cannot rename");
	set_text(find(name), "name", new_name);
	save();
	return 0;
}

int hybrid_dm_set_uuid(const char *name, const uint8_t uuid[16])
{
	char uuid_text[HYBRID_UUID_TEXT];

	set_text(find(name), "uuid", hybrid_uuid_text(uuid_text, uuid));
	return asked("set_uuid %s", name) ? 0 : refuse(name, "injected");
}

/* Here nobody has it open. */
int hybrid_dm_give_up(const char *name, uint64_t sectors)
{
	int r = hybrid_dm_switch(name, HYBRID_ERROR_TARGET, sectors, "");

	return r ? r : hybrid_dm_remove(name);
}

int hybrid_dm_remove(const char *name)
{
	struct json_object *o = find(name);
	size_t i;

	if (!asked("remove %s", name) || !o)
		return refuse(name, "cannot remove");
	if (in_use(o))
		return hybrid_fail(HYBRID_BUSY, NULL, "%s: fake kernel: busy", name);
	for (i = 0; i < nr_devices(); i++)
		if (device(i) == o) {
			json_object_array_del_idx(field(state, "devices"), i, 1);
			break;
		}
	save();
	return 0;
}

/* Messages ----------------------------------------------------------------- */

static int create_volume(struct json_object *pool, const char *message)
{
	char uuid[64], name[64], member[64], key[64], mode[32], inplace[32] = "";
	struct hybrid_volume_line entry = {}, other;
	unsigned long long start, sectors, cutoff;
	uint8_t bytes[16];
	int n;

	n = sscanf(message, "create_volume %u %63s %63s %63s %63s %llu %llu %31s %llu %31s",
		   &entry.id, uuid, name, member, key, &start, &sectors, mode, &cutoff,
		   inplace);
	if (n < 9 || !hybrid_uuid_parse(uuid, entry.uuid) ||
	    !hybrid_uuid_parse(member, entry.member_uuid) || !hybrid_key_parse(key, bytes) ||
	    hybrid_mode_parse(mode) < 0)
		return refuse("pool", "bad create_volume");
	if (find_volume(volumes_of(pool), entry.id, &other) >= 0)
		return refuse("pool", "volume exists");
	strcpy(entry.name, name);
	entry.mode = hybrid_mode_parse(mode);
	entry.data_sector = start;
	entry.data_sectors = sectors;
	entry.cutoff_sectors = cutoff;
	entry.inplace = !strcmp(inplace, "inplace");
	put_volume(volumes_of(pool), -1, &entry);
	return 0;
}

/* The device that has the volume's table, of this pool or, alone, of none. */
static struct json_object *active_volume(struct json_object *pool, const struct hybrid_volume_line *entry)
{
	struct hybrid_volume_table table;
	char uuid[HYBRID_UUID_TEXT];
	size_t i;

	hybrid_uuid_text(uuid, entry->uuid);
	for (i = 0; i < nr_devices(); i++)
		if (!strcmp(text(device(i), "uuid"), uuid) &&
		    (hybrid_volume_table_parse(text(device(i), "params"), &table) ||
		     find_minor(table.pool_dev) == pool))
			return device(i);
	return NULL;
}

/* The device of a volume that its pool knows. */
static struct json_object *entry_of(struct json_object *o)
{
	struct hybrid_volume_table table;
	struct hybrid_volume_line entry;
	struct json_object *pool;

	if (hybrid_volume_table_parse(text(o, "params"), &table))
		return NULL;
	pool = find_minor(table.pool_dev);
	if (!pool || find_volume(volumes_of(pool), table.id, &entry) < 0 || entry.tombstone)
		return NULL;
	return o;
}

/* A suspended one is closed, and one that is linear was never opened. */
static bool in_volume_use(struct json_object *o)
{
	return o && !number(o, "suspended") && !json_object_get_boolean(field(o, "alone"));
}

static int delete_volume(struct json_object *pool, const char *message)
{
	struct hybrid_volume_line entry;
	char word[32] = "", key[128];
	uint32_t id;
	int index;

	if (sscanf(message, "delete_volume %u %31s", &id, word) < 1)
		return refuse("pool", "bad delete_volume");
	index = find_volume(volumes_of(pool), id, &entry);
	if (index < 0)
		return refuse("pool", "no such volume");
	if (entry.tombstone)
		return 0;
	if (in_volume_use(active_volume(pool, &entry)))
		return hybrid_fail(HYBRID_BUSY, NULL, "fake kernel: volume in use");
	snprintf(key, sizeof(key), "dirty_%s", entry.name);
	if (number(state, key) && strcmp(word, "drop_dirty"))
		return hybrid_fail(HYBRID_BUSY, NULL, "fake kernel: volume is dirty");
	set_number(state, key, 0);
	entry.tombstone = true;
	put_volume(volumes_of(pool), index, &entry);
	return 0;
}

static int forget_volume(struct json_object *pool, const char *message)
{
	struct hybrid_volume_line entry;
	uint32_t id;
	int index;

	if (sscanf(message, "forget_volume %u", &id) != 1)
		return refuse("pool", "bad forget_volume");
	index = find_volume(volumes_of(pool), id, &entry);
	if (index < 0 || !entry.tombstone)
		return refuse("pool", "no tombstone");
	json_object_array_del_idx(volumes_of(pool), index, 1);
	return 0;
}

/* Suspended and clean it is closed, and as before. */
static int release_volume(struct json_object *pool, const char *message)
{
	struct hybrid_volume_line entry;
	char key[128];
	uint32_t id;

	if (sscanf(message, "release_volume %u", &id) != 1 ||
	    find_volume(volumes_of(pool), id, &entry) < 0)
		return refuse("pool", "no such volume");
	snprintf(key, sizeof(key), "dirty_%s", entry.name);
	return in_volume_use(active_volume(pool, &entry)) || number(state, key) ?
	       hybrid_fail(HYBRID_BUSY, NULL, "fake kernel: volume in use, or dirty") : 0;
}

static int rename_volume(struct json_object *pool, const char *message)
{
	struct json_object *list = volumes_of(pool), *o;
	struct hybrid_volume_line entry, other;
	struct hybrid_volume_table table;
	char name[HYBRID_NAME_SIZE];
	dev_t devno;
	uint32_t id;
	size_t i;
	int index;

	if (sscanf(message, "rename_volume %u %63s", &id, name) != 2)
		return refuse("pool", "bad rename_volume");
	index = find_volume(list, id, &entry);
	if (index < 0 || entry.tombstone)
		return refuse("pool", "no such volume");
	for (i = 0; i < json_object_array_length(list); i++) {
		hybrid_volume_line_parse(json_object_get_string(json_object_array_get_idx(list, i)), &other);
		if (other.id != id && !strcmp(other.name, name))
			return refuse("pool", "another volume has that name");
	}
	snprintf(entry.name, sizeof(entry.name), "%s", name);
	put_volume(list, index, &entry);
	save();
	o = active_volume(pool, &entry);
	if (!o || entry.inplace || json_object_get_boolean(field(o, "alone")) ||
	    hybrid_volume_table_parse(text(o, "params"), &table))
		return 0;
	/* A line of its own in the log: a place to be cut at */
	if (!asked("kernel writes origin %s", name))
		return refuse("volume", "the origin cannot be written");
	return hybrid_devno_parse(table.origin_dev, &devno) ? 0 : rename_member(devno, name);
}

static int rename_pool(struct json_object *pool, const char *name)
{
	struct hybrid_pool_table table;
	dev_t devno;

	hybrid_pool_table_parse(text(pool, "params"), &table);
	if (hybrid_devno_parse(table.cache_dev, &devno))
		return refuse("pool", "no cache device");
	return rename_member(devno, name);
}

static const char *tunable_key(char key[64], const char *name)
{
	snprintf(key, 64, "tunable_%s", name);
	return key;
}

/* What a message sets, the status prints; and the table, if it has the word. */
static int set_in_table(struct json_object *pool, const char *message)
{
	struct hybrid_pool_table table;
	char params[HYBRID_PARAMS_MAX];
	char key[32] = "", stored[64];
	long long value;

	hybrid_pool_table_parse(text(pool, "params"), &table);
	if (sscanf(message, "policy %15s", table.policy) != 1 &&
	    sscanf(message, "set %31s %lld", key, &value) != 2)
		return refuse("pool", "bad set");
#define X(name, unit, lowest, highest) \
	if (!strcmp(key, #name) && table.name >= 0) \
		table.name = value;
	HYBRID_POOL_TUNABLES(X)
#undef X
	if (key[0])
		set_number(pool, tunable_key(stored, key), value);
	hybrid_pool_table_build(params, sizeof(params), &table);
	set_text(pool, "params", params);
	return 0;
}

static int volumes_reply(struct json_object *pool, char **reply)
{
	struct json_object *list = volumes_of(pool);
	size_t i, len;
	FILE *out = open_memstream(reply, &len);
	struct hybrid_volume_line entry;
	char line[512];

	for (i = 0; i < json_object_array_length(list); i++) {
		hybrid_volume_line_parse(json_object_get_string(json_object_array_get_idx(list, i)),
					 &entry);
		snprintf(line, sizeof(line), "dirty_%s", entry.name);
		entry.dirty = number(state, line);
		hybrid_volume_line_build(line, sizeof(line), &entry);
		fprintf(out, "%s\n", line);
	}
	fclose(out);
	return 0;
}

/* On until it is cancelled; draining while something is dirty. */
static void set_drain(struct json_object *o, bool on)
{
	set_number(o, "drain_on", on);
	set_number(o, "draining", on);
}

/* drain [KiB/s], drain_cancel */
static bool is_drain(const char *message)
{
	return !strcmp(message, "drain_cancel") || !strcmp(message, "drain") ||
	       (!strncmp(message, "drain ", 6) && strtoul(message + 6, NULL, 10));
}

/* A pool that has failed records nothing: the tombstone is in its RAM only. */
static int failed_message(struct json_object *o, const char *message)
{
	int r = strncmp(message, "delete_volume ", 14) ? 0 : delete_volume(o, message);

	return r ? r : refuse(text(o, "name"), "has failed");
}

static int pool_message(struct json_object *o, const char *message, char **reply)
{
	if (has_failed(o) && strstr(message, "_volume "))
		return failed_message(o, message);
	if (!strcmp(message, "volumes"))
		return volumes_reply(o, reply);
	if (!strncmp(message, "create_volume ", 14))
		return create_volume(o, message);
	if (!strncmp(message, "delete_volume ", 14))
		return delete_volume(o, message);
	if (!strncmp(message, "forget_volume ", 14))
		return forget_volume(o, message);
	if (!strncmp(message, "release_volume ", 15))
		return release_volume(o, message);
	if (!strncmp(message, "rename_volume ", 14))
		return rename_volume(o, message);
	if (!strncmp(message, "rename ", 7))
		return rename_pool(o, message + 7);
	if (!strcmp(message, "checkpoint"))
		return 0;
	if (!strncmp(message, "set ", 4) || !strncmp(message, "policy ", 7))
		return set_in_table(o, message);
	if (is_drain(message)) {
		set_number(o, "drain_on", message[5] != '_');
		return 0;
	}
	return refuse("pool", "unknown message");
}

/* What is lost stands in the state as lost_CURSOR, where tests put it. */
static int list_lost(struct json_object *o, const char *message, char **reply)
{
	char key[64];

	snprintf(key, sizeof(key), "lost_%s", message + 5);
	*reply = strdup(field(o, key) ? text(o, key) : "");
	return 0;
}

/* Each step a line of its own in the log: a place to be cut at. */
static int grow_volume(struct json_object *o, const char *message)
{
	struct hybrid_volume_table table;
	struct hybrid_volume_line entry;
	struct hybrid_volume_info info;
	struct json_object *list;
	char member[64];
	dev_t devno;
	int index, r;
	u64 room;

	hybrid_volume_table_parse(text(o, "params"), &table);
	list = volumes_of(find_minor(table.pool_dev));
	index = find_volume(list, table.id, &entry);
	if (index < 0 || !number(o, "suspended") || hybrid_devno_parse(table.origin_dev, &devno))
		return refuse("volume", "not suspended");
	info = info_of(&entry);
	room = hybrid_volume_room(&info, hybrid_devno_sectors(devno));
	if (room < entry.data_sectors)
		return refuse("volume", "its origin is smaller than it");
	if (room == entry.data_sectors)
		return 0;
	entry.data_sectors_new = room;
	if (entry.inplace != (sscanf(message, "grow %63s", member) == 1) ||
	    (entry.inplace && !hybrid_uuid_parse(member, entry.member_uuid)))
		return refuse("volume", "bad grow");
	put_volume(list, index, &entry);
	save();
	if (!asked("kernel grows origin"))
		return refuse("volume", "its origin cannot be written");
	r = entry.inplace ? 0 : grow_member(devno);
	if (r)
		return r;
	if (!asked("kernel ends growing"))
		return refuse("volume", "the cache device cannot be written");
	entry.data_sectors = room;
	entry.data_sectors_new = 0;
	put_volume(list, index, &entry);
	return 0;
}

static int volume_message(struct json_object *o, const char *message, char **reply)
{
	struct hybrid_volume_table table;
	char params[HYBRID_PARAMS_MAX];

	if (!strncmp(message, "lost ", 5) && reply)
		return list_lost(o, message, reply);
	if (!strcmp(message, "grow") || !strncmp(message, "grow ", 5))
		return grow_volume(o, message);
	hybrid_volume_table_parse(text(o, "params"), &table);
	if (!strncmp(message, "mode ", 5) && hybrid_mode_parse(message + 5) >= 0) {
		table.mode = hybrid_mode_parse(message + 5);
		set_drain(o, false);
	} else if (!strncmp(message, "cutoff ", 7)) {
		table.cutoff_sectors = strtoll(message + 7, NULL, 10);
	} else if (!strcmp(message, "reset_counters")) {
		return 0;
	} else if (is_drain(message)) {
		set_drain(o, message[5] != '_');
	} else {
		return refuse("volume", "unknown message");
	}
	hybrid_volume_table_build(params, sizeof(params), &table);
	set_text(o, "params", params);
	return 0;
}

int hybrid_dm_message(const char *name, const char *message, char **reply)
{
	struct json_object *o = find(name);
	int r;

	if (!asked("message %s %s", name, message))
		return refuse(name, "injected");
	if (!o)
		return refuse(name, "no such device");
	if (json_object_get_boolean(field(o, "alone")))
		return refuse(name, "target linear takes no messages");
	if (reply)
		*reply = NULL;
	if (json_object_get_boolean(field(o, "pool")))
		r = pool_message(o, message, reply);
	else
		r = volume_message(o, message, reply);
	if (!r && reply && !*reply)
		*reply = strdup("");
	save();
	return r;
}

int hybrid_dm_message_try(const char *name, const char *message)
{
	struct json_object *o = find(name);
	int err;

	if (!o || !asked("message %s %s", name, message))
		return ENXIO;
	if (!has_failed(o))
		return hybrid_dm_message(name, message, NULL) ? EBUSY : 0;
	if (strncmp(message, "delete_volume ", 14))
		return EIO;
	err = delete_volume(o, message) ? EBUSY : EIO;
	save();
	return err;
}

/* Status, table ------------------------------------------------------------ */

/* Dirty blocks stand in the state as dirty_NAME, where tests put them. */
static uint64_t step_dirty(struct json_object *o, bool pool_drains)
{
	char key[192];
	int64_t dirty;

	snprintf(key, sizeof(key), "dirty_%s", text(o, "name"));
	dirty = number(state, key);
	if (number(o, "draining") || pool_drains) {
		dirty = dirty > DRAIN_STEP ? dirty - DRAIN_STEP : 0;
		set_number(state, key, dirty);
		if (!dirty)
			set_number(o, "draining", 0);
		/* What an origin fails of it */
		set_number(o, "origin_errors",
			   number(o, "origin_errors") + number(o, "drain_errors"));
		save();
	}
	return dirty;
}

static void volume_status(struct json_object *o, char *buf, size_t len)
{
	struct hybrid_volume_status s = { .cached = 500, .read_hits = 900, .read_misses = 100,
					  .write_hits = 50, .write_misses = 50,
					  .bypass_sequential = 7 };
	struct hybrid_volume_table table;

	hybrid_volume_table_parse(text(o, "params"), &table);
	strcpy(s.state, field(o, "state") ? text(o, "state") : "running");
	strcpy(s.mode, hybrid_mode_name(table.mode < 0 ? HYBRID_MODE_WRITETHROUGH : table.mode));
	s.cutoff = table.cutoff_sectors < 0 ? 8192 : table.cutoff_sectors;
	s.dirty = step_dirty(o, false);
	if (!number(state, "old_module"))
		s.dirty_sectors = s.dirty * DIRTY_GRANULES * GRANULE;
	s.draining = number(o, "draining");
	s.drain_on = number(o, "drain_on") && table.mode == HYBRID_MODE_WRITEBACK;
	s.lost = number(o, "lost");
	s.cache_errors = number(o, "cache_errors");
	s.origin_errors = number(o, "origin_errors");
	hybrid_volume_status_build(buf, len, &s);
}

/* Of all volumes of a pool; its drain writes back what active ones have. */
static uint64_t dirty_of_pool(struct json_object *pool)
{
	struct json_object *list = volumes_of(pool), *o;
	struct hybrid_volume_line entry;
	uint64_t dirty = 0;
	char key[192];
	size_t i;

	for (i = 0; i < json_object_array_length(list); i++) {
		hybrid_volume_line_parse(json_object_get_string(json_object_array_get_idx(list, i)), &entry);
		o = find(entry.name);
		snprintf(key, sizeof(key), "dirty_%s", entry.name);
		dirty += o ? step_dirty(o, number(pool, "drain_on")) : (uint64_t)number(state, key);
	}
	return dirty;
}

static void pool_status(struct json_object *o, char *buf, size_t len)
{
	struct hybrid_pool_status s = { .granule_sectors = GRANULE, .blocks = 1000, .used = 500,
					.free = 500, .ram = 32000, .ram_per_block = 32,
					.high_watermark = 70, .low_watermark = 10,
					.commit_interval = 1000 };
	struct hybrid_pool_table table;
	char key[64];

	hybrid_pool_table_parse(text(o, "params"), &table);
#define X(name, unit, lowest, highest) \
	if (field(o, tunable_key(key, #name))) \
		s.name = number(o, key);
	HYBRID_POOL_TUNABLES(X)
#undef X
	strcpy(s.state, field(o, "state") ? text(o, "state") : "running");
	strcpy(s.policy, table.policy);
	s.block_sectors = table.block_sectors;
	s.errors = number(o, "errors");
	s.read_errors = number(o, "read_errors");
	s.write_errors = number(o, "write_errors");
	s.flush_errors = number(o, "flush_errors");
	s.retired = number(o, "retired");
	s.dirty = dirty_of_pool(o);
	if (!number(state, "old_module"))
		s.dirty_sectors = s.dirty * DIRTY_GRANULES * GRANULE;
	s.drain_on = number(o, "drain_on");
	s.draining = s.drain_on && s.dirty;
	s.failing = number(o, "failing");
	s.recent_read_errors = number(o, "recent_read_errors");
	s.recent_write_errors = number(o, "recent_write_errors");
	s.endurance_left = number(o, "endurance_left");
	s.endurance_owed = number(o, "endurance_owed");
	hybrid_pool_status_build(buf, len, &s);
}

int hybrid_dm_status(const char *name, char **params)
{
	struct json_object *o = find(name);
	char buf[HYBRID_PARAMS_MAX];

	if (!o)
		return refuse(name, "no such device");
	if (json_object_get_boolean(field(o, "pool")))
		pool_status(o, buf, sizeof(buf));
	else
		volume_status(o, buf, sizeof(buf));
	*params = strdup(buf);
	return 0;
}

int hybrid_dm_table(const char *name, char **params)
{
	struct json_object *o = find(name);

	if (!o)
		return refuse(name, "no such device");
	*params = strdup(text(o, "params"));
	return 0;
}
