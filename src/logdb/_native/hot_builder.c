/* hot_builder.c -- BatchBuilder: gathers records into batches, and hands full buffers of batches to `_write`.
 *
 *   append -> open batch -> (closed at batch_size) -> open buffer -> (full at write_size) -> queue -> _write
 *
 *   base_offset of the queue's head = written_offset <= ... <= base_offset of the open batch <= next offset
 *
 * Invariants, whenever the GIL may change hands:
 *   1. The buffers of the queue, then the open one, hold every record in [written_offset, next_offset), in order.
 *   2. Only the holder of write_lock takes from the queue, and only from its head; anybody adds to its tail.
 *   3. A buffer leaves the queue once _write has returned.  Where it raised, `broken` is set and the buffer stays:
 *      nothing is accepted until it could be written.
 *   4. While `many` is set, only the thread many_owner puts records in.
 *   5. Nothing pending: no buffer is held.
 * A thread that waits for a lock holds neither the GIL nor, unless it owns the gate, another lock of the builder;
 * whoever holds write_lock never waits for the gate.  So hooks may drain from any thread. */
#include "hot.h"

#include <time.h>

#include "crc32c.h"

enum { QUEUE_COUNT_MAX = 16, WEAKEN_TRIES_MAX = 100 };

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

/* a view that somebody still uses cannot be released; it then shows old bytes */
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
    PyObject *whole = PyMemoryView_FromObject(f->view.obj), *result = NULL;
    PyObject *part = whole != NULL ? PySequence_GetSlice(whole, 0, (Py_ssize_t)f->used) : NULL;
    PyObject *args[] = {(PyObject *)b, part, PyLong_FromLongLong(f->base_offset), PyLong_FromLongLong(f->next_offset),
                        PyLong_FromLongLong(f->max_timestamp)};
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

