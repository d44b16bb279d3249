/* columns.c -- records of a buffer of batches into Arrow's columns, in two passes.
 *
 * The first pass parses every record once: it writes what has a fixed size (offsets, timestamps, lengths) and
 * notes where keys, values and headers lie.  The caller then allocates columns of the exact size, and the second
 * pass only copies.  Layout of the columns: Arrow Columnar Format 1.0, "Variable-size Binary" and "List". */
#include "batch.h"

static void bitmap_fill(uint8_t *bitmap, int64_t count)
{
    memset(bitmap, 255, (size_t)(count + 7) / 8);
}

static inline void bitmap_clear(uint8_t *bitmap, int64_t at)
{
    bitmap[at >> 3] = (uint8_t)(bitmap[at >> 3] & ~(1 << (at & 7)));
}

/* ---------------------------------------------------------------- pass 1 */

/* What one batch's records are written to. */
typedef struct {
    const uint8_t *buf;
    int64_t from_offset, to_offset;
    int32_t wanted;
    logdb_row *rows;
    const logdb_columns *columns;
    logdb_column_sizes *sizes;
} walk;

static int batch_in_range(const logdb_batch *batch, int64_t from_offset, int64_t to_offset)
{
    return !(batch->attributes & LOGDB_CONTROL) && batch->last_offset >= from_offset && batch->base_offset < to_offset;
}

logdb_status logdb_columns_count(const uint8_t *buf, size_t len, int64_t from_offset, int64_t to_offset, int64_t *row_count,
                                 int32_t *codecs)
{
    logdb_batch batch;
    *row_count = 0;
    *codecs = 0;
    for (size_t at = 0; at < len; at += (size_t)batch.size_bytes) {
        logdb_status status = logdb_batch_header(buf + at, len - at, INT64_MAX, &batch);
        if (status != LOGDB_OK)
            return status;
        if (!batch_in_range(&batch, from_offset, to_offset))
            continue;
        *codecs |= 1 << (batch.attributes & LOGDB_CODEC_MASK);
        *row_count += batch.record_count;
    }
    return LOGDB_OK;
}

/* Counts the headers of a record; 0 where they contradict themselves. */
static int headers_measure(const record_view *record, logdb_column_sizes *sizes)
{
    const uint8_t *p = record->headers;
    header_view header;
    for (int64_t i = 0; i < record->header_count; i++) {
        if (!(p = header_parse(p, record->end, &header)))
            return 0;
        sizes->header_key_bytes += header.key_size;
        if (header.value_size < 0)
            sizes->header_value_null_count++;
        else
            sizes->header_value_bytes += header.value_size;
    }
    sizes->header_count += record->header_count;
    return p == record->end;
}

/* Writes one record as the next row; 0 where its headers contradict themselves. */
static inline int row_store(const walk *w, const logdb_batch *batch, const record_view *record, int64_t offset)
{
    logdb_column_sizes *sizes = w->sizes;
    const logdb_columns *columns = w->columns;
    int64_t at = sizes->row_count++;
    if (w->wanted & LOGDB_COLUMN_OFFSET)
        columns->offset[at] = offset;
    if (w->wanted & LOGDB_COLUMN_TIMESTAMP)
        columns->timestamp[at] = record_timestamp(batch, record);
    if (w->wanted & LOGDB_COLUMN_TIMESTAMP_TYPE)
        columns->timestamp_type[at] = (batch->attributes & LOGDB_LOG_APPEND_TIME) != 0;
    if (w->wanted & LOGDB_COLUMN_KEY) {
        w->rows[at].key = (uint32_t)(record->key - w->buf);
        columns->key_offsets[at] = (int32_t)sizes->key_bytes;
        if (record->key_size < 0) {
            bitmap_clear(columns->key_validity, at);
            sizes->key_null_count++;
        } else
            sizes->key_bytes += record->key_size;
    }
    if (w->wanted & LOGDB_COLUMN_VALUE) {
        w->rows[at].value = (uint32_t)(record->value - w->buf);
        columns->value_offsets[at] = (int32_t)sizes->value_bytes;
        if (record->value_size < 0) {
            bitmap_clear(columns->value_validity, at);
            sizes->value_null_count++;
        } else
            sizes->value_bytes += record->value_size;
    }
    if (w->wanted & LOGDB_COLUMN_HEADERS) {
        w->rows[at].headers = (uint32_t)(record->headers - w->buf);
        w->rows[at].end = (uint32_t)(record->end - w->buf);
        columns->header_offsets[at] = (int32_t)sizes->header_count;
        return headers_measure(record, sizes);
    }
    return 1;
}

static logdb_status batch_walk(const walk *w, const uint8_t *p, const logdb_batch *batch)
{
    const uint8_t *end = p + batch->size_bytes;
    p += BATCH_HEADER_SIZE;
    for (int32_t i = 0; i < batch->record_count; i++) {
        record_view record;
        if (!(p = record_parse(p, end, &record)))
            return LOGDB_E_RECORD;
        int64_t offset = record_offset(batch, &record);
        if (offset < 0)
            return LOGDB_E_DELTA;
        if (offset < w->from_offset || offset >= w->to_offset)
            continue;
        if (!row_store(w, batch, &record, offset))
            return LOGDB_E_RECORD;
    }
    return p == end ? LOGDB_OK : LOGDB_E_COUNT;
}

