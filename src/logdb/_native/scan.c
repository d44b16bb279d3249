/* scan.c -- a buffer of batches: scanning, indexing, searching. */
#include "batch.h"

enum { INDEX_ENTRY_SIZE = 8, TIME_INDEX_ENTRY_SIZE = 12 };

/* ---------------------------------------------------------------- scan */

/* The leader epoch of a batch against the checkpoint.  `at` is the entry of the batch before, 0 to begin. */
static logdb_status epoch_check(logdb_scan_state *state, const logdb_batch *batch, int64_t *at)
{
    if (!state->epochs || state->epoch_count <= 0)
        return LOGDB_OK;
    while (*at + 1 < state->epoch_count && state->epochs[2 * (*at + 1) + 1] <= batch->base_offset)
        ++*at;
    int64_t epoch = state->epochs[2 * *at];
    int known = state->epochs[2 * *at + 1] <= batch->base_offset;
    if (known ? batch->leader_epoch == epoch : batch->leader_epoch <= epoch)
        return LOGDB_OK;
    state->expected_epoch = (int32_t)epoch;
    return LOGDB_E_EPOCH;
}

static int fits_relative(const logdb_scan_state *state, int64_t offset)
{
    return offset >= state->segment_base_offset && (uint64_t)offset - (uint64_t)state->segment_base_offset <= INT32_MAX;
}

/* Adds what index entries the batch gives rise to, before it is counted itself. */
static logdb_status index_batch(logdb_scan_state *state, const logdb_batch *batch)
{
    if (!fits_relative(state, batch->last_offset) || state->position < 0 || state->position > INT32_MAX)
        return LOGDB_E_OFFSET;
    if (state->unindexed_bytes <= state->index_interval_bytes)
        return LOGDB_OK;
    if (state->index_count >= state->index_room)
        return LOGDB_E_ROOM;
    int newer = batch->max_timestamp > state->max_timestamp;
    int64_t timestamp = newer ? batch->max_timestamp : state->max_timestamp;
    int64_t offset = newer ? batch->last_offset : state->max_timestamp_offset;
    if (timestamp > state->indexed_timestamp && fits_relative(state, offset)) {
        uint8_t *entry = state->time_index + TIME_INDEX_ENTRY_SIZE * state->time_index_count++;
        store_be64(entry, (uint64_t)timestamp);
        store_be32(entry + 8, (uint32_t)(offset - state->segment_base_offset));
        state->indexed_timestamp = timestamp;
    }
    uint8_t *entry = state->index + INDEX_ENTRY_SIZE * state->index_count++;
    store_be32(entry, (uint32_t)(batch->last_offset - state->segment_base_offset));
    store_be32(entry + 4, (uint32_t)state->position);
    state->unindexed_bytes = 0;
    return LOGDB_OK;
}

static void count_batch(logdb_scan_state *state, const logdb_batch *batch)
{
    if (batch->max_timestamp > state->max_timestamp) {
        state->max_timestamp = batch->max_timestamp;
        state->max_timestamp_offset = batch->last_offset;
    }
    state->used += batch->size_bytes;
    state->position += batch->size_bytes;
    state->unindexed_bytes += batch->size_bytes;
    state->next_offset = batch->last_offset + 1;
    state->batch_count++;
    state->record_count += batch->record_count;
    state->produced_count += batch->producer_id >= 0;
    state->attributes |= batch->attributes;
    state->codecs |= 1 << (batch->attributes & LOGDB_CODEC_MASK);
    state->last_base_offset = batch->base_offset;
    state->last_size_bytes = batch->size_bytes;
}

