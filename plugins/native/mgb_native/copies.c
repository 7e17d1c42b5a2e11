/* What kernels call to move memory: copies side by side, tiles, stores past the caches, and prefetches.
 *
 * Kernels know these functions by name, and get each argument as a word.
 */
#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "launcher.h"

/* How many columns of a transposed input are asked for before they are read. */
enum { AHEAD = 24 };

enum { LINE = 64 };

/* Of each size of an element one function is made: there the size is a constant. */
#define INLINE static inline __attribute__((always_inline))

/* Have the cache lines of `bytes` from `address` on on their way when they are read. */
static void mgb_ask(const char *address, int64_t bytes) {
    for (int64_t offset = 0; offset < bytes; offset += LINE)
        __builtin_prefetch(address + offset, 0, 3);
}

/* Copy whole cache lines past the caches. A line in one store leaves at once; in several it waits for the others. */
#if defined(__x86_64__)
static __attribute__((target("avx512f"))) void stream_by_512(char *target, const char *source, int64_t bytes) {
#pragma GCC unroll 4
    for (int64_t place = 0; place < bytes; place += LINE)
        _mm512_stream_si512((__m512i *)(target + place), _mm512_loadu_si512(source + place));
}

static __attribute__((target("avx"))) void stream_by_256(char *target, const char *source, int64_t bytes) {
    for (int64_t place = 0; place < bytes; place += LINE / 2)
        _mm256_stream_si256((__m256i *)(target + place), _mm256_loadu_si256((const __m256i *)(source + place)));
}

static void stream(char *target, const char *source, int64_t bytes) {
    if (__builtin_cpu_supports("avx512f"))
        stream_by_512(target, source, bytes);
    else if (__builtin_cpu_supports("avx"))
        stream_by_256(target, source, bytes);
    else
        for (int64_t place = 0; place < bytes; place += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(target + place), _mm_loadu_si128((const __m128i *)(source + place)));
}
#else
static void stream(char *target, const char *source, int64_t bytes) { memcpy(target, source, bytes); }
#endif

/* Copy `bytes` past the caches: whole lines of the target by non-temporal stores. */
static void mgb_flush(char *target, const char *source, int64_t bytes) {
    int64_t head = -(uintptr_t)target % LINE;
    if (head > bytes)
        head = bytes;
    int64_t over = (bytes - head) % LINE, tail = bytes - over;
    memcpy(target, source, head);
    stream(target + head, source + head, tail - head);
    memcpy(target + tail, source + tail, over);
}

INLINE uint64_t load(const char *address, int64_t size) {
    uint8_t one;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (size) {
    case 1: return memcpy(&one, address, 1), one;
    case 2: return memcpy(&two, address, 2), two;
    case 4: return memcpy(&four, address, 4), four;
    default: return memcpy(&eight, address, 8), eight;
    }
}

INLINE void store(char *address, uint64_t element, int64_t size) {
    uint8_t one = element;
    uint16_t two = element;
    uint32_t four = element;
    switch (size) {
    case 1: memcpy(address, &one, 1); break;
    case 2: memcpy(address, &two, 2); break;
    case 4: memcpy(address, &four, 4); break;
    default: memcpy(address, &element, 8);
    }
}

/* Loops take four elements at a time, then the rest. Four are read before the first is written, since the compiler
 * cannot know that they are others. It must not replace the index by pointers either: elements that lie apart are
 * waited for, and the fewer instructions there are, the more of them the processor asks for at once. */
#define KEEP_INDEX(i) __asm__("" : "+r"(i))

/* Copy `count` elements that lie `step` bytes apart from `address` on side by side to `buffer`. */
INLINE void gather(char *buffer, const char *address, int64_t step, int64_t count, int64_t size) {
    int64_t wide = gather_wide(buffer, address, step, count, size), i = 0;
    buffer += wide * size, address += wide * step, count -= wide;
    int64_t fours = count & -4;
    for (; i < fours; i += 4, address += 4 * step) {
        uint64_t element0 = load(address, size), element1 = load(address + step, size);
        uint64_t element2 = load(address + 2 * step, size), element3 = load(address + 3 * step, size);
        store(buffer + i * size, element0, size);
        store(buffer + (i + 1) * size, element1, size);
        store(buffer + (i + 2) * size, element2, size);
        store(buffer + (i + 3) * size, element3, size);
        KEEP_INDEX(i);
    }
    for (; i < count; i++, address += step)
        store(buffer + i * size, load(address, size), size);
}

