/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Volumes in use: each gets another table while its users wait. */
#ifndef HYBRIDCTL_LIVE_H
#define HYBRIDCTL_LIVE_H

#include "new-volume.h"

/*
 * The steps of attach --live: find the device, plan by its table, and give it the volume's table.
 * If the last one fails, the device is as before.  Return 0 or an exit code.
 */
int live_find(struct new_volume *nv);
int live_plan(struct new_volume *nv);
int live_start(const struct new_volume *nv, const char *params);

/*
 * Gives a volume that runs alone, linear and in use or not, its table when its pool has come.  The
 * kernel finds a nonce that the cache does not know, and begins cold.  On failure, the volume is as
 * before.
 */
int live_join(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin);

/*
 * The same for a suspended volume that still has the table of another pool, and that this other
 * pool has released.  The volume is linear in between, as an origin belongs to one volume at a
 * time.  The origin's superblock names the new pool already, which has cached nothing of it; from
 * then on both copies do.
 */
int live_move(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin);

/*
 * Suspends a volume in use on its way out of its pool, unless it is @suspended already.  Before
 * that, checks that the kernel accepts a linear table of its origin @below, and calls
 * survive_suspend(): the next steps must not need the volume.
 */
int live_stop(const struct hybrid_volume_line *entry, const char *name, dev_t below, bool suspended);

/*
 * Call before a device in use is suspended: until the resume, neither our own pages nor the
 * kernel's memory for our work may depend on the device.
 */
int survive_suspend(void);

#endif
