/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_PRINTK_H
#define SHIM_LINUX_PRINTK_H

#include <stdio.h>

#ifndef pr_fmt
#define pr_fmt(fmt) fmt
#endif

#define pr_err(fmt, ...) fprintf(stderr, pr_fmt(fmt), ##__VA_ARGS__)
#define pr_warn(fmt, ...) pr_err(fmt, ##__VA_ARGS__)
#define pr_info(fmt, ...) pr_err(fmt, ##__VA_ARGS__)
#define pr_err_ratelimited(fmt, ...) pr_err(fmt, ##__VA_ARGS__)
#define pr_warn_ratelimited(fmt, ...) pr_err(fmt, ##__VA_ARGS__)
#define pr_debug(fmt, ...) ((void)(0 && pr_err(fmt, ##__VA_ARGS__)))

#endif