static void lock_wait(PyThread_type_lock lock)
{
    if (PyThread_acquire_lock(lock, NOWAIT_LOCK))
        return;
    Py_BEGIN_ALLOW_THREADS
    PyThread_acquire_lock(lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS
}

static int owner_check(unsigned long owner, const char *what)
{
    if (owner != PyThread_get_thread_ident())
        return 0;
    PyErr_Format(PyExc_RuntimeError, "called from within %s of the same thread", what);
    return -1;
}

static int gate_wait(builder *b)
{
    if (owner_check(b->many_owner, "append_many()") || owner_check(b->writer, "_write()"))
        return -1;
    lock_wait(b->many_lock);
    PyThread_release_lock(b->many_lock);
    return 0;
}

int builder_enter(builder *b)
{
    if (owner_check(b->many_owner, "append_many()") || owner_check(b->writer, "_write()"))
        return -1;
    lock_wait(b->many_lock);
    b->many = true;
    b->many_owner = PyThread_get_thread_ident();
    return 0;
}

void builder_leave(builder *b)
{
    b->many = false;
    b->many_owner = 0;
    PyThread_release_lock(b->many_lock);
}

/* 1: have it, 0: somebody else has it and wait is false, -1: this thread has it already */
static int writer_enter(builder *b, bool wait)
{
    if (!PyThread_acquire_lock(b->write_lock, NOWAIT_LOCK)) {
        if (!wait)
            return 0;
        if (owner_check(b->writer, "_write()"))
            return -1;
        lock_wait(b->write_lock);
    }
    b->writer = PyThread_get_thread_ident();
    return 1;
}

static void writer_leave(builder *b)
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

static void queue_add(builder *b, buffer *f)
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

static void open_enqueue(builder *b)
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

/* Writes what is in the queue up to the offset.  Where somebody else is at it they may write ours too: wait only if asked. */
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
    if (b->gate != 0)
        return builder_reject(b, "gate", 1, &b->gate);
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
    if (b->max_timestamp > b->open->max_timestamp)
        b->open->max_timestamp = b->max_timestamp;
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

/* ---------------------------------------------------------------- admission */

/* a group of level fsync is written as a whole, by the hook that syncs it */
static inline bool grouped(const builder *b, const terms *t)
{
    return t->level == LEVEL_FSYNC && (b->strict || t->many);
}

/* Writes the queue before anything more is accepted. */
static int queue_clear(builder *b, const terms *t)
{
    if (grouped(b, t))
        return builder_commit(b, builder_next_offset(b), LEVEL_FSYNC);
    return queue_write(b, INT64_MAX, true);
}

/* Makes room for a batch of size bytes where no batch is open: 1 there is, 0 Python has run, so look again, -1 failed. */
static int room_make(builder *b, size_t size, const terms *t)
{
    size_t pending = b->queue_bytes + b->used;
    if (grouped(b, t) && pending > 0 && pending + size > b->group_size)
        return builder_commit(b, b->base_offset, LEVEL_FSYNC);
    if (b->open != NULL) {
        if (b->used + size <= b->capacity)
            return 1;
        if (b->queue_count == QUEUE_COUNT_MAX)
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
    f->max_timestamp = INT64_MIN;
    f->opened_ms = monotonic_ms();
    b->open = f;
    b->data = f->view.buf;
    b->used = b->start = 0;
    b->capacity = capacity;
    return 1;
}

static int room_for(builder *b, const new_record *r, const terms *t)
{
    if (b->count > 0) {
        if (b->used - b->start + record_size(r, timestamp_delta(b, r), b->count) <= b->batch_limit)
            return 1;
        builder_close_batch(b);
    }
    size_t single = builder_single_size(r);
    return room_make(b, single > b->batch_limit ? single : b->batch_limit, t);
}

int builder_admit(builder *b, const new_record *r, const terms *t)
{
    for (int weakened = 0;;) {
        int result = 0; /* of whatever may have run Python, after which all must be looked at again */
        int64_t next = builder_next_offset(b);
        if (UNLIKELY(b->gate != 0)) {
            return builder_reject(b, "gate", 1, &b->gate);
        } else if (UNLIKELY(b->broken)) {
            result = queue_clear(b, t);
        } else if (UNLIKELY(b->many && !t->many)) {
            result = gate_wait(b);
        } else if (UNLIKELY(b->strict && t->level < LEVEL_FSYNC)) {
            result = hook_call(b, hot_names._weaken);
            if (result == 0 && ++weakened == WEAKEN_TRIES_MAX) {
                PyErr_SetString(PyExc_SystemError, "_weaken() leaves strict set");
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

/* ---------------------------------------------------------------- methods */

static PyObject *builder_drain(PyObject *self, PyObject *unused)
{
    (void)unused;
    builder *b = (builder *)self;
    if (builder_write_until(b, builder_next_offset(b)))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *builder_discard(PyObject *self, PyObject *unused)
{
    (void)unused;
    builder *b = (builder *)self;
    if (builder_enter(b))
        return NULL;
    if (writer_enter(b, true) < 0) {
        builder_leave(b);
        return NULL;
    }
    int64_t dropped = builder_next_offset(b) - b->written_offset;
    if (b->open != NULL)
        open_enqueue(b);
    b->count = 0;
    b->base_offset = b->written_offset;
    while (b->head != NULL)
        buffer_give(queue_take(b));
    b->broken = false;
    writer_leave(b);
    builder_leave(b);
    return PyLong_FromLongLong(dropped);
}

static PyObject *builder_buffer(PyObject *self, PyObject *size)
{
    (void)self;
    Py_ssize_t size_bytes = PyNumber_AsSsize_t(size, PyExc_OverflowError);
    if (size_bytes < 0) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "size=%zd is negative", size_bytes);
        return NULL;
    }
    return buffer_lend((size_t)size_bytes);
}

static size_t batch_limit(size_t batch_size, size_t message_size_max)
{
    return batch_size < message_size_max ? batch_size : message_size_max;
}

static int range_check(const char *what, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s=%lld is not in [%lld, %lld]", what, (long long)value, (long long)least, (long long)most);
    return -1;
}

static PyObject *builder_configure(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"level", "gate", "strict", "keys_required", "log_append_time", "timestamp_before_max_ms",
                            "timestamp_after_max_ms", "message_size_max", "batch_size", NULL};
    builder *b = (builder *)self;
    int level = b->level, strict = b->strict, keys_required = b->keys_required, log_append_time = b->log_append_time;
    long long gate = b->gate, before = b->timestamp_before_max, after = b->timestamp_after_max;
    Py_ssize_t message_size_max = (Py_ssize_t)b->message_size_max, batch_size = (Py_ssize_t)b->batch_size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$iLpppLLnn:_configure", names, &level, &gate, &strict, &keys_required,
                                     &log_append_time, &before, &after, &message_size_max, &batch_size))
        return NULL;
    if (range_check("level", level, LEVEL_OS, LEVEL_FSYNC) || range_check("timestamp_before_max_ms", before, 0, INT64_MAX) ||
        range_check("timestamp_after_max_ms", after, 0, INT64_MAX) || range_check("message_size_max", message_size_max, 0, INT32_MAX) ||
        range_check("batch_size", batch_size, 1, INT32_MAX))
        return NULL;
    size_t limit = batch_limit((size_t)batch_size, (size_t)message_size_max);
    if (b->count > 0 && (limit != b->batch_limit || b->log_append_time != (log_append_time != 0)))
        builder_close_batch(b); /* its room was made by the old limit; the attribute is the whole batch's */
    b->level = level;
    b->gate = gate;
    b->strict = strict != 0;
    b->keys_required = keys_required != 0;
    b->log_append_time = log_append_time != 0;
    b->timestamp_before_max = before;
    b->timestamp_after_max = after;
    b->message_size_max = (size_t)message_size_max;
    b->batch_size = (size_t)batch_size;
    if (b->batch_size > b->write_size)
        b->write_size = b->batch_size;
    b->batch_limit = limit;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- hooks, as they are without a subclass */

static PyObject *builder_hook_write(PyObject *self, PyObject *args)
{
    (void)args;
    return PyErr_Format(PyExc_NotImplementedError, "%s does not define _write", Py_TYPE(self)->tp_name);
}

static PyObject *builder_hook_none(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Py_RETURN_NONE;
}

static PyObject *builder_hook_commit(PyObject *self, PyObject *args)
{
    (void)args;
    return builder_drain(self, NULL);
}

static PyObject *builder_hook_reject(PyObject *self, PyObject *args)
{
    (void)self;
    return PyErr_Format(PyExc_ValueError, "append refused: %R", args);
}

/* ---------------------------------------------------------------- properties */

static PyObject *get_next_offset(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(builder_next_offset((builder *)self));
}

static int set_next_offset(PyObject *self, PyObject *value, void *closure)
{
    (void)closure;
    builder *b = (builder *)self;
    int64_t offset, pending = builder_next_offset(b) - b->written_offset;
    if (value == NULL || int64_get(value, "_next_offset", &offset) || range_check("_next_offset", offset, 0, INT64_MAX)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_AttributeError, "_next_offset cannot be deleted");
        return -1;
    }
    if (pending != 0) {
        PyErr_Format(PyExc_RuntimeError, "_next_offset cannot be set to %lld: %lld records are pending", (long long)offset, (long long)pending);
        return -1;
    }
    b->base_offset = b->written_offset = offset;
    return 0;
}

static PyObject *get_pending_count(PyObject *self, void *closure)
{
    (void)closure;
    builder *b = (builder *)self;
    return PyLong_FromLongLong(builder_next_offset(b) - b->written_offset);
}

static PyObject *get_opened_ms(PyObject *self, void *closure)
{
    (void)closure;
    builder *b = (builder *)self;
    const buffer *oldest = b->head != NULL ? b->head : b->open;
    return PyLong_FromLongLong(oldest != NULL ? oldest->opened_ms : 0);
}

static PyObject *get_leader_epoch(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(((builder *)self)->leader_epoch);
}

static int set_leader_epoch(PyObject *self, PyObject *value, void *closure)
{
    (void)closure;
    builder *b = (builder *)self;
    int64_t epoch;
    if (value == NULL || int64_get(value, "leader_epoch", &epoch) || range_check("leader_epoch", epoch, -1, INT32_MAX)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_AttributeError, "leader_epoch cannot be deleted");
        return -1;
    }
    if (b->count > 0)
        builder_close_batch(b); /* what was accepted under the old epoch keeps it */
    b->leader_epoch = (int32_t)epoch;
    return 0;
}

/* ---------------------------------------------------------------- the type */

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    builder *b = (builder *)type->tp_alloc(type, 0);
    if (b == NULL)
        return NULL;
    b->write_lock = PyThread_allocate_lock();
    b->many_lock = PyThread_allocate_lock();
    if (b->write_lock == NULL || b->many_lock == NULL) {
        Py_DECREF(b);
        return PyErr_NoMemory();
    }
    b->level = LEVEL_INTERVAL;
    b->message_size_max = INT32_MAX;
    b->timestamp_before_max = b->timestamp_after_max = INT64_MAX;
    b->batch_size = b->write_size = b->group_size = b->batch_limit = 1;
    return (PyObject *)b;
}

