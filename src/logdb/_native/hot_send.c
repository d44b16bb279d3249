/* hot_send.c -- a producer's send, from arguments to a record in its partition's accumulator, and the future of it.
 *
 *   Dispatcher.send -> Route of the topic -> Accumulator of the partition -> open batch, in the buffer of its Delivery
 *
 * An Accumulator is a BatchBuilder without a queue of its own: where it has no room its `_refill` seals the buffer
 * (`_seal`), waits for memory and begins another one (`_begin`).  Its offsets count records from 0.
 *
 * Whatever may run Python comes first; then `refusing` is read, and the record put in without releasing the GIL.
 * So a record that is not refused is in before the thread that sets `refusing` goes on. */
#include "hot.h"

#include "murmur2.h"

typedef struct {
    builder b;
    delivery *open; /* of b.open; NULL where that is */
    uint32_t batch_count; /* closed ones in the open buffer */
} accumulator;

typedef struct {
    PyObject_HEAD
    PyObject *topic, *accumulators; /* str; list of Accumulator or None, by partition */
    Py_ssize_t sticky;  /* partition of the records without a key */
    int64_t sticky_left; /* bytes until the next one */
    uint64_t random;
} route;

typedef struct {
    PyObject_HEAD
    PyObject *routes; /* dict: topic -> Route */
    PyObject *partitioner, *serialize_key, *serialize_value; /* NULL: murmur2 and sticky; none */
    int64_t refusing; /* 0: open; else why records are refused */
    int64_t sticky_size;
    bool intercepted;
} dispatcher;

/* What the log remembers of a producer: as many batches may be sent again together. */
enum { BATCHES_MAX = 5, REFILLS_MAX = 1000 };

static signature send_signature = {
    "send", 3, 2, {"topic", "value", "key", "partition", "headers", "timestamp_ms", "on_delivery"}, {NULL}};

int send_ready(void)
{
    return signature_ready(&send_signature);
}

static bool given(PyObject *argument)
{
    return argument != NULL && argument != Py_None;
}

/* ---------------------------------------------------------------- Accumulator */

/* 1: the record fits, 0: it needs a batch of *size bytes in another buffer */
static int accumulator_fits(accumulator *a, const new_record *r, size_t *size)
{
    builder *b = &a->b;
    bool open = a->open != NULL && b->open != NULL;
    if (open && b->count > 0) {
        if (builder_fits(b, r))
            return 1;
        builder_close_batch(b);
        a->batch_count++;
    }
    *size = builder_single_size(r);
    if (*size < b->batch_limit)
        *size = b->batch_limit;
    return open && a->batch_count < BATCHES_MAX && b->used + *size <= b->capacity;
}

