/* logdb_native.h -- what Python may call once a batch; the same text is the cffi definition.
 *
 * Functions over memory: no I/O, no allocation, no Python.  The caller owns every buffer.  Safe without the GIL.
 * Bytes may be hostile: every function that reads batches returns a status, and reads only [buf, buf + len).
 * Format: docs/inside/format.md. */
#ifndef LOGDB_NATIVE_H
#define LOGDB_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#include "crc32c.h"
#include "murmur2.h"

typedef enum {
    LOGDB_OK = 0,
    LOGDB_E_SHORT = 1,       /* the batch at `used` goes on past len: read more */
    LOGDB_E_ZERO = 2,        /* nothing but zeroes where a batch header should be */
    LOGDB_E_LENGTH = 3,      /* the length field is below a header's, or above batch_size_max */
    LOGDB_E_MAGIC = 4,       /* magic is not 2 */
    LOGDB_E_CRC = 5,         /* stored and computed CRC-32C differ */
    LOGDB_E_OFFSET = 6,      /* the base offset is not the one expected, or offsets or positions overflow */
    LOGDB_E_EPOCH = 7,       /* the leader epoch is not the checkpoint's for that offset */
    LOGDB_E_ATTRIBUTES = 8,  /* an unknown codec or attribute bit */
    LOGDB_E_COUNT = 9,       /* the record count does not fit the offsets or the bytes */
    LOGDB_E_RECORD = 10,     /* a record overruns its batch or contradicts itself */
    LOGDB_E_DELTA = 11,      /* offset deltas do not increase, or leave the batch */
    LOGDB_E_KEY = 12,        /* a record without a key where keys are required */
    LOGDB_E_TIMESTAMP = 13,  /* the max timestamp is not the records' */
    LOGDB_E_ROOM = 14,       /* an output array is full: process what is there and call again from `used` */
    LOGDB_E_HEADERS = 15,    /* a record has more than LOGDB_HEADER_COUNT_MAX headers */
} logdb_status;

/* The header of one batch, in native byte order. */
typedef struct {
    int64_t base_offset;
    int64_t last_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int64_t size_bytes;      /* of the whole batch */
    int32_t leader_epoch;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t crc;            /* as stored */
    int16_t attributes;
    int16_t producer_epoch;
    int8_t magic;
} logdb_batch;

enum {
    LOGDB_CODEC_MASK = 7,    /* of attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd */
    LOGDB_LOG_APPEND_TIME = 8,
    LOGDB_TRANSACTIONAL = 16,
    LOGDB_CONTROL = 32,
    LOGDB_DELETE_HORIZON = 64,
};

/* ---------------------------------------------------------------- one batch */

/* Decodes the header at buf and checks what it can say alone, in this order: magic, length, attributes, offsets,
 * count.  The CRC is not computed.  The last offset is below 2^63 - 1, so the next one is a number too; a count of
 * 0 is what compaction leaves of a batch.
 * LOGDB_E_SHORT where len is below the batch's size.  *out is filled whatever the status, but where not even
 * the header is there: size_bytes is then 0. */
logdb_status logdb_batch_header(const uint8_t *buf, size_t len, int64_t batch_size_max, logdb_batch *out);

/* The same, and the CRC.  *computed_crc is set for LOGDB_OK and LOGDB_E_CRC. */
logdb_status logdb_batch_check(const uint8_t *buf, size_t len, int64_t batch_size_max, logdb_batch *out, uint32_t *computed_crc);

/* The size of the batch at buf if it is whole, good and uncompressed, holds the offset, ends at last_offset and has
 * that leader epoch (-1: any); 0 if not. */
int64_t logdb_batch_expected(const uint8_t *buf, size_t len, int64_t offset, int64_t last_offset, int32_t leader_epoch);

/* The smallest and the largest timestamp of a batch's records. */
typedef struct {
    int64_t min, max;
} logdb_record_times;

