// Runs generated CUDA C++ on the host: blocks one after another, a fiber for each thread of a block.
//
// Threads switch only at barriers and shuffles. A block whose threads do not all come to the same barrier is
// an error, and so is a shuffle that some lanes of a warp never reach. Warps and blocks run in either order:
// a missing barrier shows in one of the two at least, and so do blocks that write the same element.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define MGB_HOST 1
#define __global__
#define __device__
#define __forceinline__ static inline
#define __grid_constant__
#define __shared__ static __attribute__((section("mgb_shared"))) /* one block at a time */
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct dim3 {
    unsigned x, y, z;
};

extern char __start_mgb_shared[] __attribute__((weak)), __stop_mgb_shared[] __attribute__((weak));

namespace shim {
enum State { RUNS, AT_WARP, AT_BLOCK, DONE };
struct Fiber {
    ucontext_t start;
    jmp_buf place;
    State state;
    bool started;
    unsigned long long slot;
};
constexpr size_t STACK = 256 * 1024;
constexpr int MOST = 1024;

static Fiber fibers[MOST];
static char *stacks = nullptr;
static int threads = 0, current = 0;
static ucontext_t scheduler;
static jmp_buf scheduler_place;
static void (*body)(const void *) = nullptr;
static const void *argument = nullptr;
static char error[256];
static dim3 thread_index, block_index, block_size, grid_size;

static void leave(State state) {
    Fiber &self = fibers[current];
    self.state = state;
    if (_setjmp(self.place) == 0) _longjmp(scheduler_place, 1);
}

static void begin() {
    body(argument);
    fibers[current].state = DONE;
    _longjmp(scheduler_place, 1);
}

static void resume(int i) {
    current = i;
    thread_index = dim3{(unsigned)i, 0, 0};
    Fiber &fiber = fibers[i];
    if (_setjmp(scheduler_place) == 0) {
        if (fiber.started) _longjmp(fiber.place, 1);
        fiber.started = true;
        swapcontext(&scheduler, &fiber.start);
    }
}

static bool fail(const char *what, int some, int all) {
    snprintf(error, sizeof error, "%s by %d of %d threads of block (%u, %u)", what, some, all, block_index.x,
             block_index.y);
    return false;
}

// Every lane of a warp has come to the same shuffle: they go on. False: some lane never will.
static bool release_warp(int first, int end, bool *released) {
    int waiting = 0, done = 0;
    for (int i = first; i < end; i++) waiting += fibers[i].state == AT_WARP, done += fibers[i].state == DONE;
    *released = waiting && waiting + done == end - first;
    if (!*released) return true;
    if (done) return fail("a shuffle was reached", waiting, end - first);
    for (int i = first; i < end; i++) fibers[i].state = RUNS;
    return true;
}

static bool run_block(bool reverse) {
    // Nobody may count on what an earlier block has left.
    if (__start_mgb_shared) memset(__start_mgb_shared, 0xff, __stop_mgb_shared - __start_mgb_shared);
    for (int i = 0; i < threads; i++) {
        Fiber &fiber = fibers[i];
        fiber.state = RUNS;
        fiber.started = false;
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = stacks + i * STACK;
        fiber.start.uc_stack.ss_size = STACK;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, begin, 0);
    }
    const int warps = (threads + 31) / 32;
    for (;;) {
        bool progress = false;
        for (int turn = 0; turn < warps; turn++) {
            const int first = (reverse ? warps - 1 - turn : turn) * 32;
            const int end = first + 32 < threads ? first + 32 : threads;
            bool released = true;
            while (released) {
                for (int i = first; i < end; i++)
                    if (fibers[i].state == RUNS) resume(i), progress = true;
                if (!release_warp(first, end, &released)) return false;
            }
        }
        int done = 0, blocked = 0;
        for (int i = 0; i < threads; i++) done += fibers[i].state == DONE, blocked += fibers[i].state == AT_BLOCK;
        if (done == threads) return true;
        if (blocked == threads) {
            for (int i = 0; i < threads; i++) fibers[i].state = RUNS;
        } else if (!progress) {
            return fail("a barrier was reached", blocked, threads);
        }
    }
}

