// SPDX-License-Identifier: GPL-2.0-or-later
/* Engine calls that overlap, as on several CPUs. */
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "fibers.h"
#include "alloc.h"

#define NR_FIBERS	5		/* the first is the main flow */
#define STACK_BYTES	(512 << 10)
#define ARG_BYTES	64
#define NEVER		U64_MAX

/* The access before which a fiber is suspended. */
struct access {
	const char *at;			/* NULL: none */
	u32 bytes;
	bool write;
	bool marked;			/* READ_ONCE and the like */
	const char *pc;
};

struct fiber {
	ucontext_t context;
	void *stack;
	void (*fn)(struct world *w, void *arg);
	u64 arg[ARG_BYTES / 8];
	bool busy;			/* fn has not returned */
	bool slow;			/* other fibers overtake it */
	bool drowsy;			/* sleeps again and again */
	bool overlapped;		/* other fibers ran since fn began */
	u64 began;			/* time at which fn began */
	u64 budget;			/* accesses until it is suspended */
	struct access next;
	const spinlock_t *wants;	/* the lock that it waits for */
	bool hits;			/* is in hybrid_engine_hit() */
	u32 awaits;			/* bits of fibers: waits until these have left it */
	unsigned int cpu;
	int locks;			/* locks held */
	unsigned long irqs_off;
};

bool sim_interleave;

static struct fiber fiber[NR_FIBERS];
static struct fiber *const main_flow = &fiber[0];
static struct fiber *self = &fiber[0];
static bool on;				/* fibers may be suspended */
static bool nested;			/* the main flow is inside a call of its own */
static int main_locks;			/* ... and holds so many */
static u32 nr_suspended;
static struct rng rng;
static u32 mean_log;			/* of the accesses between two suspensions */
static u32 fiber_percent;		/* of calls that may be suspended */
static u32 slow_percent;

extern char __executable_start;

/* ---- Suspend and go on ------------------------------------------------------ */

static u64 draw_budget(void)
{
	return 1 + rng_below(&rng, 1 << rng_below(&rng, mean_log + 1));
}

static void save(struct fiber *f)
{
	f->cpu = shim_cpu;
	f->locks = shim_locks;
	f->irqs_off = shim_irqs_off;
}

/* A task may continue on another CPU, unless it holds a lock. */
static void restore(struct fiber *f)
{
	shim_cpu = f->locks || rng_below(&rng, 4) ? f->cpu : rng_below(&rng, SHIM_NR_CPUS);
	shim_locks = f->locks;
	shim_irqs_off = f->irqs_off;
	self = f;
}

static void run(struct fiber *f)
{
	struct fiber *before = self;

	save(before);
	restore(f);
	nr_suspended -= f->busy;
	f->busy = true;
	f->budget = f->drowsy ? 1 + rng_below(&rng, 8) : draw_budget();
	f->wants = NULL;
	swapcontext(&before->context, &f->context);
	nr_suspended += f->busy;
	restore(before);
}

/* The main flow has no flow to return to: it lets fibers go on from here. */
static void run_others(void)
{
	bool was_blocking = sim_world->blocking;
	u32 n = 1 + rng_below(&rng, 8);
	unsigned long irqs_off = shim_irqs_off;
	int locks = shim_locks;

	main_locks = locks;
	nested = true;
	sim_world->blocking = true;
	shim_locks = 0;
	shim_irqs_off = 0;
	while (n-- && world_step(sim_world))
		;
	sim_world->blocking = was_blocking;
	nested = false;
	main_locks = 0;
	shim_locks = locks;
	shim_irqs_off = irqs_off;
	main_flow->budget = draw_budget();
}

