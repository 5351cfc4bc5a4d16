// SPDX-License-Identifier: Apache-2.0
// What a pass over a row finds in a range. Included by row_passes_code.h alone,
// once per instruction set.
#include "common/sampling/row_vectors.h"

namespace baton::sampling::BATON_ROW_PASSES {
namespace {

// Keeps what lies in a pass's range.
class Finder final {
 public:
  Finder(Range range, const Found& found) : range_(range), found_(found) {}

  struct Sides {
    Mask above, within;
  };
  // Which of the keys that are held lie above the range and in it. These are noted.
  Sides Split(Mask held, Floats keys, size_t at) {
    const Mask above = Above(held, keys, range_.high + Floats{});
    const Mask within = Without(AtLeast(held, keys, range_.low + Floats{}), above);
    in_range_ |= Bits(within) << at;
    return {above, within};
  }
  // Copies what was noted of a group.
  void Collect(const float* logits, const float* weights) {
    uint64_t bits = in_range_;
    in_range_ = 0;
    if (bits == 0) return;
    if (found_.logits == nullptr) {
      count_ += static_cast<size_t>(std::popcount(bits));
      return;
    }
    const auto count = static_cast<size_t>(std::popcount(bits));
    if (count > kDense) return CollectDense(bits, count, logits, weights);
    // Eight at once, whether there are so many or not: what is written too much
    // is overwritten, and no branch depends on a number that none could foresee.
    constexpr size_t kAtOnce = 8;
    for (size_t done = 0; done < count; done += kAtOnce) {
      float* to_logits = found_.logits + count_ + done;
      float* to_weights = found_.weights + count_ + done;
#pragma GCC unroll 8
      for (size_t k = 0; k < kAtOnce; ++k, bits &= bits - 1) {
        const auto i = static_cast<size_t>(std::countr_zero(bits | uint64_t{1} << (kGroup - 1)));
        to_logits[k] = logits[i];
        to_weights[k] = weights != nullptr ? weights[i] : 1;
      }
    }
    count_ += count;
  }
  void EndBlock(size_t block, double above, double within = 0) {
    total_ += above;
    if (found_.within != nullptr) found_.within[block] = within;
    if (found_.above == nullptr) return;
    found_.above[block] = above;
    found_.until[block] = static_cast<uint32_t>(count_);
  }
  Masses Result() const { return {0, total_, 0, count_}; }

 private:
  // Where most are copied: vector by vector.
  void CollectDense(uint64_t bits, size_t count, const float* logits, const float* weights) {
    float* to_logits = found_.logits + count_;
    float* to_weights = found_.weights + count_;
    for (size_t i = 0; i < kGroup; i += kLanes) {
      const Mask mask = MaskOf(bits >> i);
      const size_t kept = StorePacked(mask, Load(logits + i), to_logits);
      StorePacked(mask, weights != nullptr ? Load(weights + i) : 1 + Floats{}, to_weights);
      to_logits += kept;
      to_weights += kept;
    }
    count_ += count;
  }

  const Range range_;
  const Found found_;
  uint64_t in_range_ = 0;
  size_t count_ = 0;
  double total_ = 0;
};

}  // namespace
}  // namespace baton::sampling::BATON_ROW_PASSES
