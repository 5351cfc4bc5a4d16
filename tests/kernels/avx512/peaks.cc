// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/avx512/peaks.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

namespace baton::kernels::testing {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int kSteps = 20000;
constexpr int kChains = 12;  // enough to hide a latency of 6 cycles at 2 per cycle

#define BATON_TWELVE(op)                                                                 \
  op "%%zmm0\n" op "%%zmm1\n" op "%%zmm2\n" op "%%zmm3\n" op "%%zmm4\n" op "%%zmm5\n" op \
     "%%zmm6\n" op "%%zmm7\n" op "%%zmm8\n" op "%%zmm9\n" op "%%zmm10\n" op "%%zmm11\n"
#define BATON_CLOBBERS                                                                     \
  "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", \
      "zmm11", "zmm30", "zmm31"

// Zero operands: only the rate matters.
#define BATON_CLEAR "vpxord %%zmm30, %%zmm30, %%zmm30\nvpxord %%zmm31, %%zmm31, %%zmm31\n"

void DotBytes() {
  asm volatile(BATON_CLEAR ::: BATON_CLOBBERS);
  for (int i = 0; i < kSteps; ++i) {
    asm volatile(BATON_TWELVE("vpdpbusd %%zmm30, %%zmm31, ")::: BATON_CLOBBERS);
  }
}

void DotBf16Pairs() {
  asm volatile(BATON_CLEAR ::: BATON_CLOBBERS);
  for (int i = 0; i < kSteps; ++i) {
    asm volatile(BATON_TWELVE("vdpbf16ps %%zmm30, %%zmm31, ")::: BATON_CLOBBERS);
  }
}

void MultiplyAdd() {
  asm volatile(BATON_CLEAR ::: BATON_CLOBBERS);
  for (int i = 0; i < kSteps; ++i) {
    asm volatile(BATON_TWELVE("vfmadd231ps %%zmm30, %%zmm31, ")::: BATON_CLOBBERS);
  }
}

uint64_t ReadAll(const std::byte* data, size_t bytes) {
  __m512i sum[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (size_t j = 0; j < 4; ++j) {
      sum[j] = _mm512_xor_si512(sum[j], _mm512_loadu_si512(data + i + j * 64));
    }
  }
  sum[0] = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum[0]));
}

}  // namespace

double BestSeconds(const std::function<void()>& work, double seconds) {
  double best = std::numeric_limits<double>::max();
  const double end = Now() + seconds;
  for (double start = Now(); start < end;) {
    work();
    const double now = Now();
    best = std::min(best, now - start);
    start = now;
  }
  return best;
}

double PeakInt8() { return 2.0 * 64 * kChains * kSteps / BestSeconds(DotBytes); }
double PeakBf16() {
  if (__builtin_cpu_supports("avx512bf16")) {
    return 2.0 * 32 * kChains * kSteps / BestSeconds(DotBf16Pairs);
  }
  return 2.0 * 16 * kChains * kSteps / BestSeconds(MultiplyAdd);
}

double BestStream(int threads, const std::function<size_t(int)>& step) {
  std::atomic<size_t> done{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&, t] {
      while (!stop.load(std::memory_order_relaxed)) done += step(t);
    });
  }
  constexpr double kSlot = 4e-3;
  double best = 0;
  const double end = Now() + 1;
  for (double start = Now(); start < end;) {
    const size_t before = done;
    double now = start;
    for (; now - start < kSlot; now = Now()) done += step(0);
    best = std::max(best, static_cast<double>(done - before) / (now - start));
    start = now;
  }
  stop = true;
  for (std::thread& thread : others) thread.join();
  return best;
}

double ReadBandwidth(const std::byte* data, size_t bytes, int threads) {
  constexpr size_t kPiece = size_t{256} << 10;
  const size_t share = bytes / static_cast<size_t>(threads) / kPiece * kPiece;
  std::vector<size_t> at(static_cast<size_t>(threads) * 16);  // a cache line each
  std::atomic<uint64_t> sink{0};
  return BestStream(threads, [&](int t) {
    const auto thread = static_cast<size_t>(t);
    size_t& offset = at[thread * 16];
    sink.fetch_xor(ReadAll(data + thread * share + offset, kPiece), std::memory_order_relaxed);
    offset = (offset + kPiece) % share;
    return kPiece;
  });
}

}  // namespace baton::kernels::testing
