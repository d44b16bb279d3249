/* batch.h -- what scan.c and columns.c share: the records of a batch whose header was checked. */
#ifndef LOGDB_BATCH_H
#define LOGDB_BATCH_H

#include "bytes.h"
#include "logdb_native.h"

/* A record's offset, or -1 where its delta leaves the batch. */
static inline int64_t record_offset(const logdb_batch *batch, const record_view *record)
{
    if (record->offset_delta < 0 || record->offset_delta > batch->last_offset - batch->base_offset)
        return -1;
    return batch->base_offset + record->offset_delta;
}

/* A record's timestamp; a sum that does not fit wraps. */
static inline int64_t record_timestamp(const logdb_batch *batch, const record_view *record)
{
    if (batch->attributes & LOGDB_LOG_APPEND_TIME)
        return batch->max_timestamp;
    return (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)record->timestamp_delta);
}

#endif
