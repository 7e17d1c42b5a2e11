/* Copies of elements that lie a few elements apart, forwards or backwards, and tiles, by vectors of 64 bytes.
 *
 * A vector of what is gathered takes its lanes from as many vectors of memory as its elements are apart; what is
 * scattered is stored likewise, with masks. What lies between is read, and never written. A block of such vectors never
 * has the last element, for memory may end there. The functions return how many elements they have copied.
 */
#include "launcher.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* The most elements apart, the bytes of a vector, and the fewest vectors that are worth the places of their lanes. */
enum { APART = 4, VECTOR = 64, FEW = 4 };

/* How many columns of a transposed input are asked for before they are read. */
enum { AHEAD = 32 };

#define FEATURES "avx512f,avx512bw,avx512vbmi"
#define WIDE static __attribute__((target(FEATURES)))
#define INLINE static inline __attribute__((always_inline, target(FEATURES)))

/* Return `number` in each element. */
INLINE __m512i spread(int64_t number, int64_t size) {
    switch (size) {
    case 1: return _mm512_set1_epi8(number);
    case 2: return _mm512_set1_epi16(number);
    case 4: return _mm512_set1_epi32(number);
    default: return _mm512_set1_epi64(number);
    }
}

/* Return in which lanes two vectors are equal. */
INLINE uint64_t equal(__m512i a, __m512i b, int64_t size) {
    switch (size) {
    case 1: return _mm512_cmpeq_epi8_mask(a, b);
    case 2: return _mm512_cmpeq_epi16_mask(a, b);
    case 4: return _mm512_cmpeq_epi32_mask(a, b);
    default: return _mm512_cmpeq_epi64_mask(a, b);
    }
}

/* Return the lanes of `vector` at the places, modulo their number, where `mask` is set; elsewhere those of `others`. */
INLINE __m512i chosen(__m512i others, uint64_t mask, __m512i places, __m512i vector, int64_t size) {
    switch (size) {
    case 1: return _mm512_mask_permutexvar_epi8(others, mask, places, vector);
    case 2: return _mm512_mask_permutexvar_epi16(others, mask, places, vector);
    case 4: return _mm512_mask_permutexvar_epi32(others, mask, places, vector);
    default: return _mm512_mask_permutexvar_epi64(others, mask, places, vector);
    }
}

INLINE void store(char *address, uint64_t mask, __m512i vector, int64_t size) {
    switch (size) {
    case 1: _mm512_mask_storeu_epi8(address, mask, vector); break;
    case 2: _mm512_mask_storeu_epi16(address, mask, vector); break;
    case 4: _mm512_mask_storeu_epi32(address, mask, vector); break;
    default: _mm512_mask_storeu_epi64(address, mask, vector);
    }
}

INLINE void put(char *numbers, int64_t place, int64_t number, int64_t size) {
    switch (size) {
    case 1: ((uint8_t *)numbers)[place] = number; break;
    case 2: ((uint16_t *)numbers)[place] = number; break;
    case 4: ((uint32_t *)numbers)[place] = number; break;
    default: ((uint64_t *)numbers)[place] = number;
    }
}

/* Return the place in a block of memory of the first element, that of the lowest address being 0. */
static inline int64_t first_of(int64_t by, int64_t lanes) { return by < 0 ? -by * lanes - 1 : 0; }

INLINE int64_t gather(char *buffer, const char *address, int64_t by, int64_t count, int64_t size) {
    int64_t lanes = VECTOR / size, apart = by < 0 ? -by : by, first = first_of(by, lanes), done = 0;
    char numbers[VECTOR];
    for (int64_t lane = 0; lane < lanes; lane++)
        put(numbers, lane, first + lane * by, size);
    __m512i places = _mm512_loadu_si512(numbers);
    uint64_t mask[APART];
    for (int64_t k = 0; k < apart; k++)
        mask[k] = equal(_mm512_and_si512(places, spread(-lanes, size)), spread(k * lanes, size), size);
    address -= first * size;
    for (; count - done > lanes; done += lanes, address += by * VECTOR, buffer += VECTOR) {
        __m512i vector = _mm512_setzero_si512();
        for (int64_t k = 0; k < apart; k++)
            vector = chosen(vector, mask[k], places, _mm512_loadu_si512(address + k * VECTOR), size);
        _mm512_storeu_si512(buffer, vector);
    }
    return done;
}

