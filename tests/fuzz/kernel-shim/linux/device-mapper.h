/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the module's parsers see of the kernel: ctr.c, message.c and superblock.c
 * are compiled over this as they are.  Objects that they only pass on are
 * empty; the argument functions do what the kernel's do.
 */
#ifndef SHIM_LINUX_DEVICE_MAPPER_H
#define SHIM_LINUX_DEVICE_MAPPER_H

#include <ctype.h>
#include <errno.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

struct block_device;
struct bio;
struct workqueue_struct;
struct target_type;
struct queue_limits;

struct work_struct { };
struct delayed_work { };
struct bio_set { };
struct mutex { };
struct completion { };
struct notifier_block { };
struct bvec_iter { };
struct mapped_device { };
struct dm_dev { struct block_device *bdev; };
struct dm_target {
	void *private;
	bool needs_stable_writes;
};


typedef struct { } mempool_t;
typedef struct { } wait_queue_head_t;
typedef u8 blk_status_t;
typedef enum { STATUSTYPE_INFO } status_type_t;

#define mutex_lock(lock) ((void)(lock))
#define mutex_unlock(lock) ((void)(lock))
#define rcu_read_lock() ((void)0)
#define rcu_read_unlock() ((void)0)
#define memalloc_noio_save() (0U)
#define memalloc_noio_restore(flags) ((void)(flags))
#define bdev_stable_writes(bdev) (!(bdev))
#define dm_device_name(md) ((void)(md), "device")
#define dm_disk(md) (md)
#define disk_devt(disk) ((void)(disk), (dev_t)0)

/* Said to nobody; but the arguments are looked at. */
#define DMWARN(...) ((void)snprintf(NULL, 0, __VA_ARGS__))
#define DMEMIT(...) \
	(sz += sz >= maxlen ? 0 : snprintf(result + sz, maxlen - sz, __VA_ARGS__))

sector_t bdev_nr_sectors(struct block_device *bdev);

/* ---- numbers ---------------------------------------------------------------- */

/* Digits and nothing else, but for one newline at the end. */
static inline int kstrtou64(const char *s, unsigned int base, u64 *value)
{
	unsigned long long v;
	char *end;

	if (*s == '+')
		s++;
	if (!isxdigit((unsigned char)*s) || (base == 16 && tolower(s[1]) == 'x'))
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, base);
	if (errno)
		return -ERANGE;
	if (end == s || (*end && strcmp(end, "\n")))
		return -EINVAL;
	*value = v;
	return 0;
}

#define shim_kstrto(s, base, value) ({					\
	u64 wide_;							\
	int r_ = kstrtou64(s, base, &wide_);				\
	__typeof__(*(value)) narrow_ = wide_;				\
	if (!r_ && narrow_ != wide_)					\
		r_ = -ERANGE;						\
	if (!r_)							\
		*(value) = narrow_;					\
	r_; })
#define kstrtou32(s, base, value) shim_kstrto(s, base, value)
#define kstrtou8(s, base, value) shim_kstrto(s, base, value)

static inline int match_string(const char * const *array, size_t n, const char *string)
{
	size_t i;

	for (i = 0; i < n && array[i]; i++)
		if (!strcmp(array[i], string))
			return i;
	return -EINVAL;
}

/* ---- arguments of a table ----------------------------------------------------- */

struct dm_arg_set {
	unsigned int argc;
	char **argv;
};

struct dm_arg {
	unsigned int min, max;
	char *error;
};

static inline const char *dm_shift_arg(struct dm_arg_set *as)
{
	if (!as->argc)
		return NULL;
	as->argc--;
	return *as->argv++;
}

static inline int dm_read_arg_group(const struct dm_arg *arg, struct dm_arg_set *as,
				    unsigned int *value, char **error)
{
	const char *text = dm_shift_arg(as);
	char dummy;

	if (!text || sscanf(text, "%u%c", value, &dummy) != 1 || *value < arg->min ||
	    *value > arg->max || as->argc < *value) {
		*error = arg->error;
		return -EINVAL;
	}
	return 0;
}

/* The words of @line, which is changed; up to @max. */
static inline unsigned int shim_split_args(char *line, char **argv, unsigned int max)
{
	unsigned int argc = 0;
	char *word;

	for (word = strtok(line, " \t\n\v\f\r"); word && argc < max;
	     word = strtok(NULL, " \t\n\v\f\r"))
		argv[argc++] = word;
	return argc;
}

#endif
