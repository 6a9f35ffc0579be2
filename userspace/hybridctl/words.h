/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Words of a command line that stand for devices or files, or for pools and volumes by name: a
 * path has a slash, and else a name goes before a file of that name.
 */
#ifndef HYBRIDCTL_WORDS_H
#define HYBRIDCTL_WORDS_H

#include <stdbool.h>

struct device_words {
	char **path;
	int nr;
	struct hybrid_inventory *inv;	/* NULL: no word may be a name */
};

/*
 * Each name of what is not active becomes the paths of its devices, the cache device first.
 * What is active stays as it is if @active, and else is refused.  Returns 0 or an exit code;
 * free with device_words_free() either way.
 */
int device_words(struct device_words *w, int argc, char **argv, bool active);
void device_words_free(struct device_words *w);

#endif
