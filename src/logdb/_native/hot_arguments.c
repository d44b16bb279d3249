/* hot_arguments.c -- what callers pass, checked and in C's terms. */
#include "hot.h"

#include "logdb_native.h"

/* ---------------------------------------------------------------- bytes-like */

static void blob_refuse(PyObject *o, const char *what, Py_ssize_t index)
{
    const char *name = strncmp(what, "key", 3) == 0 ? "key" : "value";
    char place[64], hint[64];
    if (index < 0)
        PyOS_snprintf(place, sizeof place, "%s", what);
    else
        PyOS_snprintf(place, sizeof place, "%s[%zd]", what, index);
    if (PyTuple_Check(o) && index >= 0 && *name == 'v')
        PyOS_snprintf(hint, sizeof hint, "keys= takes the keys");
    else if (PyUnicode_Check(o))
        PyOS_snprintf(hint, sizeof hint, "encode it first, e.g. %s.encode()", name);
    else
        PyOS_snprintf(hint, sizeof hint, "serialize it first, e.g. json.dumps(%s).encode()", name);
    PyErr_Format(PyExc_TypeError, "%s must be bytes-like or None, not %s: %s", place, Py_TYPE(o)->tp_name, hint);
}

int blob_get_slow(PyObject *o, const char *what, Py_ssize_t index, blob *out)
{
    out->view.obj = NULL;
    out->data = NULL;
    out->size = -1;
    if (o == Py_None)
        return 0;
    if (!PyObject_CheckBuffer(o)) {
        blob_refuse(o, what, index);
        return -1;
    }
    if (PyObject_GetBuffer(o, &out->view, PyBUF_SIMPLE))
        return -1;
    out->data = out->view.buf;
    out->size = out->view.len;
    return 0;
}

/* puts item i of the snapshot in, which is made our own first if it is still the caller's */
static int snapshot_replace(PyObject **snapshot, PyObject *source, Py_ssize_t i, PyObject *item)
{
    if (*snapshot == source) {
        Py_ssize_t count = PyTuple_GET_SIZE(source);
        PyObject *copy = PyTuple_New(count);
        if (copy == NULL)
            return -1;
        for (Py_ssize_t j = 0; j < count; j++)
            PyTuple_SET_ITEM(copy, j, Py_NewRef(PyTuple_GET_ITEM(source, j)));
        Py_SETREF(*snapshot, copy);
    }
    PyObject *old = PyTuple_GET_ITEM(*snapshot, i);
    PyTuple_SET_ITEM(*snapshot, i, item);
    Py_DECREF(old);
    return 0;
}

PyObject *items_get(PyObject *iterable, const char *what)
{
    if (Py_TYPE(iterable)->tp_iter != NULL || PySequence_Check(iterable))
        return PySequence_Tuple(iterable);
    PyErr_Format(PyExc_TypeError, "%s: '%s' object is not iterable", what, Py_TYPE(iterable)->tp_name);
    return NULL;
}

PyObject *blobs_snapshot(PyObject *iterable, const char *what)
{
    if (PyUnicode_Check(iterable) || PyBytes_Check(iterable) || PyByteArray_Check(iterable) || PyMemoryView_Check(iterable)) {
        PyErr_Format(PyExc_TypeError, "%s must be a list of bytes, not %s", what, Py_TYPE(iterable)->tp_name);
        return NULL;
    }
    PyObject *snapshot = items_get(iterable, what);
    if (snapshot == NULL)
        return NULL;
    for (Py_ssize_t i = 0, count = PyTuple_GET_SIZE(snapshot); i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(snapshot, i);
        if (PyBytes_Check(item) || item == Py_None)
            continue;
        blob bytes;
        if (blob_get_slow(item, what, i, &bytes))
            goto failed;
        PyObject *copy = PyBytes_FromStringAndSize((const char *)bytes.data, (Py_ssize_t)bytes.size);
        blob_release(&bytes);
        if (copy == NULL)
            goto failed;
        if (snapshot_replace(&snapshot, iterable, i, copy)) {
            Py_DECREF(copy);
            goto failed;
        }
    }
    return snapshot;
failed:
    Py_DECREF(snapshot);
    return NULL;
}

