/* hot_iterator.c -- RecordIterator: records out of chunks of checked, uncompressed batches.
 *
 *   source(offset, end_offset) -> chunks -> batches -> records in [next_offset, end_offset)
 *
 * The first record comes by Positions, if they know where it lies: one small pread, and the source with its large
 * buffer is not even made.  While the source runs `busy` is set, and no other thread gets in; the rest runs under the
 * GIL as one step.  What the source hands out is let go before it is asked for more, because it uses it again. */
#include "hot.h"

typedef struct {
    PyObject_HEAD
    PyObject *source;    /* a callable, until it was called */
    PyObject *chunks;    /* what it returned */
    PyObject *origin;    /* (topic, partition) */
    PyObject *positions; /* until they were asked */
    Py_buffer chunk;     /* .obj NULL: none */
    const uint8_t *batch, *chunk_end; /* the next batch */
    const uint8_t *record, *batch_end; /* the next record */
    uint32_t left;       /* records of this batch that are still to come */
    uint32_t last_offset_delta;
    int32_t leader_epoch;
    int32_t last_epoch;  /* of the record before, -1 before the first */
    bool busy, done;
    bool exhausted;      /* done, and not because of an exception */
    int64_t base_offset, base_timestamp;
    int64_t delta_mask;  /* -1: a record's timestamp delta counts; 0: log append time */
    int64_t next_offset, end_offset;
    int64_t timestamp_ms; /* of the record before */
    PyObject *timestamp;  /* the same as an int, NULL before the first: most records share it with their neighbour */
} iterator;

static const char in_use[] = "the iterator is in use by another thread";

static inline int64_t timestamp_of(int64_t base, int64_t mask, int64_t delta)
{
    return (int64_t)((uint64_t)base + (uint64_t)(delta & mask));
}

/* the timestamp of the next record, borrowed; NULL with an exception */
static inline PyObject *timestamp_object(iterator *it, int64_t timestamp_ms)
{
    if (timestamp_ms != it->timestamp_ms || UNLIKELY(it->timestamp == NULL)) {
        PyObject *made = PyLong_FromLongLong(timestamp_ms);
        if (made == NULL)
            return NULL;
        it->timestamp_ms = timestamp_ms;
        Py_XSETREF(it->timestamp, made); /* an int's end runs no Python */
    }
    return it->timestamp;
}

static void chunk_release(iterator *it)
{
    it->batch = it->chunk_end = it->record = it->batch_end = NULL;
    it->left = 0;
    if (it->chunk.obj != NULL)
        PyBuffer_Release(&it->chunk);
}

static void iterator_finish(iterator *it)
{
    it->done = true;
    chunk_release(it);
    Py_CLEAR(it->positions);
    Py_CLEAR(it->source);
    Py_CLEAR(it->chunks);
}

static int corrupt(const char *what, int64_t offset)
{
    PyErr_Format(PyExc_ValueError, "%s at offset %lld", what, (long long)offset);
    return -1;
}

/* ---------------------------------------------------------------- one record by its position */

/* the record in the bytes read, if it is the one; NULL without an exception if not */
static PyObject *point_parse(iterator *it, const record_place *at, PyObject *bytes)
{
    if (!PyBytes_Check(bytes) || PyBytes_GET_SIZE(bytes) != (Py_ssize_t)at->size_bytes)
        return NULL;
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(bytes), *end = start + at->size_bytes;
    record_view r;
    if (record_parse(start, end, &r) != end || r.offset_delta != it->next_offset - at->base_offset)
        return NULL;
    PyObject *timestamp = timestamp_object(it, timestamp_of(at->base_timestamp, at->delta_mask, r.timestamp_delta));
    return timestamp != NULL ? record_new(&r, it->next_offset, timestamp, at->leader_epoch, it->origin) : NULL;
}

