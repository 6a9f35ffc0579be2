// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * replay TARGET FILE...	give each file to a target; *.change are text (see change.h)
 * replay --text FILE...	print inputs as text
 *
 * replay --seeds DIRECTORY [FILE...]	write inputs to begin with: one change of each
 *				field, and the files as bytes
 *
 * replay --dump IMAGE [brief]	the output of hybridctl dump; brief: without mappings
 * replay --export DIRECTORY NR SEED	damaged images for a guest
 * replay --matrix		the corruption matrix, to stdout
 */
#include <malloc.h>
#include <stdlib.h>

#include "errors.h"
#include "targets.h"

#define X(name) { #name, fuzz_##name },
static const struct {
	const char *name;
	void (*run)(const u8 *bytes, size_t len);
} targets[] = {
	FUZZ_TARGETS(X)
};
#undef X

static FILE *open_file(const char *path, const char *mode)
{
	FILE *file = fopen(path, mode);

	if (!file) {
		perror(path);
		exit(2);
	}
	return file;
}

/* The input in @path, as bytes. */
static size_t read_input(const char *path, u8 *bytes, size_t max)
{
	const char *dot = strrchr(path, '.');
	FILE *file = open_file(path, "r");
	struct damage d;
	size_t len;
	int line;

	if (dot && !strcmp(dot, ".change")) {
		line = damage_from_text(&d, file);
		if (line) {
			fprintf(stderr, "%s:%d: not understood\n", path, line);
			exit(2);
		}
		len = damage_to_bytes(&d, bytes, max);
	} else {
		len = fread(bytes, 1, max, file);
	}
	fclose(file);
	return len;
}

static void write_seed(const char *directory, const char *name, const struct damage *d)
{
	u8 bytes[1 + sizeof(d->change)];
	size_t len = damage_to_bytes(d, bytes, sizeof(bytes));
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = open_file(path, "w");
	fwrite(bytes, 1, len, file);
	fclose(file);
}

static void write_seeds(const char *directory)
{
	struct image *im = images();
	struct damage d = { .image = im, .nr = 1 };
	char name[80];
	u32 i, k;

	for (i = 0; i < im->nr_places; i++)
		for (k = 0; k < fields_of[im->place[i].kind].nr; k++) {
			const struct field *f = &fields_of[im->place[i].kind].field[k];

			if (!field_applies(&im->place[i], f))
				continue;
			d.change[0] = (struct change){
				.verb = CHANGE_ADD, .place = i, .field = cpu_to_le16(k),
				.value = cpu_to_le64(1),
			};
			snprintf(name, sizeof(name), "%s.%s", im->place[i].name, f->name);
			write_seed(directory, name, &d);
		}
}

static void text_seed(const char *directory, const char *path)
{
	u8 bytes[1 + MAX_CHANGES * sizeof(struct change)];
	const char *name = strrchr(path, '/');
	struct damage d;

	damage_from_bytes(&d, bytes, read_input(path, bytes, sizeof(bytes)));
	write_seed(directory, name ? name + 1 : path, &d);
}

int main(int argc, char **argv)
{
	static u8 bytes[1 << 20];
	struct damage d;
	size_t len;
	u32 t;
	int i;

	hybrid_output.silent = true;
	/* Memory that comes and goes all the time need not be fresh from the kernel */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	if (argc == 2 && !strcmp(argv[1], "--matrix"))
		return matrix();
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "--seeds")) {
		write_seeds(argv[2]);
		for (i = 3; i < argc; i++)
			text_seed(argv[2], argv[i]);
		return 0;
	}
	if (!strcmp(argv[1], "--export") && argc == 5) {
		export_images(argv[2], atoi(argv[3]), atoi(argv[4]));
		return 0;
	}
	if (!strcmp(argv[1], "--dump"))
		return print_dump(image_find(argv[2]), argc > 3);
	for (t = 0; t < ARRAY_SIZE(targets) && strcmp(targets[t].name, argv[1]); t++)
		;
	if (t < ARRAY_SIZE(targets))
		be_quiet();
	for (i = 2; i < argc; i++) {
		len = read_input(argv[i], bytes, sizeof(bytes));
		if (t < ARRAY_SIZE(targets)) {
			time_limit();
			targets[t].run(bytes, len);
			continue;
		}
		damage_from_bytes(&d, bytes, len);
		damage_to_text(&d, stdout);
	}
	return 0;
}
