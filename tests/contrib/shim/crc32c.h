/* SPDX-License-Identifier: GPL-2.0-or-later */
/* As util-linux's: neither inverts. */
#include <stddef.h>
#include <stdint.h>

static inline uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *p = data;
	int bit;

	while (len--)
		for (crc ^= *p++, bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	return crc;
}
