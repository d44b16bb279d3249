/* hot.h -- what the files of the extension module `_hot` share: everything that is called once a record.
 *
 *   hot_module.c     the module, murmur2
 *   hot_record.c     Record
 *   hot_arguments.c  what callers pass: bytes-like objects, headers, timestamps, keywords
 *   hot_buffer.c     the pool of buffers that batches are gathered in
 *   hot_builder.c    BatchBuilder: batches, the queue of full buffers, the write lock, the append lock
 *   hot_builder_type.c  what Python sees of BatchBuilder
 *   hot_append.c     BatchBuilder's append, append_many, _append_raw and _append_usual
 *   hot_withdraw.c   BatchBuilder: the records of a failed call are taken back
 *   hot_delivery.c   Delivery and SendFuture: what becomes of the records that a producer sends
 *   hot_send.c       a producer's send: Dispatcher, Route, Accumulator
 *   hot_positions.c  Positions: where records lie, least recently used goes first
 *   hot_iterator.c   RecordIterator
 *
 * Threads: the GIL is the lock of everything here.  What may run Python comes first; a record is then encoded
 * without letting go of the GIL.  No lock is ever waited for while the GIL is held. */
#ifndef LOGDB_HOT_H
#define LOGDB_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <unistd.h>

#include "bytes.h"

#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define METHOD(f) ((PyCFunction)(void (*)(void))(f))
enum { FASTCALL = METH_FASTCALL | METH_KEYWORDS };

/* Durability levels, in the order of what they promise. */
enum { LEVEL_OS = 0, LEVEL_INTERVAL = 1, LEVEL_FSYNC = 2 };

/* Attribute bits of a batch. */
enum { ATTRIBUTE_CODEC = 7, ATTRIBUTE_LOG_APPEND_TIME = 8, ATTRIBUTE_CONTROL = 32 };

/* ---------------------------------------------------------------- hot_module.c */

/* Interned names of hooks and keywords. */
extern struct hot_names {
    PyObject *_write, *_woken, *_commit, *_end_fsync_only, *_reject, *_pread, *release, *offsets, *_keep, *os, *interval, *fsync;
    PyObject *_wait, *_call, *_refill, *_refuse, *_route, *_accumulator, *_intercept;
} hot_names;

/* Sets aside the exception that is set (NULL if none), and sets it again. */
PyObject *exception_take(void);
void exception_give(PyObject *exception);

/* range(start, stop); NULL with an exception set. */
PyObject *range_new(int64_t start, int64_t stop);

/* ---------------------------------------------------------------- hot_record.c */

extern PyTypeObject Record_Type;

/* A Record of the record r, whose batch says the rest; timestamp_ms is an int, origin the tuple (topic, partition). */
PyObject *record_new(const record_view *r, int64_t offset, PyObject *timestamp_ms, int32_t leader_epoch, PyObject *origin);
PyObject *hot_record(PyObject *module, PyObject *args); /* a record of its fields, as pickle and copy have them */
int record_ready(void);

/* ---------------------------------------------------------------- hot_arguments.c */

/* A bytes-like argument, borrowed until blob_release. */
typedef struct {
    const uint8_t *data;
    int64_t size; /* -1: None */
    Py_buffer view;
} blob;

/* 0, or -1 with a TypeError that says what was got; index -1: `what` is no sequence's item. */
int blob_get_slow(PyObject *o, const char *what, Py_ssize_t index, blob *out);

static inline int blob_get(PyObject *o, const char *what, blob *out)
{
    if (PyBytes_CheckExact(o)) {
        out->data = (const uint8_t *)PyBytes_AS_STRING(o);
        out->size = PyBytes_GET_SIZE(o);
        out->view.obj = NULL;
        return 0;
    }
    return blob_get_slow(o, what, -1, out);
}
static inline void blob_release(blob *b)
{
    if (UNLIKELY(b->view.obj != NULL))
        PyBuffer_Release(&b->view);
}

/* Bytes that grow; those of few headers stay on the stack. */
typedef struct {
    uint8_t *data;
    size_t size, room;
    uint8_t small[256];
} growing;

void growing_init(growing *g);
void growing_free(growing *g);

/* Appends headers, an iterable of (str, bytes-like | None), as they lie on disk.  Returns their number, or -1.
 * index: of the record they belong to, for the message; -1 for none. */
int64_t headers_encode(PyObject *headers, Py_ssize_t index, growing *out);

/* The level named, `fallback` for NULL and None, or -1 with a ValueError. */
int level_get(PyObject *name, int fallback);

/* 0, or -1 with an exception; `what` names the argument. */
int int64_get(PyObject *o, const char *what, int64_t *out);

/* A tuple of what an iterable has; `what` names the argument. */
PyObject *items_get(PyObject *iterable, const char *what);

/* A tuple of bytes and None out of any iterable; anything bytes-like is copied into bytes. */
PyObject *blobs_snapshot(PyObject *iterable, const char *what);

