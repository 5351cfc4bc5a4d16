// SPDX-License-Identifier: Apache-2.0
// Chooses tokens as common/sampling does: the same order of steps, the same
// arithmetic, the same random bits, so the same token. A block per row.
//
// Prefixes of the best are found without sorting: four passes over the keys
// narrow the one at the prefix's end by 8 bits each, with exact sums of counts
// or weights per digit; equal keys are walked by id.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/sampling_math.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr float kGreedyBelow = 1e-5f;
constexpr uint32_t kAll = 0xffffffff;

struct Shared {
  uint64_t digits[256];
  uint64_t warp_sums[kWarps];
  uint64_t above;
  uint32_t prefix, last, chosen, bad;
  float warp_max[kWarps];
};

// The best down to `key`, of which ids up to `last`.
struct Prefix {
  uint32_t key = 0, last = kAll;  // OrderedBits
  BATON_DEVICE bool Holds(uint32_t other, uint32_t id) const {
    return other > key || (other == key && id <= last);
  }
};

// A contiguous part of the row for walks in order of ids.
struct Part {
  uint32_t begin, end;
};
BATON_DEVICE Part OwnPart(uint32_t size) {
  const uint32_t each = (size + kThreads - 1) / kThreads;
  const uint32_t begin = Least(ThreadIndex() * each, size);
  return {begin, Least(begin + each, size)};
}

BATON_DEVICE float BlockMax(float value, Shared& shared) {
  BATON_UNROLL
  for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) value = Most(value, ShuffleXor(value, mask));
  if (Lane() == 0) shared.warp_max[WarpIndex()] = value;
  SyncBlock();
  float best = shared.warp_max[0];
  for (uint32_t w = 1; w < kWarps; ++w) best = Most(best, shared.warp_max[w]);
  SyncBlock();
  return best;
}

// Sum of all threads' values before this one's; the whole sum in `total`.
BATON_DEVICE uint64_t SumBefore(uint64_t value, uint64_t& total, Shared& shared) {
  uint64_t upto = value;
  BATON_UNROLL
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const uint64_t other = Shuffle(upto, Lane() >= step ? Lane() - step : Lane());
    if (Lane() >= step) upto += other;
  }
  if (Lane() == kWarp - 1) shared.warp_sums[WarpIndex()] = upto;
  SyncBlock();
  uint64_t before = 0;
  total = 0;
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (w < WarpIndex()) before += shared.warp_sums[w];
    total += shared.warp_sums[w];
  }
  SyncBlock();
  return before + upto - value;
}

// False when a logit that is to be changed is not finite.
BATON_DEVICE void Penalize(const SampleTask& task, const SampleRow& row, float* logits,
                           Shared& shared) {
  for (uint32_t i = row.history_begin + ThreadIndex(); i < row.history_end; i += kThreads) {
    const TokenCount entry = task.history[i];
    if (entry.token >= row.usable_vocabulary) continue;
    float logit = logits[entry.token];
    if (!Finite(logit)) AtomicAdd(&shared.bad, 1u);
    if (row.repetition_penalty != 1) {
      logit = ClampFinite(logit > 0 ? DivRn(logit, row.repetition_penalty)
                                    : MulRn(logit, row.repetition_penalty));
    }
    if (entry.outputs > 0) {
      logit = ClampFinite(SubRn(logit, row.presence_penalty));
      logit = ClampFinite(
          SubRn(logit, MulRn(row.frequency_penalty, static_cast<float>(entry.outputs))));
    }
    logits[entry.token] = logit;
  }
}

// The first bias of a token takes all others of it along, in order.
BATON_DEVICE void AddBiases(const SampleTask& task, const SampleRow& row, float* logits,
                            Shared& shared) {
  for (uint32_t i = row.bias_begin + ThreadIndex(); i < row.bias_end; i += kThreads) {
    const uint32_t token = task.biases[i].token;
    if (token >= row.usable_vocabulary) continue;
    bool first = true;
    for (uint32_t j = row.bias_begin; j < i && first; ++j) first = task.biases[j].token != token;
    if (!first) continue;
    float logit = logits[token];
    if (!Finite(logit)) AtomicAdd(&shared.bad, 1u);
    for (uint32_t j = i; j < row.bias_end; ++j) {
      if (task.biases[j].token == token) logit = ClampFinite(AddRn(logit, task.biases[j].bias));
    }
    logits[token] = logit;
  }
}

