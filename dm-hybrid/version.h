/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The version of both targets, as "dmsetup targets" shows it: what module and tools must know
 * of each other when one of them is upgraded before the other.
 *
 * major: other tables, messages or status, which tools of another one cannot use.
 * minor: words, messages or keys that were added: an older tool does not know them.
 * The third number is the disk format's version, HYBRID_FORMAT_VERSION.
 */
#ifndef HYBRID_VERSION_H
#define HYBRID_VERSION_H

#include "core/format.h"

#define HYBRID_TARGET_MAJOR	1
#define HYBRID_TARGET_MINOR	1

#endif
