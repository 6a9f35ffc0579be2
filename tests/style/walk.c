// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The ways through the engine: which functions some events enter, in which order.  Prints "= EVENT",
 * then the address of each.  walk.py builds it, with the engine's functions instrumented.
 */
#include <stdio.h>
#include "rig.h"

static bool on;

void __cyg_profile_func_enter(void *fn, void *site);
void __cyg_profile_func_exit(void *fn, void *site);

void __cyg_profile_func_enter(void *fn, void *site)
{
	if (on)
		printf("%p\n", fn);
}

void __cyg_profile_func_exit(void *fn, void *site)
{
}

static void walk(const char *event)
{
	on = event;
	if (event)
		printf("= %s\n", event);
}

/* With all that follows, and without the checks of the rig's own functions. */
static void io(struct user *u, enum hybrid_io_type type, u64 sector)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	fill_data(u, sector, 8, 2);
	arrive(u, type, sector, type == HYBRID_IO_FLUSH ? 0 : 8, 0, &acts);
	carry(&acts);
}

int main(void)
{
	setup(NULL);
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	/* One that is cached and clean, one that is dirty */
	reads(8 * BLOCK, 8, 0);
	put(BLOCK, 8, 1);
	rest();
	walk("a hit, read");
	io(&reader, HYBRID_IO_READ, 8 * BLOCK);
	walk("a hit, write");
	io(&writer, HYBRID_IO_WRITE, BLOCK);
	walk("a miss, read");
	io(&reader, HYBRID_IO_READ, 4 * BLOCK);
	walk("a miss, write");
	io(&writer, HYBRID_IO_WRITE, 6 * BLOCK);
	walk("a flush with a record");
	io(&flusher, HYBRID_IO_FLUSH, 0);
	walk(NULL);
	return teardown(NULL);
}
