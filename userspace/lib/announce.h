/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What udev has announced: a file for each member under /run/hybrid, which survives the
 * switch from the initramfs, with what its superblock said then.  Who must be certain reads
 * that again; who only lists what is there reads no disk.  Where no udev runs, the tools
 * announce what they find and write.
 */
#ifndef HYBRID_ANNOUNCE_H
#define HYBRID_ANNOUNCE_H

#include "members.h"

/* The directory of all this. */
const char *hybrid_run_dir(void);

/* Whether anything was announced since the boot; if not, nobody knows what is there. */
bool announced_any(void);

/*
 * The members whose devices are still there, as the kernel names devices: all, or those that
 * decide what becomes of @about (itself, its copies, its pool's cache devices).  Keys and
 * nonces are left out.  *known is allocated.  Returns 0 or an exit code.
 */
int announced(const struct hybrid_member *about, struct hybrid_member **known, unsigned int *nr);

/*
 * @devno is this member now, or (NULL) none.  If it was a copy of another one, udev
 * is told to look at that again.
 */
void announce(dev_t devno, const struct hybrid_member *m);

/*
 * The same, by a tool that found it so or has changed it.  What udev runs for, and has not
 * announced, stays unannounced: its rules know why.
 */
void announce_found(dev_t devno, const struct hybrid_member *m);

/*
 * @devno, a member that was announced, cannot be read (any more): it stays known, as one that
 * cannot be used, until it is read again.
 */
void announce_unreadable(dev_t devno, const char *why);

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
