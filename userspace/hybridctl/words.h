/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Words of a command line that stand for devices or files, or for pools and volumes by name.  A
 * word with a slash is a path.  Any other word is the name of a pool or volume if one has that
 * name, and otherwise of a file.
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
 * Replaces each name of an inactive pool or volume by the paths of its devices, the cache device
 * first.  If @active, the name of an active one stays as it is; otherwise it is refused.  Returns 0
 * or an exit code; free with device_words_free() either way.
 */
int device_words(struct device_words *w, int argc, char **argv, bool active);
void device_words_free(struct device_words *w);

#endif
