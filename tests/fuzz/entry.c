// SPDX-License-Identifier: GPL-2.0-or-later
/* One target as libFuzzer wants it: TARGET says which. */
#include "targets.h"

#define CALL_(name) fuzz_##name
#define CALL(name) CALL_(name)

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const u8 *bytes, size_t len);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	be_quiet();
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t len)
{
	time_limit();
	CALL(TARGET)(bytes, len);
	return 0;
}