/* ---------------------------------------------------------------- headers */

void growing_init(growing *g)
{
    g->data = g->small;
    g->size = 0;
    g->room = sizeof g->small;
}

void growing_free(growing *g)
{
    if (g->data != g->small)
        PyMem_Free(g->data);
}

/* room for size more bytes; NULL with MemoryError */
static uint8_t *growing_reserve(growing *g, size_t size)
{
    if (size <= g->room - g->size)
        return g->data + g->size;
    if (size > (size_t)PY_SSIZE_T_MAX / 4 || g->size > (size_t)PY_SSIZE_T_MAX / 4)
        return (uint8_t *)PyErr_NoMemory();
    size_t room = 2 * (g->size + size);
    uint8_t *data = g->data != g->small ? PyMem_Realloc(g->data, room) : PyMem_Malloc(room);
    if (data == NULL)
        return (uint8_t *)PyErr_NoMemory();
    if (g->data == g->small)
        memcpy(data, g->small, g->size);
    g->data = data;
    g->room = room;
    return data + g->size;
}

static int growing_add(growing *g, const void *data, Py_ssize_t size)
{
    uint8_t *to = growing_reserve(g, VARINT_SIZE_MAX + (size > 0 ? (size_t)size : 0));
    if (to == NULL)
        return -1;
    to = varint_store(to, size);
    if (size > 0) {
        memcpy(to, data, (size_t)size);
        to += size;
    }
    g->size = (size_t)(to - g->data);
    return 0;
}

static int header_name_encode(PyObject *name, growing *out)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text != NULL)
        return growing_add(out, text, size);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return -1;
    PyErr_Clear(); /* a name that was read as no UTF-8 goes back as it was */
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape");
    if (bytes == NULL)
        return -1;
    int result = growing_add(out, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return result;
}

static void header_refuse(Py_ssize_t record, Py_ssize_t index, const char *got)
{
    char of[48] = "";
    if (record >= 0)
        PyOS_snprintf(of, sizeof of, "[%zd]", record);
    PyErr_Format(PyExc_TypeError, "headers%s[%zd] must be a pair (str, bytes-like or None), not %s", of, index, got);
}

static int header_encode(PyObject *pair, Py_ssize_t record, Py_ssize_t index, growing *out)
{
    if (!(PyTuple_Check(pair) || PyList_Check(pair)) || PySequence_Fast_GET_SIZE(pair) != 2) {
        header_refuse(record, index, Py_TYPE(pair)->tp_name);
        return -1;
    }
    PyObject *name = PySequence_Fast_GET_ITEM(pair, 0), *value = PySequence_Fast_GET_ITEM(pair, 1);
    if (!PyUnicode_Check(name) || (value != Py_None && !PyObject_CheckBuffer(value))) {
        char got[176];
        PyOS_snprintf(got, sizeof got, "(%.50s, %.50s)%s", Py_TYPE(name)->tp_name, Py_TYPE(value)->tp_name,
                      PyUnicode_Check(value) ? ": encode the value first, e.g. value.encode()" : "");
        header_refuse(record, index, got);
        return -1;
    }
    blob bytes;
    Py_INCREF(value); /* a list may change while its name is encoded */
    int result = header_name_encode(name, out) || blob_get(value, "header", &bytes) ? -1 : 0;
    if (result == 0) {
        result = growing_add(out, bytes.data, (Py_ssize_t)bytes.size);
        blob_release(&bytes);
    }
    Py_DECREF(value);
    return result;
}