static void run_plainly() {
    for (int i = 0; i < threads; i++) {
        thread_index = dim3{(unsigned)i, 0, 0};
        body(argument);
    }
}

// Null, or what went wrong. A kernel that has no barrier and no shuffle needs no fibers.
static const char *launch(const unsigned *geometry, bool waits, bool reverse, void (*kernel)(const void *),
                          const void *params) {
    grid_size = dim3{geometry[0], geometry[1], geometry[2]};
    block_size = dim3{geometry[3], geometry[4], geometry[5]};
    threads = block_size.x * block_size.y * block_size.z;
    if (threads < 1 || threads > MOST || block_size.y * block_size.z != 1) return "a block of an impossible size";
    if (!grid_size.x || !grid_size.y || grid_size.z != 1 || grid_size.y > 65535) return "a grid of an impossible size";
    if (waits && !stacks)
        stacks = (char *)mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    body = kernel;
    argument = params;
    const unsigned long long blocks = (unsigned long long)grid_size.x * grid_size.y;
    for (unsigned long long turn = 0; turn < blocks; turn++) {
        const unsigned long long block = reverse ? blocks - 1 - turn : turn;
        block_index = dim3{(unsigned)(block % grid_size.x), (unsigned)(block / grid_size.x), 0};
        if (!waits) run_plainly();
        else if (!run_block(reverse)) return error;
    }
    return nullptr;
}

template <class T> T exchange(T value, int lane) {
    static_assert(sizeof(T) <= 8);
    const int self = current;
    fibers[self].slot = 0;
    memcpy(&fibers[self].slot, &value, sizeof value);
    leave(AT_WARP);
    const int other = (self & ~31) + lane;
    T result;
    memcpy(&result, &fibers[other < threads ? other : self].slot, sizeof result);
    leave(AT_WARP);
    return result;
}
}  // namespace shim

#define threadIdx shim::thread_index
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size

static inline void __syncthreads() { shim::leave(shim::AT_BLOCK); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return shim::exchange(value, (shim::current & 31) ^ mask);
}

static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// Conversions that on a GPU are one instruction.
static inline unsigned shim_bits(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float shim_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline float h2f(uint16_t x) {
    const unsigned sign = (unsigned)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 1023;
    if (exponent == 31) return shim_float(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) return shim_float(sign | shim_bits((float)fraction * 0x1p-24f));
    return shim_float(sign | (exponent + 112) << 23 | fraction << 13);
}
static inline uint16_t f2h(float x) {
    const unsigned bits = shim_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) {  // below the normal numbers the places are those of a fixed-point number
        const float tiny = shim_float(size) * 0x1p24f;
        return (uint16_t)(sign | (unsigned)rintf(tiny));
    }
    return (uint16_t)(sign | ((size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13));
}
static inline float b2f(uint16_t x) { return shim_float((unsigned)x << 16); }
static inline uint16_t f2b(float x) {
    const unsigned bits = shim_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// Rounded to odd: what is not exact ends in a 1, so that rounding once more to 16 bits is right.
static inline float shim_odd(long double x) {
    if (x != x) return NAN;
    const float near = (float)x;
    if ((long double)near == x) return near;
    const float cut = fabsl((long double)near) > fabsl(x) ? shim_float(shim_bits(near) - 1) : near;
    return shim_float(shim_bits(cut) | 1);
}
static inline float to_odd(double x) { return shim_odd(x); }
static inline float to_odd(int x) { return shim_odd(x); }
static inline float to_odd(unsigned x) { return shim_odd(x); }
static inline float to_odd(long x) { return shim_odd(x); }
static inline float to_odd(unsigned long x) { return shim_odd(x); }
static inline float to_odd(long long x) { return shim_odd(x); }
static inline float to_odd(unsigned long long x) { return shim_odd(x); }
