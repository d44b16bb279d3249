/* bytes.h -- the byte-level vocabulary of record batches, shared by the core and by _hot.
 *
 * Big-endian loads and stores, zig-zag varints, and the one parser of a record.  Everything is inline and
 * touches memory only inside [p, end); a parser returns NULL where the bytes contradict themselves.
 * Format: docs/inside/format.md, "Record batch" and "Record". */
#ifndef LOGDB_BYTES_H
#define LOGDB_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Positions of the fields of a batch header; docs/inside/format.md, table "Batch header". */
enum {
    BATCH_BASE_OFFSET = 0,
    BATCH_LENGTH = 8,
    BATCH_LEADER_EPOCH = 12,
    BATCH_MAGIC = 16,
    BATCH_CRC = 17,
    BATCH_ATTRIBUTES = 21,
    BATCH_LAST_OFFSET_DELTA = 23,
    BATCH_BASE_TIMESTAMP = 27,
    BATCH_MAX_TIMESTAMP = 35,
    BATCH_PRODUCER_ID = 43,
    BATCH_PRODUCER_EPOCH = 51,
    BATCH_BASE_SEQUENCE = 53,
    BATCH_COUNT = 57,
    BATCH_HEADER_SIZE = 61,
    BATCH_LENGTH_FROM = 12, /* the length field counts the bytes from here on */
};

enum { VARINT_SIZE_MAX = 10 };

static inline uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t load_be64(const uint8_t *p)
{
    return (uint64_t)load_be32(p) << 32 | load_be32(p + 4);
}
static inline uint16_t load_be16(const uint8_t *p)
{
    return (uint16_t)((uint32_t)p[0] << 8 | p[1]);
}
static inline void store_be16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}
static inline void store_be32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}
static inline void store_be64(uint8_t *p, uint64_t v)
{
    store_be32(p, (uint32_t)(v >> 32));
    store_be32(p + 4, (uint32_t)v);
}

static inline uint64_t zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

/* Bytes that v takes as a zig-zag varint, 1 to 10. */
static inline size_t varint_size(int64_t v)
{
    return (size_t)((9 * (64 - __builtin_clzll(zigzag(v) | 1)) + 64) >> 6);
}

/* Writes v at p, where VARINT_SIZE_MAX bytes are writable; returns the byte after it. */
static inline uint8_t *varint_store(uint8_t *p, int64_t v)
{
    uint64_t z = zigzag(v);
    for (; z >= 128; z >>= 7)
        *p++ = (uint8_t)(z | 128);
    *p++ = (uint8_t)z;
    return p;
}

/* Reads a varint from [p, end) into *v; returns the byte after it, or NULL where it does not end in time. */
static inline const uint8_t *varint_load(const uint8_t *p, const uint8_t *end, int64_t *v)
{
    uint64_t z = 0;
    for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
        uint8_t c = *p++;
        z |= (uint64_t)(c & 127) << shift;
        if (c < 128) {
            *v = (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
            return p;
        }
    }
    return NULL;
}

/* One record, borrowed from its batch.  A size of -1 is null; `headers` lies after the header count. */
typedef struct {
    int64_t timestamp_delta, offset_delta, key_size, value_size, header_count;
    const uint8_t *key, *value, *headers, *end;
} record_view;

/* Parses the record at p; returns the byte after it, or NULL where it contradicts itself or overruns `end`.
 * Headers are not looked into: they lie in [headers, end), and a record without headers ends there. */
static inline const uint8_t *record_parse(const uint8_t *p, const uint8_t *end, record_view *r)
{
    int64_t size;
    if (!(p = varint_load(p, end, &size)) || size < 1 || size > end - p)
        return NULL;
    end = r->end = p + size;
    p++; /* attributes: unused, 0 */
    if (!(p = varint_load(p, end, &r->timestamp_delta)) || !(p = varint_load(p, end, &r->offset_delta)))
        return NULL;
    if (!(p = varint_load(p, end, &r->key_size)) || r->key_size < -1 || r->key_size > end - p)
        return NULL;
    r->key = p;
    if (r->key_size > 0)
        p += r->key_size;
    if (!(p = varint_load(p, end, &r->value_size)) || r->value_size < -1 || r->value_size > end - p)
        return NULL;
    r->value = p;
    if (r->value_size > 0)
        p += r->value_size;
    if (!(p = varint_load(p, end, &r->header_count)) || r->header_count < 0)
        return NULL;
    r->headers = p;
    return r->header_count == 0 && p != end ? NULL : end;
}

/* One header of a record. */
typedef struct {
    int64_t key_size, value_size; /* value_size -1: null */
    const uint8_t *key, *value;
} header_view;

/* Parses the header at p; returns the byte after it, or NULL. */
static inline const uint8_t *header_parse(const uint8_t *p, const uint8_t *end, header_view *h)
{
    if (!(p = varint_load(p, end, &h->key_size)) || h->key_size < 0 || h->key_size > end - p)
        return NULL;
    h->key = p;
    p += h->key_size;
    if (!(p = varint_load(p, end, &h->value_size)) || h->value_size < -1 || h->value_size > end - p)
        return NULL;
    h->value = p;
    return h->value_size > 0 ? p + h->value_size : p;
}

#endif
