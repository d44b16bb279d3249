/* hot_positions.c -- Positions: where the records of checked batches lie, so that a point read is one small pread.
 *
 * An entry is a batch: its place in a file and the start of each record in it.  The entries of one Positions are
 * sorted by base offset, in leaves of up to LEAF_MAX so that an insertion moves little; all entries of the process
 * are in one list, least recently used last, and go when the bound is reached.
 *
 *   Positions -> leaves [ leaf | leaf | ... ]      leaf -> slots [ (base offset, entry) ... ]
 *
 * No leaf is empty.  Letting go of a file may run Python: it comes last, when everything is in order again. */
#include "hot.h"

enum { LEAF_MAX = 64, LIMIT_BYTES = 32 << 20 };

typedef struct positions positions;

typedef struct entry {
    positions *owner;
    struct entry *newer, *older;
    PyObject *file;
    int64_t base_offset, position, base_timestamp, delta_mask;
    int32_t leader_epoch;
    uint32_t count;
    size_t size_bytes;   /* of memory */
    uint32_t *deltas;    /* offset deltas, sorted; NULL: record i has delta i */
    uint32_t starts[];   /* of record i in the batch; count + 1 of them */
} entry;

typedef struct {
    int64_t base_offset;
    entry *entry;
} slot;

typedef struct {
    uint32_t count;
    slot slots[LEAF_MAX];
} leaf;

struct positions {
    PyObject_HEAD
    leaf **leaves;
    size_t leaf_count, leaf_room;
    size_t size_bytes;
};

static struct {
    entry *newest, *oldest;
    size_t size_bytes, limit_bytes;
} all = {.limit_bytes = LIMIT_BYTES};

/* ---------------------------------------------------------------- by offset */

/* the leaf, and in it the slot, of the last entry with base offset <= offset; false if there is none */
static bool slot_find(const positions *p, int64_t offset, size_t *leaf_at, uint32_t *slot_at)
{
    size_t low = 0, high = p->leaf_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->leaves[middle]->slots[0].base_offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    const leaf *l = p->leaves[*leaf_at = low - 1];
    uint32_t first = 0, last = l->count;
    while (last - first > 1) {
        uint32_t middle = first + (last - first) / 2;
        if (l->slots[middle].base_offset <= offset)
            first = middle;
        else
            last = middle;
    }
    *slot_at = first;
    return true;
}

static void account(positions *p, size_t more, size_t less)
{
    p->size_bytes += more - less;
    all.size_bytes += more - less;
}

/* a new leaf at index `at`, with nothing in it */
static leaf *leaf_insert(positions *p, size_t at)
{
    if (p->leaf_count == p->leaf_room) {
        size_t room = p->leaf_room > 0 ? 2 * p->leaf_room : 4;
        leaf **leaves = PyMem_Realloc(p->leaves, room * sizeof *leaves);
        if (leaves == NULL)
            return (leaf *)PyErr_NoMemory();
        p->leaves = leaves;
        p->leaf_room = room;
    }
    leaf *l = PyMem_Malloc(sizeof *l);
    if (l == NULL)
        return (leaf *)PyErr_NoMemory();
    l->count = 0;
    memmove(p->leaves + at + 1, p->leaves + at, (p->leaf_count - at) * sizeof *p->leaves);
    p->leaves[at] = l;
    p->leaf_count++;
    account(p, sizeof *l, 0);
    return l;
}

/* puts the entry behind slot slot_at of leaf leaf_at, splitting a full leaf: in the middle, or after its end */
static int slot_insert(positions *p, size_t leaf_at, uint32_t slot_at, entry *e)
{
    leaf *l = p->leaves[leaf_at];
    if (l->count == LEAF_MAX) {
        uint32_t keep = slot_at == LEAF_MAX ? LEAF_MAX : LEAF_MAX / 2;
        leaf *right = leaf_insert(p, leaf_at + 1);
        if (right == NULL)
            return -1;
        right->count = LEAF_MAX - keep;
        memcpy(right->slots, l->slots + keep, right->count * sizeof *l->slots);
        l->count = keep;
        if (slot_at > keep || keep == LEAF_MAX) {
            l = right;
            slot_at -= keep;
        }
    }
    memmove(l->slots + slot_at + 1, l->slots + slot_at, (l->count - slot_at) * sizeof *l->slots);
    l->slots[slot_at] = (slot){e->base_offset, e};
    l->count++;
    return 0;
}

static int entry_insert(positions *p, entry *e)
{
    size_t leaf_at = 0;
    uint32_t slot_at = 0;
    if (p->leaf_count == 0 && leaf_insert(p, 0) == NULL)
        return -1;
    if (p->leaves[0]->count > 0 && slot_find(p, e->base_offset, &leaf_at, &slot_at))
        slot_at++;
    return slot_insert(p, leaf_at, slot_at, e);
}

static void slot_remove(positions *p, size_t leaf_at, uint32_t slot_at)
{
    leaf *l = p->leaves[leaf_at];
    l->count--;
    memmove(l->slots + slot_at, l->slots + slot_at + 1, (l->count - slot_at) * sizeof *l->slots);
    if (l->count > 0)
        return;
    PyMem_Free(l);
    account(p, 0, sizeof *l);
    p->leaf_count--;
    memmove(p->leaves + leaf_at, p->leaves + leaf_at + 1, (p->leaf_count - leaf_at) * sizeof *p->leaves);
}

