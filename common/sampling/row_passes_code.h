// SPDX-License-Identifier: Apache-2.0
// The one source of the row passes. Included by a file per instruction set,
// inside of a namespace of its own after kLanes is chosen by the compiler's
// flags; no other file may include it.
#include "common/sampling/row_finder.h"

namespace baton::sampling::BATON_ROW_PASSES {
namespace {

constexpr float kToInteger = 12582912.0f;  // 1.5 x 2^23: adding and taking away rounds

constexpr float kLog2E = 1.44269504f;
// 2^x on [-1/2, 1/2] as 1 + x (c1 + x (c2 + ...)), fitted to the least relative
// error, 9e-8, by weighted least squares.
constexpr float kPowerTerms[] = {0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f,
                                 0x1.ebf9bcp-3f,  0x1.62e42ap-1f, 1.0f};
constexpr float kLowestPower = -126;       // 2^-126 is far below the grid
constexpr float kMostSurprise = 87;        // likewise, of e^-87
constexpr int32_t kExponent = 0x7f800000;  // all ones in NaN and infinity
constexpr int32_t kNoSign = 0x7fffffff;
constexpr size_t kBlockGroups = kBlock / kGroup;
// Groups until a sum is flushed: a lane gets kGroup / kLanes values of each, and
// 64 may be added up.
constexpr size_t kFlush = kLanes;

// Vectors that go through each step together: one alone would wait for its own
// last result most of the time.
constexpr size_t kTogether = 4;
struct Batch {
  Floats lanes[kTogether];
};
template <typename Step>
inline __attribute__((always_inline)) void ForEach(Step step) {
  step(0);
  step(1);
  step(2);
  step(3);
}

// What a weight is computed with: 2^((logit - max) * scale).
struct PowerOfTwo {
  float max, scale;

