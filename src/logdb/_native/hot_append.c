/* hot_append.c -- append, append_many, _append_raw and _append_usual: from arguments to records put in.
 *
 * A call that raises has left no record, so that it can be made again: what it has put in is withdrawn.  Where some of
 * it is written already all of it is kept: the exception's `offsets` says which records, and it is not retriable. */
#include "hot.h"

#include "logdb_native.h"

static signature append_signature = {
    "append", 2, 1, {"value", "key", "headers", "timestamp_ms", "expected_offset", "durability"}, {NULL}};
static signature append_many_signature = {
    "append_many", 2, 1, {"values", "keys", "headers", "timestamps_ms", "expected_offset", "durability"}, {NULL}};
static signature append_raw_signature = {
    "_append_raw", 7, 3, {"buffer", "size_bytes", "record_span", "expected_offset", "durability", "admit", "placed"}, {NULL}};

int append_ready(void)
{
    return signature_ready(&append_signature) || signature_ready(&append_many_signature) || signature_ready(&append_raw_signature) ? -1 : 0;
}

static bool given(PyObject *argument)
{
    return argument != NULL && argument != Py_None;
}

/* ---------------------------------------------------------------- terms and ends, common to all */

static int terms_get_slow(const builder *b, PyObject *expected_offset, PyObject *durability, terms *t)
{
    if (!b->ready) {
        PyErr_SetString(PyExc_RuntimeError, "BatchBuilder.__init__ was not called");
        return -1;
    }
    t->expected_offset = -1;
    if (given(expected_offset)) {
        if (int64_get(expected_offset, "expected_offset", &t->expected_offset))
            return -1;
        if (t->expected_offset < 0) {
            PyErr_Format(PyExc_ValueError, "expected_offset=%lld is negative", (long long)t->expected_offset);
            return -1;
        }
    }
    t->level = level_get(durability, b->level);
    return t->level < 0 ? -1 : 0;
}

static inline int terms_get(const builder *b, PyObject *expected_offset, PyObject *durability, terms *t)
{
    if (UNLIKELY(!b->ready || expected_offset != NULL || durability != NULL))
        return terms_get_slow(b, expected_offset, durability, t);
    t->expected_offset = -1;
    t->level = b->level;
    return 0;
}

/* Says on the exception which records are kept; an error of logdb words it. */
static void kept_say(PyObject *exception, int64_t first, int64_t next, bool is_known)
{
    PyObject *offsets = NULL, *result = NULL;
    if (PyObject_HasAttr(exception, hot_names._keep))
        result = PyObject_CallMethod(exception, "_keep", "LLi", (long long)first, (long long)next, (int)is_known);
    else if ((offsets = range_new(first, next)) != NULL)
        PyObject_SetAttr(exception, hot_names.offsets, offsets);
    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(offsets);
}

/* A call failed after its records [first, next) were put in: withdraws them, or says that they are kept.
 * is_known: the log recognizes them when they are sent again. */
static void failed(builder *b, int64_t first, int64_t next, bool is_placed, bool is_known)
{
    if (first >= next)
        return;
    PyObject *exception = exception_take();
    int gone = is_placed ? 0 : builder_withdraw(b, first, next);
    if (gone < 0)
        PyErr_Clear();
    if (gone <= 0)
        kept_say(exception, first, next, is_placed || is_known);
    if (b->written_offset < builder_next_offset(b) && builder_wake(b)) /* the flusher tries what waits again */
        PyErr_Clear();
    exception_give(exception);
}

/* What the level asks for once the records are in. */
static int settle(builder *b, int64_t next, int level)
{
    if (level == LEVEL_FSYNC || (level == LEVEL_INTERVAL && b->level == LEVEL_OS))
        return builder_commit(b, next, level);
    return 0;
}

enum { NO_TIMESTAMP = -1 }; /* of a record that has none: no limit applies to it */

