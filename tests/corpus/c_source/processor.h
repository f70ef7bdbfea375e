// CUDA C on the processor, to compare numbers: each thread of a block is a fibre, blocks run one after another.
// A fibre runs until its thread waits (a barrier, an exchange of a warp) or ends; then the next one runs.
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define warpSize 32

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define VECTORS(T, N)                                                        \
    struct N##2 { T x, y; };                                                 \
    struct N##3 { T x, y, z; };                                              \
    struct alignas(4 * sizeof(T)) N##4 { T x, y, z, w; };                    \
    inline N##2 make_##N##2(T x, T y) { return {x, y}; }                     \
    inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }             \
    inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(unsigned char, uchar)

namespace processor {

struct Fibre {
    ucontext_t context;
    dim3 thread;
    int number;
    bool ended;
    long passed;  // block barriers
    long turn;    // exchanges of its warp
    uint64_t value;
};

inline dim3 grid, block, group;
inline std::vector<Fibre> fibres;
inline Fibre* current;
inline ucontext_t scheduler;
inline char memory[1 << 17];

inline void wait() { swapcontext(&current->context, &scheduler); }

// All threads of the block that have not ended wait for each other.
inline void barrier() {
    long passed = ++current->passed;
    for (;;) {
        wait();
        bool all = true;
        for (auto& fibre : fibres) all &= fibre.ended || fibre.passed >= passed;
        if (all) return;
    }
}

// The lanes of a mask give a number each; returns when all have given theirs.
inline Fibre& lane(int number) { return fibres[current->number / 32 * 32 + number]; }
inline bool exists(int number) {
    return current->number / 32 * 32 + number < (int)fibres.size() && !lane(number).ended;
}
inline void meet(unsigned mask) {
    long turn = ++current->turn;
    for (;;) {
        wait();
        bool all = true;
        for (int n = 0; n < 32; ++n) all &= !(mask >> n & 1) || !exists(n) || lane(n).turn >= turn;
        if (all) return;
    }
}

template <class T, class Read>
auto exchange(unsigned mask, T value, Read read) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    current->value = bits;
    meet(mask);
    auto result = read();
    meet(mask);
    return result;
}

template <class T>
T shuffle(unsigned mask, T value, int source) {
    return exchange(mask, value, [&] {
        T result;
        memcpy(&result, &lane(source).value, sizeof result);
        return result;
    });
}

template <class... P, size_t... I>
void call(void (*kernel)(P...), void** given, std::index_sequence<I...>) {
    kernel(*(std::remove_reference_t<P>*)given[I]...);
}

template <class... P>
void launch(void (*kernel)(P...), const unsigned* sizes, void** given) {
    static void (*started)(P...);
    static void** arguments;
    started = kernel, arguments = given;
    grid = dim3(sizes[0], sizes[1], sizes[2]), block = dim3(sizes[3], sizes[4], sizes[5]);
    int threads = block.x * block.y * block.z;
    const size_t size = 1 << 16;
    static char* stacks = (char*)malloc(1024 * size);
    void (*entry)() = [] {
        call(started, arguments, std::index_sequence_for<P...>());
        current->ended = true;
        wait();
    };
    for (unsigned number = 0; number < grid.x * grid.y * grid.z; ++number) {
        group = dim3(number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
        fibres.assign(threads, Fibre());
        for (int t = 0; t < threads; ++t) {
            Fibre& fibre = fibres[t];
            fibre.number = t;
            fibre.thread = dim3(t % block.x, t / block.x % block.y, t / block.x / block.y);
            getcontext(&fibre.context);
            fibre.context.uc_stack.ss_sp = stacks + t * size;
            fibre.context.uc_stack.ss_size = size;
            makecontext(&fibre.context, entry, 0);
        }
        for (int left = threads; left > 0;) {
            left = 0;
            for (auto& fibre : fibres) {
                if (fibre.ended) continue;
                current = &fibre;
                swapcontext(&scheduler, &fibre.context);
                left += !fibre.ended;
            }
        }
    }
}

template <class T, class Act>
T change(T* at, Act act) {
    T before = *at;
    *at = act(before);
    return before;
}

}  // namespace processor

#define threadIdx (processor::current->thread)
#define blockIdx (processor::group)
#define blockDim (processor::block)
#define gridDim (processor::grid)

