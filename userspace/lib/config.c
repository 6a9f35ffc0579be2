// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "devices.h"
#include "errors.h"
#include "sysfs.h"
#include "units.h"

#ifndef HYBRID_CONF_DEFAULT
#define HYBRID_CONF_DEFAULT	"/usr/share/hybrid/hybrid.conf"
#endif

#define LINE_MAX_LEN	4096
#define BLANKS		" \t"
#define SEPARATORS	" \t,"
#define EPHEMERAL_DIR	"/dev/disk/"

/* Values ------------------------------------------------------------------- */

/* The setters return the error in @value, or NULL. */
static const char *set_words(struct hybrid_words *words, char *value)
{
	char *word, *save, **array;

	for (word = strtok_r(value, SEPARATORS, &save); word;
	     word = strtok_r(NULL, SEPARATORS, &save)) {
		array = realloc(words->word, (words->nr + 1) * sizeof(*array));
		if (!array)
			return "out of memory";
		words->word = array;
		array[words->nr] = strdup(word);
		if (!array[words->nr])
			return "out of memory";
		words->nr++;
	}
	return NULL;
}

static const char *set_devices(struct hybrid_config *config, char *value)
{
	return set_words(&config->devices, value);
}

static const char *set_ignore_devices(struct hybrid_config *config, char *value)
{
	return set_words(&config->ignore_devices, value);
}

static const char *set_autoactivate_list(struct hybrid_config *config, char *value)
{
	return set_words(&config->autoactivate_list, value);
}

/*
 * Below /dev/disk, as a superblock names it; of characters that need no quoting (codec.c).  NULL: the
 * line has separators only.
 */
static bool may_be_named(const char *device)
{
	static const char allowed[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#+.:=@_-";
	const char *below = device ? hybrid_ephemeral_path(device) : NULL, *name;

	if (!below || (strncmp(below, "by-id/", 6) && strncmp(below, "by-path/", 8)))
		return false;
	name = strchr(below, '/') + 1;
	return *name && *name != '.' && *name != '-' && !name[strspn(name, allowed)] &&
	       strlen(below) < HYBRID_PATH_SIZE;
}

static const char *set_block_size(struct hybrid_ephemeral *e, const char *text)
{
	uint64_t bytes;

	if (hybrid_parse_size(text, &bytes) || bytes & (bytes - 1) ||
	    bytes < HYBRID_MIN_BLOCK_SECTORS * 512ULL || bytes > HYBRID_MAX_BLOCK_SECTORS * 512ULL)
		return "block_size must be a power of two from 4k to 1m";
	e->block_sectors = bytes / 512;
	return NULL;
}

static const char *set_ephemeral_word(struct hybrid_ephemeral *e, char *word)
{
	if (!strncmp(word, "pool=", 5)) {
		if (!hybrid_name_valid(word + 5))
			return "that cannot be the name of a pool";
		snprintf(e->pool, sizeof(e->pool), "%s", word + 5);
		return NULL;
	}
	if (!strncmp(word, "block_size=", 11))
		return set_block_size(e, word + 11);
	if (!strncmp(word, "policy=", 7)) {
		if (!hybrid_name_valid(word + 7) || strlen(word + 7) >= sizeof(e->policy))
			return "that cannot be the name of a policy";
		snprintf(e->policy, sizeof(e->policy), "%s", word + 7);
		return NULL;
	}
	return "ephemeral takes pool, block_size and policy";
}

/* "/dev/disk/by-id/NAME pool=POOL ...": one device for each line. */
static const char *set_ephemeral(struct hybrid_config *config, char *value)
{
	struct hybrid_ephemeral e = {}, *array = config->ephemeral;
	char *word, *save, *device = strtok_r(value, SEPARATORS, &save);
	const char *why = NULL;
	unsigned int i;

	if (!may_be_named(device))
		return "a name below /dev/disk/by-id or /dev/disk/by-path is expected";
	while (!why && (word = strtok_r(NULL, SEPARATORS, &save)))
		why = set_ephemeral_word(&e, word);
	if (!why && !e.pool[0])
		why = "pool=NAME is missing";
	for (i = 0; i < config->nr_ephemeral && !why; i++)
		if (!strcmp(array[i].device, device) || !strcmp(array[i].pool, e.pool))
			why = "that device or pool already has a line";
	if (why)
		return why;
	array = reallocarray(array, config->nr_ephemeral + 1, sizeof(*array));
	if (!array)
		return "out of memory";
	config->ephemeral = array;
	snprintf(e.device, sizeof(e.device), "%s", device);
	array[config->nr_ephemeral++] = e;
	return NULL;
}

static const char *set_autoactivate(struct hybrid_config *config, char *value)
{
	if (!strcmp(value, "all"))
		config->autoactivate = HYBRID_AUTO_ALL;
	else if (!strcmp(value, "listed"))
		config->autoactivate = HYBRID_AUTO_LISTED;
	else if (!strcmp(value, "none"))
		config->autoactivate = HYBRID_AUTO_NONE;
	else
		return "autoactivate must be all, listed or none";
	return NULL;
}

static const char *set_host_id(struct hybrid_config *config, char *value)
{
	uint8_t id[16];

	config->id_unclear = true;
	if (!hybrid_uuid_parse(value, id))
		return "host_id is not a UUID";
	if (hybrid_uuid_is_null(id))
		return "host_id is the null UUID, which stands for no host";
	memcpy(config->host_id, id, sizeof(id));
	config->id_unclear = false;
	return NULL;
}

static const struct key {
	const char *name;
	bool again;	/* more lines add to it */
	const char *(*set)(struct hybrid_config *config, char *value);
} keys[] = {
	{ "devices", true, set_devices },
	{ "ignore_devices", true, set_ignore_devices },
	{ "autoactivate", false, set_autoactivate },
	{ "autoactivate_list", true, set_autoactivate_list },
	{ "host_id", false, set_host_id },
	{ "ephemeral", true, set_ephemeral },
};

#define NR_KEYS		(sizeof(keys) / sizeof(keys[0]))

/* Lines -------------------------------------------------------------------- */

static bool is_text(const char *line, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f)
			return false;
	return true;
}

