/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_PERCPU_H
#define SHIM_LINUX_PERCPU_H

#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/slab.h>

/* A per-CPU object may be up to this big. */
#define SHIM_PERCPU_STRIDE 4096
#ifndef SHIM_NR_CPUS
#define SHIM_NR_CPUS 2
#endif

/* The CPU that the caller runs on; a test sets it. */
unsigned int shim_cpu __attribute__((weak));

#define nr_cpu_ids SHIM_NR_CPUS
#define num_possible_cpus() SHIM_NR_CPUS
#define num_online_cpus() SHIM_NR_CPUS
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < SHIM_NR_CPUS; (cpu)++)
#define for_each_online_cpu(cpu) for_each_possible_cpu(cpu)

#define raw_smp_processor_id() shim_cpu
#define smp_processor_id() shim_cpu
#define get_cpu() shim_cpu
#define put_cpu() ((void)0)
#define preempt_disable() ((void)0)
#define preempt_enable() ((void)0)

#define alloc_percpu_gfp(type, gfp) ({					\
	BUILD_BUG_ON(sizeof(type) > SHIM_PERCPU_STRIDE);		\
	(type *)kcalloc(SHIM_NR_CPUS, SHIM_PERCPU_STRIDE, gfp); })
#define alloc_percpu(type) alloc_percpu_gfp(type, GFP_KERNEL)
#define free_percpu(p) kfree(p)

#define per_cpu_ptr(p, cpu) \
	((__typeof__(p))((char *)(p) + (size_t)(cpu) * SHIM_PERCPU_STRIDE))
#define this_cpu_ptr(p) per_cpu_ptr(p, shim_cpu)
#define raw_cpu_ptr(p) this_cpu_ptr(p)
#define get_cpu_ptr(p) this_cpu_ptr(p)
#define put_cpu_ptr(p) ((void)(p))

#define this_cpu_read(v) READ_ONCE(*this_cpu_ptr(&(v)))
#define this_cpu_write(v, x) WRITE_ONCE(*this_cpu_ptr(&(v)), x)
#define this_cpu_add(v, x) \
	((void)__atomic_fetch_add(this_cpu_ptr(&(v)), x, __ATOMIC_RELAXED))
#define this_cpu_sub(v, x) \
	((void)__atomic_fetch_sub(this_cpu_ptr(&(v)), x, __ATOMIC_RELAXED))
#define this_cpu_inc(v) this_cpu_add(v, 1)
#define this_cpu_dec(v) this_cpu_sub(v, 1)
#define __this_cpu_read(v) this_cpu_read(v)
#define __this_cpu_add(v, x) this_cpu_add(v, x)
#define __this_cpu_inc(v) this_cpu_inc(v)
#define __this_cpu_dec(v) this_cpu_dec(v)

#endif