// What a constraint does not allow.
BATON_DEVICE void BanOthers(const uint32_t* mask, const SampleRow& row, float* logits) {
  for (uint32_t i = ThreadIndex(); i < row.usable_vocabulary; i += kThreads) {
    const bool allowed = i / 32 < row.mask_words && (mask[i / 32] >> (i % 32) & 1) != 0;
    if (!allowed) logits[i] = -kFloatMax;
  }
}

BATON_DEVICE void Edit(const SampleTask& task, const SampleRow& row, float* logits,
                       Shared& shared) {
  const bool penalizes =
      row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
  if (penalizes) Penalize(task, row, logits, shared);
  SyncBlock();
  AddBiases(task, row, logits, shared);
  SyncBlock();
  for (uint32_t i = row.banned_begin + ThreadIndex(); i < row.banned_end; i += kThreads) {
    if (task.banned[i] < row.usable_vocabulary) logits[task.banned[i]] = -kFloatMax;
  }
  if (row.mask_words > 0) BanOthers(task.masks + row.mask_begin, row, logits);
  SyncBlock();
}

// The walk of one digit: which of 256 holds the prefix's end.
template <typename Reached>
BATON_DEVICE void ChooseDigit(Shared& shared, uint32_t shift, Reached reached) {
  uint64_t above = shared.above;
  uint32_t digit = 255;
  while (digit > 0 && !reached(above + shared.digits[digit])) above += shared.digits[digit--];
  shared.above = above;
  shared.prefix |= digit << shift;
}

// The shortest prefix whose amounts add up until `reached(sum)`; amount(i) is 0
// for what does not count.
template <typename Amount, typename Reached>
BATON_DEVICE Prefix Select(const float* logits, uint32_t size, Shared& shared, Amount amount,
                           Reached reached) {
  if (ThreadIndex() == 0) {
    shared.prefix = 0;
    shared.above = 0;
  }
  for (uint32_t shift = 24, known = 0;; shift -= 8) {
    if (ThreadIndex() < 256) shared.digits[ThreadIndex()] = 0;
    SyncBlock();
    for (uint32_t i = ThreadIndex(); i < size; i += kThreads) {
      const uint32_t key = OrderedBits(logits[i]);
      const uint64_t value = amount(i);
      if ((key & known) == shared.prefix && value != 0) {
        AtomicAdd(&shared.digits[key >> shift & 255], value);
      }
    }
    SyncBlock();
    if (ThreadIndex() == 0) ChooseDigit(shared, shift, reached);
    SyncBlock();
    known |= 255u << shift;
    if (shift == 0) break;
  }
  // Among equal keys the lower ids come first.
  Prefix prefix{shared.prefix, kAll};
  const Part part = OwnPart(size);
  uint64_t own = 0, total;
  for (uint32_t i = part.begin; i < part.end; ++i) {
    if (OrderedBits(logits[i]) == prefix.key) own += amount(i);
  }
  const uint64_t above = shared.above;
  uint64_t sum = above + SumBefore(own, total, shared);
  if (!reached(sum) && reached(sum + own)) {
    uint32_t i = part.begin;
    for (;; ++i) {
      if (OrderedBits(logits[i]) == prefix.key) sum += amount(i);
      if (reached(sum)) break;
    }
    shared.last = i;
  }
  SyncBlock();
  prefix.last = shared.last;
  SyncBlock();
  return prefix;
}

// Drops what the prefix does not hold; returns what is left.
BATON_DEVICE uint64_t Cut(const float* logits, float* weights, uint32_t size, const Prefix& prefix,
                          Shared& shared) {
  uint64_t own = 0, total;
  for (uint32_t i = ThreadIndex(); i < size; i += kThreads) {
    if (!prefix.Holds(OrderedBits(logits[i]), i)) weights[i] = 0;
    own += GridUnits(weights[i]);
  }
  SumBefore(own, total, shared);
  return total;
}

