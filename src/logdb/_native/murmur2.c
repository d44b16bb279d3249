/* murmur2.c -- MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2). */
#include "murmur2.h"

enum { SHIFT = 24 };
static const uint32_t SEED = 0x9747b28cu, FACTOR = 0x5bd1e995u;

/* Kafka reads the words little-endian on every machine. */
static uint32_t load_le32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t logdb_murmur2(const uint8_t *key, size_t len)
{
    uint32_t hash = SEED ^ (uint32_t)len;
    for (; len >= 4; key += 4, len -= 4) {
        uint32_t word = load_le32(key) * FACTOR;
        word ^= word >> SHIFT;
        hash = hash * FACTOR ^ word * FACTOR;
    }
    if (len > 0) {
        for (size_t i = len; i-- > 0;)
            hash ^= (uint32_t)key[i] << 8 * i;
        hash *= FACTOR;
    }
    hash ^= hash >> 13;
    hash *= FACTOR;
    return hash ^ hash >> 15;
}
