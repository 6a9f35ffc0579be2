/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What udev has announced: names in directories under /run/hybrid, which survives
 * the switch from the initramfs.  Only where to look is kept there, so that one
 * event need not read every member; the superblocks are read again each time.
 */
#ifndef HYBRIDCTL_ANNOUNCE_H
#define HYBRIDCTL_ANNOUNCE_H

#include "members.h"

/*
 * The members that are still there, for hybrid_inventory_load_known(): all, or those
 * that decide what becomes of @about (itself, its copies, its pool's cache devices).
 * *known is allocated.  Returns 0 or an exit code.
 */
int announced(const struct hybrid_member *about, struct hybrid_member **known, unsigned int *nr);

/*
 * @devno is this member now, or (NULL) none.  If it was a copy of another one, udev
 * is told to look at that again.
 */
void announce(dev_t devno, const struct hybrid_member *m);

/*
 * Origins in place that an active pool misses, by what recognises them
 * (hybrid_uuid_of_identity()).
 */
void await_origin(const uint8_t identity[16], const uint8_t pool[16]);
void await_no_longer(const uint8_t identity[16], const uint8_t pool[16]);
bool awaits_any(void);
/* By which pool of those that are active; false: by none. */
bool awaited(const uint8_t identity[16], uint8_t pool[16]);

#endif
