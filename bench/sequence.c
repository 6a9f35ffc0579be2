// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sequence <key>=<value> ...: the I/Os of a load with these options, in order: for each I/O a
 * line with r or w, its position and its length, both in bytes.
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
