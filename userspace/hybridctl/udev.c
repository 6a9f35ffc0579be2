// SPDX-License-Identifier: GPL-2.0-or-later
/* scan --udev: handles one event, by a few reads and ioctls, however many members there are. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "announce.h"
#include "common.h"
#include "config.h"
#include "ephemeral.h"
#include "errors.h"
#include "look.h"
#include "owner.h"
#include "probe.h"
#include "sysfs.h"
#include "udev.h"
#include "vacancies.h"

static const struct hybrid_member *find_devno(const struct hybrid_inventory *inv, dev_t devno)
{
	unsigned int i;

	for (i = 0; i < inv->nr_members; i++)
		if (inv->members[i].devno == devno)
			return &inv->members[i];
	return NULL;
}

static const struct hybrid_member *find_cache(const struct hybrid_inventory *inv,
					      const uint8_t pool[16])
{
	unsigned int i;

	for (i = 0; i < inv->nr_members; i++)
		if (inv->members[i].sb.role == HYBRID_ROLE_CACHE &&
		    !memcmp(inv->members[i].sb.pool_uuid, pool, 16))
			return &inv->members[i];
	return NULL;
}

/*
 * hybrid.conf may list the pool by one of its volumes, which the cache device does not name:
 * activate checks that.
 */
static const char *decide_cache(const struct hybrid_member *m)
{
	if (hybrid_config_foreign(m->sb.host_id))
		return "foreign";
	return hybrid_config()->autoactivate == HYBRID_AUTO_NONE ? "unlisted" : "complete";
}

/* An origin that is not in use. */
static const char *decide_origin(const struct hybrid_inventory *inv,
				 const struct hybrid_member *m)
{
	const struct hybrid_member *cache = find_cache(inv, m->sb.pool_uuid);
	const struct hybrid_ephemeral *e = ephemeral_of(m);
	/* A pool on a removable disk waits for the user */
	bool here = cache && cache->ok && !hybrid_sysfs_removable(cache->devno);
	bool active = hybrid_dm_find(m->sb.pool_uuid, true);
	const struct hybrid_member *owner = here && !on_its_own(&m->sb) ? cache : m;

	if ((!active || on_its_own(&m->sb)) && hybrid_config_foreign(owner->sb.host_id))
		return "foreign";
	if (!hybrid_config_comes_up(m->sb.name, m->sb.volume_uuid) &&
	    !pool_is_listed(cache ? cache->sb.name : e ? e->pool : "", m->sb.pool_uuid, cache))
		return "unlisted";
	if (active || here || m->sb.role == HYBRID_ROLE_DETACHED)
		return "complete";
	if (cache || m->sb.flags & HYBRID_SB_DIRTY)
		return "waiting";
	return m->sb.flags & HYBRID_SB_ALONE || e ? "complete" : "degraded";
}

/* Returns HYBRID_STATE; udev/62-dm-hybrid-member.rules says where each state leads. */
static const char *decide(const struct hybrid_inventory *inv, const struct hybrid_member *m)
{
	bool cache = m->sb.role == HYBRID_ROLE_CACHE;
	dev_t active = 0;

	if (m->sb.role)
		active = hybrid_dm_find(cache ? m->sb.pool_uuid : m->sb.volume_uuid, cache);
	if (active && hybrid_devno_held(m->devno, active))
		return "active";
	if (!m->ok)
		return "refused";
	if (hybrid_sysfs_removable(m->devno))
		return "removable";
	if (active)
		return "active";
	/* A pool comes up without origins; a volume comes up when its origin does, or without a cache */
	return cache ? decide_cache(m) : decide_origin(inv, m);
}

static int answer(const struct hybrid_member *m)
{
	const struct hybrid_member *seen;
	struct hybrid_inventory inv = {};
	struct hybrid_member *known;
	const char *state;
	unsigned int nr;
	int r;

	r = announced(m, &known, &nr);
	if (!r)
		r = hybrid_inventory_load_known(&inv, 0, known, nr);
	if (!r) {
		/* Not found: a path of a multipath device that is there, or a snapshot */
		seen = find_devno(&inv, m->devno);
		state = seen ? decide(&inv, seen) : "covered";
		export_member(seen ? seen : m);
		printf("HYBRID_STATE=%s\n", state);
		if (seen && !seen->ok)
			hybrid_warn("%s is refused: %s", seen->path, seen->why);
	}
	hybrid_inventory_free(&inv);
	free(known);
	/* After an error, udev would forget the type of the device, too */
	return 0;
}

