// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sim [--seed N] [--count M] [--time S] [--mode A|B] [--trace] [--faults] [--events] [--hash]
 *     [--keep-going] [--no-linter] [--limit S] [--table]
 * sim --loop alloc|io [--nth N] ...
 *
 * Runs the seeds N ... N + M - 1, or as many as S seconds allow.  The last line
 * counts; the exit code is 1 if a promise or a rule was broken.  --limit: a seed
 * that takes more CPU seconds than that never ends.  --table: which faults
 * happened in which phases.
 *
 * --loop: a short run of each seed again and again, in which the first, the second,
 * ... allocation (request to a device) fails; with --nth, only the N-th.  -N: and
 * all that follow of its kind.
 */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"
#include "coverage.h"

u64 sim_seeds, sim_crash_states;

static const struct option options[] = {
	{ "seed", required_argument, NULL, 's' },
	{ "count", required_argument, NULL, 'n' },
	{ "time", required_argument, NULL, 't' },
	{ "mode", required_argument, NULL, 'm' },
	{ "trace", no_argument, NULL, 'v' },
	{ "faults", no_argument, NULL, 'f' },
	{ "events", no_argument, NULL, 'e' },
	{ "hash", no_argument, NULL, 'h' },
	{ "keep-going", no_argument, NULL, 'k' },
	{ "no-linter", no_argument, NULL, 'l' },
	{ "limit", required_argument, NULL, 'c' },
	{ "loop", required_argument, NULL, 'L' },
	{ "nth", required_argument, NULL, 'N' },
	{ "table", no_argument, NULL, 'T' },
	{ }
};

/* An assertion of the engine's, a wild pointer, no end: say which seed it was. */
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

int main(int argc, char **argv)
{
	u64 seed = 1, count = 0, hash, n;
	double limit = 0, start = seconds();
	bool hashes = false, keep_going = false, table = false;
	struct itimerval seed_limit = {};
	const char *loop = NULL;
	u64 runs = 0;
	s64 nth = 0;
	char mode = 'A';
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			count = strtoull(optarg, NULL, 0);
			break;
		case 't':
			limit = strtod(optarg, NULL);
			break;
		case 'm':
			mode = *optarg;
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
		case 'h':
			hashes = true;
			break;
		case 'l':
			sim_lint = false;
			break;
		case 'k':
			keep_going = true;
			break;
		case 'c':
			seed_limit.it_value.tv_sec = strtol(optarg, NULL, 0);
			break;
		case 'L':
			loop = optarg;
			break;
		case 'N':
			nth = strtoll(optarg, NULL, 0);
			break;
		case 'T':
			table = true;
			break;
		default:
			return 2;
		}
	}
	if (!count)
		count = limit ? U64_MAX : 1;
	signal(SIGABRT, died);
	signal(SIGSEGV, died);
	signal(SIGBUS, died);
	signal(SIGFPE, died);
	signal(SIGVTALRM, died);
	for (n = 0; n < count; n++) {
		u64 before = sim_violations;

		if (limit && seconds() - start > limit)
			break;
		setitimer(ITIMER_VIRTUAL, &seed_limit, NULL);
		if (loop) {
			runs += loop_seed(loop, seed + n, nth);
			sim_seeds++;
			if (sim_violations != before && !keep_going)
				break;
			continue;
		}
		run_seed(seed + n, mode, &hash);
		sim_seeds++;
		if (hashes || sim_trace)
			printf("seed=%llu hash=%016llx\n", (unsigned long long)(seed + n),
			       (unsigned long long)hash);
		if (sim_violations != before) {
			fprintf(stderr, "reproduce: sim --mode %c --seed %llu%s%s --trace\n", mode,
				(unsigned long long)(seed + n), sim_faults ? " --faults" : "",
				sim_events ? " --events" : "");
			if (!keep_going)
				break;
		}
	}
	if (loop)
		printf("loop %s: runs=%llu\n", loop, (unsigned long long)runs);
	if (table)
		coverage_print();
	printf("sim: seeds=%llu crash_states=%llu violations=%llu ios=%llu seconds=%.1f\n",
	       (unsigned long long)sim_seeds, (unsigned long long)sim_crash_states,
	       (unsigned long long)sim_violations, (unsigned long long)sim_ios,
	       seconds() - start);
	return sim_violations ? 1 : 0;
}
