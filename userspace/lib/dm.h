/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The device-mapper operations the tools need, over libdevmapper, with udev
 * cookies where udev runs.  The only user of dm_task_*; tests/cli replaces this
 * file by a model.
 *
 * Functions return 0 or an exit code.  On failure, they have printed the error and
 * the kernel's log lines about it.
 */
#ifndef HYBRID_DM_H
#define HYBRID_DM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tables.h"

#define HYBRID_DM_NAME_MAX	128
#define HYBRID_LINEAR_TARGET	"linear"
#define HYBRID_ERROR_TARGET	"error"

struct hybrid_dm_device {
	char name[HYBRID_DM_NAME_MAX];
	uint8_t uuid[16];	/* of the pool or volume, from DM_UUID */
	bool pool;
	dev_t devno;
	int open_count;
	bool suspended;
	bool live;		/* has a table: of our target, or of its origin alone */
	bool alone;		/* a volume without its pool: see hybrid_dm_create_alone() */
	bool readonly;		/* ... see hybrid_dm_create_readonly() */
	uint64_t sectors;
};

/* Before the others: logging.  Needs no permission. */
void hybrid_dm_init(void);

/*
 * Checks that the kernel has device-mapper and both targets, loading their module if necessary,
 * and that this tool can work with them: see hybrid_check_version().  Returns 0; HYBRID_NOTARGET;
 * or HYBRID_REFUSED without permission.
 */
int hybrid_dm_check(bool format);

/*
 * Whether the kernel has the policy.  Loads its module as the kernel would; with @test, only
 * checks that it could.
 */
bool hybrid_dm_policy(const char *name, bool test);

/*
 * All devices whose DM_UUID is ours, in the order of the kernel.  *devices is
 * allocated.  Where the kernel has no device-mapper, or without permission, there
 * are none: not an error.
 */
int hybrid_dm_list(struct hybrid_dm_device **devices, unsigned int *nr);

/* The device number of an active pool or volume; 0: it is not active. */
dev_t hybrid_dm_find(const uint8_t uuid[16], bool pool);

/* Finds the present name of an active pool or volume.  False: it is not active. */
bool hybrid_dm_name(const uint8_t uuid[16], bool pool, char name[HYBRID_DM_NAME_MAX]);

/* Whether any device (not only ours) has this name. */
bool hybrid_dm_name_taken(const char *name);

/* Create, load, resume.  Nothing is left on failure.  *devno: the new device. */
int hybrid_dm_create(const char *name, const uint8_t uuid[16], bool pool, uint64_t sectors,
		     const char *params, dev_t *devno);

/*
 * Creates a volume that is just its origin from @data_sector on: target linear under
 * the volume's name and UUID.
 */
int hybrid_dm_create_alone(const char *name, const uint8_t uuid[16], uint64_t sectors,
			   dev_t origin, uint64_t data_sector);

/* Sectors of a volume. */
struct hybrid_dm_hole {
	uint64_t sector, count;
};

/*
 * Does the same, but read-only, and with target error in the holes, so that reads there fail.
 * @holes: sorted by sector, without overlap, all within the volume.
 */
int hybrid_dm_create_readonly(const char *name, const uint8_t uuid[16], uint64_t sectors,
			      dev_t origin, uint64_t data_sector,
			      const struct hybrid_dm_hole *holes, size_t nr);

/*
 * New tables for a device in use.  The functions wait only for I/O in flight, and
 * freeze no file system.
 */

/* A device, ours or not, that is just one piece of another. */
struct hybrid_dm_linear {
	dev_t devno, below;
	unsigned long long start;	/* on the device below */
	uint64_t sectors;
	bool suspended;
	char uuid[HYBRID_DM_NAME_MAX + 1];	/* DM_UUID; empty: it has none */
};

/* False if no device @name is there, or if it is not linear. */
bool hybrid_dm_linear(const char *name, struct hybrid_dm_linear *linear);

/* Loads a table and clears it again, to see whether the kernel accepts it. */
int hybrid_dm_try(const char *name, const char *target, uint64_t sectors, const char *params);

/*
 * Load a table and resume with it, suspending before if need be.  If that fails, the
 * device is as before, or it has the new table and is suspended.
 */
int hybrid_dm_switch(const char *name, const char *target, uint64_t sectors, const char *params);
int hybrid_dm_suspend(const char *name);

/* Resumes with the table that the device has; drops one that was loaded, and fails if it cannot. */
int hybrid_dm_resume(const char *name);

/* Renames a pool or volume.  Its users, which have its number, do not notice. */
int hybrid_dm_rename(const char *name, const char *new_name, bool pool);

/* Gives the DM_UUID of a volume to a device that has none.  It cannot be changed later. */
int hybrid_dm_set_uuid(const char *name, const uint8_t uuid[16]);

/* HYBRID_BUSY if it is open. */
int hybrid_dm_remove(const char *name);

/*
 * Make the device fail all I/O, and remove it when its last user closes it.  Waits for the
 * I/O in flight.
 */
int hybrid_dm_give_up(const char *name, uint64_t sectors);

/*
 * Send a message to target 0.  *reply, unless reply is NULL, is allocated; empty
 * if the target said nothing.
 */
int hybrid_dm_message(const char *name, const char *message, char **reply);

/* Send one that may be refused: returns 0 or an errno, and prints nothing. */
int hybrid_dm_message_try(const char *name, const char *message);

/* Parameters of the first status or table line that is not target error; *params is allocated. */
int hybrid_dm_status(const char *name, char **params);
int hybrid_dm_table(const char *name, char **params);

#endif
