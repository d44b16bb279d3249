/* batch.c -- one record batch: its header, its CRC, its records. */
#include "bytes.h"
#include "logdb_native.h"

enum {
    ATTRIBUTES_KNOWN = 127,
    CODEC_COUNT = 5,
    RECORD_SIZE_MIN = 7, /* seven fields of a byte each */
};

static int64_t load_i64(const uint8_t *p)
{
    return (int64_t)load_be64(p);
}
static int32_t load_i32(const uint8_t *p)
{
    return (int32_t)load_be32(p);
}
static int16_t load_i16(const uint8_t *p)
{
    return (int16_t)load_be16(p);
}

/* ---------------------------------------------------------------- header */

/* Sums may wrap here; header_check refuses a batch where they did. */
static void header_load(const uint8_t *buf, logdb_batch *out)
{
    out->base_offset = load_i64(buf + BATCH_BASE_OFFSET);
    out->last_offset = (int64_t)((uint64_t)out->base_offset + (uint64_t)(int64_t)load_i32(buf + BATCH_LAST_OFFSET_DELTA));
    out->base_timestamp = load_i64(buf + BATCH_BASE_TIMESTAMP);
    out->max_timestamp = load_i64(buf + BATCH_MAX_TIMESTAMP);
    out->producer_id = load_i64(buf + BATCH_PRODUCER_ID);
    out->size_bytes = (int64_t)load_i32(buf + BATCH_LENGTH) + BATCH_LENGTH_FROM;
    out->leader_epoch = load_i32(buf + BATCH_LEADER_EPOCH);
    out->base_sequence = load_i32(buf + BATCH_BASE_SEQUENCE);
    out->record_count = load_i32(buf + BATCH_COUNT);
    out->crc = load_be32(buf + BATCH_CRC);
    out->attributes = load_i16(buf + BATCH_ATTRIBUTES);
    out->producer_epoch = load_i16(buf + BATCH_PRODUCER_EPOCH);
    out->magic = (int8_t)buf[BATCH_MAGIC];
}

static int zeroes(const uint8_t *buf)
{
    uint8_t any = 0;
    for (int i = 0; i < BATCH_HEADER_SIZE; i++)
        any |= buf[i];
    return any == 0;
}

static logdb_status header_check(const uint8_t *buf, const logdb_batch *batch, int64_t batch_size_max)
{
    if (batch->magic != 2)
        return batch->magic == 0 && zeroes(buf) ? LOGDB_E_ZERO : LOGDB_E_MAGIC;
    if (batch->size_bytes < BATCH_HEADER_SIZE || batch->size_bytes > batch_size_max)
        return LOGDB_E_LENGTH;
    int codec = batch->attributes & LOGDB_CODEC_MASK;
    if ((batch->attributes & ~ATTRIBUTES_KNOWN) != 0 || codec >= CODEC_COUNT)
        return LOGDB_E_ATTRIBUTES;
    if (batch->base_offset < 0 || batch->last_offset < batch->base_offset || batch->last_offset == INT64_MAX)
        return LOGDB_E_OFFSET;
    int64_t room = batch->size_bytes - BATCH_HEADER_SIZE;
    if (batch->record_count < 0 || batch->record_count > batch->last_offset - batch->base_offset + 1)
        return LOGDB_E_COUNT;
    if (codec == 0 && (batch->record_count == 0 ? room > 0 : batch->record_count > room / RECORD_SIZE_MIN))
        return LOGDB_E_COUNT;
    return LOGDB_OK;
}

logdb_status logdb_batch_header(const uint8_t *buf, size_t len, int64_t batch_size_max, logdb_batch *out)
{
    if (len < BATCH_HEADER_SIZE) {
        out->size_bytes = 0;
        return LOGDB_E_SHORT;
    }
    header_load(buf, out);
    logdb_status status = header_check(buf, out, batch_size_max);
    return status == LOGDB_OK && (uint64_t)out->size_bytes > len ? LOGDB_E_SHORT : status;
}

