// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/logit_row.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>

namespace baton::sampling {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kLanes = 16;               // independent maxima, so that the loop vectorizes
constexpr uint32_t kExponent = 0x7f800000;  // all ones in NaN and infinity

struct BlockScan {
  float max;
  bool finite;
};

BlockScan ScanShort(std::span<const float> values) {
  BlockScan scan{values[0], true};
  for (float value : values) {
    scan.max = value > scan.max ? value : scan.max;
    scan.finite &= (std::bit_cast<uint32_t>(value) & kExponent) != kExponent;
  }
  return scan;
}

BlockScan ScanBlock(const float* values) {
  float best[kLanes];
  uint32_t bad[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    best[lane] = values[lane];
    bad[lane] = (std::bit_cast<uint32_t>(values[lane]) & kExponent) == kExponent;
  }
  for (size_t i = kLanes; i < kBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      best[lane] = value > best[lane] ? value : best[lane];
      bad[lane] |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent;
    }
  }
  BlockScan scan{best[0], true};
  for (size_t lane = 0; lane < kLanes; ++lane) {
    scan.max = best[lane] > scan.max ? best[lane] : scan.max;
    scan.finite &= bad[lane] == 0;
  }
  return scan;
}

}  // namespace

bool LogitRow::Scan(std::span<const float> logits) {
  logits_ = logits;
  block_max_.clear();
  if (logits.empty()) return false;
  size_t best_block = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, logits.size() - begin);
    const BlockScan scan =
        size == kBlock ? ScanBlock(logits.data() + begin) : ScanShort(logits.subspan(begin, size));
    if (!scan.finite) return false;
    if (begin == 0 || scan.max > max_) {
      max_ = scan.max;
      best_block = begin;
    }
    block_max_.push_back(scan.max);
  }
  argmax_ = static_cast<TokenId>(best_block);
  while (logits[argmax_] != max_) ++argmax_;
  return true;
}

float LogitRow::BoundFor(size_t count) {
  // Each of the `count` best blocks holds a logit that reaches the worst of
  // their maxima.
  if (count == 0) count = 1;
  if (count > block_max_.size()) return -std::numeric_limits<float>::max();
  order_ = block_max_;
  const auto nth = order_.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(order_.begin(), nth, order_.end(), std::greater<>());
  return *nth;
}

void LogitRow::Gather(float bound, std::vector<Candidate>& out) const {
  out.clear();
  for (size_t block = 0; block < block_max_.size(); ++block) {
    if (block_max_[block] < bound) continue;
    const size_t end = std::min((block + 1) * kBlock, logits_.size());
    for (size_t id = block * kBlock; id < end; ++id) {
      if (logits_[id] >= bound) out.push_back({logits_[id], static_cast<TokenId>(id), 0});
    }
  }
}

}  // namespace baton::sampling
