// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * create with two --cache: data that only the cache has is on both devices.  The array is md's, as
 * mdadm makes it, with a bitmap: after a power cut, md compares only the areas that were being
 * written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "errors.h"
#include "look.h"
#include "mirror.h"

#define CREATE_WORDS	12

/* --run: mdadm asks nothing; create has asked about the contents of the devices. */
static void create_words(const struct mirror *m, const char *words[CREATE_WORDS])
{
	const char * const all[CREATE_WORDS] = {
		"mdadm", "--create", m->path, "--quiet", "--run", "--level=1", "--raid-devices=2",
		"--metadata=1.2", "--bitmap=internal", m->leg[0].path, m->leg[1].path, NULL,
	};

	memcpy(words, all, sizeof(all));
}

static int check_mdadm(void)
{
	static const char * const version[] = { "mdadm", "--version", NULL };
	char *said;
	int r = hybrid_child(version, &said);

	free(said);
	if (r >= 0 && r != 127)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "install it (package mdadm)",
			   "mdadm, which mirrors the two cache devices, is not installed");
}

static int check_name(const struct mirror *m)
{
	if (access(m->path, F_OK))
		return 0;
	return hybrid_fail(HYBRID_BUSY, "give another name with --pool",
			   "%s already exists", m->path);
}

static int check_legs(const struct mirror *m, const struct command_line *cl, const char *origin)
{
	const char * const *leg = cl->caches;
	int r;

	r = hybrid_devices_distinct(leg[0], leg[1], cl->given[OPT_FORCE]);
	if (!r && origin)
		r = hybrid_devices_distinct(leg[1], origin, cl->given[OPT_FORCE]);
	return r ? r : check_name(m);
}

int mirror_parse(struct mirror *m, const struct command_line *cl, const char *origin, const char *pool)
{
	int r;

	snprintf(m->leg[0].path, sizeof(m->leg[0].path), "%s", cl->caches[0]);
	snprintf(m->path, sizeof(m->path), "/dev/md/%s", pool);
	r = check_legs(m, cl, origin);
	if (!r)
		r = check_mdadm();
	if (!r)
		r = hybrid_device_answers(cl->caches[1]);
	return r ? r : hybrid_device_open(&m->leg[1], cl->caches[1], HYBRID_OPEN_EXCLUSIVE);
}

void mirror_close(struct mirror *m)
{
	hybrid_device_close(&m->leg[0]);
	hybrid_device_close(&m->leg[1]);
}

const struct hybrid_device *mirror_smaller(const struct mirror *m,
					   const struct hybrid_device *cache)
{
	return m->leg[1].sectors < cache->sectors ? &m->leg[1] : cache;
}

void mirror_print_test(const struct mirror *m)
{
	const char *words[CREATE_WORDS];
	int i;

	create_words(m, words);
	for (i = 0; words[i]; i++)
		printf("%s%s", i ? " " : "", words[i]);
	printf("\n# then, on the array:\n");
}

/*
 * Zeroes head and tail of the leg, and closes it.  blkid would take the leg for another thing by
 * signatures that the array's superblock does not overwrite.
 */
static int clear_leg(struct hybrid_device *leg)
{
	uint64_t mib = 2048;
	int r;

	hybrid_verbose("wipe %s", leg->path);
	r = hybrid_device_zero(leg, 0, mib);
	if (!r)
		r = hybrid_device_zero(leg, (leg->sectors - mib) & ~(uint64_t)7, mib);
	if (!r)
		r = hybrid_device_flush(leg);
	hybrid_device_close(leg);
	return r ? hybrid_fail(hybrid_exit_of_errno(-r), "check the device and the kernel log",
			       "%s: cannot write: %s", leg->path, strerror(-r)) : 0;
}

static int start_array(struct mirror *m)
{
	const char *words[CREATE_WORDS];

	create_words(m, words);
	hybrid_verbose("mdadm --create %s", m->path);
	m->made = true;
	if (!hybrid_child(words, NULL))
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see mdadm's messages above, and the kernel log",
			   "mdadm could not make %s of %s and %s", m->path, m->leg[0].path,
			   m->leg[1].path);
}

int mirror_make(struct mirror *m, struct hybrid_device *cache)
{
	const unsigned int flags = HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE;
	int r;

	m->leg[0] = *cache;
	cache->fd = -1;
	/* Both must be writable before either is written */
	r = hybrid_device_reopen(&m->leg[0], flags);
	if (!r)
		r = hybrid_device_reopen(&m->leg[1], flags);
	if (r)
		return r;
	m->written = true;
	r = clear_leg(&m->leg[0]);
	if (!r)
		r = clear_leg(&m->leg[1]);
	if (!r)
		r = start_array(m);
	if (!r)
		r = hybrid_device_open(cache, m->path, HYBRID_OPEN_EXCLUSIVE);
	return r;
}

void mirror_undo(struct mirror *m)
{
	const char * const stop[] = { "mdadm", "--quiet", "--stop", m->path, NULL };
	const char * const zero[] = { "mdadm", "--quiet", "--zero-superblock", "--force",
				      m->leg[0].path, m->leg[1].path, NULL };

	if (m->made) {
		hybrid_verbose("undo: stop %s", m->path);
		/* Without udev its name stays */
		if (!hybrid_child(stop, NULL))
			unlink(m->path);
		hybrid_child(zero, NULL);
	}
	if (m->written)
		hybrid_warn("the data on %s and %s in their first and their last MiB is lost",
			    m->leg[0].path, m->leg[1].path);
	m->made = false;
	m->written = false;
}