/* Walks the (decompressed) records of a batch from outside, headers of records included: each within its
 * bounds, offset deltas strictly increasing within [0, last_offset - base_offset], count as stated, nothing after
 * the last (so a batch that counts a record for each offset has them all).
 * flags: what else is refused.
 * times: out, for LOGDB_OK and at least one record; the header may have another max timestamp then.  NULL: the header's
 *   has to be the records' largest, unless LOG_APPEND_TIME is set. */
logdb_status logdb_records_check(const uint8_t *records, size_t len, const logdb_batch *batch, int flags, logdb_record_times *times);

enum {
    LOGDB_RECORDS_KEYED = 1,     /* null keys are refused (compacted topic) */
    LOGDB_RECORDS_BOUNDED = 2,   /* more headers than the next are refused; a log of an earlier version may have them */
    LOGDB_HEADER_COUNT_MAX = 100000, /* of one record, as librdkafka reads them: some bytes each become some 150 in Python */
};

/* Which records of a batch, decompressed, its topic does not accept: those without a key, if keys are required, and those
 * with a timestamp outside of `accepted`; -1 is no timestamp.  Their numbers in the batch; returns how many, at most room.
 * Ends before the first that is not whole. */
int32_t logdb_records_refused(const uint8_t *records, size_t len, const logdb_batch *batch, int flags,
                              const logdb_record_times *accepted, int32_t *numbers, int32_t room);

/* State of the same walk over records that come in pieces, which end anywhere; all zero at the begin. */
typedef struct {
    logdb_record_times times;               /* of the whole records */
    int64_t offset_delta;                   /* of the last whole record */
    int64_t left;                           /* of the record that has begun: bytes behind the fields that were read */
    int64_t skipped;                        /* of a key or a value: bytes that are still to come */
    int64_t headers_left;
    int64_t next_timestamp_delta, next_offset_delta;
    uint64_t bits;                          /* of the varint that has begun */
    int32_t shift;                          /* 0: none has begun */
    int32_t record_count;                   /* whole records */
    int32_t field;                          /* which comes next */
    int32_t null_key;
} logdb_records_walk;

/* Takes the next piece; after a status other than LOGDB_OK the walk is over. */
logdb_status logdb_records_take(logdb_records_walk *walk, const uint8_t *piece, size_t len, const logdb_batch *batch, int flags);

/* What logdb_records_check says of all pieces together, once logdb_records_take has said LOGDB_OK of each. */
logdb_status logdb_records_end(const logdb_records_walk *walk, const logdb_batch *batch, logdb_record_times *times);

/* Writes the fields outside the CRC of the batch at buf (at least 61 bytes). */
void logdb_batch_place(uint8_t *buf, int64_t base_offset, int32_t leader_epoch);

/* Sets length, attributes, max timestamp and, last, the CRC of the batch of len bytes at buf. */
void logdb_batch_seal(uint8_t *buf, size_t len, int16_t attributes, int64_t max_timestamp);

/* Makes the batches that lie back to back in buf those of a producer: id, epoch, sequence, transactional bit, CRC.
 * The first record gets *sequence; *sequence becomes the one after the last (2^31 - 1 is followed by 0); -1: none has one.
 * What is not LOGDB_OK is said of the batch at *used; those before it are stamped. */
logdb_status logdb_batches_stamp(uint8_t *buf, size_t len, int64_t producer_id, int16_t producer_epoch, int32_t *sequence,
                                 int transactional, size_t *used);

/* ---------------------------------------------------------------- a buffer of batches */

enum {
    LOGDB_SCAN_CRC = 1,      /* compute CRCs */
    LOGDB_SCAN_GAPS = 2,     /* offsets may jump forward between batches (compacted segments) */
};

/* State of a scan over batches that lie back to back, carried from one buffer to the next.
 * Set everything marked `in` before the first call; arrays are in Kafka's index formats, big-endian. */
