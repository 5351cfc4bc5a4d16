// SPDX-License-Identifier: Apache-2.0
// Bandwidth and rate of every kernel.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/model/gpu/device.h"
#include "tests/gpu/bench/record.h"
#include "tests/gpu/bench/shapes.h"
#include "tests/gpu/bench/timer.h"

namespace baton::gpu_bench {

// One measurement: what it moves and computes, as the algorithm has to.
struct KernelCase {
  std::string kernel, shape;
  double bytes = 0, flops = 0;
};

// Measures, and writes a record of it: of kind "kernel", or "missing" with the
// reason.
class KernelBench final {
 public:
  KernelBench(const model::gpu::Device& device, const Shapes& shapes, const TimerOptions& timer,
              Records& records)
      : device_(device), shapes_(shapes), timer_(timer), records_(records) {}

  // All of them; false: some could not be measured.
  bool Run();

 private:
  absl::Status Ceilings();
  absl::Status Rows();
  absl::Status Products();
  absl::Status Product(const std::string& name, ::baton::gpu::WeightFormat format, uint32_t outputs,
                       uint32_t inputs, bool swiglu);
  absl::Status Attention(bool int8);
  absl::Status Append(const ::baton::gpu::KvPool& pool, const std::string& type);
  absl::Status Decode(const ::baton::gpu::KvPool& pool, const std::string& type);
  absl::Status Prompt(const ::baton::gpu::KvPool& pool, const std::string& type);
  absl::Status Sampling();
  absl::Status Library();
  absl::Status LibraryProduct(uint32_t outputs, uint32_t inputs, uint32_t rows);
  absl::Status Conversions();

  absl::Status Measure(const KernelCase& one, const std::function<void(int i)>& run);

  const model::gpu::Device& device_;
  const Shapes shapes_;
  const TimerOptions timer_;
  Records& records_;
};

}  // namespace baton::gpu_bench
