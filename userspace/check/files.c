// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ext2/3/4: debugfs, which finds a file system at an offset.  Its icheck prints the
 * inode of a block, and ncheck the paths of an inode.  Its testb tells whether a
 * block without an inode is in use: then it belongs to the file system itself.
 *
 * XFS: the commands for xfs_db are printed.  xfs_db wants the file system to be
 * the whole device; otherwise the command for losetup is printed, too.
 *
 * All of them read the origin.  If structures of the file system itself are among
 * the lost data, the tools' answers are old, or wrong.
 */
#define _GNU_SOURCE
#include <blkid/blkid.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "errors.h"
#include "files.h"

#define BATCH		4096	/* numbers in one command line */
#define MAX_NUMBERS	(1U << 20)
#define EXT_ROOT_INODE	2
#define EXT_FIRST_INODE	11

struct numbers {
	u64 *list;
	size_t nr;
};

struct search {
	const struct hybrid_place *place;
	char target[HYBRID_PATH_MAX + 32];	/* for debugfs */
	struct numbers blocks, inodes, others;
	bool capped;
	unsigned int own, unused;	/* blocks that no inode has */
};

static int add_number(struct numbers *n, u64 value)
{
	void *list;

	if (!(n->nr & (n->nr + 1))) {
		list = reallocarray(n->list, 2 * (n->nr + 1), sizeof(u64));
		if (!list)
			return hybrid_nomem();
		n->list = list;
	}
	n->list[n->nr++] = value;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static void sort_unique(struct numbers *n)
{
	size_t i, k = 0;

	qsort(n->list, n->nr, sizeof(u64), compare_numbers);
	for (i = 0; i < n->nr; i++)
		if (!k || n->list[k - 1] != n->list[i])
			n->list[k++] = n->list[i];
	n->nr = k;
}

/* ---- running tools --------------------------------------------------------- */

/* Call @line for each line that the program prints.  Returns an exit code. */
static int run_tool(char * const *argv, int (*line)(struct search *s, char *text),
		    struct search *s)
{
	int out[2], status, r = 0;
	char *text = NULL;
	size_t len = 0;
	FILE *f;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC))
		return hybrid_nomem();
	pid = fork();
	if (!pid) {
		dup2(out[1], STDOUT_FILENO);
		dup2(open("/dev/null", O_RDWR), STDERR_FILENO);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	while (f && getline(&text, &len, f) > 0)
		if (!r)
			r = line(s, text);
	free(text);
	if (f)
		fclose(f);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return hybrid_fail(HYBRID_PARTIAL, "is it installed, and is the file system sound?",
				   "%s failed on %s", argv[0], s->place->path);
	return r;
}

/* debugfs -R "@verb numbers": as often as the command line needs. */
static int run_debugfs(struct search *s, const char *verb, const struct numbers *n,
		       int (*line)(struct search *s, char *text))
{
	char *request, *p;
	char *argv[] = { "debugfs", "-R", NULL, s->target, NULL };
	size_t i = 0, k;
	int r = 0;

	request = malloc(64 + BATCH * 24);
	if (!request)
		return hybrid_nomem();
	argv[2] = request;
	while (!r && i < n->nr) {
		p = request + sprintf(request, "%s", verb);
		for (k = 0; k < BATCH && i < n->nr; k++)
			p += sprintf(p, " %" PRIu64, (uint64_t)n->list[i++]);
		r = run_tool(argv, line, s);
	}
	free(request);
	return r;
}

/* ---- ext4 ------------------------------------------------------------------ */

static int icheck_line(struct search *s, char *text)
{
	uint64_t block, inode;

	if (sscanf(text, "%" SCNu64 " %" SCNu64, &block, &inode) == 2) {
		/* Of the reserved inodes, only the root directory has a path */
		if (inode >= EXT_FIRST_INODE || inode == EXT_ROOT_INODE)
			return add_number(&s->inodes, inode);
		s->own++;
	} else if (sscanf(text, "%" SCNu64 " <block", &block) == 1) {
		/* testb does not take block 0 */
		if (block)
			return add_number(&s->others, block);
		s->own++;
	}
	return 0;
}

static int ncheck_line(struct search *s, char *text)
{
	uint64_t inode;
	int n;

	(void)s;
	/* Paths in the root directory begin with two slashes */
	if (sscanf(text, "%" SCNu64 " %n", &inode, &n) == 1)
		printf("  %s", text + n + !strncmp(text + n, "//", 2));
	return 0;
}

static int testb_line(struct search *s, char *text)
{
	if (strstr(text, "marked in use"))
		s->own++;
	else if (strstr(text, "not in use"))
		s->unused++;
	return 0;
}

/* testb takes a block and a count. */
static int test_others(struct search *s)
{
	struct numbers run = { .list = (u64[2]) {}, .nr = 2 };
	size_t i, n;
	int r = 0;

	for (i = 0; !r && i < s->others.nr; i += n) {
		for (n = 1; i + n < s->others.nr; n++)
			if (s->others.list[i + n] != s->others.list[i] + n)
				break;
		run.list[0] = s->others.list[i];
		run.list[1] = n;
		r = run_debugfs(s, "testb", &run, testb_line);
	}
	return r;
}