static PyObject *point_pread(const record_place *at)
{
    PyObject *args[3] = {at->file, PyLong_FromUnsignedLong(at->size_bytes), PyLong_FromLongLong(at->position)}, *bytes = NULL;
    if (args[1] != NULL && args[2] != NULL)
        bytes = PyObject_VectorcallMethod(hot_names._pread, args, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_XDECREF(args[1]);
    Py_XDECREF(args[2]);
    return bytes;
}

/* NULL where the source has to tell; with an exception only if it is none of a failed read */
static PyObject *point_read(iterator *it)
{
    record_place at;
    PyObject *positions = it->positions, *found = NULL;
    it->positions = NULL;
    if (it->next_offset < it->end_offset && positions_find(positions, it->next_offset, &at)) {
        it->busy = true;
        PyObject *bytes = point_pread(&at);
        it->busy = false;
        if (bytes != NULL)
            found = point_parse(it, &at, bytes);
        if (found == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
            PyErr_Clear();
        Py_XDECREF(bytes);
        Py_DECREF(at.file);
    }
    Py_DECREF(positions);
    if (found != NULL) {
        it->next_offset++;
        it->last_epoch = at.leader_epoch;
    }
    return found;
}

/* ---------------------------------------------------------------- chunks and batches */

/* The next chunk of the source: 1 there is one, 0 the end, -1 an exception. */
static int chunk_next(iterator *it)
{
    if (it->chunks == NULL) {
        PyObject *made = PyObject_CallFunction(it->source, "LL", (long long)it->next_offset, (long long)it->end_offset);
        if (made == NULL)
            return -1;
        it->chunks = PyObject_GetIter(made);
        Py_DECREF(made);
        if (it->chunks == NULL)
            return -1;
        Py_CLEAR(it->source);
    }
    PyObject *chunk = PyIter_Next(it->chunks);
    if (chunk == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int result = PyObject_GetBuffer(chunk, &it->chunk, PyBUF_SIMPLE);
    Py_DECREF(chunk);
    if (result != 0)
        return -1;
    it->batch = it->chunk.buf;
    it->chunk_end = it->batch + it->chunk.len;
    return 1;
}

/* Opens the next batch of the chunk: 1 look into it, 0 the iterator's range ends before it, -1 an exception. */
static int batch_next(iterator *it)
{
    const uint8_t *head = it->batch;
    size_t there = (size_t)(it->chunk_end - head);
    if (there < BATCH_HEADER_SIZE)
        return corrupt("a chunk ends in the header of a batch", it->next_offset);
    int64_t base_offset = (int64_t)load_be64(head + BATCH_BASE_OFFSET);
    size_t size = (size_t)load_be32(head + BATCH_LENGTH) + BATCH_LENGTH_FROM;
    if (size < BATCH_HEADER_SIZE || size > there)
        return corrupt("a batch overruns its chunk", base_offset);
    uint16_t attributes = load_be16(head + BATCH_ATTRIBUTES);
    uint32_t last_offset_delta = load_be32(head + BATCH_LAST_OFFSET_DELTA);
    if (base_offset < 0 || base_offset > INT64_MAX - (int64_t)last_offset_delta)
        return corrupt("no batch can be", base_offset);
    if (base_offset >= it->end_offset)
        return 0;
    it->batch = head + size;
    it->left = 0;
    if (base_offset + (int64_t)last_offset_delta < it->next_offset || (attributes & ATTRIBUTE_CONTROL) != 0)
        return 1;
    if ((attributes & ATTRIBUTE_CODEC) != 0)
        return corrupt("a compressed batch", base_offset);
    bool append_time = (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0;
    it->record = head + BATCH_HEADER_SIZE;
    it->batch_end = head + size;
    it->left = load_be32(head + BATCH_COUNT);
    it->base_offset = base_offset;
    it->last_offset_delta = last_offset_delta;
    it->leader_epoch = (int32_t)load_be32(head + BATCH_LEADER_EPOCH);
    it->base_timestamp = (int64_t)load_be64(head + (append_time ? BATCH_MAX_TIMESTAMP : BATCH_BASE_TIMESTAMP));
    it->delta_mask = append_time ? 0 : -1;
    return 1;
}

/* Moves on to a batch with records: 1 done, 0 there is none, -1 an exception. */
static int iterator_advance(iterator *it)
{
    while (it->left == 0) {
        int result;
        if (it->batch != it->chunk_end) {
            result = batch_next(it);
        } else {
            chunk_release(it);
            if (it->next_offset >= it->end_offset)
                return 0;
            it->busy = true;
            result = chunk_next(it);
            it->busy = false;
        }
        if (result <= 0)
            return result;
    }
    return 1;
}

static PyObject *iterator_next(PyObject *self)
{
    iterator *it = (iterator *)self;
    for (;;) {
        while (it->left > 0) {
            record_view r;
            const uint8_t *next = record_parse(it->record, it->batch_end, &r);
            if (UNLIKELY(next == NULL || (uint64_t)r.offset_delta > it->last_offset_delta)) {
                corrupt("a record contradicts its batch", it->base_offset);
                goto finish;
            }
            it->record = next;
            it->left--;
            int64_t offset = it->base_offset + r.offset_delta;
            if (UNLIKELY(offset < it->next_offset))
                continue;
            if (UNLIKELY(offset >= it->end_offset))
                goto finish;
            PyObject *timestamp = timestamp_object(it, timestamp_of(it->base_timestamp, it->delta_mask, r.timestamp_delta));
            if (UNLIKELY(timestamp == NULL))
                goto finish;
            it->next_offset = offset + 1;
            it->last_epoch = it->leader_epoch;
            return record_new(&r, offset, timestamp, it->leader_epoch, it->origin);
        }
        if (it->done)
            return NULL;
        if (it->busy) {
            PyErr_SetString(PyExc_ValueError, in_use);
            return NULL;
        }
        if (it->positions != NULL) {
            PyObject *found = point_read(it);
            if (found != NULL || PyErr_Occurred())
                return found;
        }
        if (iterator_advance(it) <= 0)
            goto finish;
    }
finish:;
    PyObject *exception = exception_take(); /* closing the source runs Python */
    it->exhausted = exception == NULL;
    iterator_finish(it);
    exception_give(exception);
    return NULL;
}

/* ---------------------------------------------------------------- many records at once */

enum { TAKE_RESERVED_MAX = 1024 }; /* places of a list that are reserved before it is known that they are needed */

/* Records until there are `count`, or no more.  An exception that comes after some is dropped: the iterator is done but not
 * exhausted, and a read from next_offset on meets it again. */
static PyObject *iterator_take(PyObject *self, PyObject *argument)
{
    Py_ssize_t count = PyLong_AsSsize_t(argument), taken = 0;
    if (count == -1 && PyErr_Occurred())
        return NULL;
    if (count < 0)
        return PyErr_Format(PyExc_ValueError, "count=%zd is negative", count);
    Py_ssize_t reserved = count < TAKE_RESERVED_MAX ? count : TAKE_RESERVED_MAX;
    PyObject *list = PyList_New(reserved), *next = NULL;
    if (list == NULL)
        return NULL;
    for (; taken < count && (next = iterator_next(self)) != NULL; taken++) {
        if (taken < reserved) {
            PyList_SET_ITEM(list, taken, next);
            continue;
        }
        int appended = PyList_Append(list, next);
        Py_DECREF(next);
        if (appended != 0)
            goto failed;
    }
    if (PyErr_Occurred()) {
        if (taken == 0 || !PyErr_ExceptionMatches(PyExc_Exception))
            goto failed;
        PyErr_Clear();
    }
    if (taken < reserved && PyList_SetSlice(list, taken, reserved, NULL) != 0)
        goto failed;
    return list;
failed:
    Py_DECREF(list);
    return NULL;
}

static PyObject *iterator_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (((iterator *)self)->busy) {
        PyErr_SetString(PyExc_ValueError, in_use);
        return NULL;
    }
    iterator_finish((iterator *)self);
    Py_RETURN_NONE;
}

static PyObject *iterator_repr(PyObject *self)
{
    iterator *it = (iterator *)self;
    PyObject *topic = PyTuple_GET_ITEM(it->origin, 0), *partition = PyTuple_GET_ITEM(it->origin, 1);
    if (it->done)
        return PyUnicode_FromFormat("<RecordIterator %U-%S ended at %lld>", topic, partition, (long long)it->next_offset);
    return PyUnicode_FromFormat("<RecordIterator %U-%S [%lld, %lld)>", topic, partition, (long long)it->next_offset,
                                (long long)it->end_offset);
}

/* ---------------------------------------------------------------- the type */

static PyObject *iterator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "offset", "end_offset", "topic", "partition", "positions", NULL};
    PyObject *source, *topic, *partition, *positions = Py_None;
    long long offset, end_offset;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLLUO!|O:RecordIterator", names, &source, &offset, &end_offset, &topic, &PyLong_Type,
                                     &partition, &positions))
        return NULL;
    if (positions != Py_None && !Py_IS_TYPE(positions, &Positions_Type))
        return PyErr_Format(PyExc_TypeError, "positions must be Positions or None, not %s", Py_TYPE(positions)->tp_name);
    if (offset < 0)
        return PyErr_Format(PyExc_ValueError, "offset=%lld is negative", offset);
    PyObject *origin = PyTuple_Pack(2, topic, partition);
    iterator *it = origin != NULL ? (iterator *)type->tp_alloc(type, 0) : NULL;
    if (it == NULL) {
        Py_XDECREF(origin);
        return NULL;
    }
    it->origin = origin;
    it->source = Py_NewRef(source);
    it->positions = positions != Py_None ? Py_NewRef(positions) : NULL;
    it->next_offset = offset;
    it->end_offset = end_offset;
    it->last_epoch = -1;
    return (PyObject *)it;
}

