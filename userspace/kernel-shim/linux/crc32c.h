/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_CRC32C_H
#define SHIM_LINUX_CRC32C_H

#include <linux/types.h>
#include <string.h>

#if defined(__x86_64__)
#define SHIM_CRC_LANE 336	/* three are a quarter of a metadata block, but for 16 bytes */

/* @crc after that many zeroes. */
__attribute__((target("sse4.2")))
static inline u32 shim_crc32c_zeroes(u32 crc)
{
	static u32 table[4][256];
	unsigned int i, k;

	for (i = 0; !table[3][255] && i < 1024; i++) {
		u64 crc64 = (u64)(i & 0xff) << i / 256 * 8;

		for (k = 0; k < SHIM_CRC_LANE; k += 8)
			crc64 = __builtin_ia32_crc32di(crc64, 0);
		table[i / 256][i & 0xff] = crc64;
	}
	return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^
	       table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

/* Three lanes beside each other: the instruction's latency is three times its rate. */
__attribute__((target("sse4.2")))
static inline u32 shim_crc32c_lanes(u32 crc, const u8 *p)
{
	u64 a = crc, b = 0, c = 0, word[3];
	unsigned int i;

	for (i = 0; i < SHIM_CRC_LANE; i += 8) {
		memcpy(&word[0], p + i, 8);
		memcpy(&word[1], p + i + SHIM_CRC_LANE, 8);
		memcpy(&word[2], p + i + 2 * SHIM_CRC_LANE, 8);
		a = __builtin_ia32_crc32di(a, word[0]);
		b = __builtin_ia32_crc32di(b, word[1]);
		c = __builtin_ia32_crc32di(c, word[2]);
	}
	return shim_crc32c_zeroes(shim_crc32c_zeroes(a) ^ (u32)b) ^ (u32)c;
}

__attribute__((target("sse4.2")))
static inline u32 shim_crc32c_sse42(u32 crc, const u8 *p, unsigned int len)
{
	u64 word, crc64;

	for (; len >= 3 * SHIM_CRC_LANE; p += 3 * SHIM_CRC_LANE, len -= 3 * SHIM_CRC_LANE)
		crc = shim_crc32c_lanes(crc, p);
	for (crc64 = crc; len >= 8; p += 8, len -= 8) {
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
