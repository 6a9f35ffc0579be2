/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The text that goes to the kernel and comes back: table lines, status lines,
 * messages and their replies, as dm-hybrid.rst defines them.  Built and parsed
 * here and nowhere else.  Strings only: no I/O, no messages, no devices.
 *
 * Parsers return 0, -EINVAL for text that is not as dm-hybrid.rst has it, or
 * -ENOMEM.  Builders return the length, or -ENOSPC.
 */
#ifndef HYBRID_TABLES_H
#define HYBRID_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "units.h"

#define HYBRID_POOL_TARGET	"hybrid-pool"
#define HYBRID_VOLUME_TARGET	"hybrid"
#define HYBRID_DM_UUID_PREFIX	"HYBRID-"
#define HYBRID_DM_POOL_SUFFIX	"-pool"

#define HYBRID_PARAMS_MAX	1024	/* bytes of a table line's parameters */
#define HYBRID_DEVICE_MAX	256	/* bytes of a device's path */
#define HYBRID_WORD_MAX		64

/* Names by HYBRID_MODE_*; NULL ends the array. */
extern const char * const hybrid_mode_names[];

/* Name of a mode (HYBRID_MODE_*); NULL if there is no such mode. */
const char *hybrid_mode_name(uint32_t mode);
/* HYBRID_MODE_*, or -EINVAL. */
int hybrid_mode_parse(const char *name);

/* The tunables of a pool: name, unit for people, lowest, highest. */
#define HYBRID_POOL_TUNABLES(X) \
	X(high_watermark, "percent", 1, 95) \
	X(low_watermark, "percent", 0, 95) \
	X(writeback_rate, "KiB/s", 0, UINT32_MAX) \
	X(commit_interval, "ms", 10, 60000) \
	X(endurance, "MiB a day", 0, 33554432) \
	X(metadata_share, "percent", 0, 90) \
	X(trim_rate, "KiB/s", 0, UINT32_MAX) \
	X(read_error_limit, "errors", 0, UINT32_MAX) \
	X(write_error_limit, "errors", 0, UINT32_MAX)

/* Parameters of a hybrid-pool table line.  A tunable of -1 is not given. */
struct hybrid_pool_table {
	char cache_dev[HYBRID_DEVICE_MAX];
	uint32_t block_sectors;
	char uuid[HYBRID_UUID_TEXT];	/* empty: not given */
#define X(name, unit, lowest, highest) int64_t name;
	HYBRID_POOL_TUNABLES(X)
#undef X
	char policy[HYBRID_WORD_MAX];
	char policy_args[HYBRID_DEVICE_MAX];	/* separated by blanks */
};

/* All tunables not given, no policy arguments. */
void hybrid_pool_table_init(struct hybrid_pool_table *table);
int hybrid_pool_table_build(char *buf, size_t len, const struct hybrid_pool_table *table);
int hybrid_pool_table_parse(const char *params, struct hybrid_pool_table *table);

/* Parameters of a hybrid table line. */
struct hybrid_volume_table {
	char pool_dev[HYBRID_DEVICE_MAX];
	uint32_t id;
	char origin_dev[HYBRID_DEVICE_MAX];
	int mode;		/* HYBRID_MODE_*; -1: not given */
	int64_t cutoff_sectors;	/* the same */
	bool inplace;
};

int hybrid_volume_table_build(char *buf, size_t len,
			      const struct hybrid_volume_table *table);
int hybrid_volume_table_parse(const char *params, struct hybrid_volume_table *table);

/*
 * Checks that a target of the kernel fits this tool.  Another major version is an error
 * (HYBRID_NOTARGET).  With another minor version, a warning names the older of the two.  @format:
 * devices are to be formatted, so the module must read this tool's disk format.  Returns 0 or an
 * exit code.
 */
int hybrid_check_version(const char *target, const uint32_t version[3], bool format);