static int builder_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"next_offset", "leader_epoch", "batch_size", "write_size", "group_size", "clock", NULL};
    builder *b = (builder *)self;
    long long next_offset;
    int leader_epoch;
    Py_ssize_t batch_size, write_size, group_size;
    PyObject *clock;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$LinnnO:BatchBuilder", names, &next_offset, &leader_epoch, &batch_size, &write_size,
                                     &group_size, &clock))
        return -1;
    if (range_check("next_offset", next_offset, 0, INT64_MAX) || range_check("leader_epoch", leader_epoch, -1, INT32_MAX) ||
        range_check("batch_size", batch_size, 1, INT32_MAX) || range_check("write_size", write_size, 1, INT32_MAX) ||
        range_check("group_size", group_size, 1, INT32_MAX))
        return -1;
    if (b->ready) {
        PyErr_SetString(PyExc_RuntimeError, "BatchBuilder.__init__ was called twice");
        return -1;
    }
    if (clock != Py_None)
        b->clock = Py_NewRef(clock);
    b->base_offset = b->written_offset = next_offset;
    b->leader_epoch = leader_epoch;
    b->batch_size = (size_t)batch_size;
    b->write_size = (size_t)(write_size > batch_size ? write_size : batch_size);
    b->group_size = (size_t)group_size;
    b->batch_limit = batch_limit(b->batch_size, b->message_size_max);
    b->ready = true;
    return 0;
}

