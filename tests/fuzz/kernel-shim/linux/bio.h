/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <linux/device-mapper.h>
