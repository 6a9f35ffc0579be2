/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_BUG_H
#define SHIM_LINUX_BUG_H

#include <linux/compiler.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends a test where the kernel only warns. */
#define shim_die(...) ({						\
	fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, __func__);	\
	fprintf(stderr, __VA_ARGS__);					\
	fputc('\n', stderr);						\
	abort(); })

#define WARN_ON(cond) ({						\
	if (unlikely(cond))						\
		shim_die("%s", #cond);					\
	false; })
#define WARN_ON_ONCE(cond) WARN_ON(cond)
#define WARN(cond, ...) ({						\
	if (unlikely(cond))						\
		shim_die(__VA_ARGS__);					\
	false; })
#define WARN_ONCE(cond, ...) WARN(cond, __VA_ARGS__)
#define BUG_ON(cond) ((void)WARN_ON(cond))
#define BUG() shim_die("bug")

#endif
