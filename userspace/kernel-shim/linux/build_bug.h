/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_BUILD_BUG_H
#define SHIM_LINUX_BUILD_BUG_H

#include <assert.h>

/* The kernel's takes the message as an option. */
#undef static_assert
#define static_assert(expr, ...) shim_static_assert(expr, ##__VA_ARGS__, #expr)
#define shim_static_assert(expr, msg, ...) _Static_assert(expr, msg)

#define BUILD_BUG_ON(cond) _Static_assert(!(cond), #cond)
#define BUILD_BUG_ON_MSG(cond, msg) _Static_assert(!(cond), msg)

#endif
