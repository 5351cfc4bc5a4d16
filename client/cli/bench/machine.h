// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured: the yardstick of kernels and
// models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/bench/rate.h"
#include "common/model/aligned_buffer.h"

namespace baton::cli {

// Of the factors of a product.
enum class Element : uint8_t { kInt8, kBf16, kF32 };

struct InstructionPeak {
  std::string instruction;  // "vpdpbusd zmm"
  Element element;
  bool avx512;  // else AVX2
  Rate rate;    // operations per second, two per product and sum
};

// All that this CPU has, on `threads` threads at once, `seconds` each.
inline constexpr double kInstructionSeconds = 0.25;
std::vector<InstructionPeak> MeasureInstructions(uint32_t threads,
                                                 double seconds = kInstructionSeconds);

// Operations per second of the instruction that kernels named `format`
// ("avx512/w4a8-g32/1") are made of: 8-bit products where the activations are
// in eight bits ("a8"), bf16 where the name says so, else float32; what a CPU
// or backend has no instruction for is widened to float32. 0: nothing known.
double PeakOf(const std::vector<InstructionPeak>& peaks, std::string_view format);

struct CacheSizes {
  uint64_t l2 = 0, l3 = 0;  // bytes; of one core, of all that share it
};
// As the kernel tells them of CPU 0; 1 MiB and 32 MiB where it tells nothing.
CacheSizes ReadCacheSizes();

enum class MemoryLevel : uint8_t { kL2, kL3, kMemory };
std::string_view MemoryLevelName(MemoryLevel level);  // "L2", "L3", "memory"

// How fast `threads` threads together read, each its own range: of half its L2,
// of all ranges half the L3, of eight times the L3 (1 GiB at most).
class Reader final {
 public:
  Reader(MemoryLevel level, uint32_t threads, const CacheSizes& caches);
  Rate Measure(double seconds) const;  // bytes per second

 private:
  uint32_t threads_;
  size_t share_;  // bytes of a thread
  model::AlignedBuffer memory_;
};

// Whether several threads read memory faster than one: on machines of several
// dies virtual cores may lie on one die or on two, and change while they run.
// "one link" up to 1.3 times the rate of one thread, "several links" from 1.5
// on, between them "changing".
std::string_view MemoryMode(double one_thread, double all_threads);

}  // namespace baton::cli