typedef struct {
    int32_t flags;                 /* in */
    int32_t index_interval_bytes;  /* in */
    int64_t batch_size_max;        /* in */
    int64_t segment_base_offset;   /* in: offsets in index entries are relative to it */
    int64_t next_offset;           /* in, moves on: the base offset expected next */
    int64_t position;              /* in, moves on: file position of the next batch */
    int64_t end_offset;            /* in: stop, with LOGDB_OK, before the first batch whose base offset is >= this */
    const int64_t *epochs;         /* in: pairs (epoch, start offset), increasing; below the first its epoch is the most
                                    * that may be; NULL: epochs are not checked */
    int64_t epoch_count;           /* in */
    int64_t unindexed_bytes;       /* in, moves on: bytes since the last offset index entry (0 at a segment's begin) */
    int64_t max_timestamp;         /* in, moves on: largest so far (-1 at a segment's begin) */
    int64_t max_timestamp_offset;  /* in, moves on: last offset of the batch that brought it */
    int64_t indexed_timestamp;     /* in, moves on: timestamp of the last time index entry (-1 for none) */
    uint8_t *index;                /* in: room for offset index entries of 8 bytes (last offset - base int32, position int32); NULL: none wanted */
    uint8_t *time_index;           /* in: room for time index entries of 12 bytes (max timestamp int64, offset - base int32) */
    int64_t index_room;            /* in: entries that fit, in each of the two */
    int64_t index_count;           /* out, per call: entries written */
    int64_t time_index_count;      /* out, per call */
    int64_t used;                  /* out, per call: bytes of whole good batches */
    int64_t batch_count;           /* out, per call */
    int64_t record_count;          /* out, per call */
    int64_t produced_count;        /* out, per call: batches with a producer id */
    int32_t attributes;            /* out, per call: the attributes of all batches, or-ed */
    int32_t codecs;                /* out, per call: bit n set where a batch has codec n */
    int64_t last_base_offset;      /* out: of the last good batch (unchanged if none) */
    int64_t last_size_bytes;       /* out: of the last good batch */
    logdb_batch stopped;           /* out: the batch at `used` where it is short or bad (size_bytes 0: no whole header) */
    int32_t expected_epoch;        /* out: for LOGDB_E_EPOCH */
    uint32_t computed_crc;         /* out: for LOGDB_E_CRC */
} logdb_scan_state;

/* Walks the batches in buf until it ends, and stops before the first that is not whole and good.
 *
 * LOGDB_OK       the buffer ended exactly after a batch, or end_offset was reached
 * LOGDB_E_SHORT  the batch at `used` is not all there (its header agrees so far)
 * LOGDB_E_ROOM   an index array is full
 * otherwise      what is wrong with the batch at `used`
 *
 * Index entries are Kafka's (LogSegment.append): a batch that begins more than index_interval_bytes behind the last
 * indexed one (or the segment's begin) gets an offset entry (its last offset, its position), and a time entry
 * (max_timestamp, that batch included, and its offset) where max_timestamp grew since the last time entry. */
logdb_status logdb_scan(const uint8_t *buf, size_t len, logdb_scan_state *state);

/* Looks for a whole batch with a good CRC and a base offset of at least offset_min that begins anywhere in buf;
 * used to tell a torn tail from lost data behind damage.  Returns its position, or -1. */
int64_t logdb_find_batch(const uint8_t *buf, size_t len, int64_t batch_size_max, int64_t offset_min);

/* First entry of an offset index whose offset is >= relative_offset; count if there is none. */
int64_t logdb_index_search(const uint8_t *index, int64_t count, int64_t relative_offset);

/* Last entry of a time index whose timestamp is < timestamp; -1 if there is none. */
int64_t logdb_time_index_search(const uint8_t *time_index, int64_t count, int64_t timestamp);

