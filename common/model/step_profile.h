// SPDX-License-Identifier: Apache-2.0
// Where the time of steps goes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace baton::model {

// Parts of a step, each with its waits for the other threads.
enum class StepPart : uint8_t {
  kEmbed,         // rows of the table; zeros into fresh KV blocks
  kNorm,          // both norms of a layer, and packing their results
  kQkv,           // projections, bias
  kAppend,        // rotation and KV write, where attention does not do them
  kAttention,     // with rotation
  kAttentionOut,  // packing the context, projection, residual
  kGateUp,        // both matrices, SwiGLU, packing
  kDown,          // projection, residual
  kHead,          // last norm, logits
};
inline constexpr size_t kStepParts = 9;

constexpr std::string_view StepPartName(StepPart part) {
  constexpr std::array<std::string_view, kStepParts> kNames = {
      "embed", "norm", "qkv", "append", "attention", "attention out", "gate up", "down", "head"};
  return kNames[static_cast<size_t>(part)];
}

// Seconds of each part on thread 0, summed over the steps since Reset. Costs a
// look at the clock per part and layer.
//
// Thread safety: none; Forward writes it.
class StepProfile final {
 public:
  void Reset() { seconds_.fill(0); }
  double seconds(StepPart part) const { return seconds_[static_cast<size_t>(part)]; }

  // A step begins; `part` ends, and with it what lay between it and the mark
  // before.
  void Begin() { last_ = Clock::now(); }
  void Mark(StepPart part) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<size_t>(part)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  std::array<double, kStepParts> seconds_ = {};
};

}  // namespace baton::model