enum { ARGUMENTS_MAX = 8 };
typedef struct {
    const char *function;
    Py_ssize_t positional_max, required;
    const char *names[ARGUMENTS_MAX + 1]; /* positional ones first */
    PyObject *interned[ARGUMENTS_MAX];
} signature;

int signature_ready(signature *s);

int signature_take_slow(const signature *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out);

/* Sorts arguments into out, in the order of s->names; what is absent stays NULL. */
static inline int signature_take(const signature *s, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    if (UNLIKELY(kwnames != NULL || nargs < s->required || nargs > s->positional_max))
        return signature_take_slow(s, args, nargs, kwnames, out);
    for (Py_ssize_t i = 0; i < nargs; i++)
        out[i] = args[i];
    return 0;
}

/* ---------------------------------------------------------------- hot_buffer.c */

/* A buffer of batches back to back.  The memory is a bytearray's, exported as long as the buffer is ours: a view
 * of it that is kept too long shows old bytes, but never wild ones. */
typedef struct buffer {
    Py_buffer view;
    size_t used;
    int64_t base_offset;   /* of its first batch */
    int64_t next_offset;   /* after its last */
    int64_t opened_ms;     /* monotonic: when its first record came */
    struct buffer *next;
} buffer;

/* A buffer of at least size bytes, from the pool if it has one; NULL with MemoryError. */
buffer *buffer_take(size_t size);
/* The same as a bytearray, which is then the caller's. */
PyObject *buffer_lend(size_t size);
/* Makes a buffer of a bytearray that was lent (or any other). */
buffer *buffer_adopt(PyObject *bytearray);
/* Back into the pool, or freed. */
void buffer_give(buffer *f);
void buffer_free(buffer *f);

/* ---------------------------------------------------------------- hot_builder.c */

typedef struct {
    PyObject_HEAD
    /* the open batch, at `start` of the open buffer; count 0: none is open */
    uint8_t *data; /* of the open buffer */
    size_t used;   /* bytes of it, the open batch included */
    size_t start;
    size_t batch_limit; /* size that a batch of several records may reach */
    uint32_t count;
    int32_t level;
    int64_t base_offset; /* of the open batch, or of the next one */
    int64_t base_timestamp, max_timestamp;
    /* what an append looks at */
    int64_t refusing; /* 0: appends are taken; REFUSING_UNPLACED: those of placed batches */
    bool broken;  /* the queue's head could not be written */
    bool many;    /* an append_many keeps other appends out */
    bool fsync_only, keys_required, log_append_time, ready;
    char dirty;   /* the flusher knows */
    int32_t leader_epoch;
    size_t message_size_max;
    int64_t timestamp_before_max, timestamp_after_max;
    PyObject *clock; /* NULL: the machine's */
    /* buffers */
    buffer *open;
    buffer *head, *tail; /* the queue of full buffers, oldest first; only who has write_lock takes from it */
    size_t queue_count, queue_bytes;
    size_t capacity; /* of the open buffer */
    size_t batch_size, write_size, group_size;
    int64_t written_offset; /* below it, everything was handed to _write */
    /* locks, and which thread has them: 0 for none */
    PyThread_type_lock write_lock, append_lock;
    unsigned long writer, append_owner;
    long process; /* that made it: locks of another one may never be released */
} builder;

extern PyTypeObject BatchBuilder_Type;

/* A record to be put in. */
typedef struct {
    const uint8_t *value, *key, *headers;
    int64_t value_size, key_size; /* -1: null */
    int64_t header_count;
    size_t headers_size;
    int64_t timestamp_ms;
} new_record;

/* On what terms it is put in. */
typedef struct {
    int level;
    int64_t expected_offset; /* -1: whatever comes */
    bool many;               /* the caller holds the append lock */
    bool placed;             /* batches of a leader's log, which keep their offsets and epochs */
} terms;

/* `refusing` of a log that follows a leader: it takes the leader's batches alone. */
enum { REFUSING_UNPLACED = -1 };

static inline int64_t builder_next_offset(const builder *b)
{
    return b->base_offset + b->count;
}

/* Bytes of a record's parts, and how many its framing takes at least and at most: length, attributes, deltas, sizes. */
enum { FRAME_SIZE_MIN = 7, FRAME_SIZE_MAX = 41 };
static inline size_t payload_size(const new_record *r)
{
    return (size_t)((r->value_size > 0 ? r->value_size : 0) + (r->key_size > 0 ? r->key_size : 0)) + r->headers_size;
}

/* Whether a record can be put in at once; builder_admit looks closer where this says no. */
static inline bool builder_has_room(const builder *b, const new_record *r, const terms *t)
{
    bool usual = b->refusing == 0 && !b->broken && t->expected_offset < 0 && (t->many || !b->many);
    bool told = t->level == LEVEL_FSYNC || (!b->fsync_only && (b->dirty || t->many));
    return usual && told && b->count > 0 && b->used - b->start + payload_size(r) + FRAME_SIZE_MAX <= b->batch_limit;
}