INLINE int64_t scatter(char *address, int64_t by, const char *buffer, int64_t count, int64_t size) {
    int64_t lanes = VECTOR / size, apart = by < 0 ? -by : by, first = first_of(by, lanes), done = 0;
    char numbers[APART * VECTOR] = {0}, taken[APART * VECTOR] = {0};
    for (int64_t lane = 0; lane < lanes; lane++) {
        put(numbers, first + lane * by, lane, size);
        put(taken, first + lane * by, 1, size);
    }
    __m512i places[APART];
    uint64_t mask[APART];
    for (int64_t k = 0; k < apart; k++) {
        places[k] = _mm512_loadu_si512(numbers + k * VECTOR);
        mask[k] = equal(_mm512_loadu_si512(taken + k * VECTOR), spread(1, size), size);
    }
    address -= first * size;
    for (; count - done > lanes; done += lanes, address += by * VECTOR, buffer += VECTOR) {
        __m512i vector = _mm512_loadu_si512(buffer);
        for (int64_t k = 0; k < apart; k++)
            store(address + k * VECTOR, mask[k], chosen(vector, -1, places[k], vector, size), size);
    }
    return done;
}

/* Return the lanes at the places in two vectors, one after the other. */
INLINE __m512i of_two(__m512i a, __m512i places, __m512i b, int64_t size) {
    switch (size) {
    case 2: return _mm512_permutex2var_epi16(a, places, b);
    case 4: return _mm512_permutex2var_epi32(a, places, b);
    default: return _mm512_permutex2var_epi64(a, places, b);
    }
}

/* Transpose as many rows as a vector has lanes. Each turn lays the lanes of the first half of the rows between those of
 * the second; when each bit of a lane's place has gone round, columns have become rows. */
INLINE void transpose(char *target, int64_t down, const char *source, int64_t step, __m512i low, __m512i high,
                      int64_t size) {
    enum { MOST = 32 };
    int64_t lanes = VECTOR / size, half = lanes / 2;
    __m512i rows[MOST], turned[MOST];
#pragma GCC unroll 32
    for (int64_t k = 0; k < lanes; k++)
        rows[k] = _mm512_loadu_si512(source + k * step);
#pragma GCC unroll 5
    for (int64_t bit = 1; bit < lanes; bit *= 2) {
#pragma GCC unroll 16
        for (int64_t k = 0; k < half; k++) {
            turned[2 * k] = of_two(rows[k], low, rows[k + half], size);
            turned[2 * k + 1] = of_two(rows[k], high, rows[k + half], size);
        }
#pragma GCC unroll 32
        for (int64_t k = 0; k < lanes; k++)
            rows[k] = turned[k];
    }
#pragma GCC unroll 32
    for (int64_t k = 0; k < lanes; k++)
        _mm512_storeu_si512(target + k * down, rows[k]);
}

INLINE int64_t tile(char *buffer, const char *address, int64_t step, int64_t count, int64_t rows, int64_t pitch,
                    int64_t size) {
    int64_t lanes = VECTOR / size, half = lanes / 2, down = pitch * size;
    char numbers[2 * VECTOR];
    for (int64_t lane = 0; lane < lanes; lane++) {
        put(numbers, lane, lane / 2 + lane % 2 * lanes, size);
        put(numbers + VECTOR, lane, half + lane / 2 + lane % 2 * lanes, size);
    }
    __m512i low = _mm512_loadu_si512(numbers), high = _mm512_loadu_si512(numbers + VECTOR);
    for (int64_t column = 0; column <= count - lanes; column += lanes) {
        for (int64_t k = 0; k < lanes; k++)
            for (int64_t offset = 0; offset < rows * size; offset += VECTOR)
                __builtin_prefetch(address + (column + k + AHEAD) * step + offset, 0, 2);
        for (int64_t row = 0; row <= rows - lanes; row += lanes)
            transpose(buffer + row * down + column * size, down, address + column * step + row * size, step, low, high,
                      size);
    }
    return lanes;
}

/* Of each distance and size one loop is made: there both are constants. */
#define EACH(size)                                                                                         \
    WIDE int64_t gather_##size(char *to, const char *from, int64_t by, int64_t count) {                    \
        switch (by) {                                                                                      \
        case -1: return gather(to, from, -1, count, size);                                                 \
        case -2: return gather(to, from, -2, count, size);                                                 \
        case 2: return gather(to, from, 2, count, size);                                                   \
        case 3: return gather(to, from, 3, count, size);                                                   \
        case 4: return gather(to, from, 4, count, size);                                                   \
        default: return 0;                                                                                 \
        }                                                                                                  \
    }                                                                                                      \
    WIDE int64_t scatter_##size(char *to, int64_t by, const char *from, int64_t count) {                   \
        switch (by) {                                                                                      \
        case -1: return scatter(to, -1, from, count, size);                                                \
        case -2: return scatter(to, -2, from, count, size);                                                \
        case 2: return scatter(to, 2, from, count, size);                                                  \
        case 3: return scatter(to, 3, from, count, size);                                                  \
        case 4: return scatter(to, 4, from, count, size);                                                  \
        default: return 0;                                                                                 \
        }                                                                                                  \
    }

EACH(1)
EACH(2)
EACH(4)
EACH(8)

#define TILE(size)                                                                                          \
    WIDE int64_t tile_##size(char *buffer, const char *address, int64_t step, int64_t count, int64_t rows,   \
                             int64_t pitch) {                                                               \
        return tile(buffer, address, step, count, rows, pitch, size);                                       \
    }

