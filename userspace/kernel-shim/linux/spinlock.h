/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_SPINLOCK_H
#define SHIM_LINUX_SPINLOCK_H

#include <linux/atomic.h>
#include <linux/bug.h>

typedef struct {
	int held;
} spinlock_t;

/* Are interrupts off?  shim_irqs_on, if set, is called where they go on again. */
unsigned long shim_irqs_off __attribute__((weak));
void (*shim_irqs_on)(void) __attribute__((weak));

static inline void shim_irq_restore(unsigned long off)
{
	shim_irqs_off = off;
	if (!off && shim_irqs_on)
		shim_irqs_on();
}
/* Held by the caller. */
int shim_locks __attribute__((weak));

/*
 * Called when the lock is taken.  With one thread it would never become free; a simulation of
 * more CPUs defines this and lets the others go on.
 */
extern void shim_contended(spinlock_t *lock) __attribute__((weak));

#define DEFINE_SPINLOCK(name) spinlock_t name = { 0 }

static inline void spin_lock_init(spinlock_t *lock)
{
	lock->held = 0;
}

static inline int spin_trylock(spinlock_t *lock)
{
	if (xchg(&lock->held, 1))
		return 0;
	shim_locks++;
	return 1;
}

static inline void spin_lock(spinlock_t *lock)
{
	while (!spin_trylock(lock)) {
		WARN_ON(!shim_contended);
		shim_contended(lock);
	}
}

static inline void spin_unlock(spinlock_t *lock)
{
	shim_locks--;
	WARN_ON(!xchg(&lock->held, 0));
}

static inline int spin_is_locked(const spinlock_t *lock)
{
	return READ_ONCE(lock->held);
}

#define spin_lock_nested(lock, subclass) spin_lock(lock)
#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define local_irq_save(flags) do { (flags) = shim_irqs_off; shim_irqs_off = 1; } while (0)
#define local_irq_restore(flags) shim_irq_restore(flags)
#define spin_lock_irqsave(lock, flags) do { local_irq_save(flags); spin_lock(lock); } while (0)
#define spin_unlock_irqrestore(lock, flags) \
	do { spin_unlock(lock); local_irq_restore(flags); } while (0)

#define assert_spin_locked(lock) ((void)WARN_ON(!spin_is_locked(lock)))
#define lockdep_assert_held(lock) assert_spin_locked(lock)

#endif
