/* hot_record.c -- Record: immutable, made by reading or in a test, without GC support because it can be in no cycle.
 *
 * Key, value and timestamp are object members, which CPython's adaptive interpreter reads without a call.  Headers
 * are kept as they lie on disk, and decoded when a caller reads them. */
#include "hot.h"

typedef struct {
    PyObject_HEAD
    int64_t offset;
    PyObject *timestamp_ms; /* an int, often shared with the record before */
    PyObject *key, *value;
    PyObject *headers; /* a tuple; or bytes of header_count headers, not decoded yet */
    PyObject *origin;  /* (topic, partition), shared by all records of an iterator */
    int32_t leader_epoch, header_count;
} record;

enum { FREE_MAX = 256 };
static record *free_records[FREE_MAX];
static int free_count;
static PyObject *no_headers;

static inline PyObject *bytes_or_none(const uint8_t *data, int64_t size)
{
    if (size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
}

static record *record_allocate(void)
{
    record *r = free_count > 0 ? free_records[--free_count] : PyObject_Malloc(sizeof *r);
    if (r == NULL)
        return (record *)PyErr_NoMemory();
    return (record *)PyObject_Init((PyObject *)r, &Record_Type);
}

PyObject *record_new(const record_view *view, int64_t offset, PyObject *timestamp_ms, int32_t leader_epoch, PyObject *origin)
{
    PyObject *key = bytes_or_none(view->key, view->key_size), *value = NULL, *headers = NULL;
    if (key == NULL || (value = bytes_or_none(view->value, view->value_size)) == NULL)
        goto failed;
    if (view->header_count == 0)
        headers = Py_NewRef(no_headers);
    else if (view->header_count > view->end - view->headers)
        PyErr_Format(PyExc_ValueError, "record %lld claims %lld headers in %zd bytes", (long long)offset,
                     (long long)view->header_count, view->end - view->headers);
    else
        headers = PyBytes_FromStringAndSize((const char *)view->headers, view->end - view->headers);
    record *r = headers != NULL ? record_allocate() : NULL;
    if (r == NULL)
        goto failed;
    r->offset = offset;
    r->timestamp_ms = Py_NewRef(timestamp_ms);
    r->key = key;
    r->value = value;
    r->headers = headers;
    r->origin = Py_NewRef(origin);
    r->leader_epoch = leader_epoch;
    r->header_count = (int32_t)view->header_count;
    return (PyObject *)r;
failed:
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return NULL;
}

static void record_dealloc(PyObject *self)
{
    record *r = (record *)self;
    Py_DECREF(r->timestamp_ms);
    Py_DECREF(r->key);
    Py_DECREF(r->value);
    Py_DECREF(r->headers);
    Py_DECREF(r->origin);
    if (free_count < FREE_MAX)
        free_records[free_count++] = r;
    else
        PyObject_Free(r);
}

/* (str, bytes | None); bytes of the key that are no UTF-8 become lone surrogates, which append encodes back */
static PyObject *header_pair(const header_view *h)
{
    PyObject *key = PyUnicode_DecodeUTF8((const char *)h->key, (Py_ssize_t)h->key_size, "surrogateescape");
    PyObject *value = key != NULL ? bytes_or_none(h->value, h->value_size) : NULL;
    PyObject *pair = value != NULL ? PyTuple_Pack(2, key, value) : NULL;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return pair;
}

static PyObject *headers_decode(const record *r)
{
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(r->headers), *end = p + PyBytes_GET_SIZE(r->headers);
    PyObject *headers = PyTuple_New(r->header_count);
    for (Py_ssize_t i = 0; headers != NULL && i < r->header_count; i++) {
        header_view h;
        PyObject *pair = (p = header_parse(p, end, &h)) != NULL ? header_pair(&h) : NULL;
        if (pair == NULL) {
            Py_CLEAR(headers);
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "header %zd of record %lld overruns it", i, (long long)r->offset);
            return NULL;
        }
        PyTuple_SET_ITEM(headers, i, pair);
    }
    if (headers != NULL && p != end) {
        Py_CLEAR(headers);
        PyErr_Format(PyExc_ValueError, "record %lld has %zd bytes after its last header", (long long)r->offset, end - p);
    }
    return headers;
}

static PyObject *record_headers(PyObject *self, void *closure)
{
    (void)closure;
    record *r = (record *)self;
    if (PyBytes_CheckExact(r->headers)) {
        PyObject *headers = headers_decode(r);
        if (headers == NULL)
            return NULL;
        if (PyBytes_CheckExact(r->headers)) /* decoding may run the collector, and that another look at us */
            Py_SETREF(r->headers, headers);
        else
            Py_DECREF(headers);
    }
    return Py_NewRef(r->headers);
}

