/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_ATOMIC_H
#define SHIM_LINUX_ATOMIC_H

#include <linux/compiler.h>
#include <linux/types.h>

#define ATOMIC_INIT(i) { (i) }
#define ATOMIC64_INIT(i) { (i) }

#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define smp_mb__before_atomic() smp_mb()
#define smp_mb__after_atomic() smp_mb()
#define smp_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

#define xchg(p, v) __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)
#define cmpxchg(p, old, new) ({						\
	__typeof__(*(p)) shim_old = (old);				\
	__atomic_compare_exchange_n(p, &shim_old, new, false,		\
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	shim_old; })
#define try_cmpxchg(p, oldp, new)					\
	__atomic_compare_exchange_n(p, oldp, new, false,		\
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

#define SHIM_ATOMIC(name, type)						\
static inline type name##_read(const name##_t *v)			\
{									\
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);		\
}									\
static inline type name##_read_acquire(const name##_t *v)		\
{									\
	return __atomic_load_n(&v->counter, __ATOMIC_ACQUIRE);		\
}									\
static inline void name##_set(name##_t *v, type i)			\
{									\
	__atomic_store_n(&v->counter, i, __ATOMIC_RELAXED);		\
}									\
static inline void name##_set_release(name##_t *v, type i)		\
{									\
	__atomic_store_n(&v->counter, i, __ATOMIC_RELEASE);		\
}									\
static inline type name##_add_return(type i, name##_t *v)		\
{									\
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline type name##_sub_return(type i, name##_t *v)		\
{									\
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline void name##_add(type i, name##_t *v)			\
{									\
	name##_add_return(i, v);					\
}									\
static inline void name##_sub(type i, name##_t *v)			\
{									\
	name##_sub_return(i, v);					\
}									\
static inline void name##_inc(name##_t *v)				\
{									\
	name##_add_return(1, v);					\
}									\
static inline void name##_dec(name##_t *v)				\
{									\
	name##_sub_return(1, v);					\
}									\
static inline type name##_inc_return(name##_t *v)			\
{									\
	return name##_add_return(1, v);					\
}									\
static inline type name##_dec_return(name##_t *v)			\
{									\
	return name##_sub_return(1, v);					\
}									\
static inline bool name##_dec_and_test(name##_t *v)			\
{									\
	return name##_sub_return(1, v) == 0;				\
}									\
static inline type name##_xchg(name##_t *v, type i)			\
{									\
	return xchg(&v->counter, i);					\
}									\
static inline type name##_cmpxchg(name##_t *v, type old, type new)	\
{									\
	return cmpxchg(&v->counter, old, new);				\
}									\
static inline bool name##_add_unless(name##_t *v, type a, type u)	\
{									\
	type old = name##_read(v);					\
									\
	while (old != u)						\
		if (try_cmpxchg(&v->counter, &old, old + a))		\
			return true;					\
	return false;							\
}									\
static inline bool name##_inc_not_zero(name##_t *v)			\
{									\
	return name##_add_unless(v, 1, 0);				\
}

SHIM_ATOMIC(atomic, int)
SHIM_ATOMIC(atomic64, s64)

#endif
