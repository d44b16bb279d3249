/* fuzz_core.c -- hostile bytes for every function of the core that reads batches.
 *
 * Under libFuzzer (clang) only LLVMFuzzerTestOneInput counts.  Without it, main() mutates batches of its own:
 *     fuzz_core SECONDS [SEED]     mutate for so long; the seed is printed
 *     fuzz_core --seeds DIR        write the batches that mutation begins from
 *     fuzz_core FILE...            run the given inputs, such as one that was found
 * Memory errors are the sanitizers' to find; what must hold beyond that is stated by MUST.
 *
 * An input is four bytes of options, then the bytes to be read. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bytes.h"
#include "compact.h"
#include "logdb_native.h"

enum { OPTIONS_SIZE = 4, INPUT_SIZE_MAX = 1 << 12 };

static void must(int holds, const char *what, int line)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_core.c:%d: must hold: %s\n", line, what);
    abort();
}
#define MUST(condition) must((condition) != 0, #condition, __LINE__)

/* ---------------------------------------------------------------- what is tried on each input */

static logdb_status walk_and_gather(const uint8_t *buf, size_t len, int64_t from_offset, int64_t to_offset, int32_t wanted,
                                    logdb_column_sizes *sizes)
{
    size_t room = len / 7 + 1; /* a record has at least seven bytes */
    logdb_row *rows = malloc(room * sizeof *rows);
    logdb_columns c = {.offset = malloc(8 * room),
                       .timestamp = malloc(8 * room),
                       .timestamp_type = malloc(4 * room),
                       .key_offsets = malloc(4 * (room + 1)),
                       .key_validity = malloc((room + 7) / 8),
                       .value_offsets = malloc(4 * (room + 1)),
                       .value_validity = malloc((room + 7) / 8),
                       .header_offsets = malloc(4 * (room + 1))};
    logdb_status status = logdb_columns_walk(buf, len, from_offset, to_offset, wanted, rows, (int64_t)room, &c, sizes);
    if (status == LOGDB_OK) {
        MUST(sizes->row_count >= 0 && sizes->row_count < (int64_t)room);
        MUST(sizes->key_bytes + sizes->value_bytes + sizes->header_key_bytes + sizes->header_value_bytes <= (int64_t)len);
        size_t headers = (size_t)sizes->header_count;
        c.key = malloc((size_t)sizes->key_bytes);
        c.value = malloc((size_t)sizes->value_bytes);
        c.header_key_offsets = malloc(4 * (headers + 1));
        c.header_value_offsets = malloc(4 * (headers + 1));
        c.header_value_validity = malloc((headers + 7) / 8);
        c.header_key = malloc((size_t)sizes->header_key_bytes);
        c.header_value = malloc((size_t)sizes->header_value_bytes);
        logdb_columns_gather(buf, rows, wanted, sizes, &c);
        if (wanted & LOGDB_COLUMN_HEADERS) {
            MUST(c.header_key_offsets[headers] == sizes->header_key_bytes);
            MUST(c.header_value_offsets[headers] == sizes->header_value_bytes);
        }
    }
    void *all[] = {rows,     c.offset, c.timestamp,  c.key_offsets,        c.key_validity,         c.value_offsets,         c.value_validity,
                   c.key,    c.value,  c.header_key, c.header_key_offsets, c.header_value_offsets, c.header_value_validity, c.header_value,
                   c.header_offsets, c.timestamp_type};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return status;
}

/* The records of a batch, in pieces of a size. */
static logdb_status check_pieces(const uint8_t *records, size_t len, size_t piece, const logdb_batch *batch, int keys_required)
{
    logdb_records_walk walk = {0};
    for (size_t at = 0; at < len; at += piece) {
        logdb_status status = logdb_records_take(&walk, records + at, piece < len - at ? piece : len - at, batch, keys_required);
        if (status != LOGDB_OK)
            return status;
    }
    return logdb_records_end(&walk, batch, NULL);
}

