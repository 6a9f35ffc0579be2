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
	char end[16];			/* the day by which all is used at the pace so far; "": not known */
	const char *warning;		/* of the drive itself, in words; NULL: none */
	bool replace;			/* ... another drive should take its place; else its cooling is at fault */
};

struct wears {
	struct wear drive[WEAR_MAX];
	unsigned int nr;
};

/*
 * Ask the drives below a device, each once.  A drive that sleeps is not woken; one that does not answer
 * within seconds is left alone.  Nothing is said of a drive that smartctl does not know, or where there is
 * no smartctl.  Not to be called under the lock of the tools.
 */
void wear_read(dev_t devno, struct wears *wears);

/* The same in words, on one line.  Returns @buf. */
char *wear_text(const struct wear *wear, char *buf, size_t len);

/* Whether there is a smartctl. */
bool wear_can_be_read(void);

#endif
