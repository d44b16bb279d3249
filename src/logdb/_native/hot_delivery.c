/* hot_delivery.c -- Delivery: a buffer of records on its way to a log; SendFuture: what becomes of one of them.
 *
 *   open (records come in) -> sealed (`batches` is there) -> settled (offset or error is known, `batches` is gone)
 *
 * A record has but a SendFuture, of 40 bytes and without GC support; what is common to a buffer's records is said once,
 * by their Delivery.  Callbacks are kept until they are called, and a future by them: that is the one cycle there can
 * be, and settling ends it. */
#include "hot.h"

struct send_future {
    PyObject_HEAD
    delivery *of;
    int64_t timestamp_ms;
    uint32_t index;
};

enum { FREE_MAX = 1024 };
static send_future *free_futures[FREE_MAX];
static int free_count;

static signature wait_signature = {"result", 1, 0, {"timeout"}, {NULL}};
static PyObject *metadata_type; /* logdb.model.RecordMetadata */

int delivery_ready(void)
{
    return signature_ready(&wait_signature);
}

/* ---------------------------------------------------------------- where a record lies */

static PyTypeObject *metadata_type_get(void)
{
    if (metadata_type == NULL) {
        PyObject *model = PyImport_ImportModule("logdb.model");
        metadata_type = model != NULL ? PyObject_GetAttrString(model, "RecordMetadata") : NULL;
        Py_XDECREF(model);
    }
    return (PyTypeObject *)metadata_type;
}

/* the fields in a tuple of one, or NULL */
static PyObject *metadata_fields(const send_future *f)
{
    const delivery *d = f->of;
    PyObject *outer = PyTuple_New(1), *fields = PyTuple_New(4);
    PyObject *offset = PyLong_FromLongLong(d->base_offset >= 0 ? d->base_offset + f->index : -1);
    PyObject *timestamp_ms = PyLong_FromLongLong(d->timestamp_ms >= 0 ? d->timestamp_ms : f->timestamp_ms);
    if (outer == NULL || fields == NULL || offset == NULL || timestamp_ms == NULL) {
        Py_XDECREF(outer);
        Py_XDECREF(fields);
        Py_XDECREF(offset);
        Py_XDECREF(timestamp_ms);
        return NULL;
    }
    PyTuple_SET_ITEM(fields, 0, Py_NewRef(d->topic));
    PyTuple_SET_ITEM(fields, 1, Py_NewRef(d->partition));
    PyTuple_SET_ITEM(fields, 2, offset);
    PyTuple_SET_ITEM(fields, 3, timestamp_ms);
    PyTuple_SET_ITEM(outer, 0, fields);
    return outer;
}

/* tuple.__new__(RecordMetadata, (topic, partition, offset, timestamp_ms)) */
static PyObject *metadata_new(const send_future *f)
{
    PyTypeObject *type = metadata_type_get();
    PyObject *fields = type != NULL ? metadata_fields(f) : NULL, *metadata = NULL;
    if (fields != NULL)
        metadata = PyTuple_Type.tp_new(type, fields, NULL);
    Py_XDECREF(fields);
    return metadata;
}

/* ---------------------------------------------------------------- SendFuture */

PyObject *future_new(delivery *d, uint32_t index, int64_t timestamp_ms)
{
    send_future *f = free_count > 0 ? free_futures[--free_count] : PyObject_Malloc(sizeof *f);
    if (f == NULL)
        return PyErr_NoMemory();
    PyObject_Init((PyObject *)f, &SendFuture_Type);
    f->of = (delivery *)Py_NewRef(d);
    f->timestamp_ms = timestamp_ms;
    f->index = index;
    return (PyObject *)f;
}

static void future_dealloc(PyObject *self)
{
    send_future *f = (send_future *)self;
    Py_DECREF(f->of);
    if (free_count < FREE_MAX)
        free_futures[free_count++] = f;
    else
        PyObject_Free(f);
}

/* Waits until the delivery is settled; -1 with what its _wait raised. */
static int future_wait(send_future *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *timeout = NULL;
    if (signature_take(&wait_signature, args, nargs, kwnames, &timeout))
        return -1;
    if (f->of->done)
        return 0;
    PyObject *result = PyObject_CallMethodOneArg((PyObject *)f->of, hot_names._wait, timeout != NULL ? timeout : Py_None);
    if (result == NULL)
        return -1;
    Py_DECREF(result);
    if (f->of->done)
        return 0;
    PyErr_SetString(PyExc_SystemError, "_wait() returned before the delivery was settled");
    return -1;
}

static PyObject *future_result(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    send_future *f = (send_future *)self;
    if (future_wait(f, args, nargs, kwnames))
        return NULL;
    PyObject *error = f->of->error;
    if (error == NULL)
        return metadata_new(f);
    PyException_SetTraceback(error, Py_None); /* it is raised for many records: let no traceback grow */
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    return NULL;
}

