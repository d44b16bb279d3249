/* crc32c.h -- CRC-32C; part of the cffi definition, and shared with _hot. */
#ifndef LOGDB_CRC32C_H
#define LOGDB_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli) of buf, continuing from crc (0 to begin). */
uint32_t logdb_crc32c(uint32_t crc, const uint8_t *buf, size_t len);

/* Chooses the implementation: 0 the best that this machine has, 1 the portable table (for tests).
 * Returns the name of the one in use: "sse4.2", "armv8" or "portable". */
const char *logdb_crc32c_select(int portable);

#endif