/* First record at or after from_offset whose timestamp is >= timestamp, in a buffer of checked, uncompressed
 * batches; its offset and timestamp, or LOGDB_E_SHORT if there is none.  Control batches are skipped, and batches
 * whose max timestamp is earlier; where LOG_APPEND_TIME is set it is every record's. */
logdb_status logdb_find_timestamp(const uint8_t *buf, size_t len, int64_t from_offset, int64_t timestamp,
                                  int64_t *offset, int64_t *found_timestamp);

/* ---------------------------------------------------------------- columns */

/* Bytes and counts that the columns of a buffer of batches need. */
typedef struct {
    int64_t row_count;
    int64_t key_bytes;
    int64_t key_null_count;
    int64_t value_bytes;
    int64_t value_null_count;
    int64_t header_count;
    int64_t header_key_bytes;
    int64_t header_value_bytes;
    int64_t header_value_null_count;
} logdb_column_sizes;

/* Arrow buffers to fill; those of columns that are not wanted are left alone.  For n rows, or n headers, offsets
 * have n + 1 entries and validity bitmaps (n + 7) / 8 bytes. */
typedef struct {
    int64_t *offset;
    int64_t *timestamp;
    int32_t *timestamp_type;        /* 0 CreateTime, 1 LogAppendTime */
    int32_t *key_offsets;
    uint8_t *key_validity;
    uint8_t *key;
    int32_t *value_offsets;
    uint8_t *value_validity;
    uint8_t *value;
    int32_t *header_offsets;
    int32_t *header_key_offsets;
    uint8_t *header_key;
    int32_t *header_value_offsets;
    uint8_t *header_value_validity;
    uint8_t *header_value;
} logdb_columns;

enum {
    LOGDB_COLUMN_OFFSET = 1,
    LOGDB_COLUMN_TIMESTAMP = 2,
    LOGDB_COLUMN_KEY = 4,
    LOGDB_COLUMN_VALUE = 8,
    LOGDB_COLUMN_HEADERS = 16,
    LOGDB_COLUMN_TIMESTAMP_TYPE = 32,
};

/* Where the wanted parts of a record lie in the buffer: scratch that pass 1 fills for pass 2. */
typedef struct {
    uint32_t key;
    uint32_t value;
    uint32_t headers;
    uint32_t end;
} logdb_row;

/* Rows that the batches of any codec with offsets in [from_offset, to_offset) have at most, by their headers, and their codecs,
 * 1 << number each.  Control batches are left out.  Fails with what is wrong with a header. */
logdb_status logdb_columns_count(const uint8_t *buf, size_t len, int64_t from_offset, int64_t to_offset, int64_t *row_count,
                                 int32_t *codecs);

/* Pass 1 over checked, uncompressed batches: the records with offsets in [from_offset, to_offset), those of control
 * batches left out.  Fills *sizes, rows, and of the wanted columns offset, timestamp, timestamp_type, key_offsets,
 * key_validity, value_offsets, value_validity and header_offsets, each with room for row_room rows.
 *
 * LOGDB_E_ROOM        row_room is too small; row_count says how many rows there may be, and nothing else was done
 * LOGDB_E_COUNT       a column would pass 2^31 - 1 bytes or headers, or the count is not that of the records
 * LOGDB_E_ATTRIBUTES  a batch is compressed
 * otherwise           what is wrong with a batch or its records */
logdb_status logdb_columns_walk(const uint8_t *buf, size_t len, int64_t from_offset, int64_t to_offset,
                                int32_t wanted, logdb_row *rows, int64_t row_room,
                                logdb_columns *columns, logdb_column_sizes *sizes);

/* Pass 2 over the same bytes: copies keys, values and headers into buffers of the sizes that pass 1 found.  Header
 * keys are made UTF-8, which Arrow relies on: a byte that is not becomes '?'. */
void logdb_columns_gather(const uint8_t *buf, const logdb_row *rows, int32_t wanted,
                          const logdb_column_sizes *sizes, logdb_columns *columns);

#endif
