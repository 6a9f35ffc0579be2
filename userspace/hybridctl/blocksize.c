// SPDX-License-Identifier: GPL-2.0-or-later
/* The block size of a new pool, if the user gives none. */
#include <unistd.h>

#include "engine.h"
#include "errors.h"
#include "options.h"
#include "units.h"

/* The map may take a 32nd of the machine's memory; a 64th to have the smallest blocks. */
#define MEMORY_SHARE		32
#define MEMORY_SHARE_SMALLEST	64

uint32_t choose_block_size(const char *policy_name, uint64_t cache_sectors,
			   uint32_t journal_blocks)
{
	const struct hybrid_policy_type *policy = hybrid_policy_get(policy_name);
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	char takes[32], would_take[32], all[32];
	uint32_t block = DEFAULT_BLOCK_SECTORS, share;
	uint64_t need, first = 0;
	struct hybrid_geometry g;
	const char *why;

	if (!policy)
		policy = hybrid_policy_get(DEFAULT_POLICY);
	for (;; block *= 2) {
		/* Formatting reports sizes that do not fit at all. */
		if (hybrid_geometry_init(&g, cache_sectors, block, journal_blocks, &why))
			return DEFAULT_BLOCK_SECTORS;
		need = hybrid_engine_ram(&g, policy);
		first = first ? first : need;
		share = block == DEFAULT_BLOCK_SECTORS ? MEMORY_SHARE_SMALLEST : MEMORY_SHARE;
		if (need <= memory / share || block == HYBRID_MAX_BLOCK_SECTORS)
			break;
	}
	hybrid_format_size(takes, sizeof(takes), need, 'h');
	hybrid_format_size(would_take, sizeof(would_take), first, 'h');
	hybrid_format_size(all, sizeof(all), memory, 'h');
	if (block == DEFAULT_BLOCK_SECTORS)
		hybrid_verbose("blocks of %u KiB: the pool takes %s of %s of memory", block / 2,
			       takes, all);
	else
		hybrid_note("blocks of %u KiB: the pool takes %s of %s of memory; with blocks of %u KiB it would take %s",
			    block / 2, takes, all, DEFAULT_BLOCK_SECTORS / 2, would_take);
	return block;
}
