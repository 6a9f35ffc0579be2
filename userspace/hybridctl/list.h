/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The fields that list and scan can show. */
#ifndef HYBRIDCTL_LIST_H
#define HYBRIDCTL_LIST_H

#include "report.h"

extern const struct hybrid_fields list_report, scan_report;

#endif
