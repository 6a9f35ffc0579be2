// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apart.h"
#include "errors.h"
#include "look.h"
#include "sysfs.h"
#include "units.h"

#define ANSWER_BYTES	4096

/* Refuses a part of an array, such as half of a mirror: only the array may be used. */
static void refuse_part(const struct hybrid_device *dev, struct hybrid_member *m)
{
	char type[64];

	if (!m->ok || dev->file || !hybrid_device_in_array(dev, type, sizeof(type)))
		return;
	m->ok = false;
	snprintf(m->why, sizeof(m->why), "it is a part of an array (%s)", type);
}

static bool is_snapshot(const struct hybrid_device *dev, const struct hybrid_member *member)
{
	dev_t real = hybrid_sysfs_snapshot_of(dev->devno);
	struct hybrid_device below;
	char path[HYBRID_PATH_MAX];
	struct hybrid_member m;
	bool same;

	if (!real ||
	    hybrid_device_open(&below, hybrid_devno_path(real, path, sizeof(path)), HYBRID_OPEN_QUIET))
		return false;
	same = !hybrid_member_read(&below, &m) && m.sb.role && member->sb.role &&
	       !memcmp(m.sb.member_uuid, member->sb.member_uuid, 16);
	hybrid_device_close(&below);
	return same;
}

static void find_claim(const struct hybrid_device *dev, struct hybrid_look *l)
{
	if (!l->r)
		snprintf(l->claim, sizeof(l->claim), "dm-hybrid %s %s",
			 hybrid_role_name(l->member.sb.role), l->member.sb.name);
	else if (!hybrid_device_in_array(dev, l->claim, sizeof(l->claim)))
		l->claim[0] = '\0';
}

static void look(void *element)
{
	struct hybrid_look *l = element;
	struct hybrid_device dev;

	l->r = hybrid_device_open(&dev, l->path, l->open);
	if (l->r)
		return;
	l->devno = dev.devno;
	l->r = hybrid_member_read(&dev, &l->member);
	if (!l->r && l->what & HYBRID_LOOK_ARRAY)
		refuse_part(&dev, &l->member);
	if (!l->r)
		l->snapshot = is_snapshot(&dev, &l->member);
	if (!l->r && l->what & HYBRID_LOOK_STOPPED && l->member.ok &&
	    l->member.sb.role == HYBRID_ROLE_CACHE)
		l->stopped = hybrid_cache_stopped(&dev, &l->member.sb);
	if (l->what & HYBRID_LOOK_BLANK)
		l->blank = hybrid_member_blank(&dev, l->why);
	if (l->what & HYBRID_LOOK_IDENTITY) {
		hybrid_device_identities(&dev, &l->identities);
		find_claim(&dev, l);
	}
	hybrid_device_close(&dev);
}

int hybrid_looks_add(struct hybrid_looks *looks, const char *path, unsigned int open,
		     unsigned int what)
{
	struct hybrid_look *array = reallocarray(looks->look, looks->nr + 1, sizeof(*array));

	if (!array)
		return hybrid_nomem();
	looks->look = array;
	array += looks->nr;
	memset(array, 0, sizeof(*array));
	array->open = open;
	array->what = what;
	array->r = -ETIMEDOUT;
	array->path = strdup(path);
	return array->path ? looks->nr++, 0 : hybrid_nomem();
}

int hybrid_looks_run(struct hybrid_looks *looks)
{
	return hybrid_apart(look, looks->look, sizeof(*looks->look), looks->nr, hybrid_patience);
}

void hybrid_looks_free(struct hybrid_looks *looks)
{
	while (looks->nr)
		free(looks->look[--looks->nr].path);
	free(looks->look);
	looks->look = NULL;
}

struct answer {
	const char *path;
	bool answers;
};

static void read_once(void *element)
{
	void *buf = hybrid_buffer(ANSWER_BYTES);
	struct answer *a = element;
	struct hybrid_device dev;

	if (buf && !hybrid_device_open(&dev, a->path, HYBRID_OPEN_QUIET)) {
		hybrid_device_read(&dev, 0, buf, ANSWER_BYTES);
		hybrid_device_close(&dev);
	}
	a->answers = true;
}

int hybrid_device_answers(const char *path)
{
	struct answer a = { .path = path };
	int r = hybrid_apart(read_once, &a, sizeof(a), 1, hybrid_patience);

	if (r || a.answers)
		return r;
	return hybrid_fail(HYBRID_BUSY, HYBRID_NEXT_SILENT, "%s does not answer", path);
}