static void suspend(const struct access *next)
{
	struct fiber *f = self;

	f->next = *next;
	f->overlapped = true;
	if (f == main_flow) {
		run_others();
	} else {
		save(f);
		f->slow = !f->locks && (f->drowsy || rng_chance(&rng, slow_percent));
		trace(sim_world, 30, f - fiber, f->locks, "fiber %d suspended at %#lx%s%s",
		      (int)(f - fiber), next->pc ? (unsigned long)(next->pc - &__executable_start) : 0,
		      f->locks ? ", with a lock" : "", f->wants ? ", waits for one" : "");
		swapcontext(&f->context, &main_flow->context);
		trace(sim_world, 31, f - fiber, shim_cpu, "fiber %d goes on, CPU %u",
		      (int)(f - fiber), shim_cpu);
	}
	f->next.at = NULL;
}

static void fiber_main(void)
{
	struct fiber *f = self;

	for (;;) {
		f->fn(sim_world, f->arg);
		f->busy = false;
		swapcontext(&f->context, &main_flow->context);
	}
}

static void fiber_create(struct fiber *f)
{
	if (!f->stack)
		f->stack = xalloc(STACK_BYTES);
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = STACK_BYTES;
	f->context.uc_link = NULL;
	makecontext(&f->context, fiber_main, 0);
	f->busy = false;
	f->next.at = NULL;
	f->wants = NULL;
	f->hits = false;
	f->awaits = 0;
	f->locks = 0;
}

void fibers_drop(struct world *w)
{
	u32 i;

	if (!on)
		return;
	for (i = 1; i < NR_FIBERS; i++)
		if (fiber[i].busy)
			fiber_create(&fiber[i]);
	nr_suspended = 0;
	nested = false;
	main_locks = 0;
	shim_locks = 0;
	shim_irqs_off = 0;
}

void fibers_begin(struct world *w)
{
	u32 i;

	on = sim_interleave;
	if (!on)
		return;
	rng = rng_fork(&w->rng, 2);
	mean_log = 5 + rng_below(&rng, 8);
	fiber_percent = 10 + rng_below(&rng, 90);
	slow_percent = rng_below(&rng, 60);
	for (i = 1; i < NR_FIBERS; i++)
		fiber_create(&fiber[i]);
	nr_suspended = 0;
	main_flow->budget = draw_budget();
}

/* In most seeds, blocks change owners so often that a sleeping fiber meets it. */
void fibers_profile(struct world *w)
{
	struct profile *p = &w->p;

	if (!on || rng_below(&rng, 4) == 0)
		return;
	p->block_sectors = min(p->block_sectors, 32U);
	p->cache_blocks = 1 + rng_below(&rng, 6);
	p->hot_blocks = 16;
	p->max_ios = max(p->max_ios, 4U);
	p->config.commit_interval = 10 + rng_below(&rng, 100);
	p->weight[EV_READ] += 100;
	p->weight[EV_EVICT] += 20;
	p->weight[EV_TICK] += 20;
	p->weight[EV_POLICY] *= 4;
	if (rng_below(&rng, 2))
		p->cut_every = 0;
}

bool fibers_stop(void)
{
	bool was = on;

	on = false;
	return was;
}

void fibers_go_on(bool was)
{
	on = was;
}

/* ---- For the world ------------------------------------------------------------ */

static struct fiber *free_fiber(void)
{
	u32 i;

	for (i = 1; i < NR_FIBERS; i++)
		if (!fiber[i].busy)
			return &fiber[i];
	return NULL;
}

bool fiber_overlapped(void)
{
	return on && self->overlapped;
}

u64 fiber_began(void)
{
	return fiber_overlapped() ? self->began : sim_now;
}

bool fibers_idle(void)
{
	return !nr_suspended;
}

bool fibers_room(void)
{
	return !nested || free_fiber();
}

bool fibers_locked(void)
{
	u32 i;

	for (i = 1; i < NR_FIBERS; i++)
		if (fiber[i].busy && &fiber[i] != self && fiber[i].locks)
			return true;
	return main_locks;
}