/* Status keys: text, then numbers, in the order in which the kernel prints. */
#define HYBRID_POOL_STATUS_WORDS(X) X(state) X(policy)
#define HYBRID_POOL_STATUS_NUMBERS(X) \
	X(block_sectors) X(granule_sectors) X(blocks) X(used) X(free) X(dirty) \
	X(volumes) X(open_regions) X(ram) X(ram_per_block) X(journal_used) \
	X(journal_blocks) X(journal_writes) X(journal_records) X(checkpoints) \
	X(metadata_writes) X(cache_flushes) X(evictions) X(errors) X(draining) \
	X(cache_written) X(high_watermark) X(low_watermark) X(writeback_rate) \
	X(commit_interval) X(endurance) X(metadata_share) X(trim_rate) X(read_error_limit) \
	X(write_error_limit) X(metadata) \
	X(read_errors) X(write_errors) X(flush_errors) X(trimmed) X(retired) \
	X(total_written) X(drain_on) X(dirty_sectors) X(failing) \
	X(recent_read_errors) X(recent_write_errors) X(endurance_left) X(endurance_owed) \
	X(intent_writes)

#define HYBRID_VOLUME_STATUS_WORDS(X) X(state) X(mode)
#define HYBRID_VOLUME_STATUS_NUMBERS(X) \
	X(dirty) X(draining) X(cached) X(read_hits) X(read_misses) X(write_hits) \
	X(write_misses) X(bypass_sequential) X(bypass_policy) X(bypass_full) \
	X(bypass_busy) X(bypass_mode) X(bypass_partial) X(fills) X(writebacks) \
	X(discards) X(flushes) X(origin_flushes) X(cache_errors) X(origin_errors) \
	X(lost) X(bypass_once) X(cutoff) X(drain_on) \
	X(dirty_sectors)

struct hybrid_pool_status {
#define X(name) char name[HYBRID_WORD_MAX];
	HYBRID_POOL_STATUS_WORDS(X)
#undef X
#define X(name) uint64_t name;
	HYBRID_POOL_STATUS_NUMBERS(X)
#undef X
};

struct hybrid_volume_status {
#define X(name) char name[HYBRID_WORD_MAX];
	HYBRID_VOLUME_STATUS_WORDS(X)
#undef X
#define X(name) uint64_t name;
	HYBRID_VOLUME_STATUS_NUMBERS(X)
#undef X
};

/*
 * Keys may stand in any order; unknown ones (a newer kernel's) are skipped,
 * missing ones are 0 or empty; only "state" must be there.
 */
int hybrid_pool_status_parse(const char *text, struct hybrid_pool_status *status);
int hybrid_volume_status_parse(const char *text, struct hybrid_volume_status *status);
int hybrid_pool_status_build(char *buf, size_t len, const struct hybrid_pool_status *status);
int hybrid_volume_status_build(char *buf, size_t len,
			       const struct hybrid_volume_status *status);

/* One line of the reply to the pool's message "volumes". */
struct hybrid_volume_line {
	uint32_t id;
	bool tombstone;
	uint8_t uuid[16];
	char name[HYBRID_WORD_MAX];
	uint8_t member_uuid[16];
	uint32_t mode;
	uint64_t data_sector, data_sectors;
	uint64_t cutoff_sectors;
	bool inplace;
	uint32_t dirty;			/* blocks */
	uint64_t dirty_sectors;		/* in dirty granules; 0 also if the module does not say */
	uint64_t data_sectors_new;	/* size that it is growing to; 0: it is not growing */
};

int hybrid_volume_line_parse(const char *line, struct hybrid_volume_line *entry);
int hybrid_volume_line_build(char *buf, size_t len, const struct hybrid_volume_line *entry);

/*
 * A whole reply.  *entries is allocated (free() it), also if there are none;
 * *nr says how many.  Returns 0, -EINVAL, -ENOMEM.
 */
int hybrid_volume_lines_parse(const char *reply, struct hybrid_volume_line **entries,
			      unsigned int *nr);

/* The message create_volume; state tombstone is ignored. */
int hybrid_create_message_build(char *buf, size_t len, const struct hybrid_volume_line *entry,
				const uint8_t pairing_key[16]);

/* The table of a linear device over @below from sector @start on.  Returns @params. */
char *hybrid_linear_params(char params[HYBRID_PARAMS_MAX], dev_t below, uint64_t start);

/* DM_UUID of a pool or a volume, 0 terminated; and back. */
#define HYBRID_DM_UUID_TEXT	64
char *hybrid_dm_uuid(char buf[HYBRID_DM_UUID_TEXT], const uint8_t uuid[16], bool pool);
bool hybrid_dm_uuid_parse(const char *text, uint8_t uuid[16], bool *pool);

#endif