static inline bool builder_forked(const builder *b)
{
    return b->process != (long)getpid();
}

int64_t builder_now(builder *b); /* INT64_MIN with an exception set */

/* Calls _reject(reason, *numbers), which raises; returns -1. */
int builder_reject(builder *b, const char *reason, int number_count, const int64_t *numbers);

/* Waits until a record may come in, and makes room for it: whatever may run Python runs in here.
 * r NULL: nothing is to come in by itself; only refusing, broken, fsync_only and expected offset are looked at. */
int builder_admit(builder *b, const new_record *r, const terms *t);

/* Puts in a record that was admitted, at once after that; returns its offset. */
int64_t builder_put(builder *b, const new_record *r);

/* Whether a record can go into the open batch, which there must be. */
bool builder_fits(const builder *b, const new_record *r);

/* Bytes of a batch with just this record. */
size_t builder_single_size(const new_record *r);

/* Ends the open batch, which there must be: header and CRC. */
void builder_close_batch(builder *b);

/* Puts f, which begins at the next offset, at the end of the queue, behind all that is open. */
void builder_enqueue(builder *b, buffer *f);

/* Writes until everything below the offset is written; closes the open batch if it has to. */
int builder_write_until(builder *b, int64_t offset);

/* Keeps other appends out, and lets them in again. */
int builder_enter(builder *b);
void builder_leave(builder *b);

/* The write lock.  1: have it, 0: another thread has it and wait is false, -1: this thread has it already. */
int writer_enter(builder *b, bool wait);
void writer_leave(builder *b);

/* With the GIL: a buffer goes to the end of the queue; the open one, whose last batch is closed, does. */
void queue_add(builder *b, buffer *f);
void open_enqueue(builder *b);

/* hot_withdraw.c: takes records [first, next), of one call that failed, out of what waits to be written.
 * 1: they are gone, 0: some are written or others depend on them, so all stay, -1: failed, so all stay. */
int builder_withdraw(builder *b, int64_t first, int64_t next);

/* Drops what is pending, waiting for both locks; how many records, or -1. */
int64_t builder_discard(builder *b);
/* The same while no other thread can be in. */
void builder_drop(builder *b);

/* Calls _commit(next_offset, level). */
int builder_commit(builder *b, int64_t next_offset, int level);

/* Commits all that is pending, before anything more is accepted. */
int builder_commit_pending(builder *b);

/* Tells the flusher that something is pending, unless it knows. */
int builder_wake(builder *b);

/* hot_append.c */

/* Milliseconds of a timestamp: an integer, or a datetime; 0 or -1. */
int timestamp_get(PyObject *timestamp, const char *what, int64_t *out);

/* What a record's time is: now, or the one given if the topic takes it; 0 or -1. */
int builder_timestamp(builder *b, PyObject *timestamp_ms, int64_t *out);

/* Whether the topic takes such a record at all: 0 or -1. */
int builder_record_check(builder *b, const new_record *r);

PyObject *builder_append(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *builder_append_many(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *builder_append_raw(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *builder_append_usual(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
int append_ready(void);

/* ---------------------------------------------------------------- hot_delivery.c */

typedef struct {
    PyObject_HEAD
    PyObject *topic, *partition; /* str, int */
    buffer *batches;             /* between sealing and settling */
    int64_t opened_ms;           /* monotonic */
    int64_t first;               /* number of its first record */
    int64_t base_offset;         /* of that one, in the log; -1: unknown */
    int64_t timestamp_ms;        /* what the log stamped all records with; -1: each has its own */
    size_t capacity;
    PyObject *error; /* NULL: none */
    PyObject *on_delivery, *on_done; /* lists of functions and futures, in turn; NULL: none */
    uint32_t count;
    bool done;
} delivery;

typedef struct send_future send_future;

extern PyTypeObject Delivery_Type, SendFuture_Type;

PyObject *future_new(delivery *d, uint32_t index, int64_t timestamp_ms);

/* Adds to one of a delivery's lists of callbacks: 0 or -1. */
int delivery_call_back(PyObject **callbacks, PyObject *function, PyObject *future);

int delivery_ready(void);

/* ---------------------------------------------------------------- hot_send.c */

extern PyTypeObject Accumulator_Type, Route_Type, Dispatcher_Type;

int send_ready(void);

/* ---------------------------------------------------------------- hot_positions.c */

extern PyTypeObject Positions_Type;

/* Where one record lies, and what its batch says of it. */
typedef struct {
    PyObject *file; /* a new reference */
    int64_t position;
    uint32_t size_bytes;
    int32_t leader_epoch;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t delta_mask; /* -1: the record's delta counts; 0: log append time */
} record_place;

/* Whether the record's place is known. */
bool positions_find(PyObject *positions, int64_t offset, record_place *out);

/* ---------------------------------------------------------------- hot_iterator.c */

extern PyTypeObject RecordIterator_Type;

#endif