void fiber_call(struct world *w, void (*fn)(struct world *w, void *arg), const void *arg,
		size_t bytes)
{
	struct fiber *f = on ? free_fiber() : NULL;

	if (f && (nested || rng_chance(&rng, fiber_percent))) {
		f->fn = fn;
		memcpy(f->arg, arg, bytes);
		f->cpu = shim_cpu;
		f->locks = 0;
		f->irqs_off = 0;
		f->overlapped = false;
		f->began = sim_now;
		f->drowsy = !rng_below(&rng, 8);
		run(f);
		return;
	}
	main_flow->budget = NEVER;
	main_flow->overlapped = false;
	main_flow->began = sim_now;
	fn(w, (void *)arg);
	if (on)
		main_flow->budget = draw_budget();
}

static bool runnable(const struct fiber *f)
{
	return f->busy && f != self && !f->awaits && (!f->wants || !READ_ONCE(f->wants->held));
}

static bool run_one(bool slow)
{
	u32 i, n = 0;

	for (i = 1; i < NR_FIBERS; i++)
		n += runnable(&fiber[i]) && (slow || !fiber[i].slow);
	if (!n)
		return false;
	n = rng_below(&rng, n);
	for (i = 1; !runnable(&fiber[i]) || (!slow && fiber[i].slow) || n--; i++)
		;
	run(&fiber[i]);
	return true;
}

bool fiber_step(struct world *w, u32 others)
{
	if (!on || !nr_suspended || rng_below(&rng, others + nr_suspended) < others)
		return false;
	if (run_one(!others || !rng_below(&rng, 32)))
		return true;
	if (!others && !nested)
		violation(w, "deadlock", "%u calls wait for each other's locks", nr_suspended);
	return false;
}

void fiber_pause(void)
{
	static const struct access none;

	if (on && self != main_flow && !rng_below(&rng, 4))
		suspend(&none);
}

/* ---- Waits -------------------------------------------------------------------- */

/* Lets other fibers run until this one may go on. */
static void wait_for_others(const char *whom)
{
	static const struct access none;

	if (self != main_flow) {
		suspend(&none);
		return;
	}
	nested = true;
	main_locks = shim_locks;
	WARN(!run_one(true), whom);
	nested = false;
	main_locks = 0;
}

/* Another fiber holds the lock. */
void shim_contended(spinlock_t *lock)
{
	if (!on)
		WARN(true, "a lock is taken twice");
	if (self != main_flow)
		self->wants = lock;
	wait_for_others("a lock that nobody gives back");
}

void fiber_hit(bool begins)
{
	u32 i;

	self->hits = begins;
	for (i = 0; !begins && i < NR_FIBERS; i++)
		fiber[i].awaits &= ~BIT(self - fiber);
}

void fibers_wait_hits(void)
{
	u32 i;

	for (i = 0; on && i < NR_FIBERS; i++)
		if (fiber[i].hits)
			self->awaits |= BIT(i);
	while (self->awaits)
		wait_for_others("a hit that does not return");
}

/* ---- Hooks of the engine ------------------------------------------------------ */

static const char *what(const struct access *a)
{
	return a->write ? a->marked ? "a marked write" : "a plain write" :
	       a->marked ? "a marked read" : "a plain read";
}

static void check_race(const struct access *a, const struct access *b)
{
	if (a->at >= b->at + b->bytes || b->at >= a->at + a->bytes)
		return;
	/* Plain writes of a word are taken for whole, as by KCSAN */
	if ((!a->write && !b->write) || ((a->write || a->marked) && (b->write || b->marked)))
		return;
	violation(sim_world, "race", "%s of %u bytes at %#lx, and %s of %u at %#lx (addr2line -ie)",
		  what(a), a->bytes, (unsigned long)(a->pc - &__executable_start),
		  what(b), b->bytes, (unsigned long)(b->pc - &__executable_start));
}

static void accessed(const struct access *a)
{
	u32 i;

	/* Variables of the shim, which each CPU has of its own. */
	if (a->at == (void *)&shim_cpu || a->at == (void *)&shim_locks ||
	    a->at == (void *)&shim_irqs_off || a->at == (void *)&shim_irqs_on)
		return;
	if (heap_freed(a->at))
		violation(sim_world, "freed", "%s of %u bytes at %#lx, in memory that was freed (addr2line -ie)",
			  what(a), a->bytes, (unsigned long)(a->pc - &__executable_start));
	if (nr_suspended || nested)
		for (i = 0; i < NR_FIBERS; i++)
			if (fiber[i].next.at && &fiber[i] != self)
				check_race(a, &fiber[i].next);
	if (self->budget != NEVER && !--self->budget)
		suspend(a);
}