/* Without comment, and blanks at both ends. */
static char *strip(char *text)
{
	char *hash = text;
	size_t len;

	while ((hash = strchr(hash, '#'))) {
		if (hash == text || strchr(BLANKS, hash[-1])) {
			*hash = '\0';
			break;
		}
		hash++;
	}
	text += strspn(text, BLANKS);
	for (len = strlen(text); len && strchr(BLANKS, text[len - 1]); len--)
		;
	text[len] = '\0';
	return text;
}

static const char *take_value(struct hybrid_config *config, const char *name, char *value)
{
	const char *why;
	unsigned int i;

	for (i = 0; i < NR_KEYS && strcmp(keys[i].name, name); i++)
		;
	if (i == NR_KEYS)
		return "there is no such option";
	if (config->given & (1U << i) && !keys[i].again)
		return "it is given twice, and the first one counts";
	if (!*value && keys[i].again)
		return NULL;
	why = keys[i].set(config, value);
	if (!why)
		config->given |= 1U << i;
	return why;
}

static const char *take_line(struct hybrid_config *config, char *line, size_t len)
{
	char *equals;

	if (len && line[len - 1] == '\n')
		line[--len] = '\0';
	if (len && line[len - 1] == '\r')
		line[--len] = '\0';
	if (len > LINE_MAX_LEN)
		return "it is longer than 4096 bytes";
	if (!is_text(line, len))
		return "it is not text";
	line = strip(line);
	if (!*line)
		return NULL;
	equals = strchr(line, '=');
	if (!equals)
		return "\"option = value\" is expected";
	*equals = '\0';
	return take_value(config, strip(line), strip(equals + 1));
}

