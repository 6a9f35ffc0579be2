/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_SEQLOCK_H
#define SHIM_LINUX_SEQLOCK_H

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/spinlock.h>

typedef struct {
	unsigned int sequence;
} seqcount_t;

typedef seqcount_t seqcount_spinlock_t;

#define SEQCNT_ZERO(name) { 0 }

static inline void seqcount_init(seqcount_t *s)
{
	s->sequence = 0;
}

#define seqcount_spinlock_init(s, lock) ((void)(lock), seqcount_init(s))

static inline unsigned int raw_read_seqcount(const seqcount_t *s)
{
	return __atomic_load_n(&s->sequence, __ATOMIC_ACQUIRE);
}

/* The kernel would wait for the writer; here nobody else runs. */
static inline unsigned int read_seqcount_begin(const seqcount_t *s)
{
	unsigned int seq = raw_read_seqcount(s);

	WARN_ON(seq & 1);
	return seq;
}

#define raw_read_seqcount_begin(s) read_seqcount_begin(s)

static inline int read_seqcount_retry(const seqcount_t *s, unsigned int start)
{
	smp_rmb();
	return READ_ONCE(s->sequence) != start;
}

#define __read_seqcount_retry(s, start) read_seqcount_retry(s, start)

static inline void write_seqcount_begin(seqcount_t *s)
{
	WARN_ON(s->sequence & 1);
	WRITE_ONCE(s->sequence, s->sequence + 1);
	smp_wmb();
}

static inline void write_seqcount_end(seqcount_t *s)
{
	WARN_ON(!(s->sequence & 1));
	smp_wmb();
	WRITE_ONCE(s->sequence, s->sequence + 1);
}

static inline void write_seqcount_invalidate(seqcount_t *s)
{
	smp_wmb();
	WRITE_ONCE(s->sequence, s->sequence + 2);
}

#define raw_write_seqcount_begin(s) write_seqcount_begin(s)
#define raw_write_seqcount_end(s) write_seqcount_end(s)

#endif
