/* hot_withdraw.c -- takes the records of a failed call out of the queue, so that the call can be made again.
 *
 *   [ earlier | call ] [ call ]           the call's batches go, and the next record gets its first offset
 *   [ earlier | call ] [ call | later ]   later records have their offsets: batches without records stand for the call's
 *
 * A batch that has records of other calls, too, keeps those.  Format: docs/inside/format.md, "Compacted segments". */
#include "hot.h"

#include "crc32c.h"

/* What is withdrawn: records [first, next).  is_last: no record follows them. */
typedef struct {
    int64_t first, next;
    bool is_last;
} withdrawn;

static inline bool is_withdrawn(const withdrawn *w, int64_t offset)
{
    return offset >= w->first && offset < w->next;
}

/* The header of a batch of `count` records and `size` bytes; what says who sent it goes with its last record. */
static void header_store(uint8_t *head, size_t size, uint32_t count, int64_t max_timestamp)
{
    if (count == 0) {
        store_be16(head + BATCH_ATTRIBUTES, 0);
        store_be64(head + BATCH_BASE_TIMESTAMP, UINT64_MAX);
        store_be64(head + BATCH_PRODUCER_ID, UINT64_MAX);
        store_be16(head + BATCH_PRODUCER_EPOCH, UINT16_MAX);
        store_be32(head + BATCH_BASE_SEQUENCE, UINT32_MAX);
    }
    store_be32(head + BATCH_LENGTH, (uint32_t)(size - BATCH_LENGTH_FROM));
    store_be64(head + BATCH_MAX_TIMESTAMP, (uint64_t)max_timestamp);
    store_be32(head + BATCH_COUNT, count);
    store_be32(head + BATCH_CRC, logdb_crc32c(0, head + BATCH_ATTRIBUTES, size - BATCH_ATTRIBUTES));
}

/* Leaves records out of a batch of ours, which is not compressed; returns its size. */
static size_t records_without(uint8_t *head, size_t size, const withdrawn *w)
{
    int64_t base = (int64_t)load_be64(head + BATCH_BASE_OFFSET), base_timestamp = (int64_t)load_be64(head + BATCH_BASE_TIMESTAMP);
    int64_t max_timestamp = -1;
    bool stamped = load_be16(head + BATCH_ATTRIBUTES) & ATTRIBUTE_LOG_APPEND_TIME;
    const uint8_t *p = head + BATCH_HEADER_SIZE, *end = head + size, *after;
    uint8_t *out = head + BATCH_HEADER_SIZE;
    uint32_t count = 0;
    record_view r;
    for (; p < end && (after = record_parse(p, end, &r)) != NULL; p = after) {
        if (is_withdrawn(w, base + r.offset_delta))
            continue;
        int64_t timestamp_ms = (int64_t)((uint64_t)base_timestamp + (uint64_t)r.timestamp_delta);
        if (count++ == 0 || timestamp_ms > max_timestamp)
            max_timestamp = timestamp_ms;
        memmove(out, p, (size_t)(after - p));
        out += after - p;
    }
    if (stamped && count > 0)
        max_timestamp = (int64_t)load_be64(head + BATCH_MAX_TIMESTAMP);
    header_store(head, (size_t)(out - head), count, max_timestamp);
    return (size_t)(out - head);
}

/* Leaves the records out of one batch; returns its size, 0 where all of it goes. */
static size_t batch_without(uint8_t *head, size_t size, const withdrawn *w)
{
    int64_t base = (int64_t)load_be64(head + BATCH_BASE_OFFSET);
    int64_t last = base + load_be32(head + BATCH_LAST_OFFSET_DELTA);
    if (last < w->first || base >= w->next)
        return size;
    bool is_whole = base >= w->first && last < w->next;
    if (is_whole && w->is_last)
        return 0;
    if (w->is_last)
        store_be32(head + BATCH_LAST_OFFSET_DELTA, (uint32_t)(w->first - 1 - base));
    if (!is_whole)
        return records_without(head, size, w);
    header_store(head, BATCH_HEADER_SIZE, 0, -1);
    return BATCH_HEADER_SIZE;
}

static void buffer_without(buffer *f, const withdrawn *w)
{
    uint8_t *data = f->view.buf;
    size_t used = 0;
    for (size_t at = 0; at < f->used;) {
        size_t size = (size_t)load_be32(data + at + BATCH_LENGTH) + BATCH_LENGTH_FROM, left = batch_without(data + at, size, w);
        memmove(data + used, data + at, left);
        used += left;
        at += size;
    }
    f->used = used;
    if (w->is_last && f->next_offset > w->first)
        f->next_offset = w->first;
}

/* Takes the records out of the queue, which has all that waits. */
static void queue_without(builder *b, const withdrawn *w)
{
    buffer *f = b->head;
    b->head = b->tail = NULL;
    b->queue_count = b->queue_bytes = 0;
    while (f != NULL) {
        buffer *next = f->next;
        if (f->next_offset > w->first)
            buffer_without(f, w);
        if (f->used > 0)
            queue_add(b, f);
        else
            buffer_give(f);
        f = next;
    }
    if (w->is_last)
        b->base_offset = w->first;
    b->broken = b->broken && b->head != NULL;
}

/* Calls _withdraw(first, next): 1 the records may go, 0 some of them are written, or others depend on them; -1 failed. */
static int withdraw_call(builder *b, int64_t first, int64_t next)
{
    PyObject *result = PyObject_CallMethod((PyObject *)b, "_withdraw", "LL", (long long)first, (long long)next);
    int may = result != NULL ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    return may;
}

int builder_withdraw(builder *b, int64_t first, int64_t next)
{
    if (builder_enter(b))
        return -1;
    int result = writer_enter(b, true);
    if (result > 0) {
        result = withdraw_call(b, first, next);
        if (result > 0) {
            if (b->count > 0)
                builder_close_batch(b);
            if (b->open != NULL)
                open_enqueue(b);
            if (first < b->written_offset)
                first = b->written_offset;
            const withdrawn w = {first, next, b->head != NULL && builder_next_offset(b) == next};
            queue_without(b, &w);
        }
        writer_leave(b);
    }
    builder_leave(b);
    return result;
}