/* One batch: what one function calls good, the others must be able to read. */
static void try_batch(const uint8_t *buf, size_t len)
{
    logdb_batch batch;
    uint32_t crc;
    logdb_status header = logdb_batch_header(buf, len, INT32_MAX, &batch);
    logdb_status check = logdb_batch_check(buf, len, INT32_MAX, &batch, &crc);
    MUST(check == header || (header == LOGDB_OK && check == LOGDB_E_CRC));
    if (header != LOGDB_OK)
        return;
    size_t size = (size_t)batch.size_bytes;
    MUST(size >= BATCH_HEADER_SIZE && size <= len && batch.base_offset <= batch.last_offset && batch.last_offset < INT64_MAX);
    logdb_status records = logdb_records_check(buf + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE, &batch, 0, NULL);
    logdb_status keyed = logdb_records_check(buf + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE, &batch, 1, NULL);
    MUST(keyed == records || keyed == LOGDB_E_KEY);
    for (size_t piece = 1; piece < 1000; piece = piece * 3 + 1)
        for (int keys = 0; keys < 2; keys++) {
            logdb_status whole = keys ? keyed : records;
            logdb_status pieces = check_pieces(buf + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE, piece, &batch, keys);
            MUST((pieces == LOGDB_OK) == (whole == LOGDB_OK));
        }
    logdb_record_times times = {0, 0};
    logdb_status mended = logdb_records_check(buf + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE, &batch, 0, &times);
    MUST(mended == records || (mended == LOGDB_OK && records == LOGDB_E_TIMESTAMP && times.min <= times.max));
    int32_t numbers[8], found = logdb_records_refused(buf + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE, &batch, 1, &times, numbers, 8);
    MUST(found >= 0 && found <= 8 && (keyed != LOGDB_E_KEY || found > 0));
    if (records != LOGDB_OK || batch.attributes & (LOGDB_CODEC_MASK | LOGDB_CONTROL))
        return;
    logdb_column_sizes sizes;
    int64_t offset, timestamp;
    MUST(walk_and_gather(buf, size, 0, INT64_MAX, 63, &sizes) == LOGDB_OK && sizes.row_count == batch.record_count);
    MUST(logdb_find_timestamp(buf, size, 0, INT64_MIN, &offset, &timestamp) == (batch.record_count ? LOGDB_OK : LOGDB_E_SHORT));
}

static void try_scan(const uint8_t *buf, size_t len, const uint8_t *options)
{
    enum { ROOM = 3 };
    uint8_t index[8 * ROOM], time_index[12 * ROOM];
    int64_t epochs[] = {0, 0, 1, 100, 7, (int64_t)1 << 40};
    logdb_scan_state state = {.flags = options[0] & 3,
                              .index_interval_bytes = options[2],
                              .batch_size_max = INT32_MAX,
                              .end_offset = options[0] & 4 ? options[3] : INT64_MAX,
                              .epochs = options[0] & 8 ? epochs : NULL,
                              .epoch_count = 3,
                              .max_timestamp = -1,
                              .indexed_timestamp = -1,
                              .index = options[0] & 16 ? index : NULL,
                              .time_index = time_index,
                              .index_room = 1 + options[1] % ROOM};
    if (len >= 8) /* so that the first batch may follow */
        state.next_offset = state.segment_base_offset = (int64_t)load_be64(buf) >> (options[0] & 32 ? 0 : 1);
    for (size_t at = 0;;) {
        logdb_status status = logdb_scan(buf + at, len - at, &state);
        MUST(state.used >= 0 && (size_t)state.used <= len - at && state.record_count <= (int64_t)INT32_MAX * state.batch_count);
        MUST(state.index_count <= state.index_room && state.time_index_count <= state.index_count);
        MUST(status != LOGDB_OK || (size_t)state.used == len - at || state.next_offset >= state.end_offset || options[0] & 4);
        at += (size_t)state.used;
        if (status != LOGDB_E_ROOM)
            break;
        MUST(state.index_count == state.index_room);
    }
}

static void try_searches(const uint8_t *buf, size_t len, const uint8_t *options)
{
    int64_t wanted = len >= 8 ? (int64_t)load_be64(buf + len - 8) : options[2], offset, timestamp;
    int64_t found = logdb_index_search(buf, (int64_t)(len / 8), wanted);
    MUST(found >= 0 && found <= (int64_t)(len / 8));
    found = logdb_time_index_search(buf, (int64_t)(len / 12), wanted);
    MUST(found >= -1 && found < (int64_t)(len / 12) + (len < 12));
    logdb_find_timestamp(buf, len, options[2], wanted, &offset, &timestamp);
    found = logdb_find_batch(buf, len, INT32_MAX, options[3]);
    if (found >= 0) {
        logdb_batch batch;
        uint32_t crc;
        MUST(logdb_batch_check(buf + found, len - (size_t)found, INT32_MAX, &batch, &crc) == LOGDB_OK);
    }
}

