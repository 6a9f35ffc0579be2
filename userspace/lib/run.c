// SPDX-License-Identifier: GPL-2.0-or-later
/* Where files are; by themselves, so that tests can put others in their place. */
#include "announce.h"
#include "config.h"

const char *hybrid_run_dir(void)
{
	return "/run/hybrid";
}

const char *hybrid_config_path(void)
{
	return HYBRID_CONF;
}
