// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: no kernel reads what those before it write before
// it has waited for them. Here a kernel begins when nothing of it is there.
#include "kernels/cuda/simt/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/device/device.h"
#include "tests/kernels/cuda/gpu_inputs.h"

namespace baton::gpu {
namespace {

using kernels::RandomFloats;

// Memory that kernels write.
template <typename T>
class Shown {
 public:
  explicit Shown(size_t count, T value = {}) : values_(count, value) { Name(); }
  explicit Shown(std::vector<T> values) : values_(std::move(values)) { Name(); }
  ~Shown() { simt::DropMemory(values_.data()); }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  T* data() { return values_.data(); }
  const std::vector<T>& values() const { return values_; }

 private:
  void Name() { simt::AddMemory(values_.data(), values_.size() * sizeof(T)); }
  std::vector<T> values_;
};

class Overlap {
 public:
  Overlap() { simt::SetOverlap(true); }
  ~Overlap() { simt::SetOverlap(false); }
};

void Count(uint32_t* values, uint32_t count) {
  WaitForProducers();
  if (ThreadIndex() < count) values[ThreadIndex()] += ThreadIndex() + 1;
}

TEST(Overlap, WhatIsReadBeforeTheWaitIsNotThere) {
  const Overlap scope;
  Shown<uint32_t> from(32), early(32), late(32);
  Launch(
      +[](uint32_t* values) { Count(values, 32); }, {1}, 32, 0, nullptr, from.data());
  Launch(
      +[](uint32_t* values, uint32_t* early_out, uint32_t* late_out) {
        const uint32_t before = values[ThreadIndex()];
        WaitForProducers();
        early_out[ThreadIndex()] = before;
        late_out[ThreadIndex()] = values[ThreadIndex()];
      },
      {1}, 32, 0, nullptr, from.data(), early.data(), late.data());
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(early.values()[i], 0xffffffffu);
    EXPECT_EQ(late.values()[i], i + 1);
  }
}

// What a block has changed is there for those after it.
TEST(Overlap, BlocksAddToWhatTheKernelBeforeWrote) {
  const Overlap scope;
  Shown<uint32_t> values(8);
  const auto kernel = +[](uint32_t* all) { Count(all, 8); };
  Launch(kernel, {1}, 32, 0, nullptr, values.data());
  Launch(kernel, {3}, 32, 0, nullptr, values.data());
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(values.values()[i], 4 * (i + 1));
}

TEST(OverlapDeathTest, KernelThatDoesNotWaitIsRefused) {
  EXPECT_DEATH(Launch(
                   +[](uint32_t* values) {
                     if (ThreadIndex() > 3) WaitForProducers();
                     values[0] = 1;
                   },
                   {1}, 32, 0, nullptr, static_cast<uint32_t*>(new uint32_t[1])),
               "has not waited for the kernels before");
}

// The kernels of a layer, in turn, and everything they leave.
struct Layer {
  static constexpr uint32_t kRows = 3, kHidden = 64, kHeads = 2, kKv = 1, kDim = 32 / 2;
  static constexpr uint32_t kQkv = (kHeads + 2 * kKv) * kDim, kFfn = 32, kWords = 50;

  std::vector<std::byte> Weights(uint32_t outputs, uint32_t inputs, unsigned seed) {
    return PackMatrix(RandomMatrix(kernels::WeightType::kQ8_0, outputs, inputs, seed));
  }
  void Product(const std::vector<std::byte>& weights, Epilogue epilogue, const void* in, void* out,
               uint32_t outputs, uint32_t inputs) {
    Linear({WeightFormat::kInt8, epilogue, weights.data(), in, nullptr, out, outputs, kRows,
            outputs, inputs},
           nullptr);
  }

