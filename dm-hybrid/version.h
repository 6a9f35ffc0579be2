/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The version of both targets, as "dmsetup targets" shows it.  The tools compare it with their
 * own, because module and tools may be upgraded one before the other.
 *
 * major: tables, messages or status have changed, and tools of another major cannot use them.
 * minor: words, messages or keys were added, which an older tool does not know.
 * The third number is the disk format's version, HYBRID_FORMAT_VERSION.
 */
#ifndef HYBRID_VERSION_H
#define HYBRID_VERSION_H

#include "core/format.h"

#define HYBRID_TARGET_MAJOR	1
#define HYBRID_TARGET_MINOR	1

#endif