inline void __syncthreads() { processor::barrier(); }
inline void __syncwarp(unsigned mask = ~0u) { processor::meet(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

inline int processor_count(bool here) {
    static int held;
    held = 0;
    __syncthreads();
    held += here;
    __syncthreads();
    int result = held;
    __syncthreads();
    return result;
}
inline int __syncthreads_count(int here) { return processor_count(here); }
inline int __syncthreads_or(int here) { return processor_count(here) != 0; }
inline int __syncthreads_and(int here) { return processor_count(!here) == 0; }

inline int processor_lane() { return processor::current->number % 32; }
template <class T>
T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    int own = processor_lane();
    return processor::shuffle(mask, v, own / width * width + from % width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int own = processor_lane();
    return processor::shuffle(mask, v, own % width + (int)by < width ? own + by : own);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int own = processor_lane();
    return processor::shuffle(mask, v, own % width >= (int)by ? own - by : own);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32) {
    int own = processor_lane();
    return processor::shuffle(mask, v, own ^ by);
}
inline unsigned __ballot_sync(unsigned mask, int here) {
    return processor::exchange(mask, here != 0, [&] {
        unsigned result = 0;
        for (int n = 0; n < 32; ++n)
            if (mask >> n & 1 && processor::exists(n)) result |= (unsigned)(processor::lane(n).value & 1) << n;
        return result;
    });
}
inline int __any_sync(unsigned mask, int here) { return __ballot_sync(mask, here) != 0; }
inline int __all_sync(unsigned mask, int here) { return __ballot_sync(mask, !here) == 0; }

template <class T, class U> T atomicAdd(T* at, U v) { return processor::change(at, [=](T x) { return x + (T)v; }); }
template <class T, class U> T atomicSub(T* at, U v) { return processor::change(at, [=](T x) { return x - (T)v; }); }
template <class T, class U> T atomicMax(T* at, U v) { return processor::change(at, [=](T x) { return x > (T)v ? x : (T)v; }); }
template <class T, class U> T atomicMin(T* at, U v) { return processor::change(at, [=](T x) { return x < (T)v ? x : (T)v; }); }
template <class T, class U> T atomicAnd(T* at, U v) { return processor::change(at, [=](T x) { return x & (T)v; }); }
template <class T, class U> T atomicOr(T* at, U v) { return processor::change(at, [=](T x) { return x | (T)v; }); }
template <class T, class U> T atomicXor(T* at, U v) { return processor::change(at, [=](T x) { return x ^ (T)v; }); }
template <class T, class U> T atomicExch(T* at, U v) { return processor::change(at, [=](T) { return (T)v; }); }
template <class T, class U, class V> T atomicCAS(T* at, U old, V v) {
    return processor::change(at, [=](T x) { return x == (T)old ? (T)v : x; });
}
template <class T, class U> T atomicAdd_block(T* at, U v) { return atomicAdd(at, v); }
inline unsigned atomicInc(unsigned* at, unsigned v) { return processor::change(at, [=](unsigned x) { return x >= v ? 0 : x + 1; }); }

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __brev(unsigned v) { return __builtin_bitreverse32(v); }
inline int __float_as_int(float v) { int r; memcpy(&r, &v, 4); return r; }
inline float __int_as_float(int v) { float r; memcpy(&r, &v, 4); return r; }
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline float __fmul_rn(float a, float b) {
#pragma clang fp contract(off)
    return a * b;
}
using std::max;
using std::min;
template <class T> T __ldg(const T* at) { return *at; }

// Copies that are in flight on a device are done at once here.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t size) { memcpy(to, from, size); }
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) {}

// Objects of <cuda/atomic>: orders and scopes say nothing here, because one fibre runs at a time.
namespace cuda {
enum memory_order { memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };
enum thread_scope { thread_scope_block, thread_scope_device, thread_scope_system };
namespace std { using namespace cuda; }
inline void atomic_thread_fence(memory_order, thread_scope) {}
template <class T, class Own>
struct operations {
    T* at() const { return ((const Own*)this)->place(); }
    T load(memory_order = memory_order_seq_cst) const {
        processor::wait();
        return *at();
    }
    void store(T v, memory_order = memory_order_seq_cst) const { *at() = v; }
    T fetch_add(T v, memory_order = memory_order_seq_cst) const { return atomicAdd(at(), v); }
    T operator+=(T v) const { return atomicAdd(at(), v) + v; }
    bool compare_exchange_strong(T& old, T v, memory_order = memory_order_seq_cst, memory_order = memory_order_seq_cst) const {
        T before = atomicCAS(at(), old, v);
        bool equal = before == old;
        old = before;
        return equal;
    }
    void wait(T old, memory_order = memory_order_seq_cst) const {
        while (load() == old) {
        }
    }
};
template <class T, thread_scope S>
struct atomic : operations<T, atomic<T, S>> {
    T value;
    T* place() const { return (T*)&value; }
};
template <class T, thread_scope S>
struct atomic_ref : operations<T, atomic_ref<T, S>> {
    T* target;
    explicit atomic_ref(T& of) : target(&of) {}
    T* place() const { return target; }
};
}  // namespace cuda