/* No member: an origin in place that an active pool misses? */
static void answer_inplace(const struct hybrid_look *l)
{
	char text[HYBRID_UUID_TEXT];
	unsigned int i = 0;
	uint8_t pool[16];

	/* One of its identities was recorded */
	while (i < l->identities.nr && !awaited(l->identities.uuid[i], pool))
		i++;
	if (i == l->identities.nr || l->claim[0] || hybrid_sysfs_snapshot_of(l->devno))
		return;
	printf("HYBRID_POOL_UUID=%s\n", hybrid_uuid_text(text, pool));
	/* The identity names a unit of its own for the device, as for any member */
	printf("HYBRID_MEMBER_UUID=%s\n", hybrid_uuid_text(text, l->identities.uuid[i]));
	printf("HYBRID_STATE=%s\n", hybrid_sysfs_removable(l->devno) ? "removable" : "in-place");
}

/* No member: do hybrid.conf and an origin without its pool name this device? */
static int answer_ephemeral(const struct hybrid_look *l)
{
	const struct hybrid_ephemeral *e = hybrid_config_ephemeral_at(l->devno);
	const struct hybrid_member *m = NULL;
	struct hybrid_inventory inv = {};
	char text[HYBRID_UUID_TEXT];
	int r = e ? hybrid_inventory_load(&inv, HYBRID_LOAD_KNOWN, NULL, 0) : 0;

	if (!r && e)
		m = find_origin_without_pool(&inv, e);
	if (m) {
		/* By this UUID the unit activates all volumes that had that pool */
		printf("HYBRID_POOL_UUID=%s\n", hybrid_uuid_text(text, m->sb.pool_uuid));
		printf("HYBRID_MEMBER_UUID=%s\n", text);
		printf("HYBRID_STATE=%s\n", hybrid_sysfs_removable(l->devno) ? "removable" : "ephemeral");
	}
	hybrid_inventory_free(&inv);
	return r;
}

/*
 * The event brings the type that udev's blkid found.  The half of a mirror shows the array's
 * superblocks as its own: the rules ask about it only for the sake of origins in place.
 */
static bool of_another_type(void)
{
	const char *type = getenv("ID_FS_TYPE");

	return type && *type && strcmp(type, "dm_hybrid_member");
}

static int device_gone(const char *text)
{
	dev_t devno;

	if (hybrid_devno_parse(text, &devno))
		return hybrid_fail(HYBRID_USAGE, NULL, "--gone needs a device number, such as 8:16");
	announce(devno, NULL);
	return 0;
}

/*
 * Announces the device before the others are looked at: of two events at once, one sees both
 * members.  A device that cannot be read stays as it was announced.
 */
static int take_look(const struct hybrid_look *l)
{
	int r = of_another_type() && l->r <= 0 ? -ENODATA : l->r;

	if (!r || r == -ENODATA)
		announce(l->devno, r || l->snapshot ? NULL : &l->member);
	if (!r)
		return answer(&l->member);
	if (r == -ENODATA) {
		answer_inplace(l);
		return answer_ephemeral(l);
	}
	if (r < 0)
		return hybrid_fail(HYBRID_BADDEV, NULL, "%s: cannot read: %s", l->path, strerror(-r));
	return r > 0 ? r : 0;
}

int scan_for_udev(const struct command_line *cl)
{
	struct hybrid_looks looks = {};
	struct stat st;
	int r;

	if (cl->argc != 1)
		return hybrid_fail(HYBRID_USAGE, NULL, "scan --udev needs one device");
	if (cl->given[OPT_GONE])
		return device_gone(cl->argv[0]);
	if (stat(cl->argv[0], &st) || !S_ISBLK(st.st_mode))
		st.st_rdev = 0;
	if (st.st_rdev && hybrid_devno_no_disk(st.st_rdev))
		return 0;
	if (st.st_rdev && !hybrid_config_looks_at(st.st_rdev)) {
		announce(st.st_rdev, NULL);
		return 0;
	}
	r = hybrid_looks_add(&looks, cl->argv[0], 0, awaits_any() ? HYBRID_LOOK_IDENTITY : 0);
	if (!r)
		r = hybrid_looks_run(&looks);
	if (!r)
		r = take_look(looks.look);
	hybrid_looks_free(&looks);
	return r;
}
