// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pause points, in /sys/module/dm_hybrid/parameters:
 *
 *   pause	Write a point's name, and the next task that comes there stays.  Write an
 *		empty line, and it goes on.
 *   paused	"armed"; "held"; or "passed" if the task may not sleep there, and there is
 *		no other CPU that could let it go.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#define NAME_SIZE	32

static DEFINE_SPINLOCK(lock);	/* of the variables below */
static char armed[NAME_SIZE];
static const char *state = "";
static unsigned int releases;	/* READ_ONCE without the lock */

static bool may_sleep(void)
{
	bool reader = rcu_preempt_depth();

	/* Without lockdep, rcu_read_lock_held() is always true. */
	if (IS_ENABLED(CONFIG_DEBUG_LOCK_ALLOC))
		reader |= rcu_read_lock_held();
	return !reader && !preempt_count() && !irqs_disabled();
}

static void pause_task(const char *name, bool sleeps)
{
	bool stays = sleeps || IS_ENABLED(CONFIG_SMP);
	unsigned long flags;
	unsigned int seen;
	bool mine;

	spin_lock_irqsave(&lock, flags);
	seen = releases;
	mine = !strcmp(armed, name);
	if (mine) {
		*armed = '\0';
		state = stays ? "held" : "passed";
	}
	spin_unlock_irqrestore(&lock, flags);
	if (!mine || !stays)
		return;
	pr_info("paused: %s\n", name);
	while (READ_ONCE(releases) == seen) {
		if (sleeps)
			msleep(20);
		else
			cpu_relax();
	}
}

void hybrid_pause(const char *name)
{
	pause_task(name, may_sleep());
}

void hybrid_pause_running(const char *name)
{
	pause_task(name, false);
}

static int set_pause(const char *text, const struct kernel_param *kp)
{
	char name[NAME_SIZE];
	unsigned long flags;

	if (strscpy(name, text, sizeof(name)) < 0)
		return -EINVAL;
	spin_lock_irqsave(&lock, flags);
	WRITE_ONCE(releases, releases + 1);
	strscpy(armed, strim(name), sizeof(armed));
	state = *armed ? "armed" : "";
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static int get_paused(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", READ_ONCE(state));
}

static const struct kernel_param_ops pause_ops = { .set = set_pause };
static const struct kernel_param_ops paused_ops = { .get = get_paused };

module_param_cb(pause, &pause_ops, NULL, 0200);
module_param_cb(paused, &paused_ops, NULL, 0400);