void hybrid_config_read(struct hybrid_config *config, const char *path)
{
	unsigned int number = 0;
	char *line = NULL;
	const char *why;
	size_t size = 0;
	ssize_t len;
	FILE *f;

	memset(config, 0, sizeof(*config));
	f = fopen(path, "re");
	if (!f && errno == ENOENT)
		return;
	errno = f ? 0 : errno;
	while (f && (len = getline(&line, &size, f)) >= 0) {
		number++;
		why = take_line(config, line, len);
		if (!why)
			continue;
		config->errors++;
		hybrid_warn("%s:%u: %s: the line is ignored", path, number, why);
	}
	if (!f || ferror(f)) {
		config->errors++;
		config->id_unclear = true;
		hybrid_warn("%s: cannot read: %s", path, strerror(errno));
	}
	free(line);
	if (f)
		fclose(f);
}

static void free_words(struct hybrid_words *words)
{
	unsigned int i;

	for (i = 0; i < words->nr; i++)
		free(words->word[i]);
	free(words->word);
}

void hybrid_config_free(struct hybrid_config *config)
{
	free_words(&config->autoactivate_list);
	free_words(&config->devices);
	free_words(&config->ignore_devices);
	free(config->ephemeral);
	memset(config, 0, sizeof(*config));
}

/* This host ---------------------------------------------------------------- */

/* Until the process ends */
static struct hybrid_config *own_config(void)
{
	static struct hybrid_config config;
	static bool loaded;

	if (!loaded)
		hybrid_config_read(&config, hybrid_config_path());
	loaded = true;
	return &config;
}

const struct hybrid_config *hybrid_config(void)
{
	return own_config();
}

bool hybrid_config_foreign(const uint8_t id[16])
{
	return !hybrid_uuid_is_null(id) && memcmp(id, own_config()->host_id, 16);
}

static bool listed(const struct hybrid_words *list, const char *name, const uint8_t uuid[16])
{
	uint8_t parsed[16];
	unsigned int i;

	for (i = 0; i < list->nr; i++)
		if (!strcmp(list->word[i], name) ||
		    (hybrid_uuid_parse(list->word[i], parsed) && !memcmp(parsed, uuid, 16)))
			return true;
	return false;
}

bool hybrid_config_lists(const struct hybrid_config *config, const char *name,
			 const uint8_t uuid[16])
{
	return config->autoactivate == HYBRID_AUTO_ALL ||
	       (config->autoactivate == HYBRID_AUTO_LISTED &&
		listed(&config->autoactivate_list, name, uuid));
}

bool hybrid_config_comes_up(const char *name, const uint8_t uuid[16])
{
	return hybrid_config_lists(own_config(), name, uuid);
}

static bool matches(const char *name, void *arg)
{
	const struct hybrid_words *globs = arg;
	unsigned int i;

	for (i = 0; i < globs->nr; i++)
		if (!fnmatch(globs->word[i], name, 0))
			return true;
	return false;
}

bool hybrid_config_looks_at(dev_t devno)
{
	struct hybrid_config *config = own_config();

	if (config->devices.nr && !hybrid_devno_any_name(devno, matches, &config->devices))
		return false;
	return !config->ignore_devices.nr ||
	       !hybrid_devno_any_name(devno, matches, &config->ignore_devices);
}

/* Devices that come up blank ----------------------------------------------- */

const char *hybrid_ephemeral_path(const char *device)
{
	return strncmp(device, EPHEMERAL_DIR, strlen(EPHEMERAL_DIR)) ? NULL :
	       device + strlen(EPHEMERAL_DIR);
}

const struct hybrid_ephemeral *hybrid_config_ephemeral(const struct hybrid_sb *sb)
{
	const struct hybrid_config *config = own_config();
	const struct hybrid_ephemeral *e;

	if (sb->role == HYBRID_ROLE_CACHE || !(sb->flags & HYBRID_SB_EPHEMERAL))
		return NULL;
	for (e = config->ephemeral; e < config->ephemeral + config->nr_ephemeral; e++)
		if (!strcmp(hybrid_ephemeral_path(e->device), sb->cache_path))
			return e;
	return NULL;
}

