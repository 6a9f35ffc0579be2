/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_BIO_H
#define SHIM_LINUX_BIO_H

#include <linux/device-mapper.h>

#define REQ_NOWAIT	0x1
#define REQ_POLLED	0x2

struct bio_vec {
	void *page;
};

struct bio {
	unsigned int bi_opf;
};

#endif
