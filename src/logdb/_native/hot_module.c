/* hot_module.c -- the module `_hot`, and what its files share. */
#include "hot.h"

#include "crc32c.h"
#include "murmur2.h"

struct hot_names hot_names;

#if PY_VERSION_HEX >= 0x030C0000
PyObject *exception_take(void)
{
    return PyErr_GetRaisedException();
}
void exception_give(PyObject *exception)
{
    PyErr_SetRaisedException(exception);
}
#else
PyObject *exception_take(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL)
        return NULL;
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
}
void exception_give(PyObject *exception)
{
    if (exception == NULL) {
        PyErr_Clear();
        return;
    }
    PyErr_Restore(Py_NewRef(Py_TYPE(exception)), exception, PyException_GetTraceback(exception));
}
#endif

PyObject *range_new(int64_t start, int64_t stop)
{
    PyObject *first = PyLong_FromLongLong(start), *end = PyLong_FromLongLong(stop), *range = NULL;
    if (first != NULL && end != NULL)
        range = PyObject_CallFunctionObjArgs((PyObject *)&PyRange_Type, first, end, NULL);
    Py_XDECREF(first);
    Py_XDECREF(end);
    return range;
}

static PyObject *hot_murmur2(PyObject *module, PyObject *key)
{
    (void)module;
    blob bytes;
    if (blob_get(key, "key", &bytes))
        return NULL;
    if (bytes.size < 0)
        return PyErr_Format(PyExc_TypeError, "key must be bytes-like, not None");
    uint32_t hash = logdb_murmur2(bytes.data, (size_t)bytes.size);
    blob_release(&bytes);
    return PyLong_FromUnsignedLong(hash);
}

enum { CRC_ALONE_SIZE = 1 << 16 }; /* a CRC of more is computed without the GIL */

static PyObject *hot_crc32c(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Py_buffer view;
    if (nargs < 1 || nargs > 2)
        return PyErr_Format(PyExc_TypeError, "crc32c() takes 1 or 2 arguments, not %zd", nargs);
    unsigned long crc = nargs == 2 ? PyLong_AsUnsignedLong(args[1]) : 0;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE))
        return NULL;
    if (view.len < CRC_ALONE_SIZE) {
        crc = logdb_crc32c((uint32_t)crc, view.buf, (size_t)view.len);
    } else {
        Py_BEGIN_ALLOW_THREADS
        crc = logdb_crc32c((uint32_t)crc, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static int names_ready(void)
{
    const struct {
        PyObject **name;
        const char *text;
    } table[] = {
        {&hot_names._write, "_write"},     {&hot_names._woken, "_woken"},   {&hot_names._commit, "_commit"},
        {&hot_names._end_fsync_only, "_end_fsync_only"},   {&hot_names._reject, "_reject"}, {&hot_names._pread, "_pread"},
        {&hot_names.release, "release"},   {&hot_names.offsets, "offsets"}, {&hot_names.os, "os"},
        {&hot_names._keep, "_keep"},
        {&hot_names.interval, "interval"}, {&hot_names.fsync, "fsync"},   {&hot_names._wait, "_wait"},
        {&hot_names._call, "_call"},       {&hot_names._refill, "_refill"}, {&hot_names._refuse, "_refuse"},
        {&hot_names._route, "_route"},     {&hot_names._accumulator, "_accumulator"}, {&hot_names._intercept, "_intercept"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (*table[i].name == NULL && (*table[i].name = PyUnicode_InternFromString(table[i].text)) == NULL)
            return -1;
    return 0;
}

static int module_fill(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "logdb does not run in sub-interpreters");
        return -1;
    }
    if (names_ready() || record_ready() || append_ready() || delivery_ready() || send_ready())
        return -1;
    PyTypeObject *types[] = {&Record_Type,   &BatchBuilder_Type, &Positions_Type, &RecordIterator_Type, &Delivery_Type,
                             &SendFuture_Type, &Accumulator_Type, &Route_Type,     &Dispatcher_Type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyModule_AddType(module, types[i]))
            return -1;
    if (PyModule_AddIntConstant(module, "OS", LEVEL_OS) || PyModule_AddIntConstant(module, "INTERVAL", LEVEL_INTERVAL))
        return -1;
    return PyModule_AddIntConstant(module, "FSYNC", LEVEL_FSYNC);
}

static PyMethodDef module_methods[] = {
    {"crc32c", METHOD(hot_crc32c), METH_FASTCALL, "crc32c(buf, crc=0, /) -> int\n\nCRC-32C of buf, continuing from crc."},
    {"murmur2", hot_murmur2, METH_O, "murmur2(key, /) -> int\n\nKafka's hash of a key, unsigned 32 bits; its sign is not masked."},
    {"record", hot_record, METH_VARARGS,
     "record(topic, partition, offset, timestamp_ms, key, value, headers, leader_epoch, /) -> Record\n\nFor pickle and copy."},
    {0},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_fill},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "logdb._native._hot",
    .m_doc = "What is called once a record: batch builder, record, iterator, positions.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__hot(void)
{
    return PyModuleDef_Init(&module_definition);
}
