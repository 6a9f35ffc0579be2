/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_CRC32C_H
#define SHIM_LINUX_CRC32C_H

#include <linux/types.h>
#include <string.h>

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
static inline u32 shim_crc32c_sse42(u32 crc, const u8 *p, unsigned int len)
{
	u64 word, crc64 = crc;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&word, p, 8);
		crc64 = __builtin_ia32_crc32di(crc64, word);
	}
	crc = (u32)crc64;
	while (len--)
		crc = __builtin_ia32_crc32qi(crc, *p++);
	return crc;
}
#endif

static inline u32 shim_crc32c_table(u32 crc, const u8 *p, unsigned int len)
{
	static u32 table[256];

	if (!table[255]) {
		for (u32 i = 0; i < 256; i++) {
			u32 c = i;

			for (int bit = 0; bit < 8; bit++)
				c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1;
			table[i] = c;
		}
	}
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return crc;
}

/* As in the kernel: neither the seed nor the result is inverted. */
static inline u32 crc32c(u32 crc, const void *data, unsigned int len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return shim_crc32c_sse42(crc, data, len);
#endif
	return shim_crc32c_table(crc, data, len);
}

#endif