static int hook_with_number(PyObject *self, PyObject *name, long long number)
{
    PyObject *argument = PyLong_FromLongLong(number), *result = NULL;
    if (argument != NULL)
        result = PyObject_CallMethodOneArg(self, name, argument);
    Py_XDECREF(argument);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* Whether the record may be put in at once; accumulator_admit looks closer where this says no. */
static inline bool accumulator_has_room(const accumulator *a, const dispatcher *p, const new_record *r)
{
    const builder *b = &a->b;
    return p->refusing == 0 && a->open != NULL && b->count > 0 && b->used - b->start + payload_size(r) + FRAME_SIZE_MAX <= b->batch_limit;
}

/* Makes room for the record, and reads `refusing` last: once this returned 0 the record may be put in. */
static int accumulator_admit(accumulator *a, dispatcher *p, const new_record *r)
{
    for (int refills = 0;; refills++) {
        if (UNLIKELY(p->refusing != 0)) {
            if (hook_with_number((PyObject *)p, hot_names._refuse, p->refusing) == 0)
                PyErr_SetString(PyExc_SystemError, "_refuse() did not raise");
            return -1;
        }
        size_t size = 0;
        if (accumulator_fits(a, r, &size))
            return 0;
        if (refills == REFILLS_MAX) {
            PyErr_SetString(PyExc_SystemError, "_refill() makes no room");
            return -1;
        }
        if (hook_with_number((PyObject *)a, hot_names._refill, (long long)size))
            return -1;
    }
}

/* _begin(delivery, size_bytes): go on in a new buffer. */
static PyObject *accumulator_begin(PyObject *self, PyObject *args)
{
    accumulator *a = (accumulator *)self;
    builder *b = &a->b;
    PyObject *opened;
    Py_ssize_t size_bytes;
    if (!PyArg_ParseTuple(args, "O!n:_begin", &Delivery_Type, &opened, &size_bytes))
        return NULL;
    delivery *d = (delivery *)opened;
    if (b->open != NULL || d->topic == NULL || d->batches != NULL || d->count > 0 || size_bytes <= 0)
        return PyErr_Format(PyExc_RuntimeError, "_begin(): %s", b->open != NULL ? "a buffer is open" : "not a new delivery");
    buffer *f = buffer_take((size_t)size_bytes);
    if (f == NULL)
        return NULL;
    f->base_offset = b->base_offset;
    f->opened_ms = d->opened_ms;
    b->open = f;
    b->data = f->view.buf;
    b->used = b->start = 0;
    b->capacity = d->capacity = (size_t)size_bytes;
    d->first = b->base_offset;
    a->batch_count = 0;
    Py_XSETREF(a->open, (delivery *)Py_NewRef(d));
    Py_RETURN_NONE;
}

/* _seal() -> the open delivery with all its batches, or None where there is none */
static PyObject *accumulator_seal(PyObject *self, PyObject *unused)
{
    (void)unused;
    accumulator *a = (accumulator *)self;
    builder *b = &a->b;
    if (a->open == NULL || b->open == NULL)
        Py_RETURN_NONE;
    if (b->count > 0)
        builder_close_batch(b);
    delivery *d = a->open;
    d->batches = b->open;
    d->batches->used = b->used;
    d->batches->next_offset = b->base_offset;
    d->count = (uint32_t)(b->base_offset - d->first);
    a->open = NULL;
    b->open = NULL;
    b->data = NULL;
    b->used = b->start = b->capacity = 0;
    b->written_offset = b->base_offset;
    return (PyObject *)d;
}

static PyObject *accumulator_get_open(PyObject *self, void *closure)
{
    (void)closure;
    accumulator *a = (accumulator *)self;
    return Py_NewRef(a->open != NULL ? (PyObject *)a->open : Py_None);
}

static int accumulator_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((accumulator *)self)->open);
    return BatchBuilder_Type.tp_traverse(self, visit, arg);
}

/* The open delivery cannot be sealed any more.  Its callbacks go first: they hold futures, which hold the delivery. */
static void open_drop(accumulator *a)
{
    if (a->open != NULL) {
        Py_CLEAR(a->open->on_delivery);
        Py_CLEAR(a->open->on_done);
    }
    Py_CLEAR(a->open);
}

static int accumulator_clear(PyObject *self)
{
    open_drop((accumulator *)self);
    return BatchBuilder_Type.tp_clear(self);
}

static void accumulator_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    open_drop((accumulator *)self);
    PyObject_GC_Track(self); /* the base untracks it again */
    BatchBuilder_Type.tp_dealloc(self);
}

static PyMethodDef accumulator_methods[] = {
    {"_begin", accumulator_begin, METH_VARARGS, "_begin(delivery, size_bytes): go on in a new buffer of so many bytes"},
    {"_seal", accumulator_seal, METH_NOARGS, "_seal() -> the open delivery, which gets no more records, or None"},
    {0},
};

static PyGetSetDef accumulator_getset[] = {
    {"_open", accumulator_get_open, NULL, "the delivery that records go to, or None", NULL},
    {0},
};

PyTypeObject Accumulator_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.Accumulator",
    .tp_doc = "A batch builder whose buffers are taken away by a producer's thread.",
    .tp_basicsize = sizeof(accumulator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_base = &BatchBuilder_Type,
    .tp_dealloc = accumulator_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_traverse = accumulator_traverse,
    .tp_clear = accumulator_clear,
    .tp_methods = accumulator_methods,
    .tp_getset = accumulator_getset,
};

/* ---------------------------------------------------------------- Route */

static int route_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"topic", "partition_count", "seed", NULL};
    route *r = (route *)self;
    PyObject *topic;
    Py_ssize_t count;
    unsigned long long seed;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UnK:Route", names, &topic, &count, &seed))
        return -1;
    if (count < 1) {
        PyErr_Format(PyExc_ValueError, "partition_count=%zd", count);
        return -1;
    }
    PyObject *accumulators = PyList_New(count);
    if (accumulators == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        PyList_SET_ITEM(accumulators, i, Py_NewRef(Py_None));
    Py_XSETREF(r->topic, Py_NewRef(topic));
    Py_XSETREF(r->accumulators, accumulators);
    r->random = seed | 1;
    r->sticky = -1;
    return 0;
}

static int route_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((route *)self)->accumulators);
    return 0;
}

static int route_clear(PyObject *self)
{
    Py_CLEAR(((route *)self)->accumulators);
    return 0;
}