  std::vector<uint32_t> Run() {
    const std::vector<float> table = RandomFloats(kWords * kHidden, 1);
    const std::vector<float> norm = RandomFloats(kHidden, 2), turns = RandomFloats(400, 3);
    const std::vector<uint32_t> ids = {7, 0, 31}, blocks = {0, 0, 0};
    const std::vector<int32_t> positions = {0, 1, 2}, last = {2};
    const auto qkv_weights = Weights(kQkv, kHidden, 4), out_weights = Weights(kHidden, 32, 5);
    const auto gate_up = Weights(2 * kFfn, kHidden, 6), down = Weights(kHidden, kFfn, 7);
    constexpr uint32_t kSlice = kBlockTokens * kDim * 2;
    Shown<float> x(kRows * kHidden), qkv(kRows * kQkv), partial(64), sums(64);
    Shown<uint16_t> normed(8 * kHidden), context(8 * 32), ffn(8 * kFfn), plain(kRows * 32);
    Shown<uint16_t> q(kRows * kHeads * kDim), pool_memory(kSlice), copy(kSlice), rows(16 * 64);
    const KvPool pool{KvElement::kBf16, pool_memory.data(), 2 * kSlice, 0, kKv, kSlice, kDim};
    const auto attend = [&] {
      Norm(x, norm, normed);
      Product(qkv_weights, Epilogue::kStore, normed.data(), qkv.data(), kQkv, kHidden);
      QkvTask task{};
      task.qkv = qkv.data();
      task.angles = turns.data();
      task.sines_at = 200;
      task.positions = positions.data();
      task.blocks = blocks.data();
      task.q = q.data();
      task.pool = pool;
      task.rows = kRows;
      task.heads = kHeads;
      task.rotary_dims = kDim;
      task.scale = 0.4f;
      RopeAppend(task, nullptr);
    };
    Embed({TableType::kF32, table.data(), ids.data(), nullptr, nullptr, x.data(), kRows, kHidden,
           kWords},
          nullptr);
    attend();
    const std::vector<PrefillItem> items = {{0, 0, kRows * kHeads, 0, 0, kAllBefore}};
    PrefillAttention(
        {pool, q.data(), items.data(), blocks.data(), context.data(), 1, kRows, kHeads, 1},
        nullptr);
    Product(out_weights, Epilogue::kAdd, context.data(), x.data(), kHidden, 32);
    Norm(x, norm, normed);
    Product(gate_up, Epilogue::kSwiGlu, normed.data(), ffn.data(), 2 * kFfn, kHidden);
    Product(down, Epilogue::kAdd, ffn.data(), x.data(), kHidden, kFfn);
    attend();
    const std::vector<uint32_t> row = {2};
    DecodeAttention({pool, q.data(), row.data(), last.data(), blocks.data(), partial.data(),
                     sums.data(), context.data(), 1, kRows, kHeads, 1, 1},
                    nullptr);
    PlainRows({context.data(), plain.data(), kRows, 32}, nullptr);
    CopyBlocks({pool_memory.data(), copy.data(), nullptr, nullptr, 0, 0, 0, 0, 2 * kSlice, 1},
               nullptr);
    CopyBlocks({copy.data(), rows.data(), nullptr, nullptr, 0, 0, 0, 0, 16 * 64 * 2, 1}, nullptr);
    ZeroBlocks({copy.data(), blocks.data(), 0, 32, 1}, nullptr);
    Shown<uint16_t> gated(kRows * kFfn), unpacked(16 * 32);
    SwiGlu({x.data(), gated.data(), kRows, kFfn}, nullptr);
    // Records of bf16, that another kernel has just written.
    UnpackWeights({WeightFormat::kBf16, rows.data(), unpacked.data(), 16, 32}, nullptr);
    Shown<float> weights(kHidden);
    Shown<uint32_t> token(1);
    std::vector<SampleRow> sample(1);
    sample[0].usable_vocabulary = kHidden;
    sample[0].top_k = 5;
    sample[0].temperature = sample[0].top_p = sample[0].repetition_penalty = 1;
    Linear({WeightFormat::kInt8, Epilogue::kAdd, down.data(), ffn.data(), nullptr, x.data(),
            kHidden, kRows, kHidden, kFfn},
           nullptr);
    Sample({sample.data(), nullptr, nullptr, nullptr, nullptr, x.data(), weights.data(),
            token.data(), 1, kHidden},
           nullptr);
    std::vector<uint32_t> left;
    const auto keep = [&](const auto& memory) {
      for (const auto value : memory.values()) {
        left.push_back(static_cast<uint32_t>(std::bit_cast<WordOf<sizeof(value)>>(value)));
      }
    };
    keep(x), keep(qkv), keep(q), keep(context), keep(ffn), keep(plain), keep(pool_memory);
    keep(copy), keep(rows), keep(gated), keep(unpacked), keep(token);
    return left;
  }

 private:
  template <size_t kBytes>
  using WordOf = std::conditional_t<kBytes == 2, uint16_t, uint32_t>;

  static void Norm(Shown<float>& x, const std::vector<float>& weight, Shown<uint16_t>& out) {
    RmsNorm({x.data(), weight.data(), nullptr, out.data(), kRows, kHidden, 1e-5f}, nullptr);
  }
};

TEST(Overlap, KernelsOfALayerWaitForEachOther) {
  const std::vector<uint32_t> expected = Layer().Run();
  const Overlap scope;
  EXPECT_EQ(Layer().Run(), expected);
}

}  // namespace
}  // namespace baton::gpu