static int timestamp_check(builder *b, int64_t timestamp_ms, int64_t now)
{
    int64_t before = b->timestamp_before_max, after = b->timestamp_after_max;
    bool early = before != INT64_MAX && timestamp_ms < now && (uint64_t)now - (uint64_t)timestamp_ms > (uint64_t)before;
    bool late = timestamp_ms > now && (uint64_t)timestamp_ms - (uint64_t)now > (uint64_t)after;
    if (timestamp_ms == NO_TIMESTAMP || (!early && !late))
        return 0;
    return builder_reject(b, "timestamp", 4, (const int64_t[]){timestamp_ms, now, before, after});
}

int builder_record_check(builder *b, const new_record *r)
{
    if (UNLIKELY(b->keys_required && r->key_size < 0))
        return builder_reject(b, "key", 0, NULL);
    if (BATCH_HEADER_SIZE + FRAME_SIZE_MAX + payload_size(r) <= b->message_size_max)
        return 0;
    size_t size = builder_single_size(r);
    if (size <= b->message_size_max)
        return 0;
    return builder_reject(b, "size", 2, (const int64_t[]){(int64_t)size, (int64_t)b->message_size_max});
}

/* ---------------------------------------------------------------- append */

int timestamp_get(PyObject *timestamp, const char *what, int64_t *out)
{
    if (PyLong_Check(timestamp))
        return int64_get(timestamp, what, out);
    PyObject *module = PyImport_ImportModule("logdb.model");
    PyObject *number = module != NULL ? PyObject_CallMethod(module, "timestamp_ms_of", "O", timestamp) : NULL;
    int result = number != NULL ? int64_get(number, what, out) : -1;
    Py_XDECREF(number);
    Py_XDECREF(module);
    return result;
}

int builder_timestamp(builder *b, PyObject *timestamp_ms, int64_t *out)
{
    int64_t now = builder_now(b);
    if (now == INT64_MIN)
        return -1;
    *out = now;
    if (!given(timestamp_ms))
        return 0;
    int64_t wanted;
    if (timestamp_get(timestamp_ms, "timestamp_ms", &wanted))
        return -1;
    if (b->log_append_time)
        return 0;
    *out = wanted;
    return timestamp_check(b, wanted, now);
}

/* The record is in: its offset, or NULL where it could not be committed. */
static PyObject *append_end(builder *b, int64_t offset, int level)
{
    if (UNLIKELY(settle(b, offset + 1, level))) {
        failed(b, offset, offset + 1, false, false);
        return NULL;
    }
    return PyLong_FromLongLong(offset);
}

PyObject *builder_append(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    builder *b = (builder *)self;
    PyObject *in[6] = {NULL}, *result = NULL;
    terms t = {.many = false};
    if (signature_take(&append_signature, args, nargs, kwnames, in) || terms_get(b, in[4], in[5], &t))
        return NULL;
    blob value, key;
    key.data = NULL;
    key.size = -1;
    key.view.obj = NULL;
    growing headers; /* set up only where there are any */
    bool headed = given(in[2]);
    new_record r = {.header_count = 0};
    if (blob_get(in[0], "value", &value))
        return NULL;
    if (in[1] != NULL && blob_get(in[1], "key", &key))
        goto done_value;
    if (builder_timestamp(b, in[3], &r.timestamp_ms))
        goto done_key;
    if (headed) {
        growing_init(&headers);
        if ((r.header_count = headers_encode(in[2], -1, &headers)) < 0)
            goto done;
        r.headers = headers.data;
        r.headers_size = headers.size;
    }
    r.value = value.data;
    r.value_size = value.size;
    r.key = key.data;
    r.key_size = key.size;
    if (builder_record_check(b, &r) == 0 && (builder_has_room(b, &r, &t) || builder_admit(b, &r, &t) == 0))
        result = append_end(b, builder_put(b, &r), t.level);
done:
    if (headed)
        growing_free(&headers);
done_key:
    blob_release(&key);
done_value:
    blob_release(&value);
    return result;
}