static int iterator_traverse(PyObject *self, visitproc visit, void *arg)
{
    iterator *it = (iterator *)self;
    Py_VISIT(it->source);
    Py_VISIT(it->chunks);
    Py_VISIT(it->origin);
    Py_VISIT(it->timestamp);
    Py_VISIT(it->positions);
    Py_VISIT(it->chunk.obj);
    return 0;
}

static int iterator_clear(PyObject *self)
{
    iterator_finish((iterator *)self);
    return 0;
}

static void iterator_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    iterator_finish((iterator *)self);
    Py_CLEAR(((iterator *)self)->origin);
    Py_CLEAR(((iterator *)self)->timestamp);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef iterator_methods[] = {
    {"take", iterator_take, METH_O, "take(count): the next records as a list, fewer where they end"},
    {"close", iterator_close, METH_NOARGS, "end it"},
    {0},
};

static PyMemberDef iterator_members[] = {
    {"next_offset", T_LONGLONG, offsetof(iterator, next_offset), READONLY, "behind the last record"},
    {"end_offset", T_LONGLONG, offsetof(iterator, end_offset), READONLY, "where the records end"},
    {"leader_epoch", T_INT, offsetof(iterator, last_epoch), READONLY, "of the last record, -1 before the first"},
    {"exhausted", T_BOOL, offsetof(iterator, exhausted), READONLY, "it has ended, and no exception ended it"},
    {0},
};

PyTypeObject RecordIterator_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.RecordIterator",
    .tp_doc = "RecordIterator(source, offset, end_offset, topic, partition, positions=None)\n\n"
              "Records with offsets in [offset, end_offset), out of checked, uncompressed batches.",
    .tp_basicsize = sizeof(iterator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = iterator_new,
    .tp_dealloc = iterator_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_repr = iterator_repr,
    .tp_traverse = iterator_traverse,
    .tp_clear = iterator_clear,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = iterator_next,
    .tp_methods = iterator_methods,
    .tp_members = iterator_members,
};