TILE(2)
TILE(4)
TILE(8)

/* Processors without these gather by vectors of 16 bytes; they have no stores with masks that are quick. */
static inline __attribute__((always_inline, target("avx2"))) int64_t
gather_bytes(char *buffer, const char *address, int64_t by, int64_t apart, int64_t count, int64_t size) {
    enum { BYTES = 16, NONE = 0x80 };
    int64_t lanes = BYTES / size, first = first_of(by, lanes), done = 0;
    __m128i places[APART];
#pragma GCC unroll 4
    for (int64_t k = 0; k < apart; k++) {
        uint8_t numbers[BYTES];
#pragma GCC unroll 16
        for (int64_t byte = 0; byte < BYTES; byte++) {
            int64_t from = (first + byte / size * by) * size + byte % size - k * BYTES;
            numbers[byte] = from >= 0 && from < BYTES ? from : NONE;
        }
        places[k] = _mm_loadu_si128((const __m128i *)numbers);
    }
    address -= first * size;
    for (; count - done > lanes; done += lanes, address += by * BYTES, buffer += BYTES) {
        __m128i vector = _mm_setzero_si128();
        for (int64_t k = 0; k < apart; k++) {
            __m128i part = _mm_loadu_si128((const __m128i *)(address + k * BYTES));
            vector = _mm_or_si128(vector, _mm_shuffle_epi8(part, places[k]));
        }
        _mm_storeu_si128((__m128i *)buffer, vector);
    }
    return done;
}

#define NARROW(size)                                                                                       \
    static __attribute__((target("avx2"))) int64_t narrow_##size(char *to, const char *from, int64_t by,   \
                                                                 int64_t count) {                          \
        switch (by) {                                                                                      \
        case -1: return gather_bytes(to, from, -1, 1, count, size);                                        \
        case -2: return gather_bytes(to, from, -2, 2, count, size);                                        \
        case 2: return gather_bytes(to, from, 2, 2, count, size);                                          \
        case 3: return gather_bytes(to, from, 3, 3, count, size);                                          \
        case 4: return gather_bytes(to, from, 4, 4, count, size);                                          \
        default: return 0;                                                                                 \
        }                                                                                                  \
    }

NARROW(1)
NARROW(2)
NARROW(4)
NARROW(8)

static int64_t gather_narrow(char *buffer, const char *address, int64_t step, int64_t count, int64_t size) {
    if (!__builtin_cpu_supports("avx2"))
        return 0;
    switch (size) {
    case 1: return narrow_1(buffer, address, step, count);
    case 2: return narrow_2(buffer, address, step / 2, count);
    case 4: return narrow_4(buffer, address, step / 4, count);
    default: return narrow_8(buffer, address, step / 8, count);
    }
}

static bool has_vectors(void) {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi");
}

/* Return whether vectors are worth it, of elements that lie whole elements apart. */
static bool pays(int64_t step, int64_t count, int64_t size) {
    return count * size >= FEW * VECTOR && step % size == 0;
}

int64_t gather_wide(char *buffer, const char *address, int64_t step, int64_t count, int64_t size) {
    if (!pays(step, count, size))
        return 0;
    if (!has_vectors())
        return gather_narrow(buffer, address, step, count, size);
    switch (size) {
    case 1: return gather_1(buffer, address, step, count);
    case 2: return gather_2(buffer, address, step / 2, count);
    case 4: return gather_4(buffer, address, step / 4, count);
    default: return gather_8(buffer, address, step / 8, count);
    }
}

int64_t scatter_wide(char *address, int64_t step, const char *buffer, int64_t count, int64_t size) {
    if (!pays(step, count, size) || !has_vectors())
        return 0;
    switch (size) {
    case 1: return scatter_1(address, step, buffer, count);
    case 2: return scatter_2(address, step / 2, buffer, count);
    case 4: return scatter_4(address, step / 4, buffer, count);
    default: return scatter_8(address, step / 8, buffer, count);
    }
}

int64_t tile_wide(char *buffer, const char *address, int64_t step, int64_t count, int64_t across, int64_t rows,
                  int64_t pitch, int64_t size) {
    if (across != size || !has_vectors())
        return 0;
    switch (size) {
    case 1: return 0;
    case 2: return tile_2(buffer, address, step, count, rows, pitch);
    case 4: return tile_4(buffer, address, step, count, rows, pitch);
    default: return tile_8(buffer, address, step, count, rows, pitch);
    }
}

#else

int64_t gather_wide(char *buffer, const char *address, int64_t step, int64_t count, int64_t size) { return 0; }

int64_t scatter_wide(char *address, int64_t step, const char *buffer, int64_t count, int64_t size) { return 0; }

int64_t tile_wide(char *buffer, const char *address, int64_t step, int64_t count, int64_t across, int64_t rows,
                  int64_t pitch, int64_t size) {
    return 0;
}

#endif