logdb_status logdb_scan(const uint8_t *buf, size_t len, logdb_scan_state *state)
{
    logdb_batch *batch = &state->stopped;
    int64_t epoch_at = 0;
    state->index_count = state->time_index_count = state->used = state->batch_count = state->record_count = 0;
    state->produced_count = 0;
    state->attributes = state->codecs = 0;
    while ((size_t)state->used < len && state->next_offset < state->end_offset) {
        const uint8_t *at = buf + state->used;
        size_t left = len - (size_t)state->used;
        logdb_status status = logdb_batch_header(at, left, state->batch_size_max, batch);
        if (status != LOGDB_OK && (status != LOGDB_E_SHORT || batch->size_bytes == 0))
            return status;
        if (state->flags & LOGDB_SCAN_GAPS ? batch->base_offset < state->next_offset : batch->base_offset != state->next_offset)
            return LOGDB_E_OFFSET;
        if (batch->base_offset >= state->end_offset)
            return LOGDB_OK;
        logdb_status epoch_status = epoch_check(state, batch, &epoch_at);
        if (epoch_status != LOGDB_OK || status != LOGDB_OK)
            return epoch_status != LOGDB_OK ? epoch_status : status;
        if (state->flags & LOGDB_SCAN_CRC) {
            state->computed_crc = logdb_crc32c(0, at + BATCH_ATTRIBUTES, (size_t)batch->size_bytes - BATCH_ATTRIBUTES);
            if (state->computed_crc != batch->crc)
                return LOGDB_E_CRC;
        }
        if (state->index && (status = index_batch(state, batch)) != LOGDB_OK)
            return status;
        count_batch(state, batch);
    }
    return LOGDB_OK;
}

int64_t logdb_find_batch(const uint8_t *buf, size_t len, int64_t batch_size_max, int64_t offset_min)
{
    logdb_batch batch;
    uint32_t crc;
    for (size_t at = 0; len - at >= BATCH_HEADER_SIZE; at++) {
        const uint8_t *magic = memchr(buf + at + BATCH_MAGIC, 2, len - at - (BATCH_HEADER_SIZE - 1));
        if (!magic)
            return -1;
        at = (size_t)(magic - buf) - BATCH_MAGIC;
        logdb_status status = logdb_batch_check(buf + at, len - at, batch_size_max, &batch, &crc);
        if (status == LOGDB_OK && batch.base_offset >= offset_min)
            return (int64_t)at;
    }
    return -1;
}

/* ---------------------------------------------------------------- index searches */

int64_t logdb_index_search(const uint8_t *index, int64_t count, int64_t relative_offset)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((int32_t)load_be32(index + INDEX_ENTRY_SIZE * middle) < relative_offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t logdb_time_index_search(const uint8_t *time_index, int64_t count, int64_t timestamp)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((int64_t)load_be64(time_index + TIME_INDEX_ENTRY_SIZE * middle) < timestamp)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* The first record of one batch that is late and far enough; LOGDB_E_SHORT if there is none. */
static logdb_status batch_find_timestamp(const uint8_t *buf, const logdb_batch *batch, int64_t from_offset, int64_t timestamp,
                                         int64_t *offset, int64_t *found_timestamp)
{
    const uint8_t *p = buf + BATCH_HEADER_SIZE, *end = buf + batch->size_bytes;
    for (int32_t i = 0; i < batch->record_count; i++) {
        record_view record;
        if (!(p = record_parse(p, end, &record)))
            return LOGDB_E_RECORD;
        if ((*offset = record_offset(batch, &record)) < 0)
            return LOGDB_E_DELTA;
        *found_timestamp = record_timestamp(batch, &record);
        if (*offset >= from_offset && *found_timestamp >= timestamp)
            return LOGDB_OK;
    }
    return LOGDB_E_SHORT;
}

logdb_status logdb_find_timestamp(const uint8_t *buf, size_t len, int64_t from_offset, int64_t timestamp,
                                  int64_t *offset, int64_t *found_timestamp)
{
    logdb_batch batch;
    for (size_t at = 0; at < len; at += (size_t)batch.size_bytes) {
        logdb_status status = logdb_batch_header(buf + at, len - at, INT64_MAX, &batch);
        if (status != LOGDB_OK)
            return status;
        if (batch.max_timestamp < timestamp || batch.last_offset < from_offset || batch.attributes & LOGDB_CONTROL)
            continue;
        if (batch.attributes & LOGDB_CODEC_MASK)
            return LOGDB_E_ATTRIBUTES;
        status = batch_find_timestamp(buf + at, &batch, from_offset, timestamp, offset, found_timestamp);
        if (status != LOGDB_E_SHORT)
            return status;
    }
    return LOGDB_E_SHORT;
}
