/* hot_builder_type.c -- BatchBuilder as Python sees it: its methods and hooks, its properties, its life. */
#include "hot.h"

/* ---------------------------------------------------------------- methods */

static PyObject *drain(PyObject *self, PyObject *unused)
{
    (void)unused;
    builder *b = (builder *)self;
    if (builder_write_until(b, builder_next_offset(b)))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *discard(PyObject *self, PyObject *unused)
{
    (void)unused;
    int64_t dropped = builder_discard((builder *)self);
    return dropped >= 0 ? PyLong_FromLongLong(dropped) : NULL;
}

static PyObject *alone(PyObject *self, PyObject *function)
{
    builder *b = (builder *)self;
    if (builder_enter(b))
        return NULL;
    PyObject *offset = PyLong_FromLongLong(builder_next_offset(b)), *result = NULL;
    if (offset != NULL)
        result = PyObject_CallOneArg(function, offset);
    Py_XDECREF(offset);
    builder_leave(b);
    return result;
}

static PyObject *lend(PyObject *self, PyObject *size)
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

static PyObject *configure(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"level", "refusing", "fsync_only", "keys_required", "log_append_time", "timestamp_before_max_ms",
                            "timestamp_after_max_ms", "message_size_max", "batch_size", NULL};
    builder *b = (builder *)self;
    int level = b->level, fsync_only = b->fsync_only, keys_required = b->keys_required, log_append_time = b->log_append_time;
    long long refusing = b->refusing, before = b->timestamp_before_max, after = b->timestamp_after_max;
    Py_ssize_t message_size_max = (Py_ssize_t)b->message_size_max, batch_size = (Py_ssize_t)b->batch_size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$iLpppLLnn:_configure", names, &level, &refusing, &fsync_only, &keys_required,
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
    b->refusing = refusing;
    b->fsync_only = fsync_only != 0;
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

static PyObject *now_ms(PyObject *self, PyObject *unused)
{
    (void)unused;
    int64_t now = builder_now((builder *)self);
    return now != INT64_MIN ? PyLong_FromLongLong(now) : NULL;
}

/* ---------------------------------------------------------------- hooks, as they are without a subclass */

static PyObject *hook_write(PyObject *self, PyObject *args)
{
    (void)args;
    return PyErr_Format(PyExc_NotImplementedError, "%s does not define _write", Py_TYPE(self)->tp_name);
}

static PyObject *hook_none(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Py_RETURN_NONE;
}

static PyObject *hook_check_room(PyObject *self, PyObject *size_bytes)
{
    (void)self;
    (void)size_bytes;
    Py_RETURN_NONE;
}

static PyObject *hook_commit(PyObject *self, PyObject *args)
{
    (void)args;
    return drain(self, NULL);
}

static PyObject *hook_withdraw(PyObject *self, PyObject *args)
{
    long long first, next;
    if (!PyArg_ParseTuple(args, "LL:_withdraw", &first, &next))
        return NULL;
    return PyBool_FromLong(((builder *)self)->written_offset <= first);
}

static PyObject *hook_reject(PyObject *self, PyObject *args)
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

static PyObject *instance_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    builder *b = (builder *)type->tp_alloc(type, 0);
    if (b == NULL)
        return NULL;
    b->write_lock = PyThread_allocate_lock();
    b->append_lock = PyThread_allocate_lock();
    if (b->write_lock == NULL || b->append_lock == NULL) {
        Py_DECREF(b);
        return PyErr_NoMemory();
    }
    b->process = (long)getpid();
    b->level = LEVEL_INTERVAL;
    b->message_size_max = INT32_MAX;
    b->timestamp_before_max = b->timestamp_after_max = INT64_MAX;
    b->batch_size = b->write_size = b->group_size = b->batch_limit = 1;
    return (PyObject *)b;
}

static int instance_init(PyObject *self, PyObject *args, PyObject *kwargs)
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

static int instance_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((builder *)self)->clock);
    return 0;
}

static int instance_clear(PyObject *self)
{
    Py_CLEAR(((builder *)self)->clock);
    return 0;
}

static void instance_dealloc(PyObject *self)
{
    builder *b = (builder *)self;
    PyObject_GC_UnTrack(self);
    builder_drop(b);
    if (b->write_lock != NULL)
        PyThread_free_lock(b->write_lock);
    if (b->append_lock != NULL)
        PyThread_free_lock(b->append_lock);
    instance_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef builder_methods[] = {
    {"append", METHOD(builder_append), FASTCALL,
     "append(value, key=None, *, headers=(), timestamp_ms=None, expected_offset=None, durability=None) -> offset"},
    {"append_many", METHOD(builder_append_many), FASTCALL,
     "append_many(values, keys=None, *, headers=None, timestamps_ms=None, expected_offset=None, durability=None) -> range"},
    {"_append_raw", METHOD(builder_append_raw), FASTCALL,
     "_append_raw(buffer, size_bytes, record_span, expected_offset=None, durability=None, admit=None, placed=False) -> range"},
    {"_append_usual", METHOD(builder_append_usual), METH_FASTCALL, "_append_usual(batches, admit) -> range | None"},
    {"now_ms", now_ms, METH_NOARGS, "the clock, in ms since 1970"},
    {"_alone", alone, METH_O, "call a function with the next offset while no record is accepted -> its result"},
    {"_buffer", lend, METH_O, "a bytearray of at least that many bytes, for _append_raw"},
    {"_drain", drain, METH_NOARGS, "write everything that is pending now"},
    {"_discard", discard, METH_NOARGS, "drop what is pending -> how many records"},
    {"_configure", METHOD(configure), METH_VARARGS | METH_KEYWORDS, "set what is given"},
    {"_write", hook_write, METH_VARARGS, "hook: write batches"},
    {"_woken", hook_none, METH_NOARGS, "hook: something is pending"},
    {"_end_fsync_only", hook_none, METH_NOARGS, "hook: a record below level fsync comes"},
    {"_commit", hook_commit, METH_VARARGS, "hook: write, and sync as the level asks"},
    {"_check_room", hook_check_room, METH_O, "hook: a call of so many bytes comes, which takes several writes"},
    {"_withdraw", hook_withdraw, METH_VARARGS, "hook: whether records [first, next) of a failed call can go"},
    {"_reject", hook_reject, METH_VARARGS, "hook: raise what fits"},
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
    {"end_offset", get_next_offset, NULL, "offset of the next record", NULL},
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
    .tp_new = instance_new,
    .tp_init = instance_init,
    .tp_dealloc = instance_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_traverse = instance_traverse,
    .tp_clear = instance_clear,
    .tp_methods = builder_methods,
    .tp_members = builder_members,
    .tp_getset = builder_getset,
};