static void route_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    route_clear(self);
    Py_CLEAR(((route *)self)->topic);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef route_members[] = {
    {"topic", T_OBJECT_EX, offsetof(route, topic), READONLY, NULL},
    {"accumulators", T_OBJECT_EX, offsetof(route, accumulators), READONLY, "list of Accumulator or None, by partition"},
    {0},
};

PyTypeObject Route_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.Route",
    .tp_doc = "The partitions of a topic, and which of them gets the next record without a key.",
    .tp_basicsize = sizeof(route),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = route_init,
    .tp_dealloc = route_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_traverse = route_traverse,
    .tp_clear = route_clear,
    .tp_members = route_members,
};

/* The topic's route, made by _route(topic) where it is not known: a new reference. */
static route *route_find(dispatcher *p, PyObject *topic)
{
    PyObject *found = PyDict_GetItemWithError(p->routes, topic);
    if (found != NULL)
        return (route *)Py_NewRef(found);
    if (PyErr_Occurred()) {
        if (!PyUnicode_Check(topic))
            PyErr_Format(PyExc_TypeError, "topic must be a str, not %s", Py_TYPE(topic)->tp_name);
        return NULL;
    }
    found = PyObject_CallMethodOneArg((PyObject *)p, hot_names._route, topic);
    if (found != NULL && !Py_IS_TYPE(found, &Route_Type)) {
        PyErr_Format(PyExc_TypeError, "_route() must return a Route, not %s", Py_TYPE(found)->tp_name);
        Py_CLEAR(found);
    }
    if (found != NULL) { /* another thread may have been here meanwhile: there is one route */
        PyObject *first = PyDict_SetDefault(p->routes, topic, found);
        Py_XINCREF(first);
        Py_SETREF(found, first);
    }
    return (route *)found;
}

/* Records without a key stay with a partition for about a batch, then move on to another one. */
static Py_ssize_t route_stick(route *r, Py_ssize_t count, int64_t size, int64_t sticky_size)
{
    if (r->sticky_left <= 0 || r->sticky < 0 || r->sticky >= count) {
        r->random ^= r->random << 13;
        r->random ^= r->random >> 7;
        r->random ^= r->random << 17;
        Py_ssize_t step = count > 1 ? 1 + (Py_ssize_t)(r->random % (uint64_t)(count - 1)) : 0;
        r->sticky = r->sticky < 0 ? (Py_ssize_t)(r->random % (uint64_t)count) : (r->sticky + step) % count;
        r->sticky_left = sticky_size;
    }
    r->sticky_left -= size;
    return r->sticky;
}