static PyObject *record_topic(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef(PyTuple_GET_ITEM(((record *)self)->origin, 0));
}

static PyObject *record_partition(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef(PyTuple_GET_ITEM(((record *)self)->origin, 1));
}

/* all fields, in the order of repr */
static PyObject *record_fields(PyObject *self)
{
    record *r = (record *)self;
    PyObject *headers = record_headers(self, NULL);
    if (headers == NULL)
        return NULL;
    return Py_BuildValue("(OOLOOONi)", PyTuple_GET_ITEM(r->origin, 0), PyTuple_GET_ITEM(r->origin, 1), (long long)r->offset,
                         r->timestamp_ms, r->key, r->value, headers, (int)r->leader_epoch);
}

static PyObject *record_compare(PyObject *left, PyObject *right, int op)
{
    if ((op != Py_EQ && op != Py_NE) || !Py_IS_TYPE(right, &Record_Type))
        Py_RETURN_NOTIMPLEMENTED;
    if (((record *)left)->offset != ((record *)right)->offset)
        return PyBool_FromLong(op == Py_NE);
    PyObject *a = record_fields(left), *b = a != NULL ? record_fields(right) : NULL, *result = NULL;
    if (b != NULL)
        result = PyObject_RichCompare(a, b, op);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return result;
}

static Py_hash_t record_hash(PyObject *self)
{
    PyObject *fields = record_fields(self);
    if (fields == NULL)
        return -1;
    Py_hash_t hash = PyObject_Hash(fields);
    Py_DECREF(fields);
    return hash;
}

static PyObject *record_repr(PyObject *self)
{
    record *r = (record *)self;
    PyObject *headers = record_headers(self, NULL);
    if (headers == NULL)
        return NULL;
    PyObject *text = PyUnicode_FromFormat(
        "Record(topic=%R, partition=%S, offset=%lld, timestamp_ms=%S, key=%R, value=%R, headers=%R, leader_epoch=%d)",
        PyTuple_GET_ITEM(r->origin, 0), PyTuple_GET_ITEM(r->origin, 1), (long long)r->offset, r->timestamp_ms,
        r->key, r->value, headers, (int)r->leader_epoch);
    Py_DECREF(headers);
    return text;
}

/* for pickle and copy: hot_record and its arguments */
static PyObject *record_reduce(PyObject *self, PyObject *none)
{
    (void)none;
    PyObject *fields = record_fields(self);
    PyObject *module = fields != NULL ? PyImport_ImportModule("logdb._native._hot") : NULL;
    PyObject *restore = module != NULL ? PyObject_GetAttrString(module, "record") : NULL;
    PyObject *reduced = restore != NULL ? PyTuple_Pack(2, restore, fields) : NULL;
    Py_XDECREF(restore);
    Py_XDECREF(module);
    Py_XDECREF(fields);
    return reduced;
}

PyObject *hot_record(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *topic, *partition, *timestamp_ms, *key, *value, *headers;
    long long offset;
    int leader_epoch;
    if (!PyArg_ParseTuple(args, "OOLO!OOO!i:record", &topic, &partition, &offset, &PyLong_Type, &timestamp_ms, &key, &value,
                          &PyTuple_Type, &headers, &leader_epoch))
        return NULL;
    if ((key != Py_None && !PyBytes_CheckExact(key)) || (value != Py_None && !PyBytes_CheckExact(value)))
        return PyErr_Format(PyExc_TypeError, "key and value of a record must be bytes or None");
    PyObject *origin = PyTuple_Pack(2, topic, partition);
    record *r = origin != NULL ? record_allocate() : NULL;
    if (r == NULL) {
        Py_XDECREF(origin);
        return NULL;
    }
    r->offset = offset;
    r->timestamp_ms = Py_NewRef(timestamp_ms);
    r->key = Py_NewRef(key);
    r->value = Py_NewRef(value);
    r->headers = Py_NewRef(headers);
    r->origin = origin;
    r->leader_epoch = leader_epoch;
    r->header_count = (int32_t)PyTuple_GET_SIZE(headers);
    return (PyObject *)r;
}

static PyObject *exact_bytes(PyObject *given, const char *what)
{
    if (given == Py_None || PyBytes_CheckExact(given))
        return Py_NewRef(given);
    if (!PyBytes_Check(given) && !PyByteArray_Check(given) && !PyMemoryView_Check(given))
        return PyErr_Format(PyExc_TypeError, "%s=%R: must be bytes or None", what, given);
    return PyBytes_FromObject(given);
}