/* What a copy put out: whole batches that follow each other from `offset` on. */
static int64_t must_follow(const uint8_t *buf, size_t len, int64_t offset)
{
    logdb_batch batch;
    for (size_t at = 0; at < len; at += (size_t)batch.size_bytes) {
        MUST(logdb_batch_header(buf + at, len - at, INT64_MAX, &batch) == LOGDB_OK);
        MUST(batch.base_offset == offset);
        offset = batch.last_offset + 1;
    }
    return offset;
}

static void try_compaction(const uint8_t *buf, size_t len, const uint8_t *options)
{
    enum { SLOT_COUNT = 12, KEYS_ROOM = 256, BITS_SIZE = 8, OUT_ROOM = 300 };
    size_t retention_count = len / BATCH_HEADER_SIZE + 1;
    uint8_t *retention = malloc(retention_count), *bits = calloc(1, BITS_SIZE), *keys = malloc(KEYS_ROOM);
    for (size_t i = 0; i < retention_count; i++)
        retention[i] = (uint8_t)(options[0] & 32 ? options[i % OPTIONS_SIZE] >> i % 3 & 7 : 0);
    logdb_key_map map = {.hash_key = {options[1], 7},
                         .hash_mask = options[1] & 1 ? UINT64_MAX : options[1],
                         .slots = calloc(SLOT_COUNT, sizeof(uint64_t)),
                         .slot_count = SLOT_COUNT,
                         .keys = keys,
                         .keys_room = KEYS_ROOM,
                         .superseded = bits,
                         .first_offset = options[2] & 3,
                         .bit_count = options[2] & 4 ? 8 * BITS_SIZE : 0};
    int64_t used;
    logdb_status status = logdb_keys_add(buf, len, retention, &map, &used);
    MUST(used >= 0 && (size_t)used <= len && (status != LOGDB_OK || (size_t)used == len));
    MUST(map.keys_used <= KEYS_ROOM && map.key_count < SLOT_COUNT);
    MUST(logdb_keys_find(&map, buf, len < 9 ? len : 9) >= -1);
    int64_t begin = len >= 8 ? (int64_t)load_be64(buf) : 0;
    logdb_copy copy = {.end_offset = options[3] & 1 ? INT64_MAX : options[3],
                       .now_ms = options[3] & 2 ? INT64_MAX : 1000,
                       .horizon_ms = options[3] & 4 ? INT64_MAX : options[3],
                       .next_offset = begin < 0 ? 0 : begin,
                       .gap_end = begin < 0 ? 0 : begin,
                       .horizon_min_ms = INT64_MAX};
    size_t room = OUT_ROOM;
    uint8_t *out = malloc(room);
    for (size_t at = 0, slot = 0; at < len;) {
        int64_t offset = copy.next_offset;
        status = logdb_copy_batches(buf + at, len - at, retention + slot, &map, &copy, out, room);
        MUST(copy.used >= 0 && (size_t)copy.used <= len - at && copy.size_bytes >= 0 && (size_t)copy.size_bytes <= room);
        MUST(must_follow(out, (size_t)copy.size_bytes, offset) == copy.next_offset && copy.gap_end >= copy.next_offset);
        at += (size_t)copy.used;
        slot += (size_t)copy.batch_count;
        if (status == LOGDB_OK)
            MUST(at == len);
        else if (status != LOGDB_E_ROOM)
            break;
        else if (copy.used == 0) {
            MUST((size_t)copy.room_wanted > room);
            free(out);
            out = malloc(room = (size_t)copy.room_wanted);
        }
    }
    uint8_t last[BATCH_HEADER_SIZE];
    int64_t offset = copy.next_offset, size = logdb_copy_finish(&copy, last);
    MUST(must_follow(last, (size_t)size, offset) == copy.next_offset && copy.gap_end == copy.next_offset);
    void *all[] = {retention, bits, keys, map.slots, out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void try_hashes(const uint8_t *buf, size_t len)
{
    logdb_murmur2(buf, len);
    uint32_t crc = logdb_crc32c(0, buf, len);
    logdb_crc32c_select(1);
    MUST(crc == logdb_crc32c(0, buf, len));
    logdb_crc32c_select(0);
}

/* What was stamped is good, and the stamp's; changes buf. */
static void try_stamp(uint8_t *buf, size_t len, const uint8_t *options)
{
    size_t used = 0;
    int32_t sequence = INT32_MAX - options[2];
    logdb_status status = logdb_batches_stamp(buf, len, options[1], options[3], &sequence, options[0] & 1, &used);
    MUST(used <= len && sequence >= 0 && (status == LOGDB_OK) == (used == len));
    logdb_batch batch;
    uint32_t crc;
    for (size_t at = 0; at < used; at += (size_t)batch.size_bytes) {
        MUST(logdb_batch_check(buf + at, used - at, INT32_MAX, &batch, &crc) == LOGDB_OK);
        MUST(batch.producer_id == options[1] && batch.producer_epoch == options[3] && batch.base_sequence >= 0);
        MUST(!(batch.attributes & LOGDB_TRANSACTIONAL) == !(options[0] & 1));
    }
}

/* Gives the first batch a length and a CRC that fit, so that mutations reach what lies behind those. */
static void reseal(uint8_t *buf, size_t len)
{
    if (len < BATCH_HEADER_SIZE)
        return;
    uint64_t stated = (uint64_t)load_be32(buf + BATCH_LENGTH) + BATCH_LENGTH_FROM;
    size_t size = stated >= BATCH_HEADER_SIZE && stated <= len ? (size_t)stated : len;
    logdb_batch_seal(buf, size, (int16_t)load_be16(buf + BATCH_ATTRIBUTES), (int64_t)load_be64(buf + BATCH_MAX_TIMESTAMP));
    logdb_batch batch;
    uint32_t crc;
    MUST(logdb_batch_check(buf, size, INT32_MAX, &batch, &crc) != LOGDB_E_CRC);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < OPTIONS_SIZE)
        return 0;
    size_t len = size - OPTIONS_SIZE;
    uint8_t *buf = malloc(len); /* of the exact size, so that a byte too far is seen */
    memcpy(buf, data + OPTIONS_SIZE, len);
    if (data[0] & 64)
        reseal(buf, len);
    logdb_column_sizes sizes;
    int64_t to_offset = data[0] & 128 ? data[3] : INT64_MAX;
    try_batch(buf, len);
    try_scan(buf, len, data);
    try_searches(buf, len, data);
    walk_and_gather(buf, len, data[2] & 1 ? data[2] : 0, to_offset, data[1] & 63, &sizes);
    try_compaction(buf, len, data);
    try_hashes(buf, len);
    try_stamp(buf, len, data);
    free(buf);
    return 0;
}

#ifndef FUZZ_LIBFUZZER
/* ---------------------------------------------------------------- seeds */

/* What a seed's batches look like. */
typedef struct {
    int batches, records, key_size, value_size, headers;
    uint8_t attributes;
} shape;

static const shape SHAPES[] = {
    {1, 1, 3, 5, 0, 0}, {3, 4, -1, 9, 0, 0}, {2, 5, 8, -1, 2, 0},  {1, 40, 16, 30, 1, 0}, {2, 2, 4, 6, 0, LOGDB_CONTROL | LOGDB_TRANSACTIONAL},
    {1, 3, 2, 2, 3, 8}, {1, 2, 1, 1, 0, 4},  {1, 0, 0, 0, 0, 64}, {20, 1, -1, 20, 0, 0},
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static uint8_t *field_store(uint8_t *p, int size, int fill)
{
    p = varint_store(p, size);
    for (int i = 0; i < size; i++)
        *p++ = (uint8_t)fill;
    return p;
}

static uint8_t *record_store(uint8_t *p, const shape *s, int delta)
{
    uint8_t body[256], *b = body;
    *b++ = 0;
    b = varint_store(varint_store(b, delta * 10), delta);
    b = field_store(field_store(b, s->key_size, 'k'), s->value_size, 'v');
    b = varint_store(b, s->headers);
    for (int i = 0; i < s->headers; i++)
        b = field_store(field_store(b, i + 1, 'h'), i - 1, 'x');
    p = varint_store(p, b - body);
    memcpy(p, body, (size_t)(b - body));
    return p + (b - body);
}

/* Writes a whole input of at most INPUT_SIZE_MAX bytes; returns its size. */
static size_t seed_store(uint8_t *out, const shape *s)
{
    static const uint8_t options[OPTIONS_SIZE] = {16 | 1, 63, 1, 200};
    uint8_t *p = out + OPTIONS_SIZE;
    int64_t offset = 0;
    memcpy(out, options, OPTIONS_SIZE);
    for (int i = 0; i < s->batches; i++) {
        int last = s->records ? s->records - 1 : 0;
        uint8_t *batch = p;
        memset(batch, 0, BATCH_HEADER_SIZE);
        batch[BATCH_MAGIC] = 2;
        store_be32(batch + BATCH_LAST_OFFSET_DELTA, (uint32_t)last);
        store_be64(batch + BATCH_BASE_TIMESTAMP, 1000);
        memset(batch + BATCH_PRODUCER_ID, 255, BATCH_COUNT - BATCH_PRODUCER_ID);
        store_be32(batch + BATCH_COUNT, (uint32_t)s->records);
        p += BATCH_HEADER_SIZE;
        for (int r = 0; r < s->records; r++)
            p = record_store(p, s, r);
        logdb_batch_place(batch, offset, 0);
        logdb_batch_seal(batch, (size_t)(p - batch), s->attributes, 1000 + 10 * last);
        offset += last + 1;
    }
    return (size_t)(p - out);
}

/* ---------------------------------------------------------------- mutation */

static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % limit);
}