static PyObject *future_exception(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    send_future *f = (send_future *)self;
    if (future_wait(f, args, nargs, kwnames))
        return NULL;
    return Py_NewRef(f->of->error != NULL ? f->of->error : Py_None);
}

static PyObject *future_done(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((send_future *)self)->of->done);
}

int delivery_call_back(PyObject **callbacks, PyObject *function, PyObject *future)
{
    if (*callbacks == NULL && (*callbacks = PyList_New(0)) == NULL)
        return -1;
    if (PyList_Append(*callbacks, function))
        return -1;
    if (PyList_Append(*callbacks, future) == 0)
        return 0;
    PyList_SetSlice(*callbacks, PyList_GET_SIZE(*callbacks) - 1, PyList_GET_SIZE(*callbacks), NULL);
    return -1;
}

static PyObject *future_add_done_callback(PyObject *self, PyObject *function)
{
    delivery *d = ((send_future *)self)->of;
    if (d->done) {
        PyObject *result = PyObject_CallMethodObjArgs((PyObject *)d, hot_names._call, function, self, NULL);
        Py_XDECREF(result);
        if (result == NULL)
            return NULL;
    } else if (delivery_call_back(&d->on_done, function, self)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *future_repr(PyObject *self)
{
    send_future *f = (send_future *)self;
    const delivery *d = f->of;
    if (!d->done)
        return PyUnicode_FromFormat("<SendFuture %U-%S pending>", d->topic, d->partition);
    if (d->error != NULL)
        return PyUnicode_FromFormat("<SendFuture %U-%S failed: %S>", d->topic, d->partition, d->error);
    return PyUnicode_FromFormat("<SendFuture %U-%S offset %lld>", d->topic, d->partition,
                                (long long)(d->base_offset >= 0 ? d->base_offset + f->index : -1));
}

static PyMethodDef future_methods[] = {
    {"done", future_done, METH_NOARGS, "whether the result is known"},
    {"result", METHOD(future_result), FASTCALL, "result(timeout=None) -> RecordMetadata"},
    {"exception", METHOD(future_exception), FASTCALL, "exception(timeout=None) -> what result would raise, or None"},
    {"add_done_callback", future_add_done_callback, METH_O, "add_done_callback(function): call function(future) when it is done"},
    {0},
};

PyTypeObject SendFuture_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.SendFuture",
    .tp_doc = "What becomes of one record that was sent.",
    .tp_basicsize = sizeof(send_future),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = future_dealloc,
    .tp_repr = future_repr,
    .tp_methods = future_methods,
};

/* ---------------------------------------------------------------- Delivery */

static int delivery_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"topic", "partition", "opened_ms", "acknowledged", NULL};
    delivery *d = (delivery *)self;
    PyObject *topic, *partition;
    long long opened_ms;
    int acknowledged;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO!Lp:Delivery", names, &topic, &PyLong_Type, &partition, &opened_ms, &acknowledged))
        return -1;
    Py_XSETREF(d->topic, Py_NewRef(topic));
    Py_XSETREF(d->partition, Py_NewRef(partition));
    d->opened_ms = opened_ms;
    d->base_offset = d->timestamp_ms = -1;
    d->done = !acknowledged;
    return 0;
}

static PyObject *delivery_batches(PyObject *self, void *closure)
{
    (void)closure;
    delivery *d = (delivery *)self;
    if (d->batches == NULL) {
        PyErr_SetString(PyExc_ValueError, "the delivery is open yet, or settled");
        return NULL;
    }
    PyObject *whole = PyMemoryView_FromObject(d->batches->view.obj);
    PyObject *part = whole != NULL ? PySequence_GetSlice(whole, 0, (Py_ssize_t)d->batches->used) : NULL;
    Py_XDECREF(whole);
    return part;
}

/* _settle(base_offset, timestamp_ms, error) */
static PyObject *delivery_settle(PyObject *self, PyObject *args)
{
    delivery *d = (delivery *)self;
    long long base_offset, timestamp_ms;
    PyObject *error;
    if (!PyArg_ParseTuple(args, "LLO:_settle", &base_offset, &timestamp_ms, &error))
        return NULL;
    if (error != Py_None && !PyExceptionInstance_Check(error))
        return PyErr_Format(PyExc_TypeError, "error must be an exception or None, not %s", Py_TYPE(error)->tp_name);
    if (d->batches != NULL) {
        buffer_give(d->batches);
        d->batches = NULL;
    }
    if (!d->done) { /* otherwise no thread waits: the result is that it is unknown */
        d->base_offset = base_offset;
        d->timestamp_ms = timestamp_ms;
        if (error != Py_None)
            Py_XSETREF(d->error, Py_NewRef(error));
        d->done = true;
    }
    Py_RETURN_NONE;
}

