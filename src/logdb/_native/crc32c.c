/* crc32c.c -- CRC-32C by the machine's own instruction where it has one, by tables where not.
 *
 * The instruction takes 8 bytes and has a latency of 3 cycles, so one stream reaches a third of the machine.
 * Three streams run at once over three neighbouring blocks; the CRC of each is then carried over the blocks
 * behind it by a linear map over GF(2), "append so many zero bytes", tabulated a byte at a time.
 *
 * The tables are filled and the machine is probed before main() or, in a shared object, while it is loaded, so
 * no call ever waits or races.  Source of the method: Mark Adler's crc32c.c; "Fast CRC computation for iSCSI
 * polynomial using CRC32 instruction", Intel 2011. */
#include "crc32c.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#define HARDWARE_NAME "sse4.2"
#if defined(__clang__) && __clang_major__ >= 14 /* clang has set the instruction apart */
#define HARDWARE __attribute__((target("sse4.2,crc32")))
#else
#define HARDWARE __attribute__((target("sse4.2")))
#endif
#include <nmmintrin.h>
#elif defined(__aarch64__) && !defined(__AARCH64EB__)
#define HARDWARE_NAME "armv8"
#if defined(__clang__)
#define HARDWARE __attribute__((target("crc")))
#define crc32c_byte(crc, byte) __builtin_arm_crc32cb(crc, byte)
#define crc32c_word(crc, word) __builtin_arm_crc32cd(crc, word)
#else
#define HARDWARE __attribute__((target("+crc")))
#define crc32c_byte(crc, byte) __builtin_aarch64_crc32cb(crc, byte)
#define crc32c_word(crc, word) __builtin_aarch64_crc32cx(crc, word)
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#endif

typedef uint32_t crc32c_function(uint32_t crc, const uint8_t *p, size_t len);

static const uint32_t POLYNOMIAL = 0x82f63b78u; /* bits reversed */

/* ---------------------------------------------------------------- portable: slicing by 8 */

static uint32_t slices[8][256]; /* slices[k][b]: byte b, then k zero bytes */

static void slices_fill(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        slices[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++)
            slices[k][byte] = slices[k - 1][byte] >> 8 ^ slices[0][slices[k - 1][byte] & 255];
}

static uint32_t portable(uint32_t crc, const uint8_t *p, size_t len)
{
    for (; len >= 8; p += 8, len -= 8) {
        uint32_t low = crc ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = slices[7][low & 255] ^ slices[6][low >> 8 & 255] ^ slices[5][low >> 16 & 255] ^ slices[4][low >> 24] ^
              slices[3][p[4]] ^ slices[2][p[5]] ^ slices[1][p[6]] ^ slices[0][p[7]];
    }
    for (; len > 0; p++, len--)
        crc = crc >> 8 ^ slices[0][(crc ^ *p) & 255];
    return crc;
}

#ifdef HARDWARE
/* ---------------------------------------------------------------- hardware: three streams */

enum { BLOCK_SIZES = 3, BLOCK_LONG = 4096, BLOCK_MIDDLE = 512, BLOCK_SHORT = 64 }; /* bytes of one stream */

static uint32_t zeros_long[4][256], zeros_middle[4][256], zeros_short[4][256];

static uint32_t map_apply(const uint32_t map[32], uint32_t bits)
{
    uint32_t image = 0;
    for (; bits; bits >>= 1, map++)
        image ^= bits & 1 ? *map : 0;
    return image;
}