/* ---------------------------------------------------------------- append_many */

/* The arguments of an append_many, copied: the caller cannot change them while they are put in. */
typedef struct {
    Py_ssize_t count;
    PyObject *values, *keys; /* tuples of bytes | None; keys NULL: none */
    int64_t *timestamps;     /* NULL: now */
    int64_t now;
    growing headers;         /* of all records */
    size_t size;             /* bytes of all keys, values and headers */
    int64_t *header_counts;  /* NULL: none */
    size_t *header_ends;     /* in `headers` */
} many_records;

static int count_check(const many_records *m, Py_ssize_t count, const char *what)
{
    if (count == m->count)
        return 0;
    PyErr_Format(PyExc_ValueError, "%zd values but %zd %s", m->count, count, what);
    return -1;
}

static int many_timestamps(builder *b, many_records *m, PyObject *timestamps)
{
    PyObject *items = items_get(timestamps, "timestamps_ms");
    if (items == NULL)
        return -1;
    int result = count_check(m, PyTuple_GET_SIZE(items), "timestamps_ms");
    m->timestamps = PyMem_New(int64_t, (size_t)m->count + 1);
    if (m->timestamps == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    for (Py_ssize_t i = 0; result == 0 && i < m->count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        m->timestamps[i] = m->now;
        if (item == Py_None)
            continue;
        int64_t wanted;
        result = timestamp_get(item, "a timestamp_ms", &wanted);
        if (result == 0 && !b->log_append_time) {
            m->timestamps[i] = wanted;
            result = timestamp_check(b, wanted, m->now);
        }
    }
    Py_DECREF(items);
    return result;
}

static int many_headers(many_records *m, PyObject *headers)
{
    PyObject *items = items_get(headers, "headers");
    if (items == NULL)
        return -1;
    int result = count_check(m, PyTuple_GET_SIZE(items), "headers");
    m->header_counts = PyMem_New(int64_t, (size_t)m->count + 1);
    m->header_ends = PyMem_New(size_t, (size_t)m->count + 1);
    if (m->header_counts == NULL || m->header_ends == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    for (Py_ssize_t i = 0; result == 0 && i < m->count; i++) {
        m->header_counts[i] = headers_encode(PyTuple_GET_ITEM(items, i), i, &m->headers);
        m->header_ends[i] = m->headers.size;
        if (m->header_counts[i] < 0)
            result = -1;
    }
    Py_DECREF(items);
    return result;
}

enum { PREFETCH_COUNT = 8 };

/* Records lie scattered over memory: asks for the bytes of an item before its turn comes.
 * Always inlined, because gcc takes a call that only prefetches for one without effect. */
static inline __attribute__((always_inline)) void item_prefetch(PyObject *items, Py_ssize_t i)
{
    if (i >= PyTuple_GET_SIZE(items))
        return;
    const char *item = (const char *)PyTuple_GET_ITEM(items, i);
    __builtin_prefetch(item + 64);
    __builtin_prefetch(item + 128);
}

static inline void item_get(PyObject *items, Py_ssize_t i, const uint8_t **data, int64_t *size)
{
    PyObject *item = PyTuple_GET_ITEM(items, i);
    bool null = item == Py_None;
    *data = null ? NULL : (const uint8_t *)PyBytes_AS_STRING(item);
    *size = null ? -1 : PyBytes_GET_SIZE(item);
}

static inline void many_get(const many_records *m, Py_ssize_t i, new_record *r)
{
    item_get(m->values, i, &r->value, &r->value_size);
    if (m->keys != NULL)
        item_get(m->keys, i, &r->key, &r->key_size);
    if (m->timestamps != NULL)
        r->timestamp_ms = m->timestamps[i];
    if (m->header_counts != NULL) {
        size_t start = i > 0 ? m->header_ends[i - 1] : 0;
        r->headers = m->headers.data + start;
        r->headers_size = m->header_ends[i] - start;
        r->header_count = m->header_counts[i];
    }
}

/* Takes the arguments over and checks all of it; nothing is appended if an item is wrong. */
static int many_take(builder *b, many_records *m, PyObject *const *in)
{
    if ((m->values = blobs_snapshot(in[0], "values")) == NULL)
        return -1;
    m->count = PyTuple_GET_SIZE(m->values);
    if (given(in[1])) {
        if ((m->keys = blobs_snapshot(in[1], "keys")) == NULL || count_check(m, PyTuple_GET_SIZE(m->keys), "keys"))
            return -1;
    }
    if ((m->now = builder_now(b)) == INT64_MIN)
        return -1;
    if ((given(in[2]) && many_headers(m, in[2])) || (given(in[3]) && many_timestamps(b, m, in[3])))
        return -1;
    new_record r = {.key_size = -1};
    for (Py_ssize_t i = 0; i < m->count; i++) {
        many_get(m, i, &r);
        if (builder_record_check(b, &r))
            return -1;
        m->size += payload_size(&r);
    }
    return 0;
}

/* Of a call that takes several writes: refuses it before the first one, if the disk has no room for all of them. */
static int many_room(builder *b, const many_records *m)
{
    if (m->size <= b->write_size)
        return 0;
    PyObject *result = PyObject_CallMethod((PyObject *)b, "_check_room", "n", (Py_ssize_t)m->size);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static void many_free(many_records *m)
{
    Py_XDECREF(m->values);
    Py_XDECREF(m->keys);
    PyMem_Free(m->timestamps);
    PyMem_Free(m->header_counts);
    PyMem_Free(m->header_ends);
    growing_free(&m->headers);
}

/* Puts all in, with the append lock held: 0, 1 failed after some were in, -1 before; *first is the first offset. */
static int many_put(builder *b, const many_records *m, terms *t, int64_t *first)
{
    if (builder_admit(b, NULL, t))
        return -1;
    *first = builder_next_offset(b);
    t->expected_offset = -1;
    if (b->count > 0)
        builder_close_batch(b);
    new_record r = {.key_size = -1, .timestamp_ms = m->now};
    for (Py_ssize_t i = 0; i < m->count; i++) {
        item_prefetch(m->values, i + PREFETCH_COUNT);
        if (m->keys != NULL)
            item_prefetch(m->keys, i + PREFETCH_COUNT);
        many_get(m, i, &r);
        if (!builder_has_room(b, &r, t) && builder_admit(b, &r, t))
            return 1;
        builder_put(b, &r);
    }
    return 0;
}

/* What follows once records [first, next) are in: written, and committed where the level asks for it. */
static PyObject *many_end(builder *b, int64_t first, int64_t next, const terms *t, bool is_known)
{
    if ((t->level != LEVEL_FSYNC && builder_write_until(b, next)) || (first < next && settle(b, next, t->level))) {
        failed(b, first, next, t->placed, is_known);
        return NULL;
    }
    if (first < next && b->written_offset < next) {
        PyErr_SetString(PyExc_RuntimeError, "the records were discarded");
        return NULL;
    }
    return range_new(first, next);
}

PyObject *builder_append_many(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    builder *b = (builder *)self;
    PyObject *in[6] = {NULL}, *result = NULL;
    terms t = {.many = true};
    if (signature_take(&append_many_signature, args, nargs, kwnames, in) || terms_get(b, in[4], in[5], &t))
        return NULL;
    many_records m = {.count = 0};
    growing_init(&m.headers);
    if (many_take(b, &m, in) == 0 && many_room(b, &m) == 0 && builder_enter(b) == 0) {
        int64_t first = 0, next;
        int put = many_put(b, &m, &t, &first);
        next = builder_next_offset(b);
        builder_leave(b);
        if (put > 0)
            failed(b, first, next, false, false);
        else if (put == 0)
            result = many_end(b, first, next, &t, false);
    }
    many_free(&m);
    return result;
}

/* ---------------------------------------------------------------- _append_raw */

/* Sums up the batches in the buffer; SystemError where they are not what the caller said.
 * base_offset: where those begin that have their offsets, each following on the last; -1: they have none yet. */
static int raw_check(buffer *f, int64_t record_span, int64_t base_offset)
{
    const uint8_t *data = f->view.buf;
    int64_t span = 0;
    size_t at = 0;
    while (f->used - at >= BATCH_HEADER_SIZE) {
        size_t size = (size_t)load_be32(data + at + BATCH_LENGTH) + BATCH_LENGTH_FROM;
        if (size < BATCH_HEADER_SIZE || size > f->used - at)
            break;
        if (base_offset >= 0 && (int64_t)load_be64(data + at + BATCH_BASE_OFFSET) != base_offset + span)
            break;
        span += (int64_t)load_be32(data + at + BATCH_LAST_OFFSET_DELTA) + 1;
        at += size;
    }
    if (at == f->used && span == record_span)
        return 0;
    PyErr_Format(PyExc_SystemError, "raw batches of %zu bytes and %lld offsets, where %zu bytes and %lld offsets were announced", at,
                 (long long)span, f->used, (long long)record_span);
    return -1;
}

/* Sets what a leader's log sets: base offsets from f->base_offset on, and the leader epoch. */
static void raw_place(const builder *b, buffer *f)
{
    uint8_t *data = f->view.buf;
    int64_t next = f->base_offset;
    for (size_t at = 0; at < f->used;) {
        uint8_t *head = data + at;
        store_be64(head + BATCH_BASE_OFFSET, (uint64_t)next);
        store_be32(head + BATCH_LEADER_EPOCH, (uint32_t)b->leader_epoch);
        next += (int64_t)load_be32(head + BATCH_LAST_OFFSET_DELTA) + 1;
        at += (size_t)load_be32(head + BATCH_LENGTH) + BATCH_LENGTH_FROM;
    }
}

static buffer *raw_take(PyObject *const *in, int64_t *record_span, int64_t base_offset)
{
    int64_t size_bytes;
    if (!PyByteArray_Check(in[0])) {
        PyErr_Format(PyExc_TypeError, "buffer must be a bytearray, not %s", Py_TYPE(in[0])->tp_name);
        return NULL;
    }
    if (int64_get(in[1], "size_bytes", &size_bytes) || int64_get(in[2], "record_span", record_span))
        return NULL;
    buffer *f = buffer_adopt(in[0]);
    if (f == NULL)
        return NULL;
    f->used = (size_t)size_bytes;
    if (size_bytes <= 0 || size_bytes > f->view.len)
        PyErr_Format(PyExc_SystemError, "size_bytes=%lld of a buffer of %zd", (long long)size_bytes, f->view.len);
    else if (raw_check(f, *record_span, base_offset) == 0)
        return f;
    buffer_free(f);
    return NULL;
}

/* Calls admit(first, now), which raises to refuse: while append_lock is held no other thread gets the offsets. */
static int raw_admit(builder *b, PyObject *admit, int64_t first)
{
    int64_t now = builder_now(b);
    if (now == INT64_MIN)
        return -1;
    PyObject *offset = PyLong_FromLongLong(first), *now_ms = PyLong_FromLongLong(now), *result = NULL;
    if (offset != NULL && now_ms != NULL)
        result = PyObject_CallFunctionObjArgs(admit, offset, now_ms, NULL);
    Py_XDECREF(offset);
    Py_XDECREF(now_ms);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* Waits for room for size bytes in the queue, with the append lock held. */
static int raw_room(builder *b, size_t size, const terms *t)
{
    for (;;) {
        if (builder_admit(b, NULL, t))
            return -1;
        size_t pending = b->queue_bytes + b->used;
        bool full = t->level == LEVEL_FSYNC && pending > 0 && pending + size > b->group_size;
        if (!full && b->queue_count < 8) /* room for the open buffer and this one is always there */
            return 0;
        if (t->level == LEVEL_FSYNC ? builder_commit_pending(b) : builder_write_until(b, builder_next_offset(b)))
            return -1;
    }
}

/* Queues the buffer, whose first offset is the next one. */
static void raw_queue(builder *b, buffer *f, int64_t record_span, const terms *t)
{
    f->base_offset = builder_next_offset(b);
    f->next_offset = f->base_offset + record_span;
    if (!t->placed)
        raw_place(b, f);
    builder_enqueue(b, f);
}

/* Queues the buffer, with the append lock held; *first is the first offset. */
static int raw_put(builder *b, buffer *f, int64_t record_span, const terms *t, PyObject *admit, int64_t *first)
{
    if (raw_room(b, f->used, t))
        return -1;
    *first = builder_next_offset(b);
    if (given(admit) && raw_admit(b, admit, *first))
        return -1;
    raw_queue(b, f, record_span, t);
    return 0;
}

PyObject *builder_append_raw(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    builder *b = (builder *)self;
    PyObject *in[7] = {NULL};
    terms t = {.many = true};
    int64_t span, first = 0;
    if (signature_take(&append_raw_signature, args, nargs, kwnames, in) || terms_get(b, in[3], in[4], &t))
        return NULL;
    int placed = in[6] != NULL ? PyObject_IsTrue(in[6]) : 0;
    if (placed < 0)
        return NULL;
    t.placed = placed != 0;
    if (t.placed && t.expected_offset < 0) {
        PyErr_SetString(PyExc_SystemError, "placed batches without the offset that they begin at");
        return NULL;
    }
    buffer *f = raw_take(in, &span, t.placed ? t.expected_offset : -1);
    if (f == NULL)
        return NULL;
    int put = builder_enter(b);
    if (put == 0) {
        put = raw_put(b, f, span, &t, in[5], &first);
        builder_leave(b);
    }
    if (put != 0) {
        buffer_free(f); /* not into the pool: the caller may try it again */
        return NULL;
    }
    return many_end(b, first, first + span, &t, given(in[5]));
}

/* ---------------------------------------------------------------- _append_usual */

enum { CHECKED_WITH_GIL_SIZE_MAX = 16 << 10 }; /* in less time than it takes to let go of the GIL and to get it again */

/* What makes a batch usual in a log; copied, since it is looked at without the GIL. */
typedef struct {
    int64_t size_max, timestamp_min, timestamp_max;
    bool keys_required, producers;
} usual_terms;

/* Sets the max timestamp where the header has another one than the records. */
static bool usual_check(uint8_t *data, size_t size, const usual_terms *u, logdb_batch *batch)
{
    uint32_t crc;
    logdb_record_times times;
    if (logdb_batch_check(data, size, u->size_max, batch, &crc) != LOGDB_OK || (size_t)batch->size_bytes != size)
        return false;
    bool whole = batch->record_count > 0 && batch->record_count == batch->last_offset - batch->base_offset + 1;
    bool known = batch->producer_id < 0 || (u->producers && batch->producer_epoch >= 0);
    if (batch->attributes != 0 || !whole || !known)
        return false;
    int flags = LOGDB_RECORDS_BOUNDED | (u->keys_required ? LOGDB_RECORDS_KEYED : 0);
    if (logdb_records_check(data + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE, batch, flags, &times) != LOGDB_OK)
        return false;
    if (times.min < u->timestamp_min || times.max > u->timestamp_max)
        return false;
    if (UNLIKELY(times.max != batch->max_timestamp)) {
        batch->max_timestamp = times.max;
        logdb_batch_seal(data, size, batch->attributes, times.max);
    }
    return true;
}

/* The terms as of now; INT64_MIN as timestamp_max with an exception set. */
static usual_terms usual_terms_get(builder *b, PyObject *admit)
{
    int64_t now = builder_now(b), timestamp_min = INT64_MIN, timestamp_max = now;
    if (now != INT64_MIN && __builtin_add_overflow(now, b->timestamp_after_max, &timestamp_max))
        timestamp_max = INT64_MAX;
    if (b->timestamp_before_max != INT64_MAX && __builtin_sub_overflow(now, b->timestamp_before_max, &timestamp_min))
        timestamp_min = INT64_MIN;
    return (usual_terms){(int64_t)b->message_size_max, timestamp_min, timestamp_max, b->keys_required, given(admit)};
}

/* A buffer with a copy, which the caller cannot change, of one usual batch; NULL without an exception: it is another one. */
static buffer *usual_take(builder *b, PyObject *batches, PyObject *admit, logdb_batch *batch)
{
    Py_buffer view;
    if (PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)) {
        PyErr_Clear(); /* who looks closer says what is wrong */
        return NULL;
    }
    size_t size = (size_t)view.len;
    usual_terms u = usual_terms_get(b, admit);
    buffer *f = u.timestamp_max == INT64_MIN || size < BATCH_HEADER_SIZE || size > b->group_size ? NULL : buffer_take(size);
    if (f != NULL) {
        f->used = size;
        memcpy(f->view.buf, view.buf, size);
    }
    PyBuffer_Release(&view);
    if (f == NULL)
        return NULL;
    bool usual;
    if (size <= CHECKED_WITH_GIL_SIZE_MAX) {
        usual = usual_check(f->view.buf, size, &u, batch);
    } else {
        Py_BEGIN_ALLOW_THREADS
        usual = usual_check(f->view.buf, size, &u, batch);
        Py_END_ALLOW_THREADS
    }
    if (usual)
        return f;
    buffer_give(f);
    return NULL;
}

/* Calls admit: 1 the batch is its producer's next one, and is taken for that; 0 it is another one; -1 failed. */
static int usual_admit(builder *b, PyObject *admit, const logdb_batch *batch, int64_t first)
{
    int64_t now = builder_now(b);
    if (now == INT64_MIN)
        return -1;
    PyObject *result = PyObject_CallFunction(admit, "LiiiLLL", (long long)batch->producer_id, (int)batch->producer_epoch,
                                             (int)batch->base_sequence, (int)batch->record_count, (long long)batch->max_timestamp,
                                             (long long)first, (long long)now);
    int admitted = result != NULL ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    return admitted;
}

/* Queues the buffer, with the append lock held: as usual_admit. */
static int usual_put(builder *b, buffer *f, const logdb_batch *batch, const terms *t, PyObject *admit, int64_t *first)
{
    if (raw_room(b, f->used, t))
        return -1;
    *first = builder_next_offset(b);
    int admitted = batch->producer_id < 0 ? 1 : usual_admit(b, admit, batch, *first);
    if (admitted > 0)
        raw_queue(b, f, batch->record_count, t);
    return admitted;
}

PyObject *builder_append_usual(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    builder *b = (builder *)self;
    terms t = {.many = true};
    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError, "_append_usual() takes 2 arguments, %zd were given", nargs);
        return NULL;
    }
    if (terms_get(b, NULL, NULL, &t))
        return NULL;
    if (b->refusing != 0 || b->log_append_time)
        Py_RETURN_NONE;
    logdb_batch batch;
    buffer *f = usual_take(b, args[0], args[1], &batch);
    if (f == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    int64_t first = 0;
    int put = builder_enter(b);
    if (put == 0) {
        put = usual_put(b, f, &batch, &t, args[1], &first);
        builder_leave(b);
    }
    if (put > 0)
        return many_end(b, first, first + batch.record_count, &t, batch.producer_id >= 0);
    buffer_give(f);
    if (put < 0)
        return NULL;
    Py_RETURN_NONE;
}