/* ---------------------------------------------------------------- by age */

static void age_link(entry *e)
{
    e->newer = NULL;
    e->older = all.newest;
    if (all.newest != NULL)
        all.newest->newer = e;
    else
        all.oldest = e;
    all.newest = e;
}

static void age_unlink(entry *e)
{
    *(e->newer != NULL ? &e->newer->older : &all.newest) = e->older;
    *(e->older != NULL ? &e->older->newer : &all.oldest) = e->newer;
}

/* ---------------------------------------------------------------- entries */

static void entry_free(entry *e)
{
    PyObject *file = e->file;
    PyMem_Free(e->deltas);
    PyMem_Free(e);
    Py_DECREF(file);
}

/* takes the entry in that slot out of everything, and frees it */
static void entry_drop(positions *p, size_t leaf_at, uint32_t slot_at)
{
    entry *e = p->leaves[leaf_at]->slots[slot_at].entry;
    slot_remove(p, leaf_at, slot_at);
    age_unlink(e);
    account(p, 0, e->size_bytes);
    entry_free(e);
}

static void oldest_drop(void)
{
    size_t leaf_at;
    uint32_t slot_at;
    entry *e = all.oldest;
    if (slot_find(e->owner, e->base_offset, &leaf_at, &slot_at))
        entry_drop(e->owner, leaf_at, slot_at);
}

static void limit_keep(void)
{
    while (all.size_bytes > all.limit_bytes && all.oldest != NULL)
        oldest_drop();
}

/* walks the records of the batch, setting starts and deltas; false where they overrun it */
static bool entry_fill(entry *e, const uint8_t *batch, size_t size)
{
    const uint8_t *at = batch + BATCH_HEADER_SIZE, *end = batch + size;
    bool dense = true;
    for (uint32_t i = 0; i < e->count; i++) {
        record_view r;
        e->starts[i] = (uint32_t)(at - batch);
        if ((at = record_parse(at, end, &r)) == NULL || (uint64_t)r.offset_delta > UINT32_MAX)
            return false;
        e->deltas[i] = (uint32_t)r.offset_delta;
        dense = dense && e->deltas[i] == i;
        if (i > 0 && e->deltas[i] <= e->deltas[i - 1])
            return false;
    }
    e->starts[e->count] = (uint32_t)(at - batch);
    if (dense) {
        PyMem_Free(e->deltas);
        e->deltas = NULL;
    } else {
        e->size_bytes += e->count * sizeof *e->deltas;
    }
    return at == end;
}

static entry *entry_new(PyObject *file, int64_t position, const uint8_t *batch, size_t size)
{
    uint32_t count = load_be32(batch + BATCH_COUNT);
    size_t size_bytes = sizeof(entry) + (count + (size_t)1) * sizeof(uint32_t);
    entry *e = PyMem_Malloc(size_bytes);
    if (e == NULL)
        return (entry *)PyErr_NoMemory();
    bool append_time = (load_be16(batch + BATCH_ATTRIBUTES) & ATTRIBUTE_LOG_APPEND_TIME) != 0;
    *e = (entry){
        .file = Py_NewRef(file),
        .base_offset = (int64_t)load_be64(batch + BATCH_BASE_OFFSET),
        .position = position,
        .base_timestamp = (int64_t)load_be64(batch + (append_time ? BATCH_MAX_TIMESTAMP : BATCH_BASE_TIMESTAMP)),
        .delta_mask = append_time ? 0 : -1,
        .leader_epoch = (int32_t)load_be32(batch + BATCH_LEADER_EPOCH),
        .count = count,
        .size_bytes = size_bytes,
        .deltas = PyMem_Malloc(count * sizeof *e->deltas),
    };
    if (e->deltas == NULL)
        PyErr_NoMemory();
    else if (entry_fill(e, batch, size))
        return e;
    else
        PyErr_Format(PyExc_ValueError, "the records of the batch at offset %lld do not fill it", (long long)e->base_offset);
    entry_free(e);
    return NULL;
}

/* the record with that offset in the entry's batch, or count */
static uint32_t entry_search(const entry *e, int64_t offset)
{
    uint64_t delta = (uint64_t)(offset - e->base_offset);
    if (e->deltas == NULL)
        return delta < e->count ? (uint32_t)delta : e->count;
    uint32_t low = 0, high = e->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (e->deltas[middle] < delta)
            low = middle + 1;
        else
            high = middle;
    }
    return low < e->count && e->deltas[low] == delta ? low : e->count;
}