/* The reverse: copy `count` elements of `buffer` to `address` and on, `step` bytes apart. */
INLINE void scatter(char *address, int64_t step, const char *buffer, int64_t count, int64_t size) {
    int64_t wide = scatter_wide(address, step, buffer, count, size), i = 0;
    buffer += wide * size, address += wide * step, count -= wide;
    int64_t fours = count & -4;
    for (; i < fours; i += 4, address += 4 * step) {
        uint64_t element0 = load(buffer + i * size, size), element1 = load(buffer + (i + 1) * size, size);
        uint64_t element2 = load(buffer + (i + 2) * size, size), element3 = load(buffer + (i + 3) * size, size);
        store(address, element0, size);
        store(address + step, element1, size);
        store(address + 2 * step, element2, size);
        store(address + 3 * step, element3, size);
        KEEP_INDEX(i);
    }
    for (; i < count; i++, address += step)
        store(address, load(buffer + i * size, size), size);
}

/* Lay out `rows` rows of `count` elements in `buffer`, `pitch` elements apart. Elements are `step` bytes apart, rows
 * `across`. Each turn of the outer loop reads a cache line, which was asked for AHEAD lines before. */
INLINE void tile_columns(char *buffer, const char *address, int64_t step, int64_t count, int64_t across,
                         int64_t rows, int64_t pitch, int64_t size) {
    int64_t fours = rows & -4, down = pitch * size;
    for (int64_t column = 0; column < count; column++, buffer += size, address += step) {
        const char *from = address;
        char *to = buffer;
        int64_t row = 0;
        __builtin_prefetch(address + step * AHEAD, 0, 3);
        for (; row < fours; row += 4, from += 4 * across, to += 4 * down) {
            uint64_t element0 = load(from, size), element1 = load(from + across, size);
            uint64_t element2 = load(from + 2 * across, size), element3 = load(from + 3 * across, size);
            store(to, element0, size);
            store(to + down, element1, size);
            store(to + 2 * down, element2, size);
            store(to + 3 * down, element3, size);
            KEEP_INDEX(row);
        }
        for (; row < rows; row++, from += across, to += down)
            store(to, load(from, size), size);
    }
}

/* The same: whole blocks by vectors, the rows below them and the columns behind them one by one. */
INLINE void tile(char *buffer, const char *address, int64_t step, int64_t count, int64_t across, int64_t rows,
                 int64_t pitch, int64_t size) {
    int64_t block = tile_wide(buffer, address, step, count, across, rows, pitch, size);
    int64_t columns = block ? count / block * block : 0, above = block ? rows / block * block : 0;
    if (above < rows)
        tile_columns(buffer + above * pitch * size, address + above * across, step, columns, across, rows - above,
                     pitch, size);
    tile_columns(buffer + columns * size, address + columns * step, step, count - columns, across, rows, pitch, size);
}

#define SIZED(bits)                                                                                      \
    static void mgb_gather_##bits(char *buffer, const char *address, int64_t step, int64_t count) {      \
        gather(buffer, address, step, count, bits / 8);                                                  \
    }                                                                                                    \
    static void mgb_scatter_##bits(char *address, int64_t step, const char *buffer, int64_t count) {     \
        scatter(address, step, buffer, count, bits / 8);                                                 \
    }                                                                                                    \
    static void mgb_tile_##bits(char *buffer, const char *address, int64_t step, int64_t count,          \
                                int64_t across, int64_t rows, int64_t pitch) {                           \
        tile(buffer, address, step, count, across, rows, pitch, bits / 8);                               \
    }

SIZED(8)
SIZED(16)
SIZED(32)
SIZED(64)

/* Copy an array: the plan has three lengths of outer axes, the bytes of a row, three strides of the target's outer
 * axes and three of the source's. The operands are the source and the target. */
void copy_rows(void **operands, void *plan) {
    const int64_t *n = plan, *t = n + 4, *s = n + 7, bytes = n[3];
    const char *source = operands[0];
    char *target = operands[1];
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                memcpy(target + i * t[0] + j * t[1] + k * t[2], source + i * s[0] + j * s[1] + k * s[2], bytes);
}

#define NAMED(function) {#function, function}
#define NAMED_SIZED(bits) NAMED(mgb_gather_##bits), NAMED(mgb_scatter_##bits), NAMED(mgb_tile_##bits)

const struct copy copies[] = {
    NAMED(mgb_ask),  NAMED(mgb_flush), NAMED_SIZED(8), NAMED_SIZED(16),
    NAMED_SIZED(32), NAMED_SIZED(64),  {NULL, NULL},
};
