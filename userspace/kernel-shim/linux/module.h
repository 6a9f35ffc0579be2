/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_MODULE_H
#define SHIM_LINUX_MODULE_H

#include <linux/export.h>
#include <linux/bug.h>

#define __init
#define __exit

#define MODULE_LICENSE(x) struct module
#define MODULE_DESCRIPTION(x) struct module
#define MODULE_AUTHOR(x) struct module
#define MODULE_ALIAS(x) struct module
#define MODULE_VERSION(x) struct module

/* A module that is linked in is loaded before main. */
#define module_init(fn)							\
static void __attribute__((constructor)) shim_init_##fn(void)		\
{									\
	WARN_ON(fn());							\
}									\
struct module
#define module_exit(fn)							\
static void __attribute__((destructor)) shim_exit_##fn(void)		\
{									\
	fn();								\
}									\
struct module

#endif