static const int64_t NUMBERS[] = {0, 1, -1, 7, 60, 61, 127, 128, 255, INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN,
                                  INT64_MAX - 1, (int64_t)1 << 32, (int64_t)1 << 62};

static size_t mutate(uint8_t *buf, size_t len)
{
    size_t at = random_below((uint32_t)len), left = len - at;
    int64_t number = NUMBERS[random_below(sizeof NUMBERS / sizeof *NUMBERS)];
    uint8_t varint[VARINT_SIZE_MAX];
    switch (random_below(8)) {
    case 0: buf[at] ^= (uint8_t)(1 << random_below(8)); break;
    case 1: buf[at] = (uint8_t)random_below(256); break;
    case 2:
        if (left >= 4)
            store_be32(buf + at, (uint32_t)number);
        break;
    case 3:
        if (left >= 8)
            store_be64(buf + at, (uint64_t)number);
        break;
    case 4:
        if (left >= VARINT_SIZE_MAX)
            memcpy(buf + at, varint, (size_t)(varint_store(varint, number) - varint));
        break;
    case 5: return len - random_below((uint32_t)left < 16 ? (uint32_t)left : 16);
    case 6: { /* a copy of a stretch elsewhere */
        size_t from = random_below((uint32_t)len), size = random_below(64);
        if (size <= left && size <= len - from)
            memmove(buf + at, buf + from, size);
        break;
    }
    default: { /* bytes put in or taken out */
        size_t size = random_below(12);
        if (random_below(2) && len + size <= INPUT_SIZE_MAX) {
            memmove(buf + at + size, buf + at, left);
            return len + size;
        }
        if (size <= left && size < len) {
            memmove(buf + at, buf + at + size, left - size);
            return len - size;
        }
    }
    }
    return len;
}

