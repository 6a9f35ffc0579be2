/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of a dump, in this order; hybrid-dump(5) explains them. */
#ifndef HYBRID_DUMP_H
#define HYBRID_DUMP_H

#include "json.h"
#include "metadata.h"

#define DUMP_VERSION	6

/* dump_head.flags */
#define DUMP_COMPLETE_BIT	0	/* all volumes */
#define DUMP_MAPPINGS_BIT	1	/* with open regions and mappings */

struct dump_head {
	u32 version, flags;
};

struct dump_pool {
	struct hybrid_sb sb;
	struct hybrid_root_info root;
};

struct dump_volume {
	u32 id;
	struct hybrid_volume_info info;
	struct hybrid_volume_usage usage;
};

struct dump_regions {
	u32 set;
	u64 open;
};

/* @count neighbouring cache blocks that hold neighbouring blocks of a volume, equal in all else. */
struct dump_mapping {
	u32 block, count, volume;
	u64 oblock, valid, dirty;
	u8 hint;
};

extern const struct json_field dump_head_fields[], dump_pool_fields[], dump_volume_fields[],
	dump_regions_fields[], dump_mapping_fields[];

#endif
