// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sequence <key>=<value> ...: what a load with these options does, and in which order: for each
 * I/O a line of r or w, and the bytes it begins at and has.
 */
#include "pattern.h"

int main(int argc, char **argv)
{
	uint64_t n;

	pattern_start(argc - 1, argv + 1);
	for (n = 0; n < o.ios; n++) {
		struct io io = next_io(n);

		printf("%c %llu %llu\n", io.write ? 'w' : 'r', (unsigned long long)io.pos,
		       (unsigned long long)io.bytes);
	}
	return 0;
}