  explicit PowerOfTwo(Distribution distribution)
      : max(distribution.max), scale(distribution.scale * kLog2E) {
    if (!(scale <= kFloatMax)) scale = kFloatMax;  // no infinity: it is multiplied by zeros
  }
};

// 2^x for x = (logit - max) * scale <= 0 as 2^n times a polynomial of the rest,
// not on the grid yet. `below` gets max - logit.
inline __attribute__((always_inline)) void WeighBatch(const float* from, PowerOfTwo power,
                                                      Batch& below, Batch& p) {
  Batch x;
  Ints exponent[kTogether];
  ForEach([&](size_t k) { below.lanes[k] = power.max - Load(from + k * kLanes); });
  ForEach(
      [&](size_t k) { x.lanes[k] = Max(below.lanes[k] * -power.scale, kLowestPower + Floats{}); });
  ForEach([&](size_t k) {
    const Floats shifted = x.lanes[k] + kToInteger;
    x.lanes[k] = x.lanes[k] - (shifted - kToInteger);
    exponent[k] = AsInts(shifted) << 23;
  });
  ForEach([&](size_t k) { p.lanes[k] = x.lanes[k] * kPowerTerms[0] + kPowerTerms[1]; });
  ForEach([&](size_t k) { p.lanes[k] = p.lanes[k] * x.lanes[k] + kPowerTerms[2]; });
  ForEach([&](size_t k) { p.lanes[k] = p.lanes[k] * x.lanes[k] + kPowerTerms[3]; });
  ForEach([&](size_t k) { p.lanes[k] = p.lanes[k] * x.lanes[k] + kPowerTerms[4]; });
  ForEach([&](size_t k) { p.lanes[k] = p.lanes[k] * x.lanes[k] + kPowerTerms[5]; });
  // Times 2^n. What would be subnormal is far below the grid, and rounds to 0.
  ForEach([&](size_t k) { p.lanes[k] = AsFloats(AsInts(p.lanes[k]) + exponent[k]); });
}

// (max - logit) * scale; not infinite, since it is multiplied by zeros.
inline Floats SurpriseOf(Floats below_max, float scale) {
  return Min(below_max * scale, kMostSurprise + Floats{});
}

inline Floats TypicalKey(Floats logits, const Typicality& typicality) {
  const Distribution distribution = typicality.distribution;
  const Floats away = SurpriseOf(distribution.max - logits, distribution.scale) - typicality.mean;
  return AsFloats(AsInts(away) | (std::numeric_limits<int32_t>::min() + Ints{}));  // -|away|
}

// Calls body(group, values) for each group, the last one from a padded copy.
// From one place, so that the compiler puts the body there and keeps sums in
// registers.
template <typename Body>
inline void ForEachGroup(const float* values, size_t size, float pad, Body body) {
  alignas(64) float padded[kGroup];
  const size_t whole = size / kGroup, rest = size % kGroup;
  if (rest > 0) {
    for (float& value : padded) value = pad;
    std::memcpy(padded, values + whole * kGroup, rest * sizeof(float));
  }
  const size_t groups = GroupsOf(size);
  for (size_t group = 0; group < groups; ++group) {
    body(group, group < whole ? values + group * kGroup : static_cast<const float*>(padded));
  }
}

// The same for the groups that the prefix reaches into, with their bounds. Calls
// flush() in time for sums, and end_block(block) behind each block.
template <typename Body, typename Flush, typename EndBlock>
inline void ForEachGroup(const Row& row, const Prefix& prefix, Body body, Flush flush,
                         EndBlock end_block) {
  const Bounds bounds(prefix, row.size);
  const size_t groups = GroupsOf(row.size);
  const float* const group_max = row.group_max;
  ForEachGroup(row.logits, row.size, -kFloatMax, [=, &bounds](size_t group, const float* in) {
    if (group_max == nullptr || bounds.Reached(group, group_max[group])) {
      body(group, in, bounds.Of(group));
    }
    if (group % kFlush == kFlush - 1) flush();
    if (group % kBlockGroups == kBlockGroups - 1 || group + 1 == groups) {
      end_block(group / kBlockGroups);
    }
  });
}

bool Scan(const float* values, size_t size, float* group_max) {
  Ints greatest = {};  // of the bits without the sign
  ForEachGroup(values, size, -kFloatMax, [&](size_t group, const float* in) {
    Floats best = Load(in);
    greatest = MaxInts(greatest, AsInts(best) & kNoSign);
    for (size_t i = kLanes; i < kGroup; i += kLanes) {
      const Floats next = Load(in + i);
      greatest = MaxInts(greatest, AsInts(next) & kNoSign);
      best = Max(best, next);
    }
    group_max[group] = MaxOf(best);
  });
  bool finite = true;
  for (size_t lane = 0; lane < kLanes; ++lane) finite = finite && greatest[lane] < kExponent;
  return finite;
}

template <bool kFind, bool kSurprise, bool kStore>
Masses WeighGroups(const Row& row, const Prefix& prefix, Distribution distribution, Range range,
                   float* weights, const Found& found) {
  const PowerOfTwo power(distribution);
  Sum total, above, surprise;
  Finder finder(range, found);
  const auto body = [&](size_t group, const float* in, const float* bound) {
    for (size_t i = 0; i < kGroup; i += kTogether * kLanes) {
      Batch below, weight;
      Parts parts[kTogether];
      Mask held[kTogether], higher[kTogether];
      WeighBatch(in + i, power, below, weight);
      ForEach([&](size_t k) { parts[k] = RoundToGrid(weight.lanes[k]); });
      ForEach([&](size_t k) {
        held[k] = higher[k] = AtLeast(Load(in + i + k * kLanes), Load(bound + i + k * kLanes));
      });
      ForEach([&](size_t k) { total.Add(held[k], parts[k]); });
      if constexpr (!kStore) continue;
      ForEach([&](size_t k) {
        weight.lanes[k] = parts[k].high + parts[k].low;
        Store(weight.lanes[k], weights + group * kGroup + i + k * kLanes);
      });
      if constexpr (kFind) {
        ForEach([&](size_t k) {
          const size_t at = i + k * kLanes;
          higher[k] = finder.Split(held[k], Load(in + at), at).above;
        });
        ForEach([&](size_t k) { above.Add(higher[k], parts[k]); });
      }
      if constexpr (kSurprise) {
        ForEach([&](size_t k) {
          const Floats away = SurpriseOf(below.lanes[k], distribution.scale);
          parts[k] = RoundToGrid(weight.lanes[k] * away);
        });
        ForEach([&](size_t k) { surprise.Add(higher[k], parts[k]); });
      }
    }
    if constexpr (kFind) finder.Collect(in, weights + group * kGroup);
  };
  const auto flush = [&] {
    total.Flush();
    if constexpr (kFind) above.Flush();
    if constexpr (kSurprise) surprise.Flush();
  };
  ForEachGroup(row, prefix, body, flush, [&](size_t block) {
    // Without a range all is above it.
    finder.EndBlock(block, kFind ? above.Take() : total.Take());
  });
  Masses result = finder.Result();
  result.total = kFind ? total.Take() : result.above;
  result.surprise = surprise.Take();
  return result;
}

Masses WeighRow(const Row& row, const Prefix& prefix, Distribution distribution, Range range,
                bool surprise, float* weights, const Found& found) {
  const bool find = range.high >= prefix.key;
  const auto weigh =
      surprise ? (find ? WeighGroups<true, true, true> : WeighGroups<false, true, true>)
               : (find ? WeighGroups<true, false, true> : WeighGroups<false, false, true>);
  return weigh(row, prefix, distribution, range, weights, found);
}

double Mass(const Row& row, Distribution distribution) {
  return WeighGroups<false, false, false>(row, {}, distribution, {}, nullptr, {}).total;
}

double Surprise(const Row& row, const Prefix& prefix, const float* weights,
                Distribution distribution) {
  Sum sum;
  const auto body = [&](size_t group, const float* in, const float* bound) {
    for (size_t i = 0; i < kGroup; i += kLanes) {
      const Floats logit = Load(in + i), weight = Load(weights + group * kGroup + i);
      const Floats away = SurpriseOf(distribution.max - logit, distribution.scale);
      sum.Add(AtLeast(logit, Load(bound + i)), RoundToGrid(weight * away));
    }
  };
  ForEachGroup(
      row, prefix, body, [&] { sum.Flush(); }, [](size_t) {});
  return sum.Take();
}

template <bool kTypical, bool kWeighted, bool kWithin>
Masses SplitGroups(const Row& row, const Prefix& prefix, const Typicality& typicality,
                   const float* weights, Range range, const Found& found) {
  Sum sum, sum_within;
  double count = 0, count_within = 0;
  Finder finder(range, found);
  const auto body = [&](size_t group, const float* in, const float* bound) {
    const float* own = kWeighted ? weights + group * kGroup : nullptr;
    for (size_t i = 0; i < kGroup; i += kLanes) {
      const Floats logit = Load(in + i);
      const Floats key = kTypical ? TypicalKey(logit, typicality) : logit;
      const auto [above, within] = finder.Split(AtLeast(logit, Load(bound + i)), key, i);
      if constexpr (kWeighted) {
        const Parts parts = PartsOf(Load(own + i));
        sum.Add(above, parts);
        if constexpr (kWithin) sum_within.Add(within, parts);
      } else {
        count += std::popcount(Bits(above));
        if constexpr (kWithin) count_within += std::popcount(Bits(within));
      }
    }
    finder.Collect(in, own);
  };
  const auto flush = [&] {
    sum.Flush();
    if constexpr (kWithin) sum_within.Flush();
  };
  ForEachGroup(row, prefix, body, flush, [&](size_t block) {
    finder.EndBlock(block, kWeighted ? sum.Take() : count,
                    kWeighted && kWithin ? sum_within.Take() : count_within);
    count = count_within = 0;
  });
  return finder.Result();
}

template <bool kWithin>
Masses SplitBy(const Row& row, const Prefix& prefix, const Typicality* typicality,
               const float* weights, Range range, const Found& found) {
  if (typicality != nullptr) {
    return SplitGroups<true, true, kWithin>(row, prefix, *typicality, weights, range, found);
  }
  return (weights != nullptr
              ? SplitGroups<false, true, kWithin>
              : SplitGroups<false, false, kWithin>)(row, prefix, {}, weights, range, found);
}

Masses Split(const Row& row, const Prefix& prefix, const Typicality* typicality,
             const float* weights, Range range, const Found& found) {
  return (found.within != nullptr ? SplitBy<true> : SplitBy<false>)(row, prefix, typicality,
                                                                    weights, range, found);
}

void Mark(const Row& row, const Prefix& prefix, const Typicality* typicality, const Prefix& typical,
          uint64_t* bits) {
  const Bounds typical_bounds(typical, row.size);
  std::memset(bits, 0, GroupsOf(row.size) * sizeof(uint64_t));
  const auto body = [&](size_t group, const float* in, const float* bound) {
    uint64_t held = 0, kept = 0;
    for (size_t i = 0; i < kGroup; i += kLanes) {
      held |= Bits(AtLeast(Load(in + i), Load(bound + i))) << i;
    }
    const float* reach = typical_bounds.Of(group);
    for (size_t i = 0; typicality != nullptr && i < kGroup; i += kLanes) {
      kept |= Bits(AtLeast(TypicalKey(Load(in + i), *typicality), Load(reach + i))) << i;
    }
    bits[group] = typicality != nullptr ? held & kept : held;
  };
  ForEachGroup(
      row, prefix, body, [] {}, [](size_t) {});
}

double SumBits(const float* weights, size_t size, const uint64_t* bits, double* group_sums) {
  double total = 0;
  for (size_t group = 0; group < GroupsOf(size); ++group) {
    Sum sum;
    for (size_t i = 0; bits[group] != 0 && i < kGroup; i += kLanes) {
      sum.Add(MaskOf(bits[group] >> i), PartsOf(Load(weights + group * kGroup + i)));
    }
    group_sums[group] = bits[group] != 0 ? sum.Take() : 0;
    total += group_sums[group];
  }
  return total;
}

void TypicalKeys(const float* logits, size_t size, const Typicality& typicality, float* keys) {
  ForEachGroup(logits, size, 0, [&](size_t group, const float* in) {
    for (size_t i = 0; i < kGroup; i += kLanes) {
      Store(TypicalKey(Load(in + i), typicality), keys + group * kGroup + i);
    }
  });
}

Range Extent(const float* keys, size_t size) {
  Floats least = keys[0] + Floats{}, most = least;
  ForEachGroup(keys, size, keys[0], [&](size_t, const float* in) {
    for (size_t i = 0; i < kGroup; i += kLanes) {
      least = Min(least, Load(in + i));
      most = Max(most, Load(in + i));
    }
  });
  return {-MaxOf(-least), MaxOf(most)};
}

void AboutAbove(const float* keys, const float* weights, size_t size, const float* bounds,
                float* sums) {
  Floats all[4] = {};
  ForEachGroup(keys, size, -kInfinity, [&](size_t group, const float* in) {
    for (size_t i = 0; i < kGroup; i += kLanes) {
      const Floats key = Load(in + i), weight = Load(weights + group * kGroup + i);
      all[0] += Where(Above(key, bounds[0] + Floats{}), weight);
      all[1] += Where(Above(key, bounds[1] + Floats{}), weight);
      all[2] += Where(Above(key, bounds[2] + Floats{}), weight);
      all[3] += Where(Above(key, bounds[3] + Floats{}), weight);
    }
  });
  for (size_t k = 0; k < 4; ++k) {
    sums[k] = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) sums[k] += all[k][lane];
  }
}

}  // namespace

const RowPasses& Passes(const char* isa) {
  static const RowPasses passes = {isa,     Scan,        WeighRow, Mass,   Split,     Mark,
                                   SumBits, TypicalKeys, Surprise, Extent, AboutAbove};
  return passes;
}

}  // namespace baton::sampling::BATON_ROW_PASSES
