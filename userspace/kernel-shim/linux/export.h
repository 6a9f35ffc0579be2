/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_EXPORT_H
#define SHIM_LINUX_EXPORT_H

struct module;
#define THIS_MODULE ((struct module *)0)
#define EXPORT_SYMBOL_GPL(name) struct module

#endif