static int partition_number(PyObject *o, const char *what, Py_ssize_t *out)
{
    if (!PyIndex_Check(o)) {
        PyErr_Format(PyExc_TypeError, "%s must be an int, not %s", what, Py_TYPE(o)->tp_name);
        return -1;
    }
    *out = PyNumber_AsSsize_t(o, PyExc_OverflowError);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int partition_ask(const dispatcher *p, PyObject *key, Py_ssize_t count, Py_ssize_t *out)
{
    PyObject *number = PyLong_FromSsize_t(count), *chosen = NULL;
    if (number != NULL)
        chosen = PyObject_CallFunctionObjArgs(p->partitioner, key, number, NULL);
    Py_XDECREF(number);
    int result = chosen != NULL ? partition_number(chosen, "what the partitioner returns", out) : -1;
    Py_XDECREF(chosen);
    return result;
}

static int partition_choose(dispatcher *p, route *r, PyObject *wanted, PyObject *key_object, const new_record *record, Py_ssize_t *out)
{
    Py_ssize_t count = PyList_GET_SIZE(r->accumulators);
    if (count == 0) {
        PyErr_SetString(PyExc_SystemError, "the list of accumulators was emptied");
        return -1;
    }
    if (given(wanted))
        return partition_number(wanted, "partition", out);
    if (p->partitioner != NULL)
        return partition_ask(p, key_object, count, out);
    if (record->key_size >= 0)
        *out = (Py_ssize_t)((logdb_murmur2(record->key, (size_t)record->key_size) & 0x7FFFFFFF) % (uint64_t)count);
    else
        *out = route_stick(r, count, (int64_t)payload_size(record) + FRAME_SIZE_MIN, p->sticky_size);
    return 0;
}

/* The partition's accumulator, made by _accumulator(route, partition) where there is none: a new reference. */
static accumulator *accumulator_find(dispatcher *p, route *r, Py_ssize_t partition)
{
    if (partition >= 0 && partition < PyList_GET_SIZE(r->accumulators)) {
        PyObject *known = PyList_GET_ITEM(r->accumulators, partition);
        if (PyObject_TypeCheck(known, &Accumulator_Type))
            return (accumulator *)Py_NewRef(known);
    }
    PyObject *number = PyLong_FromSsize_t(partition), *made = NULL;
    if (number != NULL)
        made = PyObject_CallMethodObjArgs((PyObject *)p, hot_names._accumulator, r, number, NULL);
    Py_XDECREF(number);
    if (made != NULL && !PyObject_TypeCheck(made, &Accumulator_Type)) {
        PyErr_Format(PyExc_TypeError, "_accumulator() must return an Accumulator, not %s", Py_TYPE(made)->tp_name);
        Py_CLEAR(made);
    }
    return (accumulator *)made;
}

/* ---------------------------------------------------------------- Dispatcher */

enum { TOPIC, VALUE, KEY, PARTITION, HEADERS, TIMESTAMP, ON_DELIVERY, ARGUMENT_COUNT };

/* What the serializer makes of it: a new reference. */
static PyObject *serialized(PyObject *serializer, PyObject *o)
{
    if (serializer == NULL || o == NULL)
        return Py_NewRef(o != NULL ? o : Py_None);
    return PyObject_CallOneArg(serializer, o);
}

/* Puts the record in, which all but its place is known of. */
static PyObject *record_send(dispatcher *p, accumulator *a, new_record *r, PyObject *const *in)
{
    builder *b = &a->b;
    growing headers; /* set up only where there are any */
    bool headed = given(in[HEADERS]);
    PyObject *future = NULL;
    if (given(in[ON_DELIVERY]) && !PyCallable_Check(in[ON_DELIVERY]))
        return PyErr_Format(PyExc_TypeError, "on_delivery must be callable, not %s", Py_TYPE(in[ON_DELIVERY])->tp_name);
    if (builder_timestamp(b, in[TIMESTAMP], &r->timestamp_ms))
        return NULL;
    if (headed) {
        growing_init(&headers);
        if ((r->header_count = headers_encode(in[HEADERS], -1, &headers)) < 0)
            goto done;
        r->headers = headers.data;
        r->headers_size = headers.size;
    }
    if (builder_record_check(b, r) == 0 && (accumulator_has_room(a, p, r) || accumulator_admit(a, p, r) == 0)) {
        delivery *d = a->open;
        int64_t number = builder_put(b, r);
        future = future_new(d, (uint32_t)(number - d->first), r->timestamp_ms);
        if (future != NULL && given(in[ON_DELIVERY]) && delivery_call_back(&d->on_delivery, in[ON_DELIVERY], future))
            Py_CLEAR(future);
    }
done:
    if (headed)
        growing_free(&headers);
    return future;
}

static PyObject *routed_send(dispatcher *p, route *r, PyObject *value, PyObject *key, PyObject *const *in)
{
    blob value_blob, key_blob;
    PyObject *future = NULL;
    if (blob_get(value, "value", &value_blob))
        return NULL;
    if (blob_get(key, "key", &key_blob))
        goto done;
    new_record record = {.value = value_blob.data, .value_size = value_blob.size, .key = key_blob.data, .key_size = key_blob.size};
    Py_ssize_t partition;
    if (partition_choose(p, r, in[PARTITION], key, &record, &partition) == 0) {
        accumulator *a = accumulator_find(p, r, partition);
        if (a != NULL) {
            future = record_send(p, a, &record, in);
            Py_DECREF(a);
        }
    }
    blob_release(&key_blob);
done:
    blob_release(&value_blob);
    return future;
}

static PyObject *dispatch(dispatcher *p, PyObject *const *in)
{
    if (p->routes == NULL)
        return PyErr_Format(PyExc_RuntimeError, "Dispatcher.__init__ was not called");
    PyObject *value = serialized(p->serialize_value, in[VALUE]), *key = NULL, *future = NULL;
    route *r = NULL;
    if (value != NULL && (key = serialized(p->serialize_key, in[KEY])) != NULL && (r = route_find(p, in[TOPIC])) != NULL)
        future = routed_send(p, r, value, key, in);
    Py_XDECREF(value);
    Py_XDECREF(key);
    Py_XDECREF(r);
    return future;
}

static PyObject *dispatcher_send(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *in[ARGUMENT_COUNT] = {NULL};
    if (UNLIKELY(((dispatcher *)self)->intercepted)) {
        PyObject *hook = PyObject_GetAttr(self, hot_names._intercept);
        PyObject *future = hook != NULL ? PyObject_Vectorcall(hook, args, (size_t)nargs, kwnames) : NULL;
        Py_XDECREF(hook);
        return future;
    }
    if (signature_take(&send_signature, args, nargs, kwnames, in))
        return NULL;
    return dispatch((dispatcher *)self, in);
}

static PyObject *dispatcher_dispatch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *in[ARGUMENT_COUNT] = {NULL};
    if (signature_take(&send_signature, args, nargs, kwnames, in))
        return NULL;
    return dispatch((dispatcher *)self, in);
}