logdb_status logdb_batch_check(const uint8_t *buf, size_t len, int64_t batch_size_max, logdb_batch *out, uint32_t *computed_crc)
{
    logdb_status status = logdb_batch_header(buf, len, batch_size_max, out);
    if (status != LOGDB_OK)
        return status;
    *computed_crc = logdb_crc32c(0, buf + BATCH_ATTRIBUTES, (size_t)out->size_bytes - BATCH_ATTRIBUTES);
    return *computed_crc == out->crc ? LOGDB_OK : LOGDB_E_CRC;
}

int64_t logdb_batch_expected(const uint8_t *buf, size_t len, int64_t offset, int64_t last_offset, int32_t leader_epoch)
{
    logdb_batch batch;
    uint32_t crc;
    if (logdb_batch_check(buf, len, INT64_MAX, &batch, &crc) != LOGDB_OK || batch.attributes & LOGDB_CODEC_MASK)
        return 0;
    int holds = batch.base_offset <= offset && offset <= last_offset && batch.last_offset == last_offset;
    return holds && (leader_epoch == -1 || batch.leader_epoch == leader_epoch) ? batch.size_bytes : 0;
}

/* ---------------------------------------------------------------- records from outside */

static inline int headers_excessive(int64_t count, int flags)
{
    return (flags & LOGDB_RECORDS_BOUNDED) && count > LOGDB_HEADER_COUNT_MAX;
}

static int headers_whole(const record_view *record)
{
    const uint8_t *p = record->headers;
    header_view header;
    for (int64_t i = 0; i < record->header_count; i++)
        if (!(p = header_parse(p, record->end, &header)))
            return 0;
    return p == record->end;
}

/* Wraps, as it does for readers: a delta is 64 bits wide, so that every timestamp can be told from every base. */
static inline int64_t timestamp_sum(const logdb_batch *batch, int64_t delta)
{
    return (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)delta);
}

/* The walk over the records has ended, with these timestamps. */
static logdb_status times_check(logdb_record_times found, const logdb_batch *batch, logdb_record_times *times)
{
    if (times == NULL)
        return !(batch->attributes & LOGDB_LOG_APPEND_TIME) && found.max != batch->max_timestamp ? LOGDB_E_TIMESTAMP : LOGDB_OK;
    *times = found;
    return LOGDB_OK;
}

logdb_status logdb_records_check(const uint8_t *records, size_t len, const logdb_batch *batch, int flags, logdb_record_times *times)
{
    const uint8_t *p = records, *end = records + len;
    int64_t delta = -1;
    logdb_record_times found = {INT64_MAX, INT64_MIN};
    for (int32_t i = 0; i < batch->record_count; i++) {
        record_view record;
        if (!(p = record_parse(p, end, &record)))
            return LOGDB_E_RECORD;
        if (headers_excessive(record.header_count, flags))
            return LOGDB_E_HEADERS;
        if (!headers_whole(&record))
            return LOGDB_E_RECORD;
        if (record.offset_delta <= delta)
            return LOGDB_E_DELTA;
        delta = record.offset_delta;
        if ((flags & LOGDB_RECORDS_KEYED) && record.key_size < 0)
            return LOGDB_E_KEY;
        int64_t timestamp = timestamp_sum(batch, record.timestamp_delta);
        found.min = timestamp < found.min ? timestamp : found.min;
        found.max = timestamp > found.max ? timestamp : found.max;
    }
    if (p != end)
        return LOGDB_E_COUNT;
    if (batch->record_count == 0)
        return LOGDB_OK;
    if (delta > batch->last_offset - batch->base_offset)
        return LOGDB_E_DELTA;
    return times_check(found, batch, times);
}

