// SPDX-License-Identifier: GPL-2.0-or-later
/* Paths of files, in a source file of their own, so that tests can replace them. */
#include <stdio.h>

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

const char *hybrid_etc_path(char *buf, size_t len, const char *name)
{
	snprintf(buf, len, "/etc/%s", name);
	return buf;
}
