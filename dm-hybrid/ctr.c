// SPDX-License-Identifier: GPL-2.0-only
/* Parses the words of tables and messages. */
#include <linux/uuid.h>

#include "target.h"

static const char * const mode_names[HYBRID_NR_MODES] = {
	[HYBRID_MODE_WRITETHROUGH] = "writethrough",
	[HYBRID_MODE_WRITEBACK] = "writeback",
	[HYBRID_MODE_WRITEAROUND] = "writearound",
	[HYBRID_MODE_PASSTHROUGH] = "passthrough",
};

const char *hybrid_mode_name(u32 mode)
{
	return mode < HYBRID_NR_MODES ? mode_names[mode] : "unknown";
}

int hybrid_mode_parse(const char *name)
{
	return match_string(mode_names, HYBRID_NR_MODES, name);
}

int hybrid_uuid_parse(const char *text, u8 uuid[HYBRID_UUID_SIZE])
{
	uuid_t parsed;

	if (strlen(text) != UUID_STRING_LEN || uuid_parse(text, &parsed))
		return -EINVAL;
	export_uuid(uuid, &parsed);
	return 0;
}

/* ---- tunables ------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t config, settings;	/* offsets in the structs */
	u32 min, max;
	char *error;
} tunables[] = {
	{ "high_watermark", offsetof(struct hybrid_config, high_watermark),
	  offsetof(struct hybrid_settings, high_watermark), 1, 95,
	  "high_watermark must be 1 to 95" },
	{ "low_watermark", offsetof(struct hybrid_config, low_watermark),
	  offsetof(struct hybrid_settings, low_watermark), 0, 95,
	  "low_watermark must be 0 to high_watermark" },
	{ "writeback_rate", offsetof(struct hybrid_config, writeback_rate),
	  offsetof(struct hybrid_settings, writeback_rate), 0, U32_MAX,
	  "writeback_rate must be a number of KiB a second" },
	{ "commit_interval", offsetof(struct hybrid_config, commit_interval),
	  offsetof(struct hybrid_settings, commit_interval), 10, 60000,
	  "commit_interval must be 10 to 60000" },
	{ "endurance", offsetof(struct hybrid_config, endurance),
	  offsetof(struct hybrid_settings, endurance), 0, HYBRID_MAX_ENDURANCE,
	  "endurance must be 0 to 33554432" },
	{ "metadata_share", offsetof(struct hybrid_config, metadata_share),
	  offsetof(struct hybrid_settings, metadata_share), 0, 90,
	  "metadata_share must be 0 to 90" },
	{ "trim_rate", offsetof(struct hybrid_config, trim_rate),
	  offsetof(struct hybrid_settings, trim_rate), 0, U32_MAX,
	  "trim_rate must be a number of KiB a second" },
	{ "read_error_limit", offsetof(struct hybrid_config, read_error_limit),
	  offsetof(struct hybrid_settings, read_error_limit), 0, U32_MAX,
	  "read_error_limit must be a number of errors" },
	{ "write_error_limit", offsetof(struct hybrid_config, write_error_limit),
	  offsetof(struct hybrid_settings, write_error_limit), 0, U32_MAX,
	  "write_error_limit must be a number of errors" },
};

static_assert(ARRAY_SIZE(tunables) == sizeof(struct hybrid_config) / sizeof(u32));
static_assert(ARRAY_SIZE(tunables) == sizeof(struct hybrid_settings) / sizeof(u64));

static u32 *tunable(struct hybrid_config *config, unsigned int i)
{
	return (u32 *)((char *)config + tunables[i].config);
}

static bool tunable_fits(unsigned int i, u64 value)
{
	return value >= tunables[i].min && value <= tunables[i].max;
}

int hybrid_tunable_parse(const char *name, const char *value, struct hybrid_config *config,
			 char **error)
{
	unsigned int i;
	u32 v;

	for (i = 0; i < ARRAY_SIZE(tunables); i++)
		if (!strcmp(name, tunables[i].name))
			break;
	if (i == ARRAY_SIZE(tunables))
		return -ENOENT;
	*error = tunables[i].error;
	if (!value || kstrtou32(value, 10, &v) || !tunable_fits(i, v))
		return -EINVAL;
	*tunable(config, i) = v;
	return i;
}

char *hybrid_tunables_contradict(const struct hybrid_config *config)
{
	return config->low_watermark > config->high_watermark ?
		"low_watermark must be 0 to high_watermark" : NULL;
}

void hybrid_tunables_merge(struct hybrid_config *config, const struct tunable_words *words)
{
	struct hybrid_config given = words->config;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tunables); i++)
		if (words->given & BIT(i))
			*tunable(config, i) = *tunable(&given, i);
}