int32_t logdb_records_refused(const uint8_t *records, size_t len, const logdb_batch *batch, int flags,
                              const logdb_record_times *accepted, int32_t *numbers, int32_t room)
{
    const uint8_t *p = records, *end = records + len;
    int32_t found = 0;
    for (int32_t i = 0; i < batch->record_count && found < room; i++) {
        record_view record;
        if (!(p = record_parse(p, end, &record)))
            break;
        int stamped = batch->attributes & LOGDB_LOG_APPEND_TIME;
        int64_t timestamp = stamped ? batch->max_timestamp : timestamp_sum(batch, record.timestamp_delta);
        int outside = timestamp != -1 && (timestamp < accepted->min || timestamp > accepted->max);
        if (outside || ((flags & LOGDB_RECORDS_KEYED) && record.key_size < 0))
            numbers[found++] = i;
    }
    return found;
}

/* ---------------------------------------------------------------- records from outside, in pieces */

enum { SIZE, ATTRIBUTES, TIMESTAMP, OFFSET, KEY, VALUE, HEADER_COUNT, HEADER_KEY, HEADER_VALUE };

/* A record is whole: the checks of logdb_records_check, in its order. */
static logdb_status walk_count(logdb_records_walk *w, const logdb_batch *batch, int flags)
{
    if (w->next_offset_delta <= (w->record_count == 0 ? -1 : w->offset_delta))
        return LOGDB_E_DELTA;
    w->offset_delta = w->next_offset_delta;
    if ((flags & LOGDB_RECORDS_KEYED) && w->null_key)
        return LOGDB_E_KEY;
    int64_t timestamp = timestamp_sum(batch, w->next_timestamp_delta);
    if (w->record_count == 0 || timestamp < w->times.min)
        w->times.min = timestamp;
    if (w->record_count++ == 0 || timestamp > w->times.max)
        w->times.max = timestamp;
    w->field = SIZE;
    return LOGDB_OK;
}

/* Passes over the bytes of a key or a value of that size. */
static int walk_skip(logdb_records_walk *w, int64_t size, int64_t size_min)
{
    if (size < size_min || size > w->left)
        return 0;
    w->skipped = size > 0 ? size : 0;
    w->left -= w->skipped;
    return 1;
}

/* A varint is whole: the field that it is; 0 where it contradicts the others. */
static int walk_field(logdb_records_walk *w, int64_t value)
{
    switch (w->field++) {
    case SIZE:
        w->left = value;
        return value >= 1;
    case TIMESTAMP:
        w->next_timestamp_delta = value;
        return 1;
    case OFFSET:
        w->next_offset_delta = value;
        return 1;
    case KEY:
        w->null_key = value < 0;
        return walk_skip(w, value, -1);
    case VALUE:
        return walk_skip(w, value, -1);
    case HEADER_COUNT:
        w->headers_left = value;
        return value >= 0;
    case HEADER_KEY:
        return walk_skip(w, value, 0);
    default: /* HEADER_VALUE */
        w->headers_left--;
        w->field = HEADER_KEY;
        return walk_skip(w, value, -1);
    }
}

static int walk_ends_record(const logdb_records_walk *w)
{
    return w->field == HEADER_KEY && w->headers_left == 0 && w->shift == 0 && w->skipped == 0;
}

/* Takes one byte of a field; 0 where it contradicts what came before. */
static int walk_byte(logdb_records_walk *w, uint8_t c)
{
    if (w->field != SIZE && w->left-- == 0)
        return 0;
    if (w->field == ATTRIBUTES) {
        w->field = TIMESTAMP;
        return 1;
    }
    if (w->shift >= 64)
        return 0;
    w->bits |= (uint64_t)(c & 127) << w->shift;
    w->shift += 7;
    if (c >= 128)
        return 1;
    int64_t value = (int64_t)(w->bits >> 1) ^ -(int64_t)(w->bits & 1);
    w->bits = 0;
    w->shift = 0;
    return walk_field(w, value);
}

/* The record at p if all of it is there; otherwise NULL, and it is read byte by byte. */
static const uint8_t *walk_whole(logdb_records_walk *w, const uint8_t *p, const uint8_t *end, int flags)
{
    record_view record;
    const uint8_t *next = record_parse(p, end, &record);
    if (next == NULL || headers_excessive(record.header_count, flags) || !headers_whole(&record))
        return NULL;
    w->next_timestamp_delta = record.timestamp_delta;
    w->next_offset_delta = record.offset_delta;
    w->null_key = record.key_size < 0;
    return next;
}