static bool is_named(const char *name, void *arg)
{
	const struct hybrid_ephemeral *e = arg;

	return !strcmp(name, e->device);
}

bool hybrid_ephemeral_leads_to(const struct hybrid_ephemeral *e, dev_t devno)
{
	struct stat st;

	return !stat(e->device, &st) && S_ISBLK(st.st_mode) && st.st_rdev == devno;
}

const struct hybrid_ephemeral *hybrid_config_ephemeral_at(dev_t devno)
{
	const struct hybrid_config *config = own_config();
	struct hybrid_ephemeral *e;

	for (e = config->ephemeral; e < config->ephemeral + config->nr_ephemeral; e++)
		if (hybrid_ephemeral_leads_to(e, devno) ||
		    hybrid_devno_any_name(devno, is_named, e))
			return e;
	return NULL;
}

/* Making an id ------------------------------------------------------------- */

/* A new file begins with a copy of the default one. */
static int copy_default(int to)
{
	int from = open(HYBRID_CONF_DEFAULT, O_RDONLY | O_CLOEXEC);
	char buf[4096];
	ssize_t n = 0;
	int r = 0;

	while (from >= 0 && !r && (n = read(from, buf, sizeof(buf))) > 0)
		r = write(to, buf, n) == n ? 0 : -1;
	if (from >= 0)
		close(from);
	return n < 0 ? -1 : r;
}

/* At the end of the file, on a line of its own. */
static int append_host_id(int fd, const uint8_t id[16])
{
	off_t size = lseek(fd, 0, SEEK_END);
	char text[HYBRID_UUID_TEXT], last = '\n', line[64];
	int len;

	if (size < 0 || (!size && copy_default(fd)))
		return -1;
	if (size && pread(fd, &last, 1, size - 1) != 1)
		return -1;
	len = snprintf(line, sizeof(line), "%shost_id = %s\n", last == '\n' ? "" : "\n",
		       hybrid_uuid_text(text, id));
	return write(fd, line, len) == len && !fsync(fd) ? 0 : -1;
}

static int write_host_id(const char *path, const uint8_t id[16])
{
	char dir[HYBRID_PATH_MAX];
	char *slash;
	struct stat st;
	int fd, r;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash && slash != dir) {
		*slash = '\0';
		mkdir(dir, 0755);
	}
	fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	r = fstat(fd, &st);
	if (!r && !S_ISREG(st.st_mode)) {
		errno = EINVAL;
		r = -1;
	}
	if (!r)
		r = append_host_id(fd, id);
	return close(fd) || r ? -1 : 0;
}

/* While this process waited for the lock, another tool may have written an id. */
static void read_id_again(struct hybrid_config *config)
{
	bool silent = hybrid_output.silent;
	struct hybrid_config now;

	/* Wrong lines were named before */
	hybrid_output.silent = true;
	hybrid_config_read(&now, hybrid_config_path());
	hybrid_output.silent = silent;
	memcpy(config->host_id, now.host_id, sizeof(now.host_id));
	config->id_unclear = now.id_unclear;
	hybrid_config_free(&now);
}

int hybrid_config_make_host_id(uint8_t id[16])
{
	struct hybrid_config *config = own_config();
	const char *path = hybrid_config_path();

	if (hybrid_uuid_is_null(config->host_id))
		read_id_again(config);
	if (hybrid_uuid_is_null(config->host_id) && config->id_unclear)
		return hybrid_fail(HYBRID_REFUSED, "correct the file", "%s: its host_id is not valid",
				   path);
	if (hybrid_uuid_is_null(config->host_id)) {
		hybrid_uuid_new(id);
		if (write_host_id(path, id))
			return hybrid_fail(hybrid_exit_of_errno(errno), "see hybrid.conf(5)",
					   "%s: cannot write the id of this host: %s", path,
					   strerror(errno));
		memcpy(config->host_id, id, 16);
	}
	memcpy(id, config->host_id, 16);
	return 0;
}