#define ACCESS(name, size, w, m)						\
void name(const void *p);							\
void name(const void *p)							\
{										\
	struct access a = { p, size, w, m, __builtin_return_address(0) };	\
										\
	if (unlikely(on))							\
		accessed(&a);							\
}

#define ACCESSES(size)						\
	ACCESS(__tsan_read##size, size, false, false)		\
	ACCESS(__tsan_write##size, size, true, false)		\
	ACCESS(__tsan_unaligned_read##size, size, false, false)	\
	ACCESS(__tsan_unaligned_write##size, size, true, false)	\
	ACCESS(__tsan_volatile_read##size, size, false, true)	\
	ACCESS(__tsan_volatile_write##size, size, true, true)

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

#define RANGE(name, w)								\
void name(const void *p, unsigned long bytes);					\
void name(const void *p, unsigned long bytes)					\
{										\
	struct access a = { p, bytes, w, false, __builtin_return_address(0) };	\
										\
	if (unlikely(on))							\
		accessed(&a);							\
}

RANGE(__tsan_read_range, false)
RANGE(__tsan_write_range, true)

#define MARKED(p, w) do {							\
	struct access a = { (const void *)(p), sizeof(*(p)), w, true,		\
			    __builtin_return_address(0) };			\
										\
	if (unlikely(on))							\
		accessed(&a);							\
} while (0)

#define ATOMIC_RMW(bits, op)							\
u##bits __tsan_atomic##bits##_##op(u##bits *p, u##bits v, int order);		\
u##bits __tsan_atomic##bits##_##op(u##bits *p, u##bits v, int order)		\
{										\
	MARKED(p, true);							\
	return __atomic_##op(p, v, __ATOMIC_SEQ_CST);				\
}

#define ATOMICS(bits)								\
u##bits __tsan_atomic##bits##_load(const u##bits *p, int order);		\
u##bits __tsan_atomic##bits##_load(const u##bits *p, int order)			\
{										\
	MARKED(p, false);							\
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);				\
}										\
void __tsan_atomic##bits##_store(u##bits *p, u##bits v, int order);		\
void __tsan_atomic##bits##_store(u##bits *p, u##bits v, int order)		\
{										\
	MARKED(p, true);							\
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);				\
}										\
u##bits __tsan_atomic##bits##_exchange(u##bits *p, u##bits v, int order);	\
u##bits __tsan_atomic##bits##_exchange(u##bits *p, u##bits v, int order)	\
{										\
	MARKED(p, true);							\
	return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);			\
}										\
int __tsan_atomic##bits##_compare_exchange_strong(u##bits *p, u##bits *old,	\
						  u##bits v, int order, int fail); \
int __tsan_atomic##bits##_compare_exchange_strong(u##bits *p, u##bits *old,	\
						  u##bits v, int order, int fail) \
{										\
	MARKED(p, true);							\
	return __atomic_compare_exchange_n(p, old, v, false, __ATOMIC_SEQ_CST,	\
					   __ATOMIC_SEQ_CST);			\
}										\
ATOMIC_RMW(bits, fetch_add)							\
ATOMIC_RMW(bits, fetch_sub)							\
ATOMIC_RMW(bits, fetch_and)							\
ATOMIC_RMW(bits, fetch_or)							\
ATOMIC_RMW(bits, fetch_xor)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

static bool built;

/* Each instrumented file's constructor calls this. */
void __tsan_init(void);
void __tsan_init(void)
{
	built = true;
}

bool fibers_built(void)
{
	return built;
}

/* Memory is in order here, so a barrier does nothing; but other fibers may run. */
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
	struct access none = { .pc = __builtin_return_address(0) };

	if (unlikely(on))
		accessed(&none);
}