logdb_status logdb_records_take(logdb_records_walk *w, const uint8_t *piece, size_t len, const logdb_batch *batch, int flags)
{
    const uint8_t *p = piece, *end = piece + len, *next;
    while (p < end) {
        int whole = 0;
        if (w->skipped > 0) {
            int64_t passed = w->skipped < end - p ? w->skipped : end - p;
            p += passed;
            w->skipped -= passed;
        } else if (w->field == SIZE && w->shift == 0 && w->record_count == batch->record_count) {
            return LOGDB_E_COUNT;
        } else if (w->field == SIZE && w->shift == 0 && (next = walk_whole(w, p, end, flags)) != NULL) {
            p = next;
            whole = 1;
        } else if (!walk_byte(w, *p++)) {
            return LOGDB_E_RECORD;
        } else if (headers_excessive(w->headers_left, flags)) {
            return LOGDB_E_HEADERS;
        }
        if (!whole && walk_ends_record(w)) {
            if (w->left != 0)
                return LOGDB_E_RECORD;
            whole = 1;
        }
        logdb_status status = whole ? walk_count(w, batch, flags) : LOGDB_OK;
        if (status != LOGDB_OK)
            return status;
    }
    return LOGDB_OK;
}

logdb_status logdb_records_end(const logdb_records_walk *w, const logdb_batch *batch, logdb_record_times *times)
{
    if (w->record_count != batch->record_count || w->field != SIZE || w->shift != 0)
        return LOGDB_E_RECORD;
    if (batch->record_count == 0)
        return LOGDB_OK;
    if (w->offset_delta > batch->last_offset - batch->base_offset)
        return LOGDB_E_DELTA;
    return times_check(w->times, batch, times);
}

/* ---------------------------------------------------------------- changing a batch */

void logdb_batch_place(uint8_t *buf, int64_t base_offset, int32_t leader_epoch)
{
    store_be64(buf + BATCH_BASE_OFFSET, (uint64_t)base_offset);
    store_be32(buf + BATCH_LEADER_EPOCH, (uint32_t)leader_epoch);
}

void logdb_batch_seal(uint8_t *buf, size_t len, int16_t attributes, int64_t max_timestamp)
{
    store_be32(buf + BATCH_LENGTH, (uint32_t)(len - BATCH_LENGTH_FROM));
    store_be16(buf + BATCH_ATTRIBUTES, (uint16_t)attributes);
    store_be64(buf + BATCH_MAX_TIMESTAMP, (uint64_t)max_timestamp);
    store_be32(buf + BATCH_CRC, logdb_crc32c(0, buf + BATCH_ATTRIBUTES, len - BATCH_ATTRIBUTES));
}

logdb_status logdb_batches_stamp(uint8_t *buf, size_t len, int64_t producer_id, int16_t producer_epoch, int32_t *sequence,
                                 int transactional, size_t *used)
{
    logdb_batch batch;
    for (*used = 0; *used < len; *used += (size_t)batch.size_bytes) {
        uint8_t *head = buf + *used;
        logdb_status status = logdb_batch_header(head, len - *used, INT64_MAX, &batch);
        if (status != LOGDB_OK)
            return status;
        int attributes = transactional ? batch.attributes | LOGDB_TRANSACTIONAL : batch.attributes & ~LOGDB_TRANSACTIONAL;
        store_be64(head + BATCH_PRODUCER_ID, (uint64_t)producer_id);
        store_be16(head + BATCH_PRODUCER_EPOCH, (uint16_t)producer_epoch);
        store_be32(head + BATCH_BASE_SEQUENCE, (uint32_t)*sequence);
        logdb_batch_seal(head, (size_t)batch.size_bytes, (int16_t)attributes, batch.max_timestamp);
        uint64_t following = (uint64_t)*sequence + (uint64_t)(batch.last_offset - batch.base_offset) + 1;
        if (*sequence >= 0)
            *sequence = (int32_t)(following & INT32_MAX);
    }
    return LOGDB_OK;
}
