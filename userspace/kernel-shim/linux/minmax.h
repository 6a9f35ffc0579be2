/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_MINMAX_H
#define SHIM_LINUX_MINMAX_H

/* As strict as Linux 6.1: operands of different types are a warning. */
#define shim_same_type(x, y) \
	((void)sizeof((__typeof__(x) *)1 == (__typeof__(y) *)1))
#define shim_select(x, y, op) ({					\
	__auto_type shim_x = (x);					\
	__auto_type shim_y = (y);					\
	shim_x op shim_y ? shim_x : shim_y; })

#define min(x, y) ({ shim_same_type(x, y); shim_select(x, y, <); })
#define max(x, y) ({ shim_same_type(x, y); shim_select(x, y, >); })
#define min_t(type, x, y) shim_select((type)(x), (type)(y), <)
#define max_t(type, x, y) shim_select((type)(x), (type)(y), >)
#define min3(x, y, z) min((__typeof__(x))min(x, y), z)
#define max3(x, y, z) max((__typeof__(x))max(x, y), z)
#define min_not_zero(x, y) ({						\
	__auto_type shim_a = (x);					\
	__auto_type shim_b = (y);					\
	!shim_a ? shim_b : !shim_b ? shim_a : min(shim_a, shim_b); })
#define clamp(val, lo, hi) min((__typeof__(val))max(val, lo), hi)
#define clamp_t(type, val, lo, hi) min_t(type, max_t(type, val, lo), hi)

#endif
