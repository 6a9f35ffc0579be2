// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sim [--seed N] [--count M] [--time S] [--mode A|B] [--trace] [--faults] [--rot] [--events]
 *     [--policies] [--demand-fill] [--alloc-faults] [--collisions] [--hash] [--keep-going] [--no-linter] [--limit S]
 *     [--table] [--interleave] [--hang] [--nowait] [--grow]
 *
 * sim --isolation [--hang-of TEXT] [--operation TEXT]
 * sim --loop alloc|io [--nth N] ...
 * sim --mode C [--length L] [--part I/N] [--time S]
 * sim --seed N ... --record|--shrink
 * sim --script FILE [--trace] [--hash] [--shrink]
 *
 * Runs the seeds N ... N + M - 1, or as many as S seconds allow.  The last line
 * counts; the exit code is 1 if a promise or a rule was broken.
 *
 * - --limit: a seed that takes more than S CPU seconds counts as one that never ends.
 * - --table: which faults happened in which phases.
 * - --interleave: engine calls overlap, as on several CPUs.
 * - --demand-fill: fills read only requested granules, unless they continue a run.
 * - --alloc-faults: allocations that may not wait fail now and then.
 * - --nowait: users' I/O that must not wait, and devices that would have to wait for it.
 * - --grow: origins that grow, and their volumes with them.
 * - --hang: origins do not answer for a while, and other volumes must go on.
 * - --isolation: the cost of each hang to each operation of a volume whose origin answers,
 *   as a table; --hang-of, --operation: only rows, columns with TEXT in their names.
 * - --collisions: rare coincidences (see collisions.c) are frequent.
 *
 * --loop: a short run of each seed again and again, in which the first, the second,
 * ... allocation (request to a device) fails; with --nth, only the N-th.  -N: all later
 * ones of its kind fail, too.
 *
 * --record prints the decisions of a seed as a script; --shrink the shortest script
 * that breaks the same rule; --script replays one ("-": standard input).
 */
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"
#include "coverage.h"
#include "fibers.h"
#include "script.h"

u64 sim_seeds, sim_crash_states;

static const struct option options[] = {
	{ "seed", required_argument, NULL, 's' },
	{ "count", required_argument, NULL, 'n' },
	{ "time", required_argument, NULL, 't' },
	{ "mode", required_argument, NULL, 'm' },
	{ "trace", no_argument, NULL, 'v' },
	{ "faults", no_argument, NULL, 'f' },
	{ "events", no_argument, NULL, 'e' },
	{ "hang", no_argument, NULL, 'H' },
	{ "rot", no_argument, NULL, 'Z' },
	{ "policies", no_argument, NULL, 'y' },
	{ "demand-fill", no_argument, NULL, 'b' },
	{ "alloc-faults", no_argument, NULL, 'M' },
	{ "collisions", no_argument, NULL, 'W' },
	{ "nowait", no_argument, NULL, 'w' },
	{ "grow", no_argument, NULL, 'g' },
	{ "hash", no_argument, NULL, 'h' },
	{ "keep-going", no_argument, NULL, 'k' },
	{ "no-linter", no_argument, NULL, 'l' },
	{ "limit", required_argument, NULL, 'c' },
	{ "length", required_argument, NULL, 'C' },
	{ "part", required_argument, NULL, 'P' },
	{ "loop", required_argument, NULL, 'L' },
	{ "nth", required_argument, NULL, 'N' },
	{ "isolation", no_argument, NULL, 'I' },
	{ "hang-of", required_argument, NULL, 'G' },
	{ "operation", required_argument, NULL, 'O' },
	{ "table", no_argument, NULL, 'T' },
	{ "interleave", no_argument, NULL, 'i' },
	{ "script", required_argument, NULL, 'p' },
	{ "record", no_argument, NULL, 'r' },
	{ "shrink", no_argument, NULL, 'S' },
	{ }
};

/* An assertion of the engine, a wild pointer, no end: names the seed. */
static void died(int sig)
{
	struct world *w = sim_world;
	char buf[128];
	int n = snprintf(buf, sizeof(buf), "VIOLATION %s %d seed=%llu step=%u time=%llu%s\n",
			 sig == SIGVTALRM ? "endless" : "signal", sig,
			 w ? (unsigned long long)w->seed : 0, w ? w->step : 0,
			 (unsigned long long)sim_now,
			 w && w->branch ? " in a crash state" : "");

	if (write(2, buf, n) < 0)
		_exit(2);
	signal(sig, SIG_DFL);
	raise(sig);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static struct {
	u64 seed, count;
	double limit;
	bool hashes, keep_going, isolation, table, record, shrink;
	const char *script, *loop, *hang_of, *operation;
	u64 runs;		/* of loops */
	s64 nth;
	u32 length, part, parts;
	struct itimerval seed_limit;
	char mode;
} opt = { .seed = 1, .mode = 'A', .length = 3, .parts = 1 };

static double start;

static bool parse(int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			opt.seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			opt.count = strtoull(optarg, NULL, 0);
			break;
		case 't':
			opt.limit = strtod(optarg, NULL);
			break;
		case 'm':
			opt.mode = *optarg;
			break;
		case 'v':
			sim_trace = true;
			break;
		case 'f':
			sim_faults = true;
			break;
		case 'e':
			sim_events = true;
			break;
		case 'Z':
			sim_rot = true;
			break;
		case 'y':
			sim_policies = true;
			break;
		case 'b':
			sim_demand_fill = true;
			break;
		case 'M':
			sim_alloc_faults = true;
			break;
		case 'W':
			sim_collisions = true;
			break;
		case 'w':
			sim_nowait = true;
			break;
		case 'g':
			sim_grow = true;
			break;
		case 'H':
			sim_hang = true;
			break;
		case 'h':
			opt.hashes = true;
			break;
		case 'l':
			sim_lint = false;
			break;
		case 'i':
			sim_interleave = true;
			break;
		case 'k':
			opt.keep_going = true;
			break;
		case 'c':
			opt.seed_limit.it_value.tv_sec = strtol(optarg, NULL, 0);
			break;
		case 'C':
			opt.length = strtoul(optarg, NULL, 0);
			break;
		case 'P':
			if (sscanf(optarg, "%u/%u", &opt.part, &opt.parts) != 2 || !opt.parts)
				return false;
			break;
		case 'L':
			opt.loop = optarg;
			break;
		case 'N':
			opt.nth = strtoll(optarg, NULL, 0);
			break;
		case 'I':
			opt.isolation = true;
			break;
		case 'G':
			opt.hang_of = optarg;
			break;
		case 'O':
			opt.operation = optarg;
			break;
		case 'T':
			opt.table = true;
			break;
		case 'p':
			opt.script = optarg;
			break;
		case 'r':
			opt.record = true;
			break;
		case 'S':
			opt.shrink = true;
			break;
		default:
			return false;
		}
	}
	return optind == argc;
}

