// SPDX-License-Identifier: GPL-2.0-or-later
/* hybridctl dump: a pool's metadata as JSON. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "dump.h"
#include "errors.h"
#include "salvage.h"
#include "tables.h"

/* ---- fields ------------------------------------------------------------ */

static const char * const states[] = { "free", "active", "detached", NULL };

#define FIELD(record, text, what, member, limit, list) \
	{ .name = text, .kind = what, .offset = offsetof(struct record, member), \
	  .size = sizeof(((struct record *)0)->member), .max = limit, .words = list }
#define NUMBER(record, text, member, limit) \
	FIELD(record, text, JSON_NUMBER, member, limit, NULL)
#define VALUE(record, text, what, member) FIELD(record, text, what, member, 0, NULL)

const struct json_field dump_head_fields[] = {
	NUMBER(dump_head, "version", version, U32_MAX),
	FIELD(dump_head, "complete", JSON_BOOL, flags, DUMP_COMPLETE_BIT, NULL),
	FIELD(dump_head, "mappings", JSON_BOOL, flags, DUMP_MAPPINGS_BIT, NULL),
	{}
};

#define POOL(text, what, member) VALUE(dump_pool, text, what, sb.member)
#define POOL_NUMBER(text, member) \
	NUMBER(dump_pool, text, sb.member, sizeof(((struct hybrid_sb *)0)->member) == 4 ? \
	       U32_MAX : U64_MAX)

const struct json_field dump_pool_fields[] = {
	POOL("name", JSON_NAME, name),
	POOL("uuid", JSON_UUID, pool_uuid),
	POOL("member_uuid", JSON_UUID, member_uuid),
	POOL("policy", JSON_NAME, policy),
	POOL_NUMBER("member_sectors", member_sectors),
	POOL_NUMBER("block_sectors", geometry.block_sectors),
	POOL_NUMBER("granule_sectors", geometry.granule_sectors),
	POOL_NUMBER("journal_blocks", geometry.journal_blocks),
	POOL_NUMBER("blocks", geometry.nr_blocks),
	POOL_NUMBER("set_blocks", geometry.set_size),
	POOL_NUMBER("data_sector", geometry.data_sector),
	POOL_NUMBER("sequence", sequence),
	POOL("compat", JSON_HEX, compat),
	POOL("ro_compat", JSON_HEX, ro_compat),
	POOL("incompat", JSON_HEX, incompat),
	POOL("host_id", JSON_UUID, host_id),
	POOL("replaces", JSON_UUID, replaces),
	FIELD(dump_pool, "ephemeral", JSON_BOOL, sb.flags, 3, NULL),
	POOL_NUMBER("high_watermark", settings.high_watermark),
	POOL_NUMBER("low_watermark", settings.low_watermark),
	POOL_NUMBER("writeback_rate", settings.writeback_rate),
	POOL_NUMBER("commit_interval", settings.commit_interval),
	POOL_NUMBER("endurance", settings.endurance),
	POOL_NUMBER("metadata_share", settings.metadata_share),
	POOL_NUMBER("trim_rate", settings.trim_rate),
	POOL_NUMBER("read_error_limit", settings.read_error_limit),
	POOL_NUMBER("write_error_limit", settings.write_error_limit),
	NUMBER(dump_pool, "next_instance", root.next_instance, U32_MAX),
	FIELD(dump_pool, "clean", JSON_BOOL, root.flags, 0, NULL),
	NUMBER(dump_pool, "written_sectors", root.written_sectors, U64_MAX),
	NUMBER(dump_pool, "read_errors", root.read_errors, U32_MAX),
	NUMBER(dump_pool, "write_errors", root.write_errors, U32_MAX),
	NUMBER(dump_pool, "halved_ms", root.halved_ms, HYBRID_DAY_MS - 1),
	{}
};

_Static_assert(HYBRID_SB_EPHEMERAL == BIT(3) && HYBRID_ROOT_CLEAN == BIT(0) && HYBRID_VOLUME_INPLACE == BIT(0) &&
	       HYBRID_VOLUME_WAS_DIRTY == BIT(1), "the bits above and below");

#define VOLUME(text, what, member) VALUE(dump_volume, text, what, info.member)
#define VOLUME_NUMBER(text, member, limit) NUMBER(dump_volume, text, member, limit)

