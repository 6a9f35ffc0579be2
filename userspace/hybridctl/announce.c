// SPDX-License-Identifier: GPL-2.0-or-later
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "announce.h"
#include "common.h"
#include "errors.h"
#include "probe.h"
#include "sysfs.h"

#define MAX_ANNOUNCED	65536

static void announced_dir(char *buf, size_t len)
{
	const char *run = getenv("HYBRID_RUN_DIR");

	snprintf(buf, len, "%s/members", run && *run ? run : "/run/hybrid");
}

/* One file for each, so that events beside each other do not meet. */
static void note_member(dev_t devno, bool there)
{
	char path[HYBRID_PATH_MAX], dir[HYBRID_PATH_MAX - 32], text[32];
	char *slash;
	int fd;

	announced_dir(dir, sizeof(dir));
	snprintf(path, sizeof(path), "%s/%s", dir, hybrid_devno_text(devno, text, sizeof(text)));
	if (!there) {
		unlink(path);
		return;
	}
	slash = strrchr(dir, '/');
	*slash = '\0';
	mkdir(dir, 0755);
	*slash = '/';
	mkdir(dir, 0755);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	else
		hybrid_warn("%s: %s", path, strerror(errno));
}

int announced(char ***paths, unsigned int *nr)
{
	char dir[HYBRID_PATH_MAX], path[HYBRID_PATH_MAX];
	struct dirent *e;
	dev_t devno;
	DIR *d;

	*nr = 0;
	*paths = calloc(MAX_ANNOUNCED, sizeof(**paths));
	if (!*paths)
		return hybrid_nomem();
	announced_dir(dir, sizeof(dir));
	d = opendir(dir);
	while (d && *nr < MAX_ANNOUNCED && (e = readdir(d))) {
		if (hybrid_devno_parse(e->d_name, &devno))
			continue;
		/* A number if the device is gone */
		if (hybrid_devno_path(devno, path, sizeof(path))[0] != '/')
			continue;
		(*paths)[*nr] = strdup(path);
		if ((*paths)[*nr])
			++*nr;
	}
	if (d)
		closedir(d);
	return 0;
}

void announced_free(char **paths, unsigned int nr)
{
	while (nr)
		free(paths[--nr]);
	free(paths);
}

/* What is to be done ------------------------------------------------------- */

static bool has_origin(const struct hybrid_inventory *inv, const uint8_t pool[16])
{
	const struct hybrid_node *node;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++)
		if (node->kind == HYBRID_VOLUME && node->member &&
		    !memcmp(node->pool_uuid, pool, 16))
			return true;
	return false;
}

/* HYBRID_STATE; udev/62-dm-hybrid-member.rules says what each leads to. */
static const char *decide(struct hybrid_inventory *inv, const struct hybrid_member *m)
{
	bool cache = m->sb.role == HYBRID_ROLE_CACHE;
	const struct hybrid_node *node, *pool;

	if (!m->ok)
		return "refused";
	if (m->sb.role == HYBRID_ROLE_DETACHED)
		return "detached";
	if (hybrid_sysfs_removable(m->devno))
		return "removable";
	node = hybrid_find_uuid(inv, cache ? m->sb.pool_uuid : m->sb.volume_uuid,
				cache ? HYBRID_POOL : HYBRID_VOLUME);
	if (node && node->active)
		return "active";
	pool = hybrid_find_uuid(inv, m->sb.pool_uuid, HYBRID_POOL);
	if (cache ? has_origin(inv, m->sb.pool_uuid) : pool && (pool->active || pool->member))
		return "complete";
	/* The timer brings up what can be: a pool for origins in place, an origin alone */
	return cache || !(m->sb.flags & HYBRID_SB_DIRTY) ? "degraded" : "waiting";
}

static const struct hybrid_member *find_devno(const struct hybrid_inventory *inv, dev_t devno)
{
	unsigned int i;

	for (i = 0; i < inv->nr_members; i++)
		if (inv->members[i].devno == devno)
			return &inv->members[i];
	return NULL;
}

static int answer(const struct hybrid_member *m)
{
	const struct hybrid_member *seen;
	struct hybrid_inventory inv;
	char **paths;
	unsigned int nr;
	int r;

	r = announced(&paths, &nr);
	if (r)
		return r;
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ALL | HYBRID_LOAD_QUIET, paths, nr);
	/* If not there: one leg of a multipath that is there, too */
	seen = find_devno(&inv, m->devno);
	export_member(seen ? seen : m);
	if (!r)
		printf("HYBRID_STATE=%s\n", seen ? decide(&inv, seen) : "covered");
	if (seen && !seen->ok)
		hybrid_warn("%s is refused: %s", seen->path, seen->why);
	hybrid_inventory_free(&inv);
	announced_free(paths, nr);
	/* With an error udev would forget what it is, too */
	return 0;
}

int scan_for_udev(const struct command_line *cl)
{
	struct hybrid_device dev;
	struct hybrid_member m;
	int r;

	if (cl->argc != 1)
		return hybrid_fail(HYBRID_USAGE, NULL, "scan --udev needs one device");
	r = hybrid_device_open(&dev, cl->argv[0], 0);
	if (r)
		return r;
	r = hybrid_member_read(&dev, &m);
	hybrid_device_close(&dev);
	/* Before the others are looked at: of two events at once one sees both members */
	note_member(dev.devno, !r);
	if (r == -ENODATA)
		return 0;
	if (r)
		return hybrid_fail(HYBRID_BADDEV, NULL, "%s: cannot read: %s", dev.path,
				   strerror(-r));
	return answer(&m);
}