/* zeros[k][b]: what byte k = b of a CRC becomes behind `size` zero bytes; size is a power of two. */
static void zeros_fill(uint32_t zeros[4][256], int size)
{
    uint32_t map[32], doubled[32]; /* images of the 32 bits */
    for (int bit = 0; bit < 32; bit++)
        map[bit] = (uint32_t)1 << bit >> 8 ^ slices[0][(uint32_t)1 << bit & 255]; /* one zero byte */
    for (; size > 1; size /= 2) {
        for (int bit = 0; bit < 32; bit++)
            doubled[bit] = map_apply(map, map[bit]);
        memcpy(map, doubled, sizeof map);
    }
    for (int k = 0; k < 4; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            zeros[k][byte] = map_apply(map, byte << 8 * k);
}

static inline uint32_t zeros_append(uint32_t zeros[4][256], uint32_t crc)
{
    return zeros[0][crc & 255] ^ zeros[1][crc >> 8 & 255] ^ zeros[2][crc >> 16 & 255] ^ zeros[3][crc >> 24];
}

static inline uint64_t load_word(const uint8_t *p)
{
    uint64_t word; /* little-endian, like every machine that comes here */
    memcpy(&word, p, sizeof word);
    return word;
}

#if defined(__x86_64__)
#define crc32c_byte(crc, byte) _mm_crc32_u8(crc, byte)
#define crc32c_word(crc, word) (uint32_t)_mm_crc32_u64(crc, word)
#endif

/* Takes as many triples of blocks as there are; *len is what is left. */
HARDWARE static inline __attribute__((always_inline)) uint32_t triples(uint32_t crc, const uint8_t **at, size_t *len,
                                                                       size_t size, uint32_t zeros[4][256])
{
    const uint8_t *p = *at;
    for (; *len >= 3 * size; *len -= 3 * size) {
        uint32_t second = 0, third = 0;
        for (const uint8_t *end = p + size; p < end; p += 8) {
            crc = crc32c_word(crc, load_word(p));
            second = crc32c_word(second, load_word(p + size));
            third = crc32c_word(third, load_word(p + 2 * size));
        }
        crc = zeros_append(zeros, crc) ^ second;
        crc = zeros_append(zeros, crc) ^ third;
        p += 2 * size;
    }
    *at = p;
    return crc;
}

HARDWARE static uint32_t hardware(uint32_t crc, const uint8_t *p, size_t len)
{
    crc = triples(crc, &p, &len, BLOCK_LONG, zeros_long);
    crc = triples(crc, &p, &len, BLOCK_MIDDLE, zeros_middle);
    crc = triples(crc, &p, &len, BLOCK_SHORT, zeros_short);
    for (; len >= 8; p += 8, len -= 8)
        crc = crc32c_word(crc, load_word(p));
    for (; len > 0; p++, len--)
        crc = crc32c_byte(crc, *p);
    return crc;
}

static int hardware_present(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & 1u << 7) != 0; /* HWCAP_CRC32 */
#elif defined(__APPLE__)
    int present = 0;
    size_t size = sizeof present;
    return sysctlbyname("hw.optional.armv8_crc32", &present, &size, NULL, 0) == 0 && present != 0;
#else
    return 0;
#endif
}
#endif

/* ---------------------------------------------------------------- the choice */

static _Atomic(crc32c_function *) chosen;

const char *logdb_crc32c_select(int portable_wanted)
{
#ifdef HARDWARE
    if (!portable_wanted && hardware_present()) {
        atomic_store_explicit(&chosen, hardware, memory_order_relaxed);
        return HARDWARE_NAME;
    }
#endif
    (void)portable_wanted;
    atomic_store_explicit(&chosen, portable, memory_order_relaxed);
    return "portable";
}

__attribute__((constructor)) static void crc32c_begin(void)
{
    slices_fill();
#ifdef HARDWARE
    zeros_fill(zeros_long, BLOCK_LONG);
    zeros_fill(zeros_middle, BLOCK_MIDDLE);
    zeros_fill(zeros_short, BLOCK_SHORT);
#endif
    logdb_crc32c_select(0);
}

uint32_t logdb_crc32c(uint32_t crc, const uint8_t *buf, size_t len)
{
    crc32c_function *function = atomic_load_explicit(&chosen, memory_order_relaxed);
    return ~function(~crc, buf, len);
}