static void report(u64 seed, u64 hash, u64 violations_before)
{
	if (opt.hashes || sim_trace)
		printf("seed=%llu hash=%016llx\n", (unsigned long long)seed,
		       (unsigned long long)hash);
	if (sim_violations != violations_before)
		fprintf(stderr, "reproduce: sim --mode %c --seed %llu%s%s%s%s%s%s%s%s%s%s%s --trace\n", opt.mode,
			(unsigned long long)seed, sim_faults ? " --faults" : "",
			sim_events ? " --events" : "", sim_rot ? " --rot" : "",
			sim_policies ? " --policies" : "", sim_demand_fill ? " --demand-fill" : "",
			sim_alloc_faults ? " --alloc-faults" : "", sim_collisions ? " --collisions" : "",
			sim_hang ? " --hang" : "", sim_nowait ? " --nowait" : "",
			sim_grow ? " --grow" : "",
			sim_interleave ? " --interleave" : "");
}

static bool go_on(void)
{
	return !opt.limit || seconds() - start < opt.limit;
}

static void run_seeds(void)
{
	u64 hash, n;

	if (!opt.count)
		opt.count = opt.limit ? U64_MAX : 1;
	for (n = 0; n < opt.count && (opt.keep_going || !sim_violations); n++) {
		u64 before = sim_violations;

		if (!go_on())
			break;
		setitimer(ITIMER_VIRTUAL, &opt.seed_limit, NULL);
		sim_seeds++;
		if (opt.loop) {
			opt.runs += loop_seed(opt.loop, opt.seed + n, opt.nth);
			continue;
		}
		run_seed(opt.seed + n, opt.mode, &hash);
		report(opt.seed + n, hash, before);
	}
}

/* Plays the script, or records or shrinks the first seed. */
static int play_script(void)
{
	bool standard = !opt.script || !strcmp(opt.script, "-");
	FILE *f = standard ? stdin : fopen(opt.script, "r");
	struct script *s = NULL;
	u64 hash;

	if (!opt.script)
		s = script_of_seed(opt.seed, opt.mode);
	else if (f)
		s = script_read(f, opt.script);
	else
		perror(opt.script);
	if (f && !standard)
		fclose(f);
	if (!s)
		return 2;
	if (opt.record) {
		script_print(s, stdout);
	} else if (opt.shrink) {
		script_shrink(s);
	} else {
		run_script(s, &hash);
		sim_seeds++;
		if (opt.hashes)
			printf("hash=%016llx\n", (unsigned long long)hash);
	}
	script_free(s);
	return 0;
}

int main(int argc, char **argv)
{
	u64 sum = 0;

	/* The next seed reuses the memory that a seed frees: new pages would cost a tenth of the time. */
	mallopt(M_MMAP_THRESHOLD, INT_MAX);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	start = seconds();
	if (!parse(argc, argv))
		return 2;
	if (sim_interleave && (!fibers_built() || opt.script || opt.record || opt.shrink)) {
		fprintf(stderr, "--interleave: for seeds, and a sim built by make interleave\n");
		return 2;
	}
	signal(SIGABRT, died);
	signal(SIGSEGV, died);
	signal(SIGBUS, died);
	signal(SIGFPE, died);
	signal(SIGVTALRM, died);
	if (opt.isolation) {
		sim_seeds = isolation_run(opt.hang_of, opt.operation);
	} else if (opt.script || opt.record || opt.shrink) {
		int r = play_script();

		if (r || opt.record || opt.shrink)
			return r;
	} else if (opt.mode == 'C') {
		sim_seeds = exhaustive_run(opt.length, opt.part, opt.parts, go_on, &sum);
		if (opt.hashes)
			printf("hash=%016llx\n", (unsigned long long)sum);
	} else {
		run_seeds();
	}
	if (opt.loop)
		printf("loop %s: runs=%llu\n", opt.loop, (unsigned long long)opt.runs);
	if (opt.table)
		coverage_print();
	printf("sim: seeds=%llu crash_states=%llu violations=%llu ios=%llu seconds=%.1f\n",
	       (unsigned long long)sim_seeds, (unsigned long long)sim_crash_states,
	       (unsigned long long)sim_violations, (unsigned long long)sim_ios,
	       seconds() - start);
	return sim_violations ? 1 : 0;
}