static void mutate_for(long seconds, uint64_t seed)
{
    uint8_t input[INPUT_SIZE_MAX];
    time_t end = time(NULL) + seconds;
    uint64_t runs = 0;
    random_state = seed;
    printf("fuzz_core: %ld s, seed %llu\n", seconds, (unsigned long long)seed);
    fflush(stdout);
    while (runs % 1024 != 0 || time(NULL) < end) {
        size_t len = seed_store(input, &SHAPES[random_below(SHAPE_COUNT)]);
        for (uint32_t i = random_below(6); i > 0 && len > 0; i--)
            len = mutate(input, len);
        if (random_below(2) && len >= OPTIONS_SIZE)
            for (int i = 0; i < OPTIONS_SIZE; i++)
                input[i] = (uint8_t)random_below(256);
        LLVMFuzzerTestOneInput(input, len);
        runs++;
    }
    printf("fuzz_core: %llu inputs, nothing found\n", (unsigned long long)runs);
}

static int seeds_write(const char *folder)
{
    uint8_t input[INPUT_SIZE_MAX];
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/seed-%zu", folder, i);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(input, 1, seed_store(input, &SHAPES[i]), file) == 0 || fclose(file) != 0)
            return perror(path), 1;
    }
    return 0;
}

static int file_run(const char *path)
{
    static uint8_t input[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file)
        return perror(path), 1;
    size_t len = fread(input, 1, sizeof input, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(input, len);
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "--seeds") == 0)
        return seeds_write(words[2]);
    char *end;
    long seconds = count > 1 ? strtol(words[1], &end, 10) : -1;
    if (count > 1 && count <= 3 && *end == 0)
        return mutate_for(seconds, count == 3 ? strtoull(words[2], NULL, 10) : (uint64_t)time(NULL)), 0;
    int failed = count < 2;
    for (int i = 1; i < count; i++)
        failed |= file_run(words[i]);
    return failed;
}
#endif
