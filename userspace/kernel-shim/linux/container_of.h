/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_CONTAINER_OF_H
#define SHIM_LINUX_CONTAINER_OF_H

#include <stddef.h>

#define container_of(ptr, type, member) ({				\
	const __typeof__(((type *)0)->member) *shim_ptr = (ptr);	\
	(type *)((char *)shim_ptr - offsetof(type, member)); })

#endif
