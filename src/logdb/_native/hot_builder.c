/* hot_builder.c -- BatchBuilder: gathers records into batches, and hands full buffers of batches to `_write`.
 *
 *   append -> open batch -> (closed at batch_size) -> open buffer -> (full at write_size) -> queue -> _write
 *
 *   base_offset of the queue's head = written_offset <= ... <= base_offset of the open batch <= next offset
 *
 * Invariants, whenever the GIL may change hands:
 *   1. The buffers of the queue, then the open one, hold every record in [written_offset, next_offset), in order.
 *   2. Only the holder of write_lock takes from the queue, and only from its head; any thread adds to its tail.
 *      A failed call, with both locks, takes its own records out (hot_withdraw.c).
 *   3. A buffer leaves the queue once _write has returned.  Where it raised, `broken` is set and the buffer stays:
 *      nothing is accepted until it could be written, or all of it was withdrawn.
 *   4. While `many` is set, only the thread append_owner puts records in.
 *   5. Nothing pending: no buffer is held.
 * A thread that waits for a lock holds neither the GIL nor, unless it owns append_lock, another lock of the builder;
 * the holder of write_lock never waits for append_lock.  So hooks may drain from any thread. */
#include "hot.h"

#include <time.h>

#include "crc32c.h"

enum { QUEUE_COUNT_MAX = 16, END_TRIES_MAX = 100 };

#ifndef CLOCK_REALTIME_COARSE /* Linux: the time of the last tick, at most 4 ms ago, for a third of the price */
#define CLOCK_REALTIME_COARSE CLOCK_REALTIME
#define CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC
#endif

static int64_t clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t builder_now(builder *b)
{
    if (b->clock == NULL)
        return clock_ms(CLOCK_REALTIME_COARSE);
    int64_t now = INT64_MIN;
    PyObject *result = PyObject_CallNoArgs(b->clock);
    if (result == NULL || int64_get(result, "clock()", &now))
        now = INT64_MIN;
    Py_XDECREF(result);
    return now;
}

/* ---------------------------------------------------------------- hooks */

