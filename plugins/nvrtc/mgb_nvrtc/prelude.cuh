#ifndef MGB_HOST
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define CHECK_ALIGNED(at, bytes)  // the host does

__device__ __forceinline__ float from_f16(uint16_t x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}
__device__ __forceinline__ uint16_t to_f16(float x) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ uint16_t cvt_bf16(float x) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#define to_bf16 cvt_bf16
#endif
// Rounded to odd: what is not exact ends in a 1, so that rounding once more to a narrow float is right.
__device__ __forceinline__ float odd(float cut, bool exact) {
    return exact ? cut : __uint_as_float(__float_as_uint(cut) | 1);
}
__device__ __forceinline__ float to_odd(double x) {
    const float cut = __double2float_rz(x);
    return odd(cut, (double)cut == x);
}
__device__ __forceinline__ float to_odd(int32_t x) { return odd(__int2float_rz(x), (int64_t)__int2float_rz(x) == x); }
__device__ __forceinline__ float to_odd(uint32_t x) {
    return odd(__uint2float_rz(x), (int64_t)__uint2float_rz(x) == x);
}
__device__ __forceinline__ float to_odd(int64_t x) { return odd(__ll2float_rz(x), (int64_t)__ll2float_rz(x) == x); }
__device__ __forceinline__ float to_odd(uint64_t x) {
    return odd(__ull2float_rz(x), (uint64_t)__ull2float_rz(x) == x);
}
#if __CUDA_ARCH__ >= 900
// What lies in shared memory here, in that of another block of the cluster.
template <class T> __device__ __forceinline__ T *in_block(T *here, unsigned block) {
    T *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(here), "r"(block));
    return there;
}
// All threads of the cluster meet; what they have written before is seen by all after it.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif
#endif

template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vec {
    T v[N];
};
template <class T, int N> __device__ __forceinline__ Vec<T, N> load(const T *at) {
    CHECK_ALIGNED(at, sizeof(T) * N);
    return *(const Vec<T, N> *)at;
}
template <class T, int N> __device__ __forceinline__ void store(T *at, Vec<T, N> value) {
    CHECK_ALIGNED(at, sizeof(T) * N);
    *(Vec<T, N> *)at = value;
}

template <class T, class S> __device__ __forceinline__ T bits_as(S value) {
    static_assert(sizeof(T) == sizeof(S), "a cast of bits keeps their number");
    union {
        S from;
        T to;
    } bits;
    bits.from = value;
    return bits.to;
}
template <class T> __device__ __forceinline__ T maximum(T a, T b) { return a != a || a > b ? a : b; }
template <class T> __device__ __forceinline__ T minimum(T a, T b) { return a != a || a < b ? a : b; }
#if !defined(MGB_HOST) && __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ float maximum<float>(float a, float b) {
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
}
template <> __device__ __forceinline__ float minimum<float>(float a, float b) {
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
}
#endif

// Sums of exp(x - t), found before t is known: against the greatest x so far, or 0 where that is not finite. The
// lanes of a row have one such shift, which moves between tiles.
__device__ __forceinline__ float exp_of(float a) { return expf(a); }
__device__ __forceinline__ double exp_of(double a) { return exp(a); }
// A term of a sum: its error grows with -a, and it falls much faster than that. Numbers below the normal are 0.
__device__ __forceinline__ float exp_term(float a) {
    const float power = a * 1.442695041f;
#ifdef MGB_HOST
    return exp2f(power);
#else
    float term;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(term) : "f"(power));
    return term;
