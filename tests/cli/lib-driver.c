// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Drives the library for tests: formats image files, and sends lines of tables,
 * status and messages through parser and builder.
 *
 *	lib-driver format-cache FILE NAME BLOCK_SECTORS
 *	lib-driver format-origin FILE NAME POOL_UUID
 *	lib-driver mark-detached FILE
 *	lib-driver wipe FILE
 *	lib-driver root FILE		print what the current root says
 *	lib-driver lines		stdin: KIND TEXT; stdout: TEXT or "invalid"
 *	lib-driver sizes		stdin: a size; stdout: bytes or "invalid"
 *	lib-driver config FILE		print what a hybrid.conf says
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "dm.h"
#include "errors.h"
#include "members.h"
#include "tables.h"

static int open_file(struct hybrid_device *dev, const char *path)
{
	return hybrid_device_open(dev, path,
				  HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
}

static int format_cache(const char *path, const char *name, const char *block)
{
	struct hybrid_cache_plan plan = { .block_sectors = strtoul(block, NULL, 10),
					  .policy = "lru" };
	char uuid[HYBRID_UUID_TEXT];
	struct hybrid_device dev;
	int r;

	snprintf(plan.name, sizeof(plan.name), "%s", name);
	r = open_file(&dev, path);
	if (!r)
		r = hybrid_cache_plan(&dev, &plan);
	if (!r)
		r = hybrid_cache_format(&dev, &plan);
	if (!r)
		puts(hybrid_uuid_text(uuid, plan.sb.pool_uuid));
	return r;
}

static int format_origin(const char *path, const char *name, const char *pool)
{
	struct hybrid_origin_plan plan = { .granule_sectors = 8 };
	char uuid[HYBRID_UUID_TEXT];
	struct hybrid_device dev;
	int r;

	snprintf(plan.name, sizeof(plan.name), "%s", name);
	if (!hybrid_uuid_parse(pool, plan.pool_uuid))
		return HYBRID_USAGE;
	r = open_file(&dev, path);
	if (!r)
		r = hybrid_origin_plan(&dev, &plan);
	if (!r)
		r = hybrid_origin_format(&dev, &plan);
	if (!r)
		puts(hybrid_uuid_text(uuid, plan.sb.volume_uuid));
	return r;
}

static int mark_detached(const char *path)
{
	struct hybrid_device dev;
	int r = open_file(&dev, path);

	return r ? r : hybrid_member_mark_detached(&dev, NULL);
}

static int wipe(const char *path)
{
	struct hybrid_device dev;
	struct hybrid_member m;
	int r = open_file(&dev, path);

	if (r || hybrid_member_read(&dev, &m))
		return r ? r : HYBRID_BADDEV;
	return hybrid_member_wipe(&dev, &m.sb);
}

static int print_root(const char *path)
{
	struct hybrid_root_info info[2];
	struct hybrid_root *block = hybrid_buffer(sizeof(*block));
	struct hybrid_device dev;
	struct hybrid_ident id;
	struct hybrid_member m;
	const char *why;
	u16 *generations;
	u64 used = 0;
	u32 i;
	int r;

	if (open_file(&dev, path) || hybrid_member_read(&dev, &m) || !m.ok)
		return HYBRID_BADDEV;
	generations = calloc(m.sb.geometry.nr_index, sizeof(*generations));
	memcpy(id.pool_uuid, m.sb.pool_uuid, 16);
	for (i = 0; i < 2; i++) {
		hybrid_device_read(&dev, hybrid_root_sector(&m.sb.geometry, i), block,
				   sizeof(*block));
		r = hybrid_root_decode(block, &m.sb.geometry, &id, &info[i], generations, &why);
		printf("%c %d", 'A' + i, r);
		if (r) {
			putchar('\n');
			continue;
		}
		for (u32 j = 0; j < m.sb.geometry.nr_index; j++)
			used += generations[j];
		printf(" sequence=%llu tail=%llu head=%llu flags=%u next_instance=%u generations=%llu epoch=%s\n",
		       info[i].sequence, info[i].journal_tail, info[i].journal_head,
		       info[i].flags, info[i].next_instance, used,
		       info[i].epoch ? "set" : "none");
	}
	free(generations);
	free(block);
	return 0;
}

static int round_trip(const char *kind, const char *text, char *buf, size_t len)
{
	struct hybrid_volume_status volume_status;
	struct hybrid_pool_status pool_status;
	struct hybrid_volume_table volume_table;
	struct hybrid_pool_table pool_table;
	struct hybrid_volume_line line;

	if (!strcmp(kind, "pool-table"))
		return hybrid_pool_table_parse(text, &pool_table) ? -1 :
		       hybrid_pool_table_build(buf, len, &pool_table);
	if (!strcmp(kind, "volume-table"))
		return hybrid_volume_table_parse(text, &volume_table) ? -1 :
		       hybrid_volume_table_build(buf, len, &volume_table);
	if (!strcmp(kind, "pool-status"))
		return hybrid_pool_status_parse(text, &pool_status) ? -1 :
		       hybrid_pool_status_build(buf, len, &pool_status);
	if (!strcmp(kind, "volume-status"))
		return hybrid_volume_status_parse(text, &volume_status) ? -1 :
		       hybrid_volume_status_build(buf, len, &volume_status);
	if (!strcmp(kind, "volume-line"))
		return hybrid_volume_line_parse(text, &line) ? -1 :
		       hybrid_volume_line_build(buf, len, &line);
	return -1;
}

static int lines(void)
{
	char in[2048], out[2048], *text;

	while (fgets(in, sizeof(in), stdin)) {
		in[strcspn(in, "\n")] = '\0';
		text = strchr(in, ' ');
		if (text)
			*text++ = '\0';
		puts(round_trip(in, text ? text : "", out, sizeof(out)) < 0 ? "invalid" : out);
	}
	return 0;
}

static int sizes(void)
{
	char in[256];
	uint64_t bytes;

	while (fgets(in, sizeof(in), stdin)) {
		in[strcspn(in, "\n")] = '\0';
		if (hybrid_parse_size(in, &bytes))
			puts("invalid");
		else
			printf("%llu\n", (unsigned long long)bytes);
	}
	return 0;
}

static void print_words(const char *name, const struct hybrid_words *words)
{
	unsigned int i;

	printf("%s:", name);
	for (i = 0; i < words->nr; i++)
		printf(" %s", words->word[i]);
	putchar('\n');
}

static int print_config(const char *path)
{
	static const char * const autoactivate[] = { "all", "listed", "none" };
	struct hybrid_config config;
	unsigned int i;
	char text[HYBRID_UUID_TEXT];

	hybrid_config_read(&config, path);
	print_words("devices", &config.devices);
	print_words("ignore_devices", &config.ignore_devices);
	printf("autoactivate: %s\n", autoactivate[config.autoactivate]);
	print_words("autoactivate_list", &config.autoactivate_list);
	printf("ephemeral:");
	for (i = 0; i < config.nr_ephemeral; i++)
		printf(" %s,%s,%s,%u", config.ephemeral[i].device, config.ephemeral[i].pool,
		       config.ephemeral[i].policy, config.ephemeral[i].block_sectors);
	printf("\nhost_id: %s\nerrors: %u\n", hybrid_uuid_text(text, config.host_id),
	       config.errors);
	hybrid_config_free(&config);
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	hybrid_output.program = "lib-driver";
	if (!strcmp(verb, "format-cache") && argc == 5)
		return format_cache(argv[2], argv[3], argv[4]);
	if (!strcmp(verb, "format-origin") && argc == 5)
		return format_origin(argv[2], argv[3], argv[4]);
	if (!strcmp(verb, "mark-detached") && argc == 3)
		return mark_detached(argv[2]);
	if (!strcmp(verb, "wipe") && argc == 3)
		return wipe(argv[2]);
	if (!strcmp(verb, "root") && argc == 3)
		return print_root(argv[2]);
	if (!strcmp(verb, "lines"))
		return lines();
	if (!strcmp(verb, "sizes"))
		return sizes();
	if (!strcmp(verb, "config") && argc == 3)
		return print_config(argv[2]);
	return hybrid_fail(HYBRID_USAGE, NULL, "see the head of lib-driver.c");
}