int builder_reject(builder *b, const char *reason, int number_count, const int64_t *numbers)
{
    PyObject *args[8] = {(PyObject *)b, PyUnicode_FromString(reason)}, *result = NULL;
    int count = 2;
    for (bool made = args[1] != NULL; made && count < 2 + number_count; count++)
        made = (args[count] = PyLong_FromLongLong(numbers[count - 2])) != NULL;
    if (!PyErr_Occurred())
        result = PyObject_VectorcallMethod(hot_names._reject, args, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    for (int i = 1; i < count; i++)
        Py_XDECREF(args[i]);
    if (result != NULL) {
        Py_DECREF(result);
        PyErr_Format(PyExc_SystemError, "_reject(%s) did not raise", reason);
    }
    return -1;
}

int builder_commit(builder *b, int64_t next_offset, int level)
{
    PyObject *offset = PyLong_FromLongLong(next_offset), *number = PyLong_FromLong(level), *result = NULL;
    if (offset != NULL && number != NULL)
        result = PyObject_CallMethodObjArgs((PyObject *)b, hot_names._commit, offset, number, NULL);
    Py_XDECREF(offset);
    Py_XDECREF(number);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

static int hook_call(builder *b, PyObject *name)
{
    PyObject *result = PyObject_CallMethodNoArgs((PyObject *)b, name);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

int builder_wake(builder *b)
{
    if (b->dirty)
        return 0;
    b->dirty = 1;
    if (hook_call(b, hot_names._woken) == 0)
        return 0;
    b->dirty = 0;
    return -1;
}

/* a view that a caller still uses cannot be released; it then shows old bytes */
static void view_release(PyObject *view)
{
    if (view == NULL)
        return;
    PyObject *pending = exception_take(), *result = PyObject_CallMethodNoArgs(view, hot_names.release);
    Py_XDECREF(result);
    exception_give(pending);
    Py_DECREF(view);
}

static int write_call(builder *b, const buffer *f)
{
    int64_t now = builder_now(b);
    if (now == INT64_MIN)
        return -1;
    PyObject *whole = PyMemoryView_FromObject(f->view.obj), *result = NULL;
    PyObject *part = whole != NULL ? PySequence_GetSlice(whole, 0, (Py_ssize_t)f->used) : NULL;
    PyObject *args[] = {(PyObject *)b, part, PyLong_FromLongLong(f->base_offset), PyLong_FromLongLong(f->next_offset),
                        PyLong_FromLongLong(now)};
    if (part != NULL && args[2] != NULL && args[3] != NULL && args[4] != NULL)
        result = PyObject_VectorcallMethod(hot_names._write, args, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_XDECREF(args[2]);
    Py_XDECREF(args[3]);
    Py_XDECREF(args[4]);
    view_release(part);
    view_release(whole);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* ---------------------------------------------------------------- locks */

/* Takes the lock, waiting without the GIL; RuntimeError where that would be for ever. */
static int lock_wait(const builder *b, PyThread_type_lock lock, unsigned long owner, const char *what)
{
    if (PyThread_acquire_lock(lock, NOWAIT_LOCK))
        return 0;
    if (owner == PyThread_get_thread_ident()) {
        PyErr_Format(PyExc_RuntimeError, "called from within %s of the same thread", what);
        return -1;
    }
    if (builder_forked(b)) {
        PyErr_Format(PyExc_RuntimeError, "a thread of process %ld held a lock when this process was forked", b->process);
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS
    return 0;
}

/* a writer must not wait for append_lock: its holder may wait for the writer */
static int append_lock_take(const builder *b)
{
    if (b->writer == PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "called from within _write() of the same thread");
        return -1;
    }
    return lock_wait(b, b->append_lock, b->append_owner, "append_many()");
}

static int append_lock_wait(const builder *b)
{
    if (append_lock_take(b))
        return -1;
    PyThread_release_lock(b->append_lock);
    return 0;
}

int builder_enter(builder *b)
{
    if (append_lock_take(b))
        return -1;
    b->many = true;
    b->append_owner = PyThread_get_thread_ident();
    return 0;
}

void builder_leave(builder *b)
{
    b->many = false;
    b->append_owner = 0;
    PyThread_release_lock(b->append_lock);
}

int writer_enter(builder *b, bool wait)
{
    if (!wait && !PyThread_acquire_lock(b->write_lock, NOWAIT_LOCK))
        return 0;
    if (wait && lock_wait(b, b->write_lock, b->writer, "_write()"))
        return -1;
    b->writer = PyThread_get_thread_ident();
    return 1;
}

void writer_leave(builder *b)
{
    b->writer = 0;
    PyThread_release_lock(b->write_lock);
}

/* ---------------------------------------------------------------- the queue */

static buffer *queue_take(builder *b)
{
    buffer *f = b->head;
    b->head = f->next;
    if (b->head == NULL)
        b->tail = NULL;
    b->queue_count--;
    b->queue_bytes -= f->used;
    return f;
}

void queue_add(builder *b, buffer *f)
{
    f->next = NULL;
    if (b->tail != NULL)
        b->tail->next = f;
    else
        b->head = f;
    b->tail = f;
    b->queue_count++;
    b->queue_bytes += f->used;
}

void open_enqueue(builder *b)
{
    buffer *f = b->open;
    f->used = b->used;
    f->next_offset = b->base_offset;
    b->open = NULL;
    b->data = NULL;
    b->used = b->start = b->capacity = 0;
    queue_add(b, f);
}

/* a time to be `opened` at that is never 0 */
static int64_t monotonic_ms(void)
{
    int64_t now = clock_ms(CLOCK_MONOTONIC_COARSE);
    return now > 0 ? now : 1;
}

void builder_enqueue(builder *b, buffer *f)
{
    if (b->count > 0)
        builder_close_batch(b);
    if (b->open != NULL)
        open_enqueue(b);
    f->opened_ms = monotonic_ms();
    b->base_offset = f->next_offset;
    queue_add(b, f);
}

/* Writes what is in the queue up to the offset.  Another thread that is writing may write ours too: wait only if asked. */
static int queue_write(builder *b, int64_t offset, bool wait)
{
    int entered = writer_enter(b, wait);
    if (entered <= 0)
        return entered;
    int result = 0;
    while (b->head != NULL && b->written_offset < offset) {
        if ((result = write_call(b, b->head)) != 0)
            break;
        buffer *f = queue_take(b);
        b->written_offset = f->next_offset;
        buffer_give(f);
    }
    b->broken = result != 0;
    writer_leave(b);
    return result;
}

int builder_write_until(builder *b, int64_t offset)
{
    while (b->written_offset < offset && (b->head != NULL || b->open != NULL)) {
        if (b->open != NULL && b->open->base_offset < offset && b->queue_count < QUEUE_COUNT_MAX) {
            if (b->count > 0)
                builder_close_batch(b);
            open_enqueue(b);
        }
        if (queue_write(b, offset, true))
            return -1;
    }
    if (b->written_offset >= offset)
        return 0;
    if (b->refusing != 0)
        return builder_reject(b, "refusing", 1, &b->refusing);
    if (builder_next_offset(b) < offset) /* failed calls have withdrawn their records */
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "the records were discarded");
    return -1;
}

/* ---------------------------------------------------------------- batches */

/* bytes after the length field */
static inline size_t body_size(const new_record *r, int64_t timestamp_delta, int64_t offset_delta)
{
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(r->key_size) + varint_size(r->value_size) +
           varint_size(r->header_count) + payload_size(r);
}

static inline size_t record_size(const new_record *r, int64_t timestamp_delta, int64_t offset_delta)
{
    size_t body = body_size(r, timestamp_delta, offset_delta);
    return varint_size((int64_t)body) + body;
}

static inline int64_t timestamp_delta(const builder *b, const new_record *r)
{
    return (int64_t)((uint64_t)r->timestamp_ms - (uint64_t)b->base_timestamp);
}

size_t builder_single_size(const new_record *r)
{
    return BATCH_HEADER_SIZE + record_size(r, 0, 0);
}

void builder_close_batch(builder *b)
{
    uint8_t *head = b->data + b->start;
    size_t size = b->used - b->start;
    store_be64(head + BATCH_BASE_OFFSET, (uint64_t)b->base_offset);
    store_be32(head + BATCH_LENGTH, (uint32_t)(size - BATCH_LENGTH_FROM));
    store_be32(head + BATCH_LEADER_EPOCH, (uint32_t)b->leader_epoch);
    head[BATCH_MAGIC] = 2;
    store_be16(head + BATCH_ATTRIBUTES, b->log_append_time ? ATTRIBUTE_LOG_APPEND_TIME : 0);
    store_be32(head + BATCH_LAST_OFFSET_DELTA, b->count - 1);
    store_be64(head + BATCH_BASE_TIMESTAMP, (uint64_t)b->base_timestamp);
    store_be64(head + BATCH_MAX_TIMESTAMP, (uint64_t)b->max_timestamp);
    store_be64(head + BATCH_PRODUCER_ID, UINT64_MAX); /* none: -1 */
    store_be16(head + BATCH_PRODUCER_EPOCH, UINT16_MAX);
    store_be32(head + BATCH_BASE_SEQUENCE, UINT32_MAX);
    store_be32(head + BATCH_COUNT, b->count);
    store_be32(head + BATCH_CRC, logdb_crc32c(0, head + BATCH_ATTRIBUTES, size - BATCH_ATTRIBUTES));
    b->base_offset += b->count;
    b->count = 0;
    b->start = b->used;
}

/* Bytes of the length field: for most records the payload alone tells, and nothing needs to be added up first. */
static inline size_t length_size(const new_record *r, int64_t timestamp_delta, int64_t offset_delta)
{
    size_t payload = payload_size(r);
    if (payload + FRAME_SIZE_MIN - 1 >= 1 << 6 && payload + FRAME_SIZE_MAX < 1 << 13)
        return 2;
    if (payload + FRAME_SIZE_MAX < 1 << 6)
        return 1;
    return varint_size((int64_t)body_size(r, timestamp_delta, offset_delta));
}

int64_t builder_put(builder *b, const new_record *r)
{
    if (b->count == 0) {
        b->start = b->used;
        b->used += BATCH_HEADER_SIZE;
        b->base_timestamp = b->max_timestamp = r->timestamp_ms;
    } else if (r->timestamp_ms > b->max_timestamp || b->log_append_time) {
        b->max_timestamp = r->timestamp_ms;
    }
    int64_t delta = timestamp_delta(b, r);
    uint8_t *length = b->data + b->used, *body = length + length_size(r, delta, b->count), *p = body;
    *p++ = 0; /* attributes */
    p = varint_store(p, delta);
    p = varint_store(p, b->count);
    p = varint_store(p, r->key_size);
    if (r->key_size > 0)
        p = (uint8_t *)memcpy(p, r->key, (size_t)r->key_size) + r->key_size;
    p = varint_store(p, r->value_size);
    if (r->value_size > 0)
        p = (uint8_t *)memcpy(p, r->value, (size_t)r->value_size) + r->value_size;
    p = varint_store(p, r->header_count);
    if (r->headers_size > 0)
        p = (uint8_t *)memcpy(p, r->headers, r->headers_size) + r->headers_size;
    varint_store(length, p - body);
    b->used = (size_t)(p - b->data);
    return b->base_offset + b->count++;
}

void builder_drop(builder *b)
{
    if (b->open != NULL)
        open_enqueue(b);
    while (b->head != NULL)
        buffer_give(queue_take(b));
    b->count = 0;
    b->base_offset = b->written_offset;
    b->broken = false;
}

int64_t builder_discard(builder *b)
{
    int64_t dropped = builder_next_offset(b) - b->written_offset;
    if (builder_forked(b)) { /* the threads that may have held a lock are not here */
        builder_drop(b);
        return dropped;
    }
    if (builder_enter(b))
        return -1;
    dropped = -1;
    if (writer_enter(b, true) > 0) {
        dropped = builder_next_offset(b) - b->written_offset;
        builder_drop(b);
        writer_leave(b);
    }
    builder_leave(b);
    return dropped;
}

/* ---------------------------------------------------------------- admission */

/* a group of level fsync is written as a whole, by the hook that syncs it */
static inline bool grouped(const builder *b, const terms *t)
{
    return t->level == LEVEL_FSYNC && (b->fsync_only || t->many);
}

int builder_commit_pending(builder *b)
{
    int64_t next = builder_next_offset(b);
    if (builder_commit(b, next, LEVEL_FSYNC))
        return -1;
    if (next > builder_next_offset(b)) /* another call has withdrawn its records */
        next = builder_next_offset(b);
    if (b->written_offset >= next || b->refusing != 0)
        return 0;
    PyErr_Format(PyExc_SystemError, "_commit(%lld) returned while offset %lld is not written", (long long)next, (long long)b->written_offset);
    return -1;
}

/* Writes the queue, before anything more is accepted. */
static int queue_clear(builder *b, const terms *t)
{
    if (grouped(b, t))
        return builder_commit_pending(b);
    return queue_write(b, INT64_MAX, true);
}

/* Makes room for a batch of size bytes where no batch is open: 1 there is, 0 Python has run, so look again, -1 failed. */
static int room_make(builder *b, size_t size, const terms *t)
{
    size_t pending = b->queue_bytes + b->used;
    if (grouped(b, t) && pending > 0 && pending + size > b->group_size)
        return builder_commit_pending(b);
    if (b->open != NULL) {
        if (b->used + size <= b->capacity)
            return 1;
        if (b->queue_count >= QUEUE_COUNT_MAX)
            return queue_clear(b, t);
        open_enqueue(b);
        return grouped(b, t) ? 0 : queue_write(b, builder_next_offset(b), false);
    }
    if (b->base_offset > INT64_MAX - INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "offset %lld is the last there can be", (long long)b->base_offset);
        return -1;
    }
    size_t capacity = size > b->write_size ? size : b->write_size;
    buffer *f = buffer_take(capacity);
    if (f == NULL)
        return -1;
    f->base_offset = b->base_offset;
    f->opened_ms = monotonic_ms();
    b->open = f;
    b->data = f->view.buf;
    b->used = b->start = 0;
    b->capacity = capacity;
    return 1;
}

bool builder_fits(const builder *b, const new_record *r)
{
    return b->used - b->start + record_size(r, timestamp_delta(b, r), b->count) <= b->batch_limit;
}

static int room_for(builder *b, const new_record *r, const terms *t)
{
    if (b->count > 0) {
        if (builder_fits(b, r))
            return 1;
        builder_close_batch(b);
    }
    size_t single = builder_single_size(r);
    return room_make(b, single > b->batch_limit ? single : b->batch_limit, t);
}

int builder_admit(builder *b, const new_record *r, const terms *t)
{
    for (int tries = 0;;) {
        int result = 0; /* of whatever may have run Python, after which all must be looked at again */
        int64_t next = builder_next_offset(b);
        if (UNLIKELY(b->refusing != 0 && !(t->placed && b->refusing == REFUSING_UNPLACED))) {
            return builder_reject(b, "refusing", 1, &b->refusing);
        } else if (UNLIKELY(b->broken)) {
            result = queue_clear(b, t);
        } else if (UNLIKELY(b->many && !t->many)) {
            result = append_lock_wait(b);
        } else if (UNLIKELY(b->fsync_only && t->level < LEVEL_FSYNC)) {
            result = hook_call(b, hot_names._end_fsync_only);
            if (result == 0 && ++tries == END_TRIES_MAX) {
                PyErr_SetString(PyExc_SystemError, "_end_fsync_only() leaves fsync_only set");
                return -1;
            }
        } else if (UNLIKELY(!b->dirty && !t->many && t->level < LEVEL_FSYNC)) {
            result = builder_wake(b);
        } else if (UNLIKELY(t->expected_offset >= 0 && t->expected_offset != next)) {
            return builder_reject(b, "expected_offset", 2, (const int64_t[]){t->expected_offset, next});
        } else {
            int room = r != NULL ? room_for(b, r, t) : 1;
            if (room > 0)
                return 0;
            result = room;
        }
        if (result != 0)
            return -1;
    }
}