logdb_status logdb_columns_walk(const uint8_t *buf, size_t len, int64_t from_offset, int64_t to_offset,
                                int32_t wanted, logdb_row *rows, int64_t row_room,
                                logdb_columns *columns, logdb_column_sizes *sizes)
{
    const walk w = {buf, from_offset, to_offset, wanted, rows, columns, sizes};
    memset(sizes, 0, sizeof *sizes);
    if (len > UINT32_MAX)
        return LOGDB_E_COUNT;
    int32_t codecs;
    logdb_status status = logdb_columns_count(buf, len, from_offset, to_offset, &sizes->row_count, &codecs);
    if (status == LOGDB_OK && codecs & ~1)
        status = LOGDB_E_ATTRIBUTES;
    if (status != LOGDB_OK || sizes->row_count > row_room)
        return status != LOGDB_OK ? status : LOGDB_E_ROOM;
    if (wanted & LOGDB_COLUMN_KEY)
        bitmap_fill(columns->key_validity, sizes->row_count);
    if (wanted & LOGDB_COLUMN_VALUE)
        bitmap_fill(columns->value_validity, sizes->row_count);
    sizes->row_count = 0;
    logdb_batch batch;
    for (size_t at = 0; at < len; at += (size_t)batch.size_bytes) {
        logdb_batch_header(buf + at, len - at, INT64_MAX, &batch); /* known to be good from logdb_columns_count */
        if (batch_in_range(&batch, from_offset, to_offset) && (status = batch_walk(&w, buf + at, &batch)) != LOGDB_OK)
            return status;
    }
    if (sizes->key_bytes > INT32_MAX || sizes->value_bytes > INT32_MAX || sizes->header_count > INT32_MAX ||
        sizes->header_key_bytes > INT32_MAX || sizes->header_value_bytes > INT32_MAX)
        return LOGDB_E_COUNT;
    if (wanted & LOGDB_COLUMN_KEY)
        columns->key_offsets[sizes->row_count] = (int32_t)sizes->key_bytes;
    if (wanted & LOGDB_COLUMN_VALUE)
        columns->value_offsets[sizes->row_count] = (int32_t)sizes->value_bytes;
    if (wanted & LOGDB_COLUMN_HEADERS)
        columns->header_offsets[sizes->row_count] = (int32_t)sizes->header_count;
    return LOGDB_OK;
}

/* ---------------------------------------------------------------- pass 2 */

/* Bytes of the UTF-8 character at p, or 0 where there is none (RFC 3629: shortest form, no surrogates). */
static size_t utf8_size(const uint8_t *p, const uint8_t *end)
{
    uint8_t lead = p[0];
    if (lead < 0x80)
        return 1;
    size_t size = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (size == 0 || size > (size_t)(end - p))
        return 0;
    uint8_t least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < least || p[1] > most)
        return 0;
    for (size_t i = 2; i < size; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return size;
}

/* Copies a header's key.  Kafka takes any bytes there, Arrow believes that strings are UTF-8: what is not becomes '?'. */
static void string_copy(uint8_t *to, const uint8_t *from, size_t len)
{
    for (const uint8_t *end = from + len; from < end;) {
        size_t size = utf8_size(from, end);
        if (size == 0) {
            *to++ = '?';
            from++;
        }
        for (; size > 0; size--)
            *to++ = *from++;
    }
}

static void headers_gather(const uint8_t *buf, const logdb_row *rows, const logdb_column_sizes *sizes, const logdb_columns *columns)
{
    int64_t at = 0, key_bytes = 0, value_bytes = 0;
    bitmap_fill(columns->header_value_validity, sizes->header_count);
    for (int64_t row = 0; row < sizes->row_count; row++) {
        const uint8_t *p = buf + rows[row].headers, *end = buf + rows[row].end;
        for (header_view header; at < columns->header_offsets[row + 1]; at++) {
            if (!(p = header_parse(p, end, &header)))
                break;
            columns->header_key_offsets[at] = (int32_t)key_bytes;
            columns->header_value_offsets[at] = (int32_t)value_bytes;
            string_copy(columns->header_key + key_bytes, header.key, (size_t)header.key_size);
            key_bytes += header.key_size;
            if (header.value_size < 0) {
                bitmap_clear(columns->header_value_validity, at);
                continue;
            }
            if (header.value_size > 0)
                memcpy(columns->header_value + value_bytes, header.value, (size_t)header.value_size);
            value_bytes += header.value_size;
        }
    }
    columns->header_key_offsets[at] = (int32_t)key_bytes;
    columns->header_value_offsets[at] = (int32_t)value_bytes;
}

void logdb_columns_gather(const uint8_t *buf, const logdb_row *rows, int32_t wanted,
                          const logdb_column_sizes *sizes, logdb_columns *columns)
{
    const int32_t *offsets = columns->key_offsets;
    if (wanted & LOGDB_COLUMN_KEY && sizes->key_bytes > 0)
        for (int64_t row = 0; row < sizes->row_count; row++)
            memcpy(columns->key + offsets[row], buf + rows[row].key, (size_t)(offsets[row + 1] - offsets[row]));
    offsets = columns->value_offsets;
    if (wanted & LOGDB_COLUMN_VALUE && sizes->value_bytes > 0)
        for (int64_t row = 0; row < sizes->row_count; row++)
            memcpy(columns->value + offsets[row], buf + rows[row].value, (size_t)(offsets[row + 1] - offsets[row]));
    if (wanted & LOGDB_COLUMN_HEADERS)
        headers_gather(buf, rows, sizes, columns);
}
