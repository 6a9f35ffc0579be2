// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * replay [--seed N] [--points N] [--samples N] [--at RECORD] [--images DIR] [--trace] TRACE
 *
 * Cuts the power at so many random points of a trace, so many times at each (at
 * all combinations of the volatile writes where there are few), or at one
 * record only.  With --images the first crash state of each point is written to
 * DIR/RECORD: the contents of each member, and the contents of the volumes after
 * recovery.  The last line counts; the exit code is 1 if a promise was broken.
 */
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replay.h"

u64 sim_seeds, sim_crash_states;

static const struct option options[] = {
	{ "seed", required_argument, NULL, 's' },
	{ "points", required_argument, NULL, 'p' },
	{ "samples", required_argument, NULL, 'n' },
	{ "at", required_argument, NULL, 'a' },
	{ "images", required_argument, NULL, 'i' },
	{ "trace", no_argument, NULL, 'v' },
	{ }
};

static u64 images;

/* ---- Images ------------------------------------------------------------------- */

static const char *image_dir;

static int image_open(struct world *w, const char *what, u32 nr, u64 sectors)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%u", image_dir, w->step);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%u/%s%u", image_dir, w->step, what, nr);
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0666);
	if (fd < 0 || ftruncate(fd, sectors * 512))
		die("%s cannot be written", path);
	return fd;
}

static void image_put(int fd, u64 sector, val_t val)
{
	if (pwrite(fd, content_bytes(val), 512, sector * 512) != 512)
		die("an image cannot be written");
}

static void write_members(struct world *w)
{
	u32 i;
	u64 s;
	int fd;

	for (i = 0; i < w->nr_dev; i++) {
		fd = image_open(w, "member", i, w->dev[i]->sectors);
		for (s = 0; s < w->dev[i]->sectors; s++)
			if (w->dev[i]->durable[s] > VAL_ZERO)
				image_put(fd, s, w->dev[i]->durable[s]);
		close(fd);
	}
}

/* Writes the data read back, which is in the oracle's pins. */
static void write_volumes(struct world *w)
{
	u32 i;
	u64 s;
	int fd;

	for (i = 0; i < w->nr_vol; i++) {
		struct oracle *o = w->vol[i]->oracle;

		fd = image_open(w, "volume", i, o->sectors);
		for (s = 0; s < o->sectors; s++) {
			if (!o->pin[s])
				die("sector %llu was not read back", (unsigned long long)s);
			if (o->pin[s] > VAL_ZERO)
				image_put(fd, s, o->pin[s]);
		}
		close(fd);
	}
}

static void make_images(struct world *w)
{
	u32 i;

	write_members(w);
	for (i = 0; i < w->nr_vol; i++)
		memset(w->vol[i]->oracle->touched, 1,
		       w->vol[i]->oracle->sectors >> w->vol[i]->oracle->touched_shift);
	if (crash_boot(w))
		crash_read_back(w);
	if (w->stop)
		return;
	write_volumes(w);
	images++;
}

/* ---- Cuts ---------------------------------------------------------------------- */

struct plan {
	u64 seed, points, samples, at;
};

/* Draws for this record alone, so that --at finds the same states again. */
static bool cut_here(const struct plan *p, const struct trace_file *t, u64 nr, struct rng *rng)
{
	bool drawn;

	rng->state = p->seed + nr * 0x9e3779b97f4a7c15ULL;
	drawn = (rng_next(rng) >> 32) * (t->nr - t->begin) >> 32 < p->points;
	return p->at ? nr == p->at : drawn && nr > t->begin;
}

static void cut(struct world *w, const struct plan *p, struct rng *rng)
{
	w->brng = rng_fork(rng, 1);
	if (image_dir) {
		crash_explore_one(w, rng_below(rng, 1 << 20), false, make_images);
		return;
	}
	crash_explore(w, p->samples);
}

static u64 replay(struct trace_file *t, struct world *w, const struct plan *p)
{
	struct rng rng;
	u64 nr, points = 0;

	for (nr = 0; nr < t->nr && !w->stop; nr++) {
		trace_step(t, w, nr);
		if (!cut_here(p, t, nr, &rng))
			continue;
		points++;
		cut(w, p, &rng);
	}
	return points;
}

int main(int argc, char **argv)
{
	struct plan p = { .seed = 1, .points = 100, .samples = 4 };
	struct trace_file t;
	struct world w;
	u64 points;
	int c;

	sim_contents = content_bytes;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			p.seed = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			p.points = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			p.samples = strtoull(optarg, NULL, 0);
			break;
		case 'a':
			p.at = strtoull(optarg, NULL, 0);
			break;
		case 'i':
			image_dir = optarg;
			break;
		case 'v':
			sim_trace = true;
			break;
		default:
			return 2;
		}
	}
	if (optind != argc - 1)
		die("which trace?");
	trace_open(&t, argv[optind]);
	trace_world(&t, &w);
	sim_world = &w;
	sim_heap = &w.heap;
	w.seed = p.seed;
	points = replay(&t, &w, &p);
	if (sim_violations)
		fprintf(stderr, "reproduce: replay --seed %llu --samples %llu --at %u --trace\n",
			(unsigned long long)p.seed, (unsigned long long)p.samples, w.step);
	printf("replay: records=%llu cut_points=%llu crash_states=%llu ",
	       (unsigned long long)t.nr, (unsigned long long)points,
	       (unsigned long long)sim_crash_states);
	printf("images=%llu violations=%llu\n", (unsigned long long)images,
	       (unsigned long long)sim_violations);
	return sim_violations ? 1 : 0;
}
