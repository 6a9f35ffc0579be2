// SPDX-License-Identifier: GPL-2.0-or-later
/* By itself, so that tests can put another one in its place. */
#include "announce.h"

const char *hybrid_run_dir(void)
{
	return "/run/hybrid";
}
