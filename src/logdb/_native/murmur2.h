/* murmur2.h -- the hash that picks a key's partition; part of the cffi definition, and shared with _hot. */
#ifndef LOGDB_MURMUR2_H
#define LOGDB_MURMUR2_H

#include <stddef.h>
#include <stdint.h>

/* Kafka's murmur2 of a key, as its default partitioner uses it before masking the sign. */
uint32_t logdb_murmur2(const uint8_t *key, size_t len);

#endif