bool positions_find(PyObject *self, int64_t offset, record_place *out)
{
    const positions *p = (const positions *)self;
    size_t leaf_at;
    uint32_t slot_at;
    if (!slot_find(p, offset, &leaf_at, &slot_at))
        return false;
    entry *e = p->leaves[leaf_at]->slots[slot_at].entry;
    uint32_t i = entry_search(e, offset);
    if (i == e->count)
        return false;
    if (all.newest != e) {
        age_unlink(e);
        age_link(e);
    }
    *out = (record_place){
        .file = Py_NewRef(e->file),
        .position = e->position + e->starts[i],
        .size_bytes = e->starts[i + 1] - e->starts[i],
        .leader_epoch = e->leader_epoch,
        .base_offset = e->base_offset,
        .base_timestamp = e->base_timestamp,
        .delta_mask = e->delta_mask,
    };
    return true;
}

/* ---------------------------------------------------------------- methods */

static bool batch_whole(const uint8_t *batch, Py_ssize_t size)
{
    return size >= BATCH_HEADER_SIZE && (uint64_t)load_be32(batch + BATCH_LENGTH) + BATCH_LENGTH_FROM == (uint64_t)size;
}

/* an entry for the batch, in the place of one that has its base offset */
static int positions_add_batch(positions *p, PyObject *file, int64_t position, const uint8_t *batch, Py_ssize_t size)
{
    uint16_t attributes = batch_whole(batch, size) ? load_be16(batch + BATCH_ATTRIBUTES) : ATTRIBUTE_CODEC;
    if ((attributes & ATTRIBUTE_CODEC) != 0) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are not one whole uncompressed batch", size);
        return -1;
    }
    uint32_t count = load_be32(batch + BATCH_COUNT);
    if ((attributes & ATTRIBUTE_CONTROL) != 0 || count == 0)
        return 0; /* never read by offset */
    entry *e = count <= (size_t)size ? entry_new(file, position, batch, (size_t)size) : NULL;
    if (e == NULL) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "%u records in %zd bytes", count, size);
        return -1;
    }
    size_t leaf_at;
    uint32_t slot_at;
    if (slot_find(p, e->base_offset, &leaf_at, &slot_at) && p->leaves[leaf_at]->slots[slot_at].base_offset == e->base_offset)
        entry_drop(p, leaf_at, slot_at);
    if (entry_insert(p, e)) {
        entry_free(e);
        return -1;
    }
    e->owner = p;
    age_link(e);
    account(p, e->size_bytes, 0);
    limit_keep();
    return 0;
}

static PyObject *positions_add(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"file", "position", "batch", NULL};
    PyObject *file;
    long long position;
    Py_buffer batch;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLy*:add", names, &file, &position, &batch))
        return NULL;
    int result = positions_add_batch((positions *)self, file, position, batch.buf, batch.len);
    PyBuffer_Release(&batch);
    if (result != 0)
        return NULL;
    Py_RETURN_NONE;
}

static int positions_clear(PyObject *self)
{
    positions *p = (positions *)self;
    while (p->leaf_count > 0)
        entry_drop(p, p->leaf_count - 1, p->leaves[p->leaf_count - 1]->count - 1);
    return 0;
}

static PyObject *positions_clear_method(PyObject *self, PyObject *unused)
{
    (void)unused;
    positions_clear(self);
    Py_RETURN_NONE;
}

static PyObject *positions_limit(PyObject *type, PyObject *const *args, Py_ssize_t nargs)
{
    (void)type;
    int64_t limit;
    if (nargs > 1)
        return PyErr_Format(PyExc_TypeError, "limit() takes at most 1 argument (%zd given)", nargs);
    if (nargs == 1 && args[0] != Py_None) {
        if (int64_get(args[0], "limit", &limit))
            return NULL;
        if (limit < 0)
            return PyErr_Format(PyExc_ValueError, "limit=%lld is negative", (long long)limit);
        all.limit_bytes = (size_t)limit;
        limit_keep();
    }
    return PyLong_FromSize_t(all.limit_bytes);
}

static int positions_traverse(PyObject *self, visitproc visit, void *arg)
{
    const positions *p = (const positions *)self;
    for (size_t i = 0; i < p->leaf_count; i++)
        for (uint32_t j = 0; j < p->leaves[i]->count; j++)
            Py_VISIT(p->leaves[i]->slots[j].entry->file);
    return 0;
}

static void positions_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    positions_clear(self);
    PyMem_Free(((positions *)self)->leaves);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef positions_methods[] = {
    {"add", METHOD(positions_add), METH_VARARGS | METH_KEYWORDS, "add(file, position, batch): the records of a checked, uncompressed batch"},
    {"clear", positions_clear_method, METH_NOARGS, "forget all; a must when offsets or files change under it"},
    {"limit", METHOD(positions_limit), METH_FASTCALL | METH_STATIC, "limit(size_bytes=None, /) -> bytes that all positions together may take"},
    {0},
};

static PyMemberDef positions_members[] = {
    {"size_bytes", T_PYSSIZET, offsetof(positions, size_bytes), READONLY, "memory that it takes"},
    {0},
};

PyTypeObject Positions_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "logdb._native._hot.Positions",
    .tp_doc = "Where the records of checked batches lie, for point reads; all of them share one bound.",
    .tp_basicsize = sizeof(positions),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = positions_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_traverse = positions_traverse,
    .tp_clear = positions_clear,
    .tp_methods = positions_methods,
    .tp_members = positions_members,
};