const struct json_field dump_volume_fields[] = {
	VOLUME_NUMBER("id", id, HYBRID_MAX_VOLUMES - 1),
	VOLUME("name", JSON_NAME, name),
	VOLUME("uuid", JSON_UUID, uuid),
	FIELD(dump_volume, "state", JSON_WORD, info.state, 0, states),
	FIELD(dump_volume, "mode", JSON_WORD, info.mode, 0, hybrid_mode_names),
	FIELD(dump_volume, "in_place", JSON_BOOL, info.flags, 0, NULL),
	FIELD(dump_volume, "was_dirty", JSON_BOOL, info.flags, 1, NULL),
	VOLUME_NUMBER("instance", info.instance, U32_MAX),
	VOLUME("member_uuid", JSON_UUID, member_uuid),
	VOLUME("pairing_key", JSON_KEY, pairing_key),
	VOLUME_NUMBER("data_sector", info.data_sector, U64_MAX),
	VOLUME_NUMBER("data_sectors", info.data_sectors, U64_MAX),
	VOLUME("nonce", JSON_HEX, nonce),
	VOLUME("nonce_old", JSON_HEX, nonce_old),
	VOLUME_NUMBER("cutoff_sectors", info.cutoff_sectors, U64_MAX),
	VOLUME_NUMBER("data_sectors_new", info.data_sectors_new, U64_MAX),
	VOLUME_NUMBER("quota_sectors", info.quota_sectors, U64_MAX),
	VOLUME_NUMBER("minimum_sectors", info.minimum_sectors, U64_MAX),
	VOLUME_NUMBER("blocks", usage.blocks, U64_MAX),
	VOLUME_NUMBER("dirty_blocks", usage.dirty_blocks, U64_MAX),
	{}
};

const struct json_field dump_regions_fields[] = {
	NUMBER(dump_regions, "set", set, U32_MAX),
	VALUE(dump_regions, "open", JSON_HEX, open),
	{}
};

const struct json_field dump_mapping_fields[] = {
	NUMBER(dump_mapping, "block", block, U32_MAX),
	NUMBER(dump_mapping, "count", count, U32_MAX),
	NUMBER(dump_mapping, "volume", volume, HYBRID_MAX_VOLUMES - 1),
	NUMBER(dump_mapping, "origin_block", oblock, U64_MAX),
	VALUE(dump_mapping, "valid", JSON_HEX, valid),
	VALUE(dump_mapping, "dirty", JSON_HEX, dirty),
	NUMBER(dump_mapping, "hint", hint, U8_MAX),
	{}
};

/* ---- printing ---------------------------------------------------------- */

struct dump {
	const struct command_line *cl;
	const struct hybrid_device *dev;
	const struct hybrid_metadata *md;
	FILE *out;
	char *path, *temporary;		/* a regular file to replace, and the new one; or NULL */
	u64 printed;			/* elements of the array at hand */
};

static void element(struct dump *d, const struct json_field *fields, const void *record)
{
	fputs(d->printed++ ? ",\n" : "\n", d->out);
	json_print(d->out, fields, record);
}

static void begin_array(struct dump *d, const char *name)
{
	fprintf(d->out, ",\n\"%s\": [", name);
	d->printed = 0;
}

static void end_array(struct dump *d)
{
	fputs(d->printed ? "\n]" : "]", d->out);
}

static bool wanted(const struct dump *d, u32 id)
{
	return hybrid_volume_named(&d->md->volume[id], d->cl->value[OPT_VOLUME]);
}

static void print_head(struct dump *d)
{
	struct dump_head head = { .version = DUMP_VERSION };
	struct dump_pool pool = { .sb = d->md->sb, .root = d->md->root };

	head.flags = (u32)!d->cl->value[OPT_VOLUME] << DUMP_COMPLETE_BIT |
		     (u32)!d->cl->given[OPT_SKIP_MAPPINGS] << DUMP_MAPPINGS_BIT;
	fputs("{\n\"dm_hybrid_dump\": ", d->out);
	json_print(d->out, dump_head_fields, &head);
	fputs(",\n\"pool\": ", d->out);
	json_print(d->out, dump_pool_fields, &pool);
}

static void print_volumes(struct dump *d)
{
	u32 id;

	begin_array(d, "volumes");
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		struct dump_volume v = { .id = id, .info = d->md->volume[id],
					 .usage = d->md->usage[id] };

		if (v.info.state != HYBRID_VOLUME_FREE && wanted(d, id))
			element(d, dump_volume_fields, &v);
	}
	end_array(d);
}

