// SPDX-License-Identifier: GPL-2.0-or-later
/* hybridctl metadata-size: the metadata and memory that a cache device of some size needs. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "devices.h"
#include "engine.h"
#include "errors.h"
#include "options.h"
#include "units.h"

/* A device, a file, or a size. */
static int get_sectors(const char *text, uint64_t *sectors)
{
	struct hybrid_device dev;
	struct stat st;
	uint64_t bytes;
	int r;

	if (stat(text, &st) && !hybrid_parse_size(text, &bytes)) {
		*sectors = bytes / 512;
		return 0;
	}
	r = hybrid_device_open(&dev, text, HYBRID_OPEN_FILES);
	if (r)
		return r;
	*sectors = dev.sectors;
	hybrid_device_close(&dev);
	return 0;
}

static int get_geometry(const struct command_line *cl, struct hybrid_geometry *g)
{
	uint32_t block, journal;
	const char *why = NULL;
	uint64_t sectors;
	int r;

	r = parse_pool_sizes(cl, &block, &journal);
	if (!r)
		r = get_sectors(cl->argv[0], &sectors);
	if (r)
		return r;
	if (hybrid_geometry_init(g, sectors, block, journal, &why))
		return hybrid_fail(HYBRID_BADDEV,
				   "choose another size, --block-size or --journal-size",
				   "%s cannot be a cache device: %s", cl->argv[0], why);
	return 0;
}

int command_metadata_size(const struct command_line *cl)
{
	const char *unit = cl->value[OPT_UNITS];
	struct hybrid_geometry g;
	int r;

	if (unit && !hybrid_unit_valid(unit))
		return hybrid_fail(HYBRID_USAGE, "use one of h, b, s, k, m, g, t",
				   "no such unit: %s", unit);
	r = get_geometry(cl, &g);
	if (r || cl->given[OPT_QUIET])
		return r;

	const struct {
		const char *key, *text;
		u64 bytes;
	} line[] = {
		{ "device", "device", g.member_sectors * 512 },
		{ "metadata", "metadata before the data", g.data_sector * 512 },
		{ "journal", "... the journal among them",
		  (u64)g.journal_blocks * HYBRID_META_BLOCK_SIZE },
		{ "intents", "... the intents among them",
		  (u64)g.intent_blocks * HYBRID_META_BLOCK_SIZE },
		{ "data", "data", (u64)g.nr_blocks * g.block_sectors * 512 },
		{ "block_size", "one block", g.block_sectors * 512ULL },
		{ "granule_size", "one granule", g.granule_sectors * 512ULL },
		{ "memory", "memory in the kernel",
		  hybrid_engine_ram(&g, hybrid_policy_get(DEFAULT_POLICY)) },
	};
	struct json_object *o = json_object_new_object();
	char size[32];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(line); i++) {
		json_object_object_add(o, line[i].key, json_object_new_uint64(line[i].bytes));
		if (!cl->given[OPT_JSON])
			printf("%-26s %10s\n", line[i].text,
			       hybrid_format_size(size, sizeof(size), line[i].bytes,
						  unit ? unit[0] : 'h'));
	}
	json_object_object_add(o, "blocks", json_object_new_uint64(g.nr_blocks));
	if (cl->given[OPT_JSON])
		puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	else
		printf("%-26s %10u\n", "blocks", g.nr_blocks);
	json_object_put(o);
	return 0;
}
