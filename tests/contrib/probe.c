// SPDX-License-Identifier: GPL-2.0-or-later
/* probe IMAGE: what the prober for libblkid says of it. */
#include <fcntl.h>
#include <sys/stat.h>

#include "../../contrib/util-linux/dm_hybrid.c"

int main(int argc, char **argv)
{
	struct blkid_struct_probe probe;
	struct stat st;

	probe.fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
	if (probe.fd < 0 || fstat(probe.fd, &st))
		return 99;
	probe.size = st.st_size;
	return dm_hybrid_idinfo.probefunc(&probe, dm_hybrid_idinfo.magics);
}