static void print_regions(struct dump *d)
{
	struct dump_regions r;

	begin_array(d, "open_regions");
	for (r.set = 0; r.set < d->md->g->nr_sets; r.set++) {
		r.open = d->md->open[r.set];
		if (r.open)
			element(d, dump_regions_fields, &r);
	}
	end_array(d);
}

/* Does block @b continue the mapping @m of the blocks before it? */
static bool goes_on(const struct hybrid_metadata *md, const struct dump_mapping *m, u32 instance,
		    size_t b)
{
	return md->block_state[b] == HYBRID_BLOCK_LIVE && md->instance[b] == instance &&
	       md->oblock[b] == m->oblock + m->count && md->valid[b] == m->valid &&
	       md->dirty[b] == m->dirty && md->hint[b] == m->hint;
}

static void print_mappings(struct dump *d)
{
	const struct hybrid_metadata *md = d->md;
	struct dump_mapping m;
	size_t b;

	begin_array(d, "mappings");
	for (b = 0; b < md->g->nr_blocks; b += m.count) {
		m = (struct dump_mapping) {
			.block = b, .count = 1, .oblock = md->oblock[b], .valid = md->valid[b],
			.dirty = md->dirty[b], .hint = md->hint[b],
		};
		if (md->block_state[b] != HYBRID_BLOCK_LIVE)
			continue;
		m.volume = hybrid_metadata_volume_of(md, md->instance[b]);
		while (b + m.count < md->g->nr_blocks &&
		       goes_on(md, &m, md->instance[b], b + m.count))
			m.count++;
		if (wanted(d, m.volume))
			element(d, dump_mapping_fields, &m);
	}
	end_array(d);
}

static void print_all(struct dump *d)
{
	print_head(d);
	print_volumes(d);
	if (!d->cl->given[OPT_SKIP_MAPPINGS]) {
		print_regions(d);
		print_mappings(d);
	}
	fputs("\n}\n", d->out);
}

/* ---- the command ------------------------------------------------------- */

/* A dump has keys in it, so nobody else may read it.  An existing file has a mode of its own. */
static void keep_from_others(int fd, const char *path)
{
	struct stat st;

	/* File systems without modes refuse it, or pass over it */
	if (fchmod(fd, 0600) || fstat(fd, &st) || st.st_mode & 077)
		hybrid_warn("other users can read %s, which has the keys that pair origins with their cache", path);
}

