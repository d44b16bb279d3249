/* compact.h -- log compaction over memory: which record of a key is the latest, and a copy without the others.
 *
 * Part of the cffi definition.  No I/O, no allocation, no Python; safe without the GIL.
 * Format: docs/inside/format.md, "Compacted segments". */
#ifndef LOGDB_COMPACT_H
#define LOGDB_COMPACT_H

#include "logdb_native.h"

/* ---------------------------------------------------------------- the key map */

/* The latest offset of each key, in memory that the caller gives, and which records it supersedes.
 *
 *   slots        uint64[slot_count]   0: free; else the low half of the key's hash, and the place of its entry
 *                                       | tag 32 | place / 8 + 1, 32 |
 *   keys         entries back to back | offset 8 | size 4 | key, size bytes | padded to a multiple of 8 |
 *   superseded   a bit for each offset from first_offset on, set once a later record of the key, or no key, was met:
 *                saves the copy of these records to look their keys up again
 *
 * A hash only says where to look: keys are compared byte by byte, so two keys whose hashes collide are two keys.
 * Set everything before the first call; the memory of `slots` and `superseded` is all zeroes. */
typedef struct {
    uint64_t hash_key[2];    /* random, so that an attacker cannot choose keys that collide */
    uint64_t hash_mask;      /* all ones; a test lets hashes collide by fewer */
    uint64_t *slots;
    int64_t slot_count;      /* in [1, 2^32) */
    uint8_t *keys;
    int64_t keys_room;       /* bytes at `keys`, at most 2^35 - 8 */
    int64_t keys_used;       /* moves on: bytes */
    int64_t key_count;       /* moves on */
    uint8_t *superseded;
    int64_t first_offset;
    int64_t bit_count;       /* bits at `superseded`; there may be fewer than offsets, down to none */
} logdb_key_map;

/* Notes key -> offset for the records of checked, uncompressed batches that lie at or past first_offset; control
 * batches are left out.
 *
 * retention one uint8 per batch (below), NULL: all are plain; batches that are discarded are left out
 * used      out: bytes of batches that are all in the map
 *
 * LOGDB_E_ROOM        the map is full; some records of the batch at *used may be in it, which does no harm
 * LOGDB_E_ATTRIBUTES  a batch is compressed
 * otherwise           what is wrong with the batch at *used */
logdb_status logdb_keys_add(const uint8_t *buf, size_t len, const uint8_t *retention, logdb_key_map *map, int64_t *used);

/* The latest offset of a key, -1 if the map does not have it. */
int64_t logdb_keys_find(const logdb_key_map *map, const uint8_t *key, size_t size);

/* ---------------------------------------------------------------- the copy */

/* How a batch is retained, by the state of its producer; or-ed. */
enum {
    LOGDB_DISCARD = 1,       /* none of its records stays: its transaction was aborted, or it is a marker that may go */
    LOGDB_RETAIN = 2,        /* it stays, without records if need be: the last batch of a producer */
    LOGDB_EXPIRES = 4,       /* a control batch whose transaction has no data left: it gets a delete horizon */
};

/* State of a copy, carried from one buffer to the next. */
typedef struct {
    int64_t end_offset;      /* in: batches from here on, which are not all in the map, are copied as they are */
    int64_t now_ms;          /* in */
    int64_t horizon_ms;      /* in: when a tombstone that this pass meets first may go: now + delete.retention.ms */
    int64_t next_offset;     /* in, moves on: the copy has taken all offsets below */
    int64_t gap_end;         /* in: next_offset; moves on: offsets up to here were dropped, and wait for an empty batch */
    int32_t gap_epoch;       /* moves on: their leader epoch */
    int32_t padding;
    int64_t horizon_min_ms;  /* in: INT64_MAX; moves on: the earliest delete horizon of what is in the copy, and to go then */
    int64_t used;            /* out, per call: bytes of batches that were dealt with */
    int64_t batch_count;     /* out, per call: how many */
    int64_t size_bytes;      /* out, per call: bytes at `out` */
    int64_t last_size_bytes; /* out, per call: of them, those of the last batch that is not a filler; 0: none */
    int64_t changed_count;   /* out, per call: batches at `out` that are not as they came, fillers left out */
    int64_t record_count;    /* out, per call: records at `out` */
    int64_t room_wanted;     /* out: for LOGDB_E_ROOM: room for the batch at `used` and what waits before it */
} logdb_copy;

/* Copies checked batches without the records that the map supersedes.
 *
 * A record goes if it has no key, if the map has a later offset for its key, or if it is a tombstone whose delete
 * horizon has passed and all older records of its key are gone: it lies below the map's first_offset, where earlier
 * passes left only the latest record of each key, or the map has its key.
 * A batch that keeps all records is copied as it is.  One that loses some keeps base offset, last offset delta, base
 * timestamp and sequence; its count, length, max timestamp and CRC are made anew.  One that loses all goes, unless it
 * is retained.  The first time a batch below end_offset is met that keeps a tombstone, it gets the delete horizon:
 * bit 6, horizon_ms for its base timestamp, and timestamp deltas to that (KIP-534).
 *
 * Batches that go leave no gap: one batch without records takes the offsets of all that lie together under a leader
 * epoch.  The last of them waits for the next call or for logdb_copy_finish.
 *
 * retention as for logdb_keys_add
 * out       room for out_room bytes, not overlapping buf
 *
 * LOGDB_E_ROOM        out is full: take what is there and call again from `used`
 * LOGDB_E_ATTRIBUTES  records of a compressed batch are to be looked at
 * otherwise           what is wrong with the batch at `used` */
logdb_status logdb_copy_batches(const uint8_t *buf, size_t len, const uint8_t *retention, const logdb_key_map *map,
                                logdb_copy *state, uint8_t *out, size_t out_room);

/* Writes the empty batch that waits, if one does, to `out` (room for 61 bytes); returns its size. */
int64_t logdb_copy_finish(logdb_copy *state, uint8_t *out);

#endif
