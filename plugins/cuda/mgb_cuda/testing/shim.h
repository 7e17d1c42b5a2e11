// Runs generated CUDA C++ on the host: blocks one after another, a fiber for each thread of a block.
//
// Threads switch only at barriers and shuffles. A block whose threads do not all come to the same barrier is
// an error, and so is a shuffle that some lanes of a warp never reach. Warps and blocks run in either order:
// a missing barrier shows in one of the two at least, and so do blocks that write the same element. The blocks
// of a cluster run together; the shared memory of those whose turn it is not lies elsewhere meanwhile.
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
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct dim3 {
    unsigned x, y, z;
};

extern char __start_mgb_shared[] __attribute__((weak)), __stop_mgb_shared[] __attribute__((weak));

namespace shim {
enum State { RUNS, AT_WARP, AT_BLOCK, AT_CLUSTER, DONE };
struct Fiber {
    ucontext_t start;
    jmp_buf place;
    State state;
    bool started;
    unsigned long long slot;
};
constexpr size_t STACK = 256 * 1024;
constexpr int MOST = 1024, BLOCKS = 8;

static Fiber fibers[MOST * BLOCKS];
static char *stacks = nullptr, *apart[BLOCKS];
static int threads = 0, cluster = 1, current = 0, there = 0;  // the block whose shared memory is in its place
static unsigned long long first_block = 0;
static bool begun[BLOCKS];
static ucontext_t scheduler;
static jmp_buf scheduler_place;
static void (*body)(const void *) = nullptr;
static const void *argument = nullptr;
static char error[256], fault[256];
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

static size_t shared_bytes() { return __start_mgb_shared ? __stop_mgb_shared - __start_mgb_shared : 0; }

// Put the shared memory of a block in its place. Nobody may count on what an earlier block has left there.
static void turn_to(int block) {
    const unsigned long long number = first_block + block;
    block_index = dim3{(unsigned)(number % grid_size.x), (unsigned)(number / grid_size.x), 0};
    const size_t bytes = shared_bytes();
    if (bytes && block != there) {
        memcpy(apart[there], __start_mgb_shared, bytes);
        memcpy(__start_mgb_shared, apart[block], bytes);
    }
    there = block;
    if (bytes && !begun[block]) memset(__start_mgb_shared, 0xff, bytes);
    begun[block] = true;
}

static void resume(int i) {
    current = i;
    turn_to(i / threads);
    thread_index = dim3{(unsigned)(i % threads), 0, 0};
    Fiber &fiber = fibers[i];
    if (_setjmp(scheduler_place) == 0) {
        if (fiber.started) _longjmp(fiber.place, 1);
        fiber.started = true;
        swapcontext(&scheduler, &fiber.start);
    }
}

// What a GPU would end the kernel for, or do something else: the block goes on, the launch is refused.
static void aligned(const void *at, size_t bytes) {
    if ((uintptr_t)at % bytes)
        snprintf(fault, sizeof fault, "%zu bytes at once at an address of %zu mod %zu by thread %u of block (%u, %u)",
                 bytes, (size_t)at % bytes, bytes, thread_index.x, block_index.x, block_index.y);
}
static void whole_warp(unsigned mask) {
    if (mask != 0xffffffffu) snprintf(fault, sizeof fault, "a shuffle with the mask %#x, which is not a whole warp", mask);
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

static int count(State state, int first, int end) {
    int found = 0;
    for (int i = first; i < end; i++) found += fibers[i].state == state;
    return found;
}

static bool release(State state, int first, int end) {
    if (count(state, first, end) != end - first) return false;
    for (int i = first; i < end; i++) fibers[i].state = RUNS;
    return true;
}

// The warps of a block, until none of them can go on.
static bool run_warps(int block, bool reverse) {
    const int warps = (threads + 31) / 32;
    do {
        for (int turn = 0; turn < warps; turn++) {
            const int first = block + (reverse ? warps - 1 - turn : turn) * 32;
            const int end = first + 32 < block + threads ? first + 32 : block + threads;
            bool released = true;
            while (released) {
                for (int i = first; i < end; i++)
                    if (fibers[i].state == RUNS) resume(i);
                if (!release_warp(first, end, &released)) return false;
            }
        }
    } while (release(AT_BLOCK, block, block + threads));
    return true;
}

// All blocks of a cluster, most often one.
static bool run_blocks(bool reverse) {
    const int all = threads * cluster;
    for (int b = 0; b < cluster; b++) {
        begun[b] = false;
        if (cluster > 1) apart[b] = (char *)realloc(apart[b], shared_bytes());
    }
    for (int i = 0; i < all; i++) {
        Fiber &fiber = fibers[i];
        fiber.state = RUNS;
        fiber.started = false;
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = stacks + i * STACK;
        fiber.start.uc_stack.ss_size = STACK;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, begin, 0);
    }
    do {
        for (int b = 0; b < cluster; b++)  // as far as each can go alone
            if (!run_warps((reverse ? cluster - 1 - b : b) * threads, reverse)) return false;
        if (count(DONE, 0, all) == all) return true;
    } while (release(AT_CLUSTER, 0, all));
    for (int b = 0; b < cluster; b++)
        if (const int some = count(AT_BLOCK, b * threads, (b + 1) * threads))
            return fail("a barrier was reached", some, threads);
    return fail("the barrier of a cluster was reached", count(AT_CLUSTER, 0, all), all);
}

// What lies in shared memory here, in that of another block of the cluster.
template <class T> T *in_block(T *here, unsigned block) {
    if ((int)block >= cluster) {
        snprintf(fault, sizeof fault, "block %u of a cluster of %d", block, cluster);
        return here;
    }
    const int first = block * threads;
    if (!begun[block] || count(DONE, first, first + threads) == threads)
        snprintf(fault, sizeof fault, "the shared memory of a block that has %s",
                 begun[block] ? "ended" : "not begun");
    return (int)block == there ? here : (T *)(apart[block] + ((char *)here - __start_mgb_shared));
}

static void run_plainly() {
    begun[0] = false;
    turn_to(0);
    for (int i = 0; i < threads; i++) {
        thread_index = dim3{(unsigned)i, 0, 0};
        body(argument);
    }
}

// Null, or what went wrong. A kernel that has no barrier and no shuffle needs no fibers.
static const char *launch(const unsigned *geometry, int blocks_together, bool waits, bool reverse,
                          void (*kernel)(const void *), const void *params) {
    grid_size = dim3{geometry[0], geometry[1], geometry[2]};
    block_size = dim3{geometry[3], geometry[4], geometry[5]};
    threads = block_size.x * block_size.y * block_size.z;
    if (threads < 1 || threads > MOST || block_size.y * block_size.z != 1) return "a block of an impossible size";
    if (!grid_size.x || !grid_size.y || grid_size.z != 1 || grid_size.y > 65535) return "a grid of an impossible size";
    cluster = blocks_together;
    if (cluster > BLOCKS || grid_size.x % cluster || (cluster > 1 && threads % 32)) return "a cluster of an impossible size";
    if (waits && !stacks)
        stacks = (char *)mmap(nullptr, MOST * BLOCKS * STACK, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    body = kernel;
    argument = params;
    fault[0] = 0;
    there = 0;
    const unsigned long long turns = (unsigned long long)grid_size.x * grid_size.y / cluster;
    for (unsigned long long turn = 0; turn < turns; turn++) {
        first_block = (reverse ? turns - 1 - turn : turn) * cluster;
        if (!waits) run_plainly();
        else if (!run_blocks(reverse)) return error;
    }
    return fault[0] ? fault : nullptr;
}

template <class T> T exchange(T value, int lane) {
    static_assert(sizeof(T) <= 8);
    const int self = current;
    fibers[self].slot = 0;
    memcpy(&fibers[self].slot, &value, sizeof value);
    leave(AT_WARP);
    const int other = (self & ~31) + lane;
    T result;
    memcpy(&result, &fibers[other < threads * cluster ? other : self].slot, sizeof result);
    leave(AT_WARP);
    return result;
}
}  // namespace shim

#define threadIdx shim::thread_index
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size

static inline void __syncthreads() { shim::leave(shim::AT_BLOCK); }
static inline void cluster_sync() { shim::leave(shim::AT_CLUSTER); }
using shim::in_block;
#define CHECK_ALIGNED(at, bytes) shim::aligned(at, bytes)
template <class T> T __shfl_xor_sync(unsigned lanes, T value, int mask) {
    shim::whole_warp(lanes);
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
static inline float from_f16(uint16_t x) {
    const unsigned sign = (unsigned)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 1023;
    if (exponent == 31) return shim_float(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) return shim_float(sign | shim_bits((float)fraction * 0x1p-24f));
    return shim_float(sign | (exponent + 112) << 23 | fraction << 13);
}
static inline uint16_t to_f16(float x) {
    const unsigned bits = shim_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) {  // below the normal numbers the places are those of a fixed-point number
        const float tiny = shim_float(size) * 0x1p24f;
        return (uint16_t)(sign | (unsigned)rintf(tiny));
    }
    return (uint16_t)(sign | ((size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13));
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
