/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fields that get can show. */
#ifndef HYBRIDCTL_SETTINGS_H
#define HYBRIDCTL_SETTINGS_H

#include "report.h"

extern const struct hybrid_fields get_report;

#endif
