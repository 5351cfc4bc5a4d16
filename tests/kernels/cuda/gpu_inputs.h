// SPDX-License-Identifier: Apache-2.0
// What the suites of GPU kernels share. In the emulator device memory is memory.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/api/pack.h"
#include "kernels/cuda/simt/block.h"
#include "tests/kernels/kernel_inputs.h"

namespace baton::gpu {

// Runs what follows in a scope under a schedule of the emulator.
class WithSchedule {
 public:
  explicit WithSchedule(simt::Schedule schedule) { simt::SetSchedule(schedule); }
  ~WithSchedule() { simt::SetSchedule(simt::Schedule::kInOrder); }
};
inline constexpr simt::Schedule kSchedules[] = {simt::Schedule::kInOrder, simt::Schedule::kReversed,
                                                simt::Schedule::kRandom};

// Rounded to bf16 and back.
std::vector<float> ThroughBf16(std::span<const float> values);

// Activations in the kernels' order; rows beyond `rows` of the last tile are
// NaN, which no result may show.
std::vector<uint16_t> PackActivations(std::span<const float> x, uint32_t rows, uint32_t inputs);
// One row of them.
std::vector<float> ActivationRow(std::span<const uint16_t> packed, uint32_t row, uint32_t inputs);

// A matrix in a GPU's layout.
std::vector<std::byte> PackMatrix(const kernels::StoredMatrix& matrix);

}  // namespace baton::gpu