static PyObject *on_delivery_call(PyObject *function, send_future *f, PyObject *error)
{
    PyObject *metadata = error != Py_None ? Py_NewRef(Py_None) : metadata_new(f), *result = NULL;
    PyObject *args[] = {NULL, error, metadata};
    if (metadata != NULL)
        result = PyObject_Vectorcall(function, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_XDECREF(metadata);
    return result;
}

/* Calls back all of a list of functions and futures; what they raise goes to report(function, exception). */
static int callbacks_run(PyObject *callbacks, PyObject *error, bool delivered, PyObject *report)
{
    for (Py_ssize_t i = 0; i + 1 < PyList_GET_SIZE(callbacks); i += 2) {
        PyObject *function = PyList_GET_ITEM(callbacks, i), *future = PyList_GET_ITEM(callbacks, i + 1), *result;
        result = delivered ? on_delivery_call(function, (send_future *)future, error) : PyObject_CallOneArg(function, future);
        if (result == NULL) {
            PyObject *raised = exception_take();
            result = PyObject_CallFunctionObjArgs(report, function, raised, NULL);
            Py_DECREF(raised);
            if (result == NULL)
                return -1;
        }
        Py_DECREF(result);
    }
    return 0;
}

/* _call_back(error, report) */
static PyObject *delivery_call_all(PyObject *self, PyObject *args)
{
    delivery *d = (delivery *)self;
    PyObject *error, *report;
    if (!PyArg_ParseTuple(args, "OO:_call_back", &error, &report))
        return NULL;
    PyObject *on_delivery = d->on_delivery, *on_done = d->on_done;
    d->on_delivery = d->on_done = NULL;
    int failed = on_delivery != NULL && callbacks_run(on_delivery, error, true, report);
    failed = failed || (on_done != NULL && callbacks_run(on_done, error, false, report));
    Py_XDECREF(on_delivery);
    Py_XDECREF(on_done);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* _future(timestamp_ms): of a record that will never be in it */
static PyObject *delivery_future(PyObject *self, PyObject *timestamp)
{
    int64_t timestamp_ms;
    if (((delivery *)self)->topic == NULL)
        return PyErr_Format(PyExc_RuntimeError, "Delivery.__init__ was not called");
    if (int64_get(timestamp, "timestamp_ms", &timestamp_ms))
        return NULL;
    return future_new((delivery *)self, 0, timestamp_ms);
}

static int delivery_traverse(PyObject *self, visitproc visit, void *arg)
{
    delivery *d = (delivery *)self;
    Py_VISIT(d->error);
    Py_VISIT(d->on_delivery);
    Py_VISIT(d->on_done);
    return 0;
}

static int delivery_clear(PyObject *self)
{
    delivery *d = (delivery *)self;
    Py_CLEAR(d->error);
    Py_CLEAR(d->on_delivery);
    Py_CLEAR(d->on_done);
    return 0;
}

static void delivery_dealloc(PyObject *self)
{
    delivery *d = (delivery *)self;
    PyObject_GC_UnTrack(self);
    delivery_clear(self);
    Py_CLEAR(d->topic);
    Py_CLEAR(d->partition);
    if (d->batches != NULL)
        buffer_give(d->batches);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef delivery_methods[] = {
    {"_settle", delivery_settle, METH_VARARGS, "_settle(base_offset, timestamp_ms, error): the result is known"},
    {"_future", delivery_future, METH_O, "_future(timestamp_ms) -> the future of a first record"},
    {"_call_back", delivery_call_all, METH_VARARGS, "_call_back(error, report): call all callbacks, report(function, exception) what they raise"},
    {0},
};

static PyMemberDef delivery_members[] = {
    {"topic", T_OBJECT_EX, offsetof(delivery, topic), READONLY, NULL},
    {"partition", T_OBJECT_EX, offsetof(delivery, partition), READONLY, NULL},
    {"opened_ms", T_LONGLONG, offsetof(delivery, opened_ms), READONLY, "monotonic ms when its first record came"},
    {"first", T_LONGLONG, offsetof(delivery, first), READONLY, "number of its first record, counted by the accumulator"},
    {"record_count", T_UINT, offsetof(delivery, count), READONLY, "records in it, once it is sealed"},
    {"size_bytes", T_PYSSIZET, offsetof(delivery, capacity), READONLY, "memory that it takes until it is settled"},
    {"done", T_BOOL, offsetof(delivery, done), READONLY, "whether the futures have their result"},
    {0},
};

static PyGetSetDef delivery_getset[] = {
    {"batches", delivery_batches, NULL, "memoryview of its batches, writable; between sealing and settling", NULL},
    {0},
};

PyTypeObject Delivery_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.Delivery",
    .tp_doc = "A buffer of records on its way to a log.",
    .tp_basicsize = sizeof(delivery),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = delivery_init,
    .tp_dealloc = delivery_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_traverse = delivery_traverse,
    .tp_clear = delivery_clear,
    .tp_methods = delivery_methods,
    .tp_members = delivery_members,
    .tp_getset = delivery_getset,
};