/* A device is no place for a dump. */
static int open_in_place(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return fd;
	if (!fstat(fd, &st) && (S_ISBLK(st.st_mode) || (S_ISREG(st.st_mode) && ftruncate(fd, 0)))) {
		errno = S_ISBLK(st.st_mode) ? EISDIR : errno;
		close(fd);
		return -1;
	}
	return fd;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether the output is a regular file.  Standard output stays the file that the caller has opened. */
static bool replaces_file(const char *path, bool *exists, struct stat *st)
{
	struct stat out;

	*exists = !stat(path, st);
	if (!*exists)
		return errno == ENOENT;
	return S_ISREG(st->st_mode) && (fstat(STDOUT_FILENO, &out) || !same_file(&out, st));
}

/* A new file beside the old one, with the same owner. */
static int open_beside(struct dump *d, const char *path, const struct stat *old)
{
	struct stat link;
	const char *name;
	int fd;

	if (old)
		d->path = realpath(path, NULL);
	else if (lstat(path, &link))
		d->path = strdup(path);
	if (!d->path)		/* errno is ENOENT for a symbolic link that leads nowhere */
		return -1;
	name = strrchr(d->path, '/');
	if (asprintf(&d->temporary, "%.*s.hybrid_dump.XXXXXX",
		     name ? (int)(name + 1 - d->path) : 0, d->path) < 0) {
		d->temporary = NULL;
		errno = ENOMEM;
		return -1;
	}
	fd = mkostemp(d->temporary, O_CLOEXEC);
	if (fd >= 0 && old && fchown(fd, old->st_uid, old->st_gid))
		hybrid_warn("%s will have another owner or group than before", path);
	return fd;
}

/* Until it is complete, a dump does not take the place of the one before. */
static int open_output(struct dump *d, const char *path)
{
	struct stat st = {}, in;
	bool exists, beside = replaces_file(path, &exists, &st);
	int fd;

	if (exists && !fstat(d->dev->fd, &in) && same_file(&in, &st))
		return hybrid_fail(HYBRID_REFUSED, "give another file with --output",
				   "%s is the cache device that is to be dumped", path);
	hold_signals();
	fd = beside ? open_beside(d, path, exists ? &st : NULL) : open_in_place(path);
	if (fd >= 0 && (beside || (exists && S_ISREG(st.st_mode))))
		keep_from_others(fd, path);
	d->out = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (d->out)
		return 0;
	hybrid_fail(HYBRID_REFUSED, "give the name of a file with --output",
		    "%s: cannot write a dump there: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && beside)
		unlink(d->temporary);
	return HYBRID_REFUSED;
}

/* Takes the name of the file away from @path, and makes the directory durable. */
static int sync_directory(char *path)
{
	char *name = strrchr(path, '/');
	int fd, r;

	if (name)
		name[1] = '\0';
	fd = open(name ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 || (fsync(fd) && errno != EINVAL);
	if (fd >= 0)
		close(fd);
	return r;
}

static int close_output(struct dump *d)
{
	int r = fflush(d->out) || ferror(d->out), error;

	/* The device may be repaired or replaced next; a pipe fails with EINVAL */
	if (!r)
		r = fsync(fileno(d->out)) && errno != EINVAL;
	r |= fclose(d->out);
	if (!d->temporary)
		return r;
	if (!r && !rename(d->temporary, d->path))
		return sync_directory(d->path);
	error = errno;
	unlink(d->temporary);
	errno = error;
	return -1;
}

static int dump(struct dump *d)
{
	const char *path = d->cl->value[OPT_OUTPUT];
	int r;

	r = hybrid_volumes_named(d->md, d->cl->value[OPT_VOLUME]);
	if (r)
		return r;
	d->out = stdout;
	r = path ? open_output(d, path) : 0;
	if (!r) {
		print_all(d);
		r = path ? close_output(d) : fflush(d->out) || ferror(d->out);
		if (r)
			r = hybrid_fail(HYBRID_PARTIAL, "check the free space",
					"%s: the dump could not be written completely: %s",
					path ? path : "stdout", strerror(errno));
	}
	return r;
}

static int read_whole(struct hybrid_metadata *md, const struct hybrid_device *dev)
{
	struct hybrid_findings f = {};
	int r;

	r = hybrid_metadata_read(md, dev, &f);
	if (r == HYBRID_NOMEM)
		goto out;
	if (r || hybrid_findings_worst(&f) == HYBRID_DAMAGE)
		r = hybrid_findings_fail(&f, "see hybridctl check; --repair dumps the parts that are certain",
					 "%s: the metadata is damaged", dev->path);
out:
	hybrid_findings_free(&f);
	return r;
}

/* Dumps the metadata that repair would keep. */
static int dump_salvaged(struct dump *d, const struct hybrid_device *dev)
{
	struct hybrid_ranges stale = {};
	struct hybrid_salvage s;
	int r;

	r = hybrid_salvage_read(&s, dev);
	if (!r) {
		d->md = &s.md;
		hybrid_salvage_stale(&s, &stale);
		r = stale.nomem ? hybrid_nomem() : dump(d);
	}
	if (!r && (stale.nr || s.lost_volumes)) {
		hybrid_warn("the dump is not complete: hybridctl repair --test %s says more",
			    dev->path);
		r = HYBRID_PARTIAL;
	}
	hybrid_ranges_free(&stale);
	hybrid_salvage_free(&s);
	return r;
}

int command_dump(const struct command_line *cl)
{
	struct hybrid_metadata md = {};
	struct hybrid_device dev;
	struct dump d = { .cl = cl, .dev = &dev, .md = &md };
	int r;

	r = hybrid_device_open(&dev, cl->argv[0], HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (r)
		return r;
	if (cl->given[OPT_REPAIR]) {
		r = dump_salvaged(&d, &dev);
	} else {
		r = read_whole(&md, &dev);
		if (!r)
			r = dump(&d);
	}
	free(d.temporary);
	free(d.path);
	hybrid_metadata_free(&md);
	hybrid_device_close(&dev);
	return r;
}
