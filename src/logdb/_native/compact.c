/* compact.c -- the key map and the copying pass of log compaction. */
#include "batch.h"
#include "compact.h"

enum {
    BLOCK_COUNT = 32,        /* records looked at together, so that the memory of their slots is on its way in time */
    ENTRY_HEADER_SIZE = 12,
    RECORD_GROWTH_MAX = 10,  /* of a record whose timestamp delta is written anew: 9 bytes, and 1 of its length */
};

/* ---------------------------------------------------------------- SipHash-1-3 */

static uint64_t load_le64(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static inline uint64_t rotate(uint64_t v, unsigned by)
{
    return v << by | v >> (64 - by);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

/* Source: Aumasson and Bernstein, SipHash (2012), with one and three rounds. */
static uint64_t key_hash(const logdb_key_map *map, const uint8_t *key, size_t size)
{
    uint64_t v[4] = {map->hash_key[0] ^ 0x736f6d6570736575u, map->hash_key[1] ^ 0x646f72616e646f6du,
                     map->hash_key[0] ^ 0x6c7967656e657261u, map->hash_key[1] ^ 0x7465646279746573u};
    const uint8_t *end = key + (size & ~(size_t)7);
    for (; key != end; key += 8)
        sip_word(v, load_le64(key));
    uint64_t last = (uint64_t)size << 56;
    for (unsigned i = 0; i < (size & 7); i++)
        last |= (uint64_t)key[i] << 8 * i;
    sip_word(v, last);
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return (v[0] ^ v[1] ^ v[2] ^ v[3]) & map->hash_mask;
}

/* ---------------------------------------------------------------- the key map */

static inline uint64_t slot_of(const logdb_key_map *map, uint64_t hash)
{
    return (hash >> 32) * (uint64_t)map->slot_count >> 32;
}

/* An entry of the map, or where one is to be: `entry` is NULL if the key is not there, and `slot` then free. */
typedef struct {
    uint64_t slot;
    uint8_t *entry;
} place;

static place key_place(const logdb_key_map *map, uint64_t hash, const uint8_t *key, size_t size)
{
    uint64_t at = slot_of(map, hash), count = (uint64_t)map->slot_count, found;
    for (; (found = map->slots[at]) != 0; at = at + 1 == count ? 0 : at + 1) {
        if (found >> 32 != (hash & UINT32_MAX))
            continue;
        uint8_t *entry = map->keys + 8 * ((found & UINT32_MAX) - 1);
        uint32_t entry_size;
        memcpy(&entry_size, entry + 8, sizeof entry_size);
        if (entry_size == size && (size == 0 || memcmp(entry + ENTRY_HEADER_SIZE, key, size) == 0))
            return (place){at, entry};
    }
    return (place){at, NULL};
}

static int64_t entry_offset(const uint8_t *entry)
{
    int64_t offset;
    memcpy(&offset, entry, sizeof offset);
    return offset;
}

/* Whether there is a bit for an offset that says if its record is superseded. */
static inline int is_marked(const logdb_key_map *map, int64_t offset)
{
    return offset >= map->first_offset && (uint64_t)offset - (uint64_t)map->first_offset < (uint64_t)map->bit_count;
}

static void supersede(logdb_key_map *map, int64_t offset)
{
    if (is_marked(map, offset))
        map->superseded[(offset - map->first_offset) / 8] |= (uint8_t)(1u << ((offset - map->first_offset) % 8));
}

static int is_superseded(const logdb_key_map *map, int64_t offset)
{
    return map->superseded[(offset - map->first_offset) / 8] >> ((offset - map->first_offset) % 8) & 1;
}

/* Notes key -> offset, which is later than all before; 0 if there is no room. */
static int key_put(logdb_key_map *map, uint64_t hash, const uint8_t *key, size_t size, int64_t offset)
{
    place at = key_place(map, hash, key, size);
    if (at.entry) {
        supersede(map, entry_offset(at.entry));
        memcpy(at.entry, &offset, sizeof offset);
        return 1;
    }
    uint64_t wanted = (ENTRY_HEADER_SIZE + (uint64_t)size + 7) & ~(uint64_t)7;
    int full = map->key_count >= map->slot_count - map->slot_count / 4 - 1; /* a slot stays free, or searching would not end */
    if (full || wanted > (uint64_t)(map->keys_room - map->keys_used))
        return 0;
    uint8_t *entry = map->keys + map->keys_used;
    uint32_t entry_size = (uint32_t)size;
    memcpy(entry, &offset, sizeof offset);
    memcpy(entry + 8, &entry_size, sizeof entry_size);
    if (size)
        memcpy(entry + ENTRY_HEADER_SIZE, key, size);
    map->slots[at.slot] = (hash & UINT32_MAX) << 32 | ((uint64_t)map->keys_used / 8 + 1);
    map->keys_used += (int64_t)wanted;
    map->key_count++;
    return 1;
}

int64_t logdb_keys_find(const logdb_key_map *map, const uint8_t *key, size_t size)
{
    place at = key_place(map, key_hash(map, key, size), key, size);
    return at.entry ? entry_offset(at.entry) : -1;
}

/* ---------------------------------------------------------------- records, a block at a time */

typedef struct {
    record_view view;
    const uint8_t *start;
    int64_t offset;
    uint64_t hash;
} looked_at;

/* Parses `count` records from *p on. */
static logdb_status block_parse(const logdb_batch *batch, const uint8_t **p, const uint8_t *end, int32_t count, looked_at *block)
{
    for (looked_at *record = block; record != block + count; record++) {
        record->start = *p;
        if (!(*p = record_parse(*p, end, &record->view)))
            return LOGDB_E_RECORD;
        if ((record->offset = record_offset(batch, &record->view)) < 0)
            return LOGDB_E_DELTA;
    }
    return LOGDB_OK;
}

/* Hashes keys, and asks for the memory that looking them up will touch: slots, then entries. */
static void block_hash(const logdb_key_map *map, looked_at *block, int32_t count)
{
    for (looked_at *record = block; record != block + count; record++) {
        if (record->view.key_size < 0)
            continue;
        record->hash = key_hash(map, record->view.key, (size_t)record->view.key_size);
        __builtin_prefetch(map->slots + slot_of(map, record->hash));
    }
    for (looked_at *record = block; record != block + count; record++) {
        if (record->view.key_size < 0)
            continue;
        uint64_t found = map->slots[slot_of(map, record->hash)];
        if (found >> 32 == (record->hash & UINT32_MAX) && found != 0)
            __builtin_prefetch(map->keys + 8 * ((found & UINT32_MAX) - 1));
    }
}

static int32_t block_size(int32_t left)
{
    return left < BLOCK_COUNT ? left : BLOCK_COUNT;
}

static logdb_status batch_add(const uint8_t *buf, const logdb_batch *batch, logdb_key_map *map)
{
    const uint8_t *p = buf + BATCH_HEADER_SIZE, *end = buf + batch->size_bytes;
    looked_at block[BLOCK_COUNT];
    for (int32_t left = batch->record_count, count; left > 0; left -= count) {
        count = block_size(left);
        logdb_status status = block_parse(batch, &p, end, count, block);
        if (status != LOGDB_OK)
            return status;
        block_hash(map, block, count);
        for (looked_at *record = block; record != block + count; record++) {
            if (record->offset < map->first_offset)
                continue;
            if (record->view.key_size < 0)
                supersede(map, record->offset);
            else if (!key_put(map, record->hash, record->view.key, (size_t)record->view.key_size, record->offset))
                return LOGDB_E_ROOM;
        }
    }
    return p == end ? LOGDB_OK : LOGDB_E_COUNT;
}

logdb_status logdb_keys_add(const uint8_t *buf, size_t len, const uint8_t *retention, logdb_key_map *map, int64_t *used)
{
    logdb_batch batch;
    *used = 0;
    for (size_t at = 0, i = 0; at < len; at += (size_t)batch.size_bytes, i++) {
        logdb_status status = logdb_batch_header(buf + at, len - at, INT64_MAX, &batch);
        if (status != LOGDB_OK)
            return status;
        int skipped = batch.attributes & LOGDB_CONTROL || (retention && retention[i] & LOGDB_DISCARD) || batch.record_count == 0;
        if (!skipped && batch.last_offset >= map->first_offset) {
            if (batch.attributes & LOGDB_CODEC_MASK)
                return LOGDB_E_ATTRIBUTES;
            if ((status = batch_add(buf + at, &batch, map)) != LOGDB_OK)
                return status;
        }
        *used += batch.size_bytes;
    }
    return LOGDB_OK;
}

/* ---------------------------------------------------------------- which records stay */

static int has_horizon(const logdb_batch *batch)
{
    return (batch->attributes & LOGDB_DELETE_HORIZON) != 0;
}

/* Whether the records of a batch are all in the map, with a bit for each. */
static int batch_is_marked(const logdb_key_map *map, const logdb_copy *state, const logdb_batch *batch)
{
    return is_marked(map, batch->base_offset) && is_marked(map, batch->last_offset) && batch->last_offset < state->end_offset;
}

static int stays(const logdb_key_map *map, const logdb_copy *state, const logdb_batch *batch, const looked_at *record, int marked)
{
    const uint8_t *entry = NULL;
    if (marked) {
        if (is_superseded(map, record->offset))
            return 0;
    } else {
        if (record->view.key_size < 0)
            return 0;
        entry = key_place(map, record->hash, record->view.key, (size_t)record->view.key_size).entry;
        if (entry && entry_offset(entry) > record->offset)
            return 0;
    }
    if (record->view.value_size >= 0 || !has_horizon(batch) || batch->base_timestamp > state->now_ms)
        return 1;
    return !marked && !entry && record->offset >= map->first_offset;
}

/* ---------------------------------------------------------------- writing */

/* Writes a record with another timestamp delta; returns the byte after it. */
static uint8_t *record_store(uint8_t *out, const record_view *record, int64_t timestamp_delta)
{
    size_t rest_size = (size_t)(record->end - record->key); /* key, value and headers: as they are */
    size_t head_size = 1 + varint_size(timestamp_delta) + varint_size(record->offset_delta) + varint_size(record->key_size);
    out = varint_store(out, (int64_t)(head_size + rest_size));
    *out++ = 0;
    out = varint_store(varint_store(varint_store(out, timestamp_delta), record->offset_delta), record->key_size);
    memcpy(out, record->key, rest_size);
    return out + rest_size;
}

/* Puts the header of the batch at buf before records that were written, and makes it whole. */
static void header_store(uint8_t *out, size_t size, const uint8_t *buf, int16_t attributes, int64_t base_timestamp,
                         int64_t max_timestamp, int32_t record_count)
{
    memcpy(out, buf, BATCH_HEADER_SIZE);
    store_be64(out + BATCH_BASE_TIMESTAMP, (uint64_t)base_timestamp);
    store_be32(out + BATCH_COUNT, (uint32_t)record_count);
    logdb_batch_seal(out, size, attributes, max_timestamp);
}

int64_t logdb_copy_finish(logdb_copy *state, uint8_t *out)
{
    if (state->gap_end <= state->next_offset)
        return 0;
    memset(out, 0, BATCH_HEADER_SIZE);
    out[BATCH_MAGIC] = 2;
    store_be32(out + BATCH_LAST_OFFSET_DELTA, (uint32_t)(state->gap_end - 1 - state->next_offset));
    memset(out + BATCH_BASE_TIMESTAMP, 255, BATCH_COUNT - BATCH_BASE_TIMESTAMP); /* no timestamps, no producer */
    logdb_batch_place(out, state->next_offset, state->gap_epoch);
    logdb_batch_seal(out, BATCH_HEADER_SIZE, 0, -1);
    state->next_offset = state->gap_end;
    return BATCH_HEADER_SIZE;
}

/* ---------------------------------------------------------------- one batch */

/* What becomes of one batch.  `size` is 0 where nothing is left of it. */
typedef struct {
    uint8_t *out;
    size_t size;
    int64_t base_timestamp, max_timestamp;
    int32_t record_count;
    int16_t attributes;
    int changed;
    int expires;             /* it has a delete horizon, and something that is to go then */
} copied;

enum filter_mode {
    FILTER_WATCHED, /* stop at a tombstone: the batch has to get a delete horizon */
    FILTER,         /* copy records as they are */
    FILTER_MOVED,   /* give them timestamp deltas to result->base_timestamp */
};

/* Copies the records that stay behind the header's place in result->out; *tombstone is set where FILTER_WATCHED stopped. */
static logdb_status records_filter(const uint8_t *buf, const logdb_batch *batch, const logdb_key_map *map, const logdb_copy *state,
                                   enum filter_mode mode, copied *result, int *tombstone)
{
    const uint8_t *p = buf + BATCH_HEADER_SIZE, *end = buf + batch->size_bytes;
    uint8_t *out = result->out + BATCH_HEADER_SIZE;
    int control = batch->attributes & LOGDB_CONTROL, marked = batch_is_marked(map, state, batch);
    looked_at block[BLOCK_COUNT];
    result->record_count = 0;
    for (int32_t left = batch->record_count, count; left > 0; left -= count) {
        count = block_size(left);
        logdb_status status = block_parse(batch, &p, end, count, block);
        if (status != LOGDB_OK)
            return status;
        if (!control && !marked)
            block_hash(map, block, count);
        for (looked_at *record = block; record != block + count; record++) {
            if (!control && !stays(map, state, batch, record, marked))
                continue;
            if (record->view.value_size < 0) {
                if (mode == FILTER_WATCHED)
                    return *tombstone = 1, LOGDB_OK;
                result->expires = has_horizon(batch);
            }
            int64_t timestamp = record_timestamp(batch, &record->view);
            if (timestamp > result->max_timestamp || result->record_count == 0)
                result->max_timestamp = timestamp;
            result->record_count++;
            if (mode == FILTER_MOVED) {
                out = record_store(out, &record->view, (int64_t)((uint64_t)timestamp - (uint64_t)result->base_timestamp));
                continue;
            }
            size_t size = (size_t)(record->view.end - record->start);
            memcpy(out, record->start, size);
            out += size;
        }
    }
    result->size = (size_t)(out - result->out);
    return p == end ? LOGDB_OK : LOGDB_E_COUNT;
}

/* Bytes that a batch may need, its records written anew with other timestamp deltas; a compressed one is copied or not. */
static int64_t grown_size(const logdb_batch *batch)
{
    int compressed = batch->attributes & LOGDB_CODEC_MASK; /* then its count is bounded by nothing yet */
    return batch->size_bytes + (compressed ? 0 : (int64_t)RECORD_GROWTH_MAX * batch->record_count);
}

/* Filters a batch whose records have to be looked at. */
static logdb_status batch_filter(const uint8_t *buf, const logdb_batch *batch, int expires, const logdb_key_map *map,
                                 const logdb_copy *state, copied *result)
{
    if (batch->attributes & LOGDB_CODEC_MASK)
        return LOGDB_E_ATTRIBUTES;
    int may_expire = !has_horizon(batch) && grown_size(batch) <= INT32_MAX, tombstone = may_expire && expires;
    int control = batch->attributes & LOGDB_CONTROL;
    logdb_status status = LOGDB_OK;
    if (!tombstone)
        status = records_filter(buf, batch, map, state, may_expire && !control ? FILTER_WATCHED : FILTER, result, &tombstone);
    if (status != LOGDB_OK)
        return status;
    if (tombstone) {
        result->base_timestamp = state->horizon_ms;
        result->attributes |= LOGDB_DELETE_HORIZON;
        if ((status = records_filter(buf, batch, map, state, FILTER_MOVED, result, &tombstone)) != LOGDB_OK)
            return status;
        result->expires = 1;
    }
    result->expires = result->expires || (control && has_horizon(batch));
    result->changed = tombstone || result->record_count != batch->record_count;
    if (result->record_count == 0)
        result->size = 0;
    if (batch->attributes & LOGDB_LOG_APPEND_TIME)
        result->max_timestamp = batch->max_timestamp;
    if (result->changed && result->size)
        header_store(result->out, result->size, buf, result->attributes, result->base_timestamp, result->max_timestamp, result->record_count);
    return LOGDB_OK;
}

/* Writes to result->out what is to stay of a batch: all, some of its records, no more than its header, or nothing. */
static logdb_status batch_copy(const uint8_t *buf, const logdb_batch *batch, uint8_t retention, const logdb_key_map *map,
                               const logdb_copy *state, copied *result)
{
    int beyond = batch->base_offset >= state->end_offset, control = batch->attributes & LOGDB_CONTROL;
    int discarded = !beyond && (retention & LOGDB_DISCARD || (batch->record_count == 0 && !control));
    result->base_timestamp = batch->base_timestamp;
    result->max_timestamp = batch->max_timestamp;
    result->attributes = batch->attributes;
    if (!discarded && !beyond && (!control || (retention & LOGDB_EXPIRES && batch->record_count))) {
        logdb_status status = batch_filter(buf, batch, retention & LOGDB_EXPIRES, map, state, result);
        if (status != LOGDB_OK)
            return status;
    } else if (!discarded) {
        result->size = (size_t)batch->size_bytes;
        result->record_count = batch->record_count;
        result->expires = control && !beyond && has_horizon(batch);
    }
    if (result->size == 0 && retention & LOGDB_RETAIN) {
        int kept = LOGDB_LOG_APPEND_TIME | LOGDB_TRANSACTIONAL | LOGDB_CONTROL;
        result->size = BATCH_HEADER_SIZE;
        result->attributes = (int16_t)(batch->attributes & kept);
        header_store(result->out, result->size, buf, result->attributes, -1, batch->max_timestamp, 0);
        result->changed = batch->record_count != 0;
    } else if (result->size && !result->changed) {
        memcpy(result->out, buf, result->size);
    }
    return LOGDB_OK;
}

/* ---------------------------------------------------------------- a buffer of batches */

/* Notes the batch at result->out, behind the filler that waits before it. */
static void batch_take(logdb_copy *state, const logdb_batch *batch, const copied *result, uint8_t *filler)
{
    state->size_bytes += logdb_copy_finish(state, filler);
    state->size_bytes += (int64_t)result->size;
    state->last_size_bytes = (int64_t)result->size;
    state->changed_count += result->changed;
    state->record_count += result->record_count;
    state->next_offset = batch->last_offset + 1;
    if (result->expires && result->base_timestamp < state->horizon_min_ms)
        state->horizon_min_ms = result->base_timestamp;
}

/* Whether the empty batch that waits cannot take the offsets of this batch too. */
static int gap_ends_before(const logdb_copy *state, const logdb_batch *batch)
{
    return state->gap_end > state->next_offset &&
           (batch->leader_epoch != state->gap_epoch || batch->last_offset - state->next_offset > INT32_MAX);
}

logdb_status logdb_copy_batches(const uint8_t *buf, size_t len, const uint8_t *retention, const logdb_key_map *map,
                                logdb_copy *state, uint8_t *out, size_t out_room)
{
    state->used = state->batch_count = state->size_bytes = state->last_size_bytes = state->changed_count = state->record_count = 0;
    while ((size_t)state->used < len) {
        const uint8_t *at = buf + state->used;
        logdb_batch batch;
        logdb_status status = logdb_batch_header(at, len - (size_t)state->used, INT64_MAX, &batch);
        if (status != LOGDB_OK)
            return status;
        if (batch.base_offset != state->gap_end)
            return LOGDB_E_OFFSET;
        state->room_wanted = 2 * BATCH_HEADER_SIZE + grown_size(&batch);
        if (state->room_wanted > (int64_t)out_room - state->size_bytes)
            return LOGDB_E_ROOM;
        if (gap_ends_before(state, &batch))
            state->size_bytes += logdb_copy_finish(state, out + state->size_bytes);
        uint8_t *filler = out + state->size_bytes;
        copied result = {.out = filler + (state->gap_end > state->next_offset ? BATCH_HEADER_SIZE : 0)};
        status = batch_copy(at, &batch, retention ? retention[state->batch_count] : 0, map, state, &result);
        if (status != LOGDB_OK)
            return status;
        if (result.size)
            batch_take(state, &batch, &result, filler);
        state->gap_end = batch.last_offset + 1;
        state->gap_epoch = batch.leader_epoch;
        state->used += batch.size_bytes;
        state->batch_count++;
    }
    return LOGDB_OK;
}