#endif
}
__device__ __forceinline__ double exp_term(double a) { return exp(a); }
template <class T> __device__ __forceinline__ bool is_finite(T a) { return a - a == 0; }
template <class T> __device__ __forceinline__ T finite_or_0(T a) { return is_finite(a) ? a : (T)0; }
template <class T, int L> struct Exponentials {
    T sum[L], most, shift;
};
template <class T, int L> __device__ __forceinline__ void start(Exponentials<T, L> &found) {
    found = {};
    found.most = -(T)INFINITY;
}
template <class T, int L> __device__ __forceinline__ void before_tile(Exponentials<T, L> &found, T most) {
    if (most == found.most) return;
    const T shift = finite_or_0(most);
    if (is_finite(found.most)) {
        const T factor = exp_of(found.most - shift);
        for (int v = 0; v < L; ++v) found.sum[v] *= factor;
    }
    found.most = most;
    found.shift = shift;
}
template <class T, int L> __device__ __forceinline__ void add(Exponentials<T, L> &found, int v, T x) {
    found.sum[v] += exp_term(x - found.shift);
}
template <class T, int L> __device__ __forceinline__ void after_tile(Exponentials<T, L> &) {}
template <class T> __device__ __forceinline__ T settled(T sum, T most, T t) {
    if (is_finite(most)) return sum * exp_of(most - t);
    return most == -(T)INFINITY ? exp_of(most - t) : sum * exp_of(-t);
}
template <class T, int L> __device__ __forceinline__ T settled(Exponentials<T, L> found, T t) {
    T sum = found.sum[0];
    for (int v = 1; v < L; ++v) sum += found.sum[v];
    return settled(sum, found.most, t);
}
// Sums of (x - c)**2, found before c is known: against a pivot that moves to the mean so far each time the count
// doubles, so that no outlier stays the pivot of many others.
template <class T, int L> struct Squares {
    T squares[L], sum[L], pivot;
    int count, next;
};
template <class T, int L> __device__ __forceinline__ void start(Squares<T, L> &found) { found = {}; }
template <class T, int L> __device__ __forceinline__ void before_tile(Squares<T, L> &found, T first) {
    if (found.count == 0) found.pivot = first;
}
template <class T, int L> __device__ __forceinline__ void add(Squares<T, L> &found, int v, T x) {
    const T away = x - found.pivot;
    found.count += 1;
    found.sum[v] += away;
    found.squares[v] += away * away;
}
template <class T, int L> __device__ __forceinline__ T sum_of(Squares<T, L> &found) {
    T sum = found.sum[0];
    for (int v = 1; v < L; ++v) sum += found.sum[v];
    return sum;
}
template <class T, int L> __device__ __forceinline__ void move_pivot(Squares<T, L> &found, T away) {
    found.squares[0] += away * (found.count * away - 2 * sum_of(found));
    found.sum[0] -= found.count * away;
    found.pivot += away;
}
template <class T, int L> __device__ __forceinline__ void after_tile(Squares<T, L> &found) {
    if (found.count < found.next || found.count == 0) return;
    const T mean = found.pivot + sum_of(found) / found.count;
    move_pivot(found, mean - found.pivot);
    found.next = 2 * found.count;
}
template <class T, int L> __device__ __forceinline__ T settled(Squares<T, L> found, T c) {
    if (found.count == 0) return 0;
    move_pivot(found, c - found.pivot);
    T squares = found.squares[0];
    for (int v = 1; v < L; ++v) squares += found.squares[v];
    return squares;
}
// What a block has found about its own mean, about another number.
template <class T> __device__ __forceinline__ T moved(T squares, T sum, T count, T c) {
    const T away = sum / count - c;
    return squares + count * away * away;
}

template <class T> __device__ __forceinline__ T from_lane(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
__device__ __forceinline__ bool from_lane(bool value, int mask) { return from_lane((int32_t)value, mask) != 0; }
__device__ __forceinline__ int8_t from_lane(int8_t value, int mask) { return (int8_t)from_lane((int32_t)value, mask); }
__device__ __forceinline__ uint8_t from_lane(uint8_t value, int mask) {
    return (uint8_t)from_lane((int32_t)value, mask);
}
__device__ __forceinline__ int16_t from_lane(int16_t value, int mask) {
    return (int16_t)from_lane((int32_t)value, mask);
}
__device__ __forceinline__ uint16_t from_lane(uint16_t value, int mask) {
    return (uint16_t)from_lane((int32_t)value, mask);
}

// The quotient of a place by a length, by multiplication.
__device__ __forceinline__ int divide(int place, int, uint32_t factor, uint32_t shift) {
    return (int)((__umulhi((uint32_t)place, factor) + (uint32_t)place) >> shift);
}
__device__ __forceinline__ int64_t divide(int64_t place, int64_t length, uint32_t, uint32_t) { return place / length; }