/* A tuple of (str, bytes or None). */
static PyObject *exact_headers(PyObject *given)
{
    PyObject *headers = PySequence_Tuple(given);
    for (Py_ssize_t i = 0; headers != NULL && i < PyTuple_GET_SIZE(headers); i++) {
        PyObject *pair = PyTuple_GET_ITEM(headers, i);
        if (PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2 && PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 0)) &&
            (PyTuple_GET_ITEM(pair, 1) == Py_None || PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 1))))
            continue;
        PyErr_Format(PyExc_TypeError, "headers[%zd]=%R: must be a tuple (str, bytes or None)", i, pair);
        Py_CLEAR(headers);
    }
    return headers;
}

/* Record(value=None, key=None, *, topic="", partition=0, offset=0, timestamp_ms=-1, headers=(), leader_epoch=-1) */
static PyObject *record_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)type;
    static char *names[] = {"value", "key", "topic", "partition", "offset", "timestamp_ms", "headers", "leader_epoch", NULL};
    PyObject *value = Py_None, *key = Py_None, *topic = NULL, *headers = NULL, *timestamp = NULL, *result = NULL;
    long long offset = 0;
    int64_t timestamp_ms = -1;
    int partition = 0, leader_epoch = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO$UiLOOi:Record", names, &value, &key, &topic, &partition, &offset,
                                     &timestamp, &headers, &leader_epoch))
        return NULL;
    if (timestamp != NULL && timestamp_get(timestamp, "timestamp_ms", &timestamp_ms))
        return NULL;
    topic = topic != NULL ? Py_NewRef(topic) : PyUnicode_FromString("");
    headers = headers != NULL ? exact_headers(headers) : Py_NewRef(no_headers);
    value = exact_bytes(value, "value");
    key = value != NULL ? exact_bytes(key, "key") : NULL;
    if (topic != NULL && headers != NULL && key != NULL) {
        PyObject *fields = Py_BuildValue("(OiLLOOOi)", topic, partition, offset, (long long)timestamp_ms, key, value, headers, leader_epoch);
        result = fields != NULL ? hot_record(NULL, fields) : NULL;
        Py_XDECREF(fields);
    }
    Py_XDECREF(topic);
    Py_XDECREF(headers);
    Py_XDECREF(value);
    Py_XDECREF(key);
    return result;
}

static PyMethodDef record_methods[] = {
    {"__reduce__", record_reduce, METH_NOARGS, NULL},
    {0},
};

static PyMemberDef record_members[] = {
    {"offset", T_LONGLONG, offsetof(record, offset), READONLY, NULL},
    {"timestamp_ms", T_OBJECT_EX, offsetof(record, timestamp_ms), READONLY, "milliseconds since 1970"},
    {"key", T_OBJECT_EX, offsetof(record, key), READONLY, "bytes or None"},
    {"value", T_OBJECT_EX, offsetof(record, value), READONLY, "bytes or None"},
    {"leader_epoch", T_INT, offsetof(record, leader_epoch), READONLY, "of the record's batch"},
    {"header_count", T_INT, offsetof(record, header_count), READONLY, "how many headers it has; does not decode them"},
    {0},
};

static PyGetSetDef record_getset[] = {
    {"headers", record_headers, NULL,
     "tuple of (str, bytes or None); bytes of a name that are no UTF-8 appear as surrogateescape's lone surrogates", NULL},
    {"topic", record_topic, NULL, NULL, NULL},
    {"partition", record_partition, NULL, NULL, NULL},
    {0},
};

PyTypeObject Record_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.Record",
    .tp_doc = "Record(value=None, key=None, *, topic='', partition=0, offset=0, timestamp_ms=-1, headers=(), leader_epoch=-1)\n--\n\n"
              "One record; immutable.  Reading makes it; so does a test that needs one.\n\n"
              "Records are equal if all their fields are.  They can be pickled and hashed.",
    .tp_basicsize = sizeof(record),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = record_make,
    .tp_dealloc = record_dealloc,
    .tp_repr = record_repr,
    .tp_hash = record_hash,
    .tp_richcompare = record_compare,
    .tp_methods = record_methods,
    .tp_members = record_members,
    .tp_getset = record_getset,
};

int record_ready(void)
{
    if (no_headers == NULL && (no_headers = PyTuple_New(0)) == NULL)
        return -1;
    return PyType_Ready(&Record_Type);
}
