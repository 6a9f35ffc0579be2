/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How much of its endurance a drive has used: smartctl (smartmontools) reads that from the drive. */
#ifndef HYBRIDCTL_WEAR_H
#define HYBRIDCTL_WEAR_H

#include "devices.h"

#define WEAR_MAX	16	/* drives below one device */

struct wear {
	char path[HYBRID_PATH_MAX];	/* of the drive */
	bool silent;			/* it does not answer */
	int used, spare;		/* percent; -1: the drive does not say */
	unsigned int hours;		/* it was powered on; 0: it does not say */
	char end[16];			/* day when it is used up, at the pace so far; "": unknown */
	const char *warning;		/* of the drive itself, in words; NULL: none */
	bool replace;			/* warning: replace the drive; false: its cooling is at fault */
};

struct wears {
	struct wear drive[WEAR_MAX];
	unsigned int nr;
};

/*
 * Asks each drive below a device once.  Does not wake a drive that sleeps, and leaves one alone
 * that does not answer within seconds.  Leaves out a drive that smartctl does not know, and all of
 * them without smartctl.  Not to be called under the lock of the tools.
 */
void wear_read(dev_t devno, struct wears *wears);

/* The same in words, on one line.  Returns @buf. */
char *wear_text(const struct wear *wear, char *buf, size_t len);

/* Whether smartctl is installed. */
bool wear_can_be_read(void);

#endif