static void callable_set(PyObject **to, PyObject *o)
{
    Py_XSETREF(*to, o != Py_None ? Py_NewRef(o) : NULL);
}

static int dispatcher_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"partitioner", "serialize_key", "serialize_value", "intercepted", "sticky_size", NULL};
    dispatcher *p = (dispatcher *)self;
    PyObject *partitioner, *serialize_key, *serialize_value;
    int intercepted;
    long long sticky_size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOOpL:Dispatcher", names, &partitioner, &serialize_key, &serialize_value,
                                     &intercepted, &sticky_size))
        return -1;
    PyObject *routes = PyDict_New();
    if (routes == NULL)
        return -1;
    Py_XSETREF(p->routes, routes);
    callable_set(&p->partitioner, partitioner);
    callable_set(&p->serialize_key, serialize_key);
    callable_set(&p->serialize_value, serialize_value);
    p->intercepted = intercepted != 0;
    p->sticky_size = sticky_size;
    return 0;
}

static int dispatcher_traverse(PyObject *self, visitproc visit, void *arg)
{
    dispatcher *p = (dispatcher *)self;
    Py_VISIT(p->routes);
    Py_VISIT(p->partitioner);
    Py_VISIT(p->serialize_key);
    Py_VISIT(p->serialize_value);
    return 0;
}

static int dispatcher_clear(PyObject *self)
{
    dispatcher *p = (dispatcher *)self;
    Py_CLEAR(p->routes);
    Py_CLEAR(p->partitioner);
    Py_CLEAR(p->serialize_key);
    Py_CLEAR(p->serialize_value);
    return 0;
}

static void dispatcher_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    dispatcher_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef dispatcher_methods[] = {
    {"send", METHOD(dispatcher_send), FASTCALL,
     "send(topic, value, key=None, *, partition=None, headers=(), timestamp_ms=None, on_delivery=None) -> SendFuture\n\n"
     "Take a record; the producer writes it soon, with others.  The call waits only while buffer_memory is used up.\n\n"
     "Args:\n"
     "    topic: The name of a topic that exists.\n"
     "    value: Bytes-like, None (a tombstone), or what the producer's serializer takes.\n"
     "    key: As the value; records of one key go to one partition.\n"
     "    partition: None: the partitioner chooses.  By default that is murmur2 of the key, as in Kafka; without a key,\n"
     "        one partition for about a batch, then another one.\n"
     "    headers: Pairs of a name and bytes or None.\n"
     "    timestamp_ms: Milliseconds since 1970, or a datetime with a time zone; None: now.\n"
     "    on_delivery: Called once, with (None, RecordMetadata) or (exception, None), in the producer's thread.  It may send,\n"
     "        but such a send never waits for room.  An exception of it is logged.\n\n"
     "Returns:\n"
     "    The future of its RecordMetadata: done(), result(timeout), exception(timeout), add_done_callback(function).\n\n"
     "Raises:\n"
     "    TypeError: An argument has the wrong type.\n"
     "    UnknownTopic, UnknownPartition, RecordTooLarge, InvalidTimestamp, InvalidRecord, SerializationError: The\n"
     "        record was refused.  send itself raises this; with Kafka's producer, the future has the error.\n"
     "    BufferExhausted: There was no room within max_block_ms.\n"
     "    Closed, Forked, InvalidTransactionState: The producer takes no records now.\n"
     "    Exception: A partitioner or an interceptor raised it."},
    {"_dispatch", METHOD(dispatcher_dispatch), FASTCALL, "send without interceptors"},
    {0},
};

static PyMemberDef dispatcher_members[] = {
    {"_routes", T_OBJECT_EX, offsetof(dispatcher, routes), READONLY, "dict: topic -> Route"},
    {"_refusing", T_LONGLONG, offsetof(dispatcher, refusing), 0, "not 0: every record is refused, by _refuse(_refusing)"},
    {0},
};

PyTypeObject Dispatcher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.Dispatcher",
    .tp_doc = "A producer's send.",
    .tp_basicsize = sizeof(dispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = dispatcher_init,
    .tp_dealloc = dispatcher_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_traverse = dispatcher_traverse,
    .tp_clear = dispatcher_clear,
    .tp_methods = dispatcher_methods,
    .tp_members = dispatcher_members,
};