static int builder_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((builder *)self)->clock);
    return 0;
}

static int builder_clear(PyObject *self)
{
    Py_CLEAR(((builder *)self)->clock);
    return 0;
}

static void builder_dealloc(PyObject *self)
{
    builder *b = (builder *)self;
    PyObject_GC_UnTrack(self);
    if (b->open != NULL)
        buffer_give(b->open);
    while (b->head != NULL)
        buffer_give(queue_take(b));
    if (b->write_lock != NULL)
        PyThread_free_lock(b->write_lock);
    if (b->many_lock != NULL)
        PyThread_free_lock(b->many_lock);
    builder_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef builder_methods[] = {
    {"append", METHOD(builder_append), FASTCALL,
     "append(value, key=None, *, headers=(), timestamp_ms=None, expected_offset=None, durability=None) -> offset"},
    {"append_many", METHOD(builder_append_many), FASTCALL,
     "append_many(values, keys=None, *, headers=None, timestamps_ms=None, expected_offset=None, durability=None) -> range"},
    {"_append_raw", METHOD(builder_append_raw), FASTCALL,
     "_append_raw(buffer, size_bytes, record_span, expected_offset=None, durability=None) -> range"},
    {"_buffer", builder_buffer, METH_O, "a bytearray of at least that many bytes, for _append_raw"},
    {"_drain", builder_drain, METH_NOARGS, "write everything that is pending now"},
    {"_discard", builder_discard, METH_NOARGS, "drop what is pending -> how many records"},
    {"_configure", METHOD(builder_configure), METH_VARARGS | METH_KEYWORDS, "set what is given"},
    {"_write", builder_hook_write, METH_VARARGS, "hook: write batches"},
    {"_woken", builder_hook_none, METH_NOARGS, "hook: something is pending"},
    {"_weaken", builder_hook_none, METH_NOARGS, "hook: a record below level fsync comes"},
    {"_commit", builder_hook_commit, METH_VARARGS, "hook: write, and sync as the level asks"},
    {"_reject", builder_hook_reject, METH_VARARGS, "hook: raise what fits"},
    {0},
};

static PyMemberDef builder_members[] = {
    {"_dirty", T_BOOL, offsetof(builder, dirty), 0, "whether _woken was called since this was last cleared"},
    {"_broken", T_BOOL, offsetof(builder, broken), READONLY, "whether the last write failed"},
    {"_written_offset", T_LONGLONG, offsetof(builder, written_offset), READONLY, "below it everything went through _write"},
    {0},
};

static PyGetSetDef builder_getset[] = {
    {"_next_offset", get_next_offset, set_next_offset, "offset of the next record; settable while nothing is pending", NULL},
    {"_pending_count", get_pending_count, NULL, "records accepted, but not written", NULL},
    {"_opened_ms", get_opened_ms, NULL, "monotonic ms when the oldest pending record came (or earlier); 0: none", NULL},
    {"leader_epoch", get_leader_epoch, set_leader_epoch, "of the batches to come", NULL},
    {0},
};

PyTypeObject BatchBuilder_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.BatchBuilder",
    .tp_doc = "Gathers records into batches and hands full buffers of batches to its subclass.",
    .tp_basicsize = sizeof(builder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = builder_new,
    .tp_init = builder_init,
    .tp_dealloc = builder_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_traverse = builder_traverse,
    .tp_clear = builder_clear,
    .tp_methods = builder_methods,
    .tp_members = builder_members,
    .tp_getset = builder_getset,
};
