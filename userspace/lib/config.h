/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hybrid.conf(5): the devices to look at, the pools and volumes that come up by themselves, and
 * the id of this host.  A wrong line is named and left out; the other lines count.
 */
#ifndef HYBRID_CONFIG_H
#define HYBRID_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "codec.h"

#define HYBRID_CONF	"/etc/hybrid/hybrid.conf"

enum hybrid_auto { HYBRID_AUTO_ALL, HYBRID_AUTO_LISTED, HYBRID_AUTO_NONE };

/* Words of one option, from all of its lines in order. */
struct hybrid_words {
	char **word;
	unsigned int nr;
};

/* A device that may come up blank, and the pool to make on it then. */
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
	unsigned int errors;			/* wrong lines, and a failed read */
	unsigned int given;			/* bits: its options, as config.c numbers them */
};

/*
 * Reads a file; a missing file is like an empty one.  Prints each error in it.  The result can
 * be used in any case; free it.
 */
void hybrid_config_read(struct hybrid_config *config, const char *path);
void hybrid_config_free(struct hybrid_config *config);

/* Path of the file: HYBRID_CONF. */
const char *hybrid_config_path(void);

/* Path of a system file, below /etc.  Returns @buf. */
const char *hybrid_etc_path(char *buf, size_t len, const char *name);

/* The configuration of this host, read by the first call. */
const struct hybrid_config *hybrid_config(void);

/*
 * Gets the id of this host.  If it has none, makes one and writes it to the file.  Caller holds
 * the tools' lock.  Returns 0 or an exit code.
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

/* A device's path below /dev/disk, as superblocks have it; NULL: it is not below. */
const char *hybrid_ephemeral_path(const char *device);

/* The line for the device that an origin's superblock names; NULL unless both name it. */
const struct hybrid_ephemeral *hybrid_config_ephemeral(const struct hybrid_sb *sb);

/* Whether the name leads to a device now. */
bool hybrid_ephemeral_leads_to(const struct hybrid_ephemeral *e, dev_t devno);

/* The line for a device, by all of its names; NULL: there is none. */
const struct hybrid_ephemeral *hybrid_config_ephemeral_at(dev_t devno);

#endif
