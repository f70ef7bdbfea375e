// CUDA C++ on a processor, as far as the tests' kernels use it. Included twice: before a kernel, and after it, where
// WT_KERNEL is its name. Threads of a block run one after another; those that meet at barriers, each in a thread.
#ifndef WT_KERNEL
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

struct wt_index { unsigned x, y, z; };
static thread_local wt_index threadIdx, blockIdx;
static wt_index blockDim, gridDim;
static void *wt_dynamic;
static std::barrier<> *wt_meeting;
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static

typedef _Float16 __half;
static inline __half __float2half_rn(float x) { return (__half)x; }
static inline float __half2float(__half x) { return x; }
static inline float __uint_as_float(unsigned bits) { float x; std::memcpy(&x, &bits, 4); return x; }
static inline unsigned __float_as_uint(float x) { unsigned bits; std::memcpy(&bits, &x, 4); return bits; }
using std::max;
using std::min;
static inline void __syncthreads() { wt_meeting->arrive_and_wait(); }
namespace cooperative_groups {
struct grid { void sync() { wt_meeting->arrive_and_wait(); } };
static inline grid this_grid() { return {}; }
}
static inline long long clock64() { static thread_local long long now; return now += 1000000000; }
static inline unsigned long long wt_now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
template <class T> static T atomicAdd(T *at, T value) {
    std::atomic_ref<T> cell(*at);
    T seen = cell.load();
    while (!cell.compare_exchange_weak(seen, seen + value)) {}
    return seen;
}
#else
template <class... A, std::size_t... I>
static void wt_call(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<A> *>(given[I])...);
}
template <class... A> static void wt_call(void (*kernel)(A...), void **given) {
    wt_call(kernel, given, std::index_sequence_for<A...>());
}
template <class... A> static int wt_sizes(void (*)(A...), std::size_t *sizes) {
    std::size_t all[] = {sizeof(A)..., 0};
    std::memcpy(sizes, all, sizeof all);
    return sizeof...(A);
}
extern "C" int wt_parameters(std::size_t *sizes) { return wt_sizes(WT_KERNEL, sizes); }
extern "C" void wt_run(const unsigned *grid, const unsigned *block, void **given, void *dynamic) {
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]}, wt_dynamic = dynamic;
    std::size_t threads = std::size_t(block[0]) * block[1] * block[2], blocks = std::size_t(grid[0]) * grid[1] * grid[2];
    auto one = [&](std::size_t b, std::size_t t) {
        blockIdx = {unsigned(b % grid[0]), unsigned(b / grid[0] % grid[1]), unsigned(b / grid[0] / grid[1])};
        threadIdx = {unsigned(t % block[0]), unsigned(t / block[0] % block[1]), unsigned(t / block[0] / block[1])};
        wt_call(WT_KERNEL, given);
    };
    auto together = [&](std::size_t begin, std::size_t end) {
        std::barrier<> meeting(end - begin);
        wt_meeting = &meeting;
        std::vector<std::jthread> all;
        for (std::size_t i = begin; i < end; ++i)
            all.emplace_back([&, i] { one(i / threads, i % threads); meeting.arrive_and_drop(); });
    };
#if defined(WT_WIDE)
    together(0, blocks * threads);
#elif defined(WT_MEET)
    for (std::size_t b = 0; b < blocks; ++b) together(b * threads, (b + 1) * threads);
#else
    for (std::size_t b = 0; b < blocks; ++b)
        for (std::size_t t = 0; t < threads; ++t) one(b, t);
#endif
}
#endif
