// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "client/cli/bench/machine.h"

namespace baton::cli {
namespace {

#if defined(__x86_64__)

constexpr int kSteps = 2000;
constexpr int kChains = 12;  // hides a latency of 6 cycles at 2 per cycle

// Twelve instructions that do not wait for each other, into named registers:
// the compiler would keep copies of its own. The sources are zero, since only
// the rate matters.
#define BATON_TWELVE(op, set)                                                          \
  op set "0\n" op set "1\n" op set "2\n" op set "3\n" op set "4\n" op set "5\n" op set \
         "6\n" op set "7\n" op set "8\n" op set "9\n" op set "10\n" op set "11\n"
#define BATON_RUN(op, set)                                                                       \
  do {                                                                                           \
    asm volatile("vpxor %%xmm15, %%xmm15, %%xmm15" ::: "xmm15");                                 \
    for (int i = 0; i < kSteps; ++i) {                                                           \
      asm volatile(BATON_TWELVE(op " " set "15, " set "15, ", set)::                             \
                       : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                         "xmm9", "xmm10", "xmm11", "xmm15");                                     \
    }                                                                                            \
  } while (false)

void DotBytesZmm() { BATON_RUN("vpdpbusd", "%%zmm"); }
void DotBf16Zmm() { BATON_RUN("vdpbf16ps", "%%zmm"); }
void FmaZmm() { BATON_RUN("vfmadd231ps", "%%zmm"); }
void PairsYmm() { BATON_RUN("vpmaddubsw", "%%ymm"); }
void FmaYmm() { BATON_RUN("vfmadd231ps", "%%ymm"); }

#undef BATON_RUN
#undef BATON_TWELVE

struct Instruction {
  const char* name;
  Element element;
  bool avx512;
  bool present;
  uint64_t products;  // of one
  void (*run)();
};

std::vector<Instruction> Instructions() {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  return {
      {"vpdpbusd zmm", Element::kInt8, true, avx512 && __builtin_cpu_supports("avx512vnni") != 0,
       64, DotBytesZmm},
      {"vdpbf16ps zmm", Element::kBf16, true, avx512 && __builtin_cpu_supports("avx512bf16") != 0,
       32, DotBf16Zmm},
      {"vfmadd231ps zmm", Element::kF32, true, avx512, 16, FmaZmm},
      {"vpmaddubsw ymm", Element::kInt8, false, avx2, 32, PairsYmm},
      {"vfmadd231ps ymm", Element::kF32, false, avx2 && __builtin_cpu_supports("fma") != 0, 8,
       FmaYmm},
  };
}

#else

constexpr int kSteps = 0, kChains = 0;
struct Instruction {
  const char* name;
  Element element;
  bool avx512, present;
  uint64_t products;
  void (*run)();
};
std::vector<Instruction> Instructions() { return {}; }

#endif

Element ElementOf(std::string_view format) {
  if (format.find("a8") != std::string_view::npos) return Element::kInt8;
  return format.find("bf16") != std::string_view::npos ? Element::kBf16 : Element::kF32;
}

}  // namespace

std::vector<InstructionPeak> MeasureInstructions(uint32_t threads, double seconds) {
  std::vector<InstructionPeak> peaks;
  for (const Instruction& instruction : Instructions()) {
    if (!instruction.present) continue;
    const uint64_t operations = 2 * instruction.products * kChains * kSteps;
    const Rate rate = MeasureRate(threads, seconds, [&](uint32_t) {
      instruction.run();
      return operations;
    });
    peaks.push_back({instruction.name, instruction.element, instruction.avx512, rate});
  }
  return peaks;
}

double PeakOf(const std::vector<InstructionPeak>& peaks, std::string_view format) {
  const bool avx512 = format.substr(0, 6) == "avx512";
  const auto of = [&](Element products) {
    double best = 0;
    for (const InstructionPeak& peak : peaks) {
      if (peak.element == products && peak.avx512 == avx512) best = std::max(best, peak.rate.best);
    }
    return best;
  };
  Element element = ElementOf(format);
  if (element == Element::kBf16 && format.starts_with("avx512vnni")) element = Element::kF32;
  const double peak = of(element);
  return peak > 0 ? peak : of(Element::kF32);
}

}  // namespace baton::cli