BATON_DEVICE uint64_t Filter(const SampleRow& row, const float* logits, float* weights, float max,
                             Shared& shared) {
  const uint32_t size = row.usable_vocabulary;
  Prefix prefix;
  if (row.top_k > 0 && row.top_k < size) {
    const uint64_t wanted = row.top_k;
    prefix = Select(
        logits, size, shared, [](uint32_t) { return uint64_t{1}; },
        [&](uint64_t sum) { return sum >= wanted; });
  }
  const float scale = Least(DivRn(1.0f, row.temperature), kFloatMax);
  for (uint32_t i = ThreadIndex(); i < size; i += kThreads) {
    weights[i] = WeightOf(logits[i], max, scale);
  }
  uint64_t total = Cut(logits, weights, size, prefix, shared);
  if (row.top_p < 1) {
    SyncBlock();  // weights of others are read from here on
    const double target = MulRn(static_cast<double>(row.top_p), UnitsToDouble(total));
    prefix = Select(
        logits, size, shared, [&](uint32_t i) { return GridUnits(weights[i]); },
        [&](uint64_t sum) { return UnitsToDouble(sum) >= target; });
    total = Cut(logits, weights, size, prefix, shared);
  }
  if (row.min_p > 0) {
    const double distance =
        DivRn(ExactLog(static_cast<double>(row.min_p)), static_cast<double>(scale));
    const double least =
        Most(AddRn(static_cast<double>(max), distance), -static_cast<double>(kFloatMax));
    total = Cut(logits, weights, size, {OrderedBits(static_cast<float>(least)), kAll}, shared);
  }
  SyncBlock();
  return total;
}

// The first id at which the running sum exceeds the drawn point.
BATON_DEVICE void Draw(const SampleRow& row, const float* weights, uint64_t units, Shared& shared) {
  const double total = UnitsToDouble(units);
  DoubleBits below{total};
  --below.bits;
  const double uniform = CounterUniform(row.seed, row.choice, row.output_index);
  const double point = Least(MulRn(uniform, total), below.value);
  const Part part = OwnPart(row.usable_vocabulary);
  uint64_t own = 0, all;
  for (uint32_t i = part.begin; i < part.end; ++i) own += GridUnits(weights[i]);
  uint64_t sum = SumBefore(own, all, shared);
  if (!(UnitsToDouble(sum) <= point) || UnitsToDouble(sum + own) <= point) return;
  uint32_t i = part.begin;
  while (UnitsToDouble(sum += GridUnits(weights[i])) <= point) ++i;
  shared.chosen = i;
}

// The lowest id that has the maximum; each thread's part is in order of ids.
BATON_DEVICE void TakeBest(const float* logits, uint32_t size, float max, Shared& shared) {
  const Part part = OwnPart(size);
  uint32_t first = kAll;
  for (uint32_t i = part.begin; i < part.end && first == kAll; ++i) {
    if (logits[i] == max) first = i;
  }
  uint64_t all;
  const uint64_t before = SumBefore(first == kAll ? 0 : 1, all, shared);
  if (first != kAll && before == 0) shared.chosen = first;
}

BATON_KERNEL(kThreads) SampleKernel(SampleTask task) {
  BATON_SHARED(Shared, shared);
  StartAfterProducers();
  const SampleRow& row = task.rows[BlockIndex().x];
  const uint32_t size = row.usable_vocabulary;
  float* logits = task.logits + size_t{BlockIndex().x} * task.stride;
  float* weights = task.weights + size_t{BlockIndex().x} * task.stride;
  if (ThreadIndex() == 0) shared.bad = 0;
  SyncBlock();
  Edit(task, row, logits, shared);
  float best = -kFloatMax;
  for (uint32_t i = ThreadIndex(); i < size; i += kThreads) {
    if (!Finite(logits[i])) AtomicAdd(&shared.bad, 1u);
    best = Most(best, logits[i]);
  }
  const float max = BlockMax(best, shared);
  uint32_t problem = 0;
  if (shared.bad != 0) {
    problem = kNotFinite;
  } else if (max == -kFloatMax) {
    problem = kAllBanned;
  } else if (row.temperature < kGreedyBelow) {
    TakeBest(logits, size, max, shared);
  } else {
    Draw(row, weights, Filter(row, logits, weights, max, shared), shared);
  }
  SyncBlock();
  if (ThreadIndex() == 0) task.tokens[BlockIndex().x] = problem != 0 ? problem : shared.chosen;
}

}  // namespace

void Sample(const SampleTask& task, Stream stream) {
  Launch(SampleKernel, {task.row_count}, kThreads, 0, stream, task);
}

}  // namespace baton::gpu