const char *hybrid_tunable_print(const struct hybrid_config *config, unsigned int i, u32 *value)
{
	struct hybrid_config copy = *config;

	if (i >= ARRAY_SIZE(tunables))
		return NULL;
	*value = *tunable(&copy, i);
	return tunables[i].name;
}

const char *hybrid_tunables_recorded(const struct hybrid_settings *settings,
				     struct hybrid_config *config)
{
	static const struct hybrid_config defaults = HYBRID_CONFIG_DEFAULT;
	const char *bad = NULL, *error;
	unsigned int i;
	u64 recorded;

	*config = defaults;
	for (i = 0; i < ARRAY_SIZE(tunables); i++) {
		recorded = *(const u64 *)((const char *)settings + tunables[i].settings);
		if (!recorded)
			continue;
		if (tunable_fits(i, recorded - 1))
			*tunable(config, i) = recorded - 1;
		else
			bad = tunables[i].error;
	}
	error = hybrid_tunables_contradict(config);
	if (error) {
		config->high_watermark = defaults.high_watermark;
		config->low_watermark = defaults.low_watermark;
		bad = error;
	}
	return bad;
}

/* ---- the pool's table ----------------------------------------------------- */

static int parse_pool_feature(struct dm_arg_set *as, unsigned int *left, struct pool_args *args,
			      char **error)
{
	const char *name = dm_shift_arg(as);
	const char *value = --*left ? dm_shift_arg(as) : NULL;
	int r;

	if (!strcmp(name, "uuid")) {
		*error = "uuid must be 8-4-4-4-12 hex digits";
		if (!value || hybrid_uuid_parse(value, args->uuid))
			return -EINVAL;
		args->has_uuid = true;
	} else {
		r = hybrid_tunable_parse(name, value, &args->words.config, error);
		if (r == -ENOENT)
			*error = "Unknown feature of a pool";
		if (r < 0)
			return -EINVAL;
		args->words.given |= BIT(r);
	}
	--*left;
	return 0;
}

static int parse_block_size(struct dm_arg_set *as, u32 *block_sectors, char **error)
{
	const char *arg = dm_shift_arg(as);

	*error = "Block size must be a power of two, 8 to 2048 sectors";
	if (!arg || kstrtou32(arg, 10, block_sectors) || !is_power_of_2(*block_sectors) ||
	    *block_sectors < HYBRID_MIN_BLOCK_SECTORS || *block_sectors > HYBRID_MAX_BLOCK_SECTORS)
		return -EINVAL;
	return 0;
}

int hybrid_pool_parse(struct dm_arg_set *as, struct pool_args *args, char **error)
{
	/* uuid and all tunables, each with its value */
	static const struct dm_arg features = {
		0, 2 * (1 + ARRAY_SIZE(tunables)), "Bad number of feature arguments"
	};
	static const struct dm_arg policy = { 0, 0, "The policy takes no arguments" };
	unsigned int left;
	int r;

	*args = (struct pool_args) {};
	r = parse_block_size(as, &args->block_sectors, error);
	if (r)
		return r;
	r = dm_read_arg_group(&features, as, &left, error);
	while (!r && left)
		r = parse_pool_feature(as, &left, args, error);
	if (r)
		return r;
	*error = "No policy given";
	args->policy = dm_shift_arg(as);
	if (!args->policy)
		return -EINVAL;
	r = dm_read_arg_group(&policy, as, &left, error);
	if (r)
		return r;
	*error = "Too many arguments";
	return as->argc ? -EINVAL : 0;
}

/* ---- a volume's table ----------------------------------------------------- */

static int parse_volume_feature(struct dm_arg_set *as, unsigned int *left,
				struct volume_args *args, char **error)
{
	const char *name = dm_shift_arg(as);
	int mode = hybrid_mode_parse(name);

	--*left;
	if (mode >= 0) {
		*error = "More than one mode given";
		if (args->has_mode)
			return -EINVAL;
		args->has_mode = true;
		args->mode = mode;
	} else if (!strcmp(name, "inplace")) {
		args->inplace = true;
	} else if (!strcmp(name, "cutoff")) {
		*error = "cutoff must be a number of sectors";
		if (!*left || kstrtou64(dm_shift_arg(as), 10, &args->cutoff))
			return -EINVAL;
		args->has_cutoff = true;
		--*left;
	} else {
		*error = "Unknown feature of a volume";
		return -EINVAL;
	}
	return 0;
}

int hybrid_volume_parse(struct dm_arg_set *as, struct volume_args *args, char **error)
{
	static const struct dm_arg features = { 0, 4, "Bad number of feature arguments" };
	unsigned int left;
	int r;

	r = dm_read_arg_group(&features, as, &left, error);
	while (!r && left)
		r = parse_volume_feature(as, &left, args, error);
	if (r)
		return r;
	*error = "Too many arguments";
	return as->argc ? -EINVAL : 0;
}
