/* hot_buffer.c -- the pool of buffers that batches are gathered in, one for the process.
 *
 * New memory is slow on first touch and a thousand idle logs must hold none, so buffers come from here when a
 * record arrives and go back once they are written. */
#include "hot.h"

enum { POOL_COUNT_MAX = 16, POOL_SIZE_BYTES_MAX = 8 << 20, ROUND_BYTES = 4096 };

static struct {
    buffer *first; /* the one that came last: its memory is the warmest */
    int count;
    size_t size_bytes;
} pool;

buffer *buffer_adopt(PyObject *bytearray)
{
    buffer *f = PyMem_Calloc(1, sizeof *f);
    if (f == NULL)
        return (buffer *)PyErr_NoMemory();
    if (PyObject_GetBuffer(bytearray, &f->view, PyBUF_SIMPLE)) {
        PyMem_Free(f);
        return NULL;
    }
    return f;
}

void buffer_free(buffer *f)
{
    PyBuffer_Release(&f->view);
    PyMem_Free(f);
}

/* the smallest that is large enough, but none that is much too large */
static buffer *pool_take(size_t size)
{
    buffer **best = NULL;
    for (buffer **at = &pool.first; *at != NULL; at = &(*at)->next) {
        size_t room = (size_t)(*at)->view.len;
        if (room >= size && room / 4 <= size && (best == NULL || room < (size_t)(*best)->view.len))
            best = at;
    }
    if (best == NULL)
        return NULL;
    buffer *f = *best;
    *best = f->next;
    pool.count--;
    pool.size_bytes -= (size_t)f->view.len;
    *f = (buffer){.view = f->view};
    return f;
}

static PyObject *bytearray_new(size_t size)
{
    if (size > (size_t)PY_SSIZE_T_MAX - ROUND_BYTES)
        return PyErr_NoMemory();
    size = (size + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
    return PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
}

buffer *buffer_take(size_t size)
{
    buffer *f = pool_take(size);
    if (f != NULL)
        return f;
    PyObject *memory = bytearray_new(size);
    if (memory == NULL)
        return NULL;
    f = buffer_adopt(memory);
    Py_DECREF(memory);
    return f;
}

PyObject *buffer_lend(size_t size)
{
    buffer *f = pool_take(size);
    if (f == NULL)
        return bytearray_new(size);
    PyObject *memory = Py_NewRef(f->view.obj);
    buffer_free(f);
    return memory;
}

void buffer_give(buffer *f)
{
    bool shared = ((PyByteArrayObject *)f->view.obj)->ob_exports > 1; /* a caller kept a view of it */
    size_t size = (size_t)f->view.len;
    if (shared || pool.count == POOL_COUNT_MAX || pool.size_bytes + size > POOL_SIZE_BYTES_MAX) {
        buffer_free(f);
        return;
    }
    f->next = pool.first;
    pool.first = f;
    pool.count++;
    pool.size_bytes += size;
}