static int add_blocks(struct search *s, const struct hybrid_ranges *ranges, const char *volume,
		      u64 block)
{
	const struct hybrid_range *range;
	u64 b, end;
	int r = 0;

	for (range = ranges->list; range < ranges->list + ranges->nr; range++) {
		if (strcmp(range->volume, volume))
			continue;
		end = (range->sector + range->count) * 512;
		for (b = range->sector * 512 / block; !r && b * block < end; b++) {
			s->capped = s->blocks.nr >= MAX_NUMBERS;
			if (s->capped)
				return 0;
			r = add_number(&s->blocks, b);
		}
	}
	if (!r)
		sort_unique(&s->blocks);
	return r;
}

static void say_what_is_unknown(const struct search *s)
{
	if (s->unused)
		printf("  %u blocks are not in use\n", s->unused);
	if (s->own)
		printf("  %u blocks hold structures of the file system itself: the list may be "
		       "wrong, and more files may be affected\n", s->own);
	if (s->capped)
		printf("  there are more blocks, which were not searched\n");
}

static int search_ext(struct search *s, const struct hybrid_ranges *ranges, const char *volume,
		      u64 block)
{
	int r;

	snprintf(s->target, sizeof(s->target), s->place->offset ? "%s?offset=%" PRIu64 : "%s",
		 s->place->path, (uint64_t)s->place->offset);
	r = add_blocks(s, ranges, volume, block);
	if (!r)
		r = run_debugfs(s, "icheck", &s->blocks, icheck_line);
	sort_unique(&s->inodes);
	if (!r)
		r = run_debugfs(s, "ncheck", &s->inodes, ncheck_line);
	if (!r)
		r = test_others(s);
	if (!r)
		say_what_is_unknown(s);
	return r;
}

/* ---- XFS ------------------------------------------------------------------- */

static void print_xfs(const struct hybrid_place *place, const struct hybrid_ranges *ranges,
		      const char *volume, u64 block)
{
	const struct hybrid_range *range;
	const char *device = place->path;
	u64 left = MAX_NUMBERS, more = 0, n, k;

	if (place->offset) {
		printf("  losetup --show -f -r -o %" PRIu64 " --sizelimit %" PRIu64 " %s\n",
		       (uint64_t)place->offset, (uint64_t)place->size, place->path);
		device = "LOOP";
	}
	/* A command line would not hold them all */
	printf("  xfs_db -r %s <<'END'%s\nblockget -n\n", device,
	       place->offset ? "\t# the device that losetup printed" : "");
	for (range = ranges->list; range < ranges->list + ranges->nr; range++) {
		if (strcmp(range->volume, volume))
			continue;
		n = DIV_ROUND_UP(range->count, block / 512);
		for (k = 0; k < n && left; k++, left--)
			printf("daddr %" PRIu64 "\nblockuse -n\n",
			       (uint64_t)(range->sector + k * (block / 512)));
		more += n - k;
	}
	printf("END\n");
	if (more)
		printf("  there are %" PRIu64 " more blocks, which were left out\n", (uint64_t)more);
}

/* ---- which filesystem ------------------------------------------------------ */

/* The block size, from the superblock: the libblkid at hand may be too old to know it. */
static u64 block_bytes(int fd, const struct hybrid_place *place, const char *type)
{
	u8 sb[2048];
	u32 log;

	if (pread(fd, sb, sizeof(sb), place->offset) != sizeof(sb))
		return 0;
	if (!strcmp(type, "xfs"))
		return (u32)sb[4] << 24 | sb[5] << 16 | sb[6] << 8 | sb[7];
	log = sb[1024 + 24];
	return log < 7 ? 1024U << log : 0;
}

static bool probe(const struct hybrid_place *place, char type[32], u64 *block)
{
	int fd = open(place->path, O_RDONLY | O_CLOEXEC);
	blkid_probe p = blkid_new_probe();
	const char *value;
	bool found = false;

	if (p && fd >= 0 && !blkid_probe_set_device(p, fd, place->offset, place->size)) {
		blkid_probe_enable_superblocks(p, 1);
		blkid_probe_set_superblocks_flags(p, BLKID_SUBLKS_TYPE);
		if (!blkid_do_safeprobe(p) && !blkid_probe_lookup_value(p, "TYPE", &value, NULL)) {
			snprintf(type, 32, "%s", value);
			*block = block_bytes(fd, place, type);
			found = *block >= 512;
		}
	}
	blkid_free_probe(p);
	if (fd >= 0)
		close(fd);
	return found;
}

int hybrid_files_print(const struct hybrid_ranges *ranges, const char *volume,
		       const struct hybrid_place *place)
{
	struct search s = { .place = place };
	char type[32];
	u64 block = 0;
	int r = 0;

	if (!probe(place, type, &block)) {
		printf("%s: no file system is recognised on %s: its files are unknown\n", volume,
		       place->path);
		return 0;
	}
	if (!strncmp(type, "ext", 3)) {
		printf("%s: files of %s, provided that it is sound (see e2fsck -fn):\n", volume,
		       type);
		/* So that the tools' output does not overtake it */
		fflush(stdout);
		r = search_ext(&s, ranges, volume, block);
	} else if (!strcmp(type, "xfs")) {
		printf("%s: these commands find the files of xfs:\n", volume);
		print_xfs(place, ranges, volume, block);
	} else {
		printf("%s: there is no way to find files of %s: they are unknown\n",
		       volume, type);
	}
	free(s.blocks.list);
	free(s.inodes.list);
	free(s.others.list);
	return r;
}
