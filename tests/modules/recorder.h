/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The recorders' files in <debugfs>/dm-testdisk: "records", an array of struct
 * rec_record in the one order of all recorders, and "data", their contents and texts.
 * Userspace includes this header, too; numbers are in the machine's byte order.
 */
#ifndef DM_TESTDISK_RECORDER_H
#define DM_TESTDISK_RECORDER_H

#include <linux/types.h>

enum rec_type {
	REC_DEVICE = 1,		/* a recorder appears: sector is its size, text its tag */
	REC_MARK,		/* text */
	REC_FLUSH,
	REC_WRITE,		/* with data, count sectors of it */
	REC_DISCARD,
	REC_ZEROES,
	REC_END,		/* of the request in record number id, with error */
};

struct rec_record {
	__u64 id;
	__u64 sector;
	__u64 data;		/* offset in "data" of contents, or of a text with its 0 */
	__u32 count;		/* sectors */
	__s32 error;		/* 0 or -errno */
	__u16 device;		/* number of the recorder: from 0, in the order of creation */
	__u8 type;		/* enum rec_type */
	__u8 fua;
	__u32 unused;
};

#endif
