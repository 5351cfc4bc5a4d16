// SPDX-License-Identifier: Apache-2.0
// Memory of the device with numbers in it. What stands there repeats every
// megabyte: times of kernels do not depend on it, but zeros would save power.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/gpu/device.h"

namespace baton::gpu_bench {

namespace dev = ::baton::gpu;
using model::gpu::Buffer;
using model::gpu::Device;

// Small numbers of a type: float32, or bf16.
absl::StatusOr<Buffer> Floats(const Device& device, size_t count);
absl::StatusOr<Buffer> Bf16s(const Device& device, size_t count);
// Records of weights (fragments.h).
absl::StatusOr<Buffer> PackedWeights(const Device& device, dev::WeightFormat format,
                                     uint32_t outputs, uint32_t inputs);
absl::StatusOr<Buffer> Words(const Device& device, std::span<const uint32_t> words);

}  // namespace baton::gpu_bench
