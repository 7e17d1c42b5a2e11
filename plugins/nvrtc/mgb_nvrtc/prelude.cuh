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

__device__ __forceinline__ float h2f(uint16_t x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}
__device__ __forceinline__ uint16_t f2h(float x) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ __forceinline__ float b2f(uint16_t x) { return __uint_as_float((uint32_t)x << 16); }
__device__ __forceinline__ uint16_t f2b(float x) {
#if __CUDA_ARCH__ >= 800
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    const uint32_t bits = __float_as_uint(x);
    return x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}
// Rounded to odd: what is not exact ends in a 1, so that rounding once more to 16 bits is right.
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
#endif

template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vec {
    T v[N];
};
template <class T, int N> __device__ __forceinline__ Vec<T, N> load(const T *at) { return *(const Vec<T, N> *)at; }
template <class T, int N> __device__ __forceinline__ void store(T *at, Vec<T, N> value) { *(Vec<T, N> *)at = value; }

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

// No division traps: by 0 it gives 0, and the least number by -1 itself.
template <class T> __device__ __forceinline__ T towards_zero(T a, T b) {
    if (b == 0) return 0;
    if (T(-1) < T(0) && b == T(-1)) return (T)(0 - (uint64_t)a);
    return a / b;
}

// Sums of exp(x - t), found before t is known: against the greatest x so far, or 0 where that is not finite.
__device__ __forceinline__ float exp_of(float a) { return expf(a); }
__device__ __forceinline__ double exp_of(double a) { return exp(a); }
template <class T> __device__ __forceinline__ bool is_finite(T a) { return a - a == 0; }
template <class T> __device__ __forceinline__ T add_exponential(T sum, T was, T most, T x) {
    const T shift = is_finite(most) ? most : (T)0;
    if (most != was && is_finite(was)) sum *= exp_of(was - shift);
    return sum + exp_of(x - shift);
}
template <class T> __device__ __forceinline__ T settled_exponentials(T sum, T most, T t) {
    if (is_finite(most)) return sum * exp_of(most - t);
    return most == -(T)INFINITY ? exp_of(most - t) : sum * exp_of(-t);
}
// Sums of (x - c)**2, found before c is known: against a pivot that moves to the mean so far each time the count
// doubles, so that no outlier stays the pivot of many others.
template <class T> struct Squares {
    T squares, sum, pivot;
    int count;
};
template <class T> __device__ __forceinline__ void move_pivot(Squares<T> &found, T away) {
    found.squares += away * (found.count * away - 2 * found.sum);
    found.sum -= found.count * away;
}
template <class T> __device__ __forceinline__ void add_square(Squares<T> &found, T x) {
    if (found.count == 0) found.pivot = x;
    const T away = x - found.pivot;
    found.count += 1;
    found.sum += away;
    found.squares += away * away;
    if ((found.count & (found.count - 1)) == 0) {
        const T mean = found.pivot + found.sum / found.count;
        move_pivot(found, mean - found.pivot);
        found.pivot = mean;
    }
}
template <class T> __device__ __forceinline__ T settled_squares(Squares<T> found, T c) {
    if (found.count == 0) return 0;
    move_pivot(found, c - found.pivot);
    return found.squares;
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