int64_t headers_encode(PyObject *headers, Py_ssize_t index, growing *out)
{
    if (PyDict_Check(headers) && PyDict_Size(headers) > 0) { /* some of Kafka's clients take one; a name may come twice in a record */
        char of[48] = "";
        if (index >= 0)
            PyOS_snprintf(of, sizeof of, "[%zd]", index);
        PyErr_Format(PyExc_TypeError, "headers%s must be pairs (str, bytes-like or None), not a dict: use its items()", of);
        return -1;
    }
    PyObject *pairs = items_get(headers, index < 0 ? "headers" : "each of headers");
    if (pairs == NULL)
        return -1;
    int64_t count = PyTuple_GET_SIZE(pairs);
    if (count > LOGDB_HEADER_COUNT_MAX) {
        PyErr_Format(PyExc_ValueError, "a record with %zd headers: must be at most %d", (Py_ssize_t)count, LOGDB_HEADER_COUNT_MAX);
        count = -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (header_encode(PyTuple_GET_ITEM(pairs, i), index, i, out)) {
            count = -1;
            break;
        }
    }
    Py_DECREF(pairs);
    return count;
}

/* ---------------------------------------------------------------- numbers and names */

int int64_get(PyObject *o, const char *what, int64_t *out)
{
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow != 0) {
        PyErr_Format(PyExc_OverflowError, "%s=%S is outside of 64 bits", what, o);
        return -1;
    }
    if (value == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s must be an int, not %s", what, Py_TYPE(o)->tp_name);
        return -1;
    }
    *out = value;
    return 0;
}

int level_get(PyObject *name, int fallback)
{
    if (name == NULL || name == Py_None)
        return fallback;
    PyObject *const names[] = {hot_names.os, hot_names.interval, hot_names.fsync};
    for (int level = LEVEL_OS; level <= LEVEL_FSYNC; level++)
        if (name == names[level])
            return level;
    for (int level = LEVEL_OS; PyUnicode_Check(name) && level <= LEVEL_FSYNC; level++)
        if (PyUnicode_Compare(name, names[level]) == 0)
            return level;
    PyErr_Format(PyExc_ValueError, "durability=%R: must be os, interval or fsync", name);
    return -1;
}

/* ---------------------------------------------------------------- keywords */

int signature_ready(signature *s)
{
    for (int i = 0; s->names[i] != NULL; i++)
        if (s->interned[i] == NULL && (s->interned[i] = PyUnicode_InternFromString(s->names[i])) == NULL)
            return -1;
    return 0;
}

static int signature_find(const signature *s, PyObject *name)
{
    for (int i = 0; s->names[i] != NULL; i++)
        if (s->interned[i] == name)
            return i;
    for (int i = 0; s->names[i] != NULL; i++) /* a name that was made at run time */
        if (PyUnicode_Compare(s->interned[i], name) == 0)
            return i;
    return -1;
}

/* the name that the caller may have meant: the first one that begins with the given one */
static const char *signature_near(const signature *s, PyObject *name)
{
    const char *given = PyUnicode_AsUTF8(name);
    if (given == NULL) {
        PyErr_Clear(); /* it is no UTF-8 */
        return NULL;
    }
    for (int i = 0; s->names[i] != NULL; i++)
        if (strncmp(s->names[i], given, strlen(given)) == 0)
            return s->names[i];
    return NULL;
}

static void signature_refuse(const signature *s, PyObject *name)
{
    const char *near = signature_near(s, name);
    if (near != NULL)
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R. Did you mean '%s'?", s->function, name, near);
    else
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", s->function, name);
}

int signature_take_slow(const signature *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    if (nargs > s->positional_max) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %zd positional arguments (%zd given)", s->function, s->positional_max, nargs);
        return -1;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        out[i] = args[i];
    for (Py_ssize_t i = 0, count = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        int at = signature_find(s, name);
        if (at < 0) {
            signature_refuse(s, name);
            return -1;
        }
        if (out[at] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got two values for argument %R", s->function, name);
            return -1;
        }
        out[at] = args[nargs + i];
    }
    for (Py_ssize_t i = 0; i < s->required; i++) {
        if (out[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() misses argument '%s'", s->function, s->names[i]);
            return -1;
        }
    }
    return 0;
}
