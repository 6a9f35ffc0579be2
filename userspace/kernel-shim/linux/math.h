/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_MATH_H
#define SHIM_LINUX_MATH_H

#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define DIV_ROUND_UP_ULL(n, d) DIV_ROUND_UP((unsigned long long)(n), d)
#define DIV_ROUND_CLOSEST(n, d) (((n) + (d) / 2) / (d))

#define roundup(x, y) ((((x) + (y) - 1) / (y)) * (y))
#define rounddown(x, y) ((x) - (x) % (y))
/* y: a power of two */
#define shim_round_mask(x, y) ((__typeof__(x))((y) - 1))
#define round_up(x, y) ((((x) - 1) | shim_round_mask(x, y)) + 1)
#define round_down(x, y) ((x) & ~shim_round_mask(x, y))

#endif
