/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hybrid.conf(5): what is looked at, what comes up by itself, and who this host is.  A line
 * that is wrong is named and left out; the rest counts.
 */
#ifndef HYBRID_CONFIG_H
#define HYBRID_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "codec.h"

#define HYBRID_CONF	"/etc/hybrid/hybrid.conf"

enum hybrid_auto { HYBRID_AUTO_ALL, HYBRID_AUTO_LISTED, HYBRID_AUTO_NONE };

/* Words of one option, and of its lines after each other. */
struct hybrid_words {
	char **word;
	unsigned int nr;
};

/* A device that comes up blank, and what becomes a new pool on it. */
struct hybrid_ephemeral {
	char device[HYBRID_PATH_SIZE + 16];	/* below /dev/disk */
	char pool[HYBRID_NAME_SIZE];
	char policy[HYBRID_POLICY_NAME_SIZE];	/* empty: the default */
	uint32_t block_sectors;			/* 0: as create chooses */
};

struct hybrid_config {
	uint8_t host_id[16];			/* null: this host has none */
	enum hybrid_auto autoactivate;
	struct hybrid_words autoactivate_list;	/* names and UUIDs */
	struct hybrid_words devices;		/* globs; none: all devices */
	struct hybrid_words ignore_devices;
	struct hybrid_ephemeral *ephemeral;
	unsigned int nr_ephemeral;
	bool id_unclear;			/* the file may have one, and cannot be read */
	unsigned int errors;			/* what was wrong with the file */
	unsigned int given;			/* bits: its options, as config.c numbers them */
};

/*
 * Read a file; one that is not there is as one that says nothing.  Prints what is wrong
 * with it.  The result is good either way; free it.
 */
void hybrid_config_read(struct hybrid_config *config, const char *path);
void hybrid_config_free(struct hybrid_config *config);

/* Where it is: HYBRID_CONF. */
const char *hybrid_config_path(void);

/* A file of the system's, below /etc.  Returns @buf. */
const char *hybrid_etc_path(char *buf, size_t len, const char *name);

/* That of this host, read by the first call. */
const struct hybrid_config *hybrid_config(void);

/*
 * The id of this host; if it has none, one is made and written to the file.  Under the
 * tools' lock.  Returns 0 or an exit code.
 */
int hybrid_config_make_host_id(uint8_t id[16]);

/* Whether a pool or volume with host id @id belongs to another host. */
bool hybrid_config_foreign(const uint8_t id[16]);

/* Whether a pool or volume may come up by itself: all may, or it is listed. */
bool hybrid_config_lists(const struct hybrid_config *config, const char *name,
			 const uint8_t uuid[16]);
/* ... on this host. */
bool hybrid_config_comes_up(const char *name, const uint8_t uuid[16]);

/* Whether members are looked for on a device. */
bool hybrid_config_looks_at(dev_t devno);

/* The part of a device's name that a superblock has: its path below /dev/disk; NULL: it is not there. */
const char *hybrid_ephemeral_path(const char *device);

/* The line for the device that an origin's superblock names; NULL: both have to name it. */
const struct hybrid_ephemeral *hybrid_config_ephemeral(const struct hybrid_sb *sb);

/* Whether the name leads to a device now. */
bool hybrid_ephemeral_leads_to(const struct hybrid_ephemeral *e, dev_t devno);

/* The line for a device, by all of its names; NULL: there is none. */
const struct hybrid_ephemeral *hybrid_config_ephemeral_at(dev_t devno);

#endif
