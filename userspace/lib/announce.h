/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Members that udev has announced.  /run/hybrid, which survives the switch from the initramfs,
 * has a file for each of them, with the superblock as it was then.  A command that only lists
 * members reads no disk; a command that must be certain reads the superblock again.  Where no
 * udev runs, the tools announce the members that they find or write.
 */
#ifndef HYBRID_ANNOUNCE_H
#define HYBRID_ANNOUNCE_H

#include "members.h"

/* The directory of these files. */
const char *hybrid_run_dir(void);

/* Whether any member was announced since the boot.  If not, the members are unknown. */
bool announced_any(void);

/*
 * Lists the announced members whose devices are still there, sorted as the kernel names devices:
 * all, or only the ones that concern @about (itself, its copies, its pool's cache devices).
 * Keys and nonces are left out.  *known is allocated.  Returns 0 or an exit code.
 */
int announced(const struct hybrid_member *about, struct hybrid_member **known, unsigned int *nr);

/*
 * Announces that @devno is member @m now, or (NULL) no member.  If it was a copy of another
 * device until now, udev is told to look at that device again.
 */
void announce(dev_t devno, const struct hybrid_member *m);

/*
 * Does the same for a tool that found @devno so, or changed it.  While udev runs, a member that
 * it has not announced stays unannounced: its rules have a reason.
 */
void announce_found(dev_t devno, const struct hybrid_member *m);

/*
 * Notes that @devno, an announced member, cannot be read (any more).  It stays known, as one
 * that cannot be used, until it is read again.
 */
void announce_unreadable(dev_t devno, const char *why);

/*
 * Origins in place that an active pool misses.  @identity recognises them: see
 * hybrid_uuid_of_identity().
 */
void await_origin(const uint8_t identity[16], const uint8_t pool[16]);
void await_no_longer(const uint8_t identity[16], const uint8_t pool[16]);
bool awaits_any(void);
/* Finds the active pool that misses this origin; false: there is none. */
bool awaited(const uint8_t identity[16], uint8_t pool[16]);

#endif
