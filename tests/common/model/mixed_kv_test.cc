// SPDX-License-Identifier: Apache-2.0
// A prompt computed with KV of one type and continued with another, as after a
// hand-off between such workers.
#include <gtest/gtest.h>

#include "tests/common/model/kv_continuation.h"

namespace baton::model {
namespace {

constexpr uint32_t kPrompt = 270, kSteps = 30;
constexpr kv::KvType kTypes[] = {kv::KvType::kF32, kv::KvType::kBf16, kv::KvType::kInt8};

// With one type from end to end, on the same kernels.
std::unique_ptr<ModelRunner> Runner(kv::KvType type) {
  LoadOptions options = Options("auto", Precision::kExact, 1);
  options.kv_type = type;
  return std::make_unique<ModelRunner>("embedded", options, 16);
}

std::vector<float> Continue(ModelRunner& prefill, ModelRunner& decode) {
  const auto tokens = RandomTokens(kPrompt + kSteps, prefill.vocabulary(), 4);
  return Continue(prefill, decode, std::span(tokens).first(kPrompt),
                  std::span(tokens).subspan(kPrompt));
}

TEST(MixedKv, EveryPairIsDeterministicAndNearFloat32) {
  std::vector<std::unique_ptr<ModelRunner>> runners;
  for (const kv::KvType type : kTypes) runners.push_back(Runner(type));
  const auto exact_runner = Runner(kv::KvType::kF32);
  const auto exact = Continue(*runners[0], *exact_runner);
  for (size_t p = 0; p < runners.size(); ++p) {
    for (size_t d = 0; d < runners.size(); ++d) {
      if (p == d) continue;
      const auto logits = Continue(*runners[p], *runners[d]);
      EXPECT_EQ(logits, Continue(*runners[p], *runners[d]));
      // Random text is harder than what the model knows (real_models_test).
      EXPECT_LT(MeanKl(exact, logits, runners[0]->vocabulary()), 2e-3)
          << kv::KvTypeName(kTypes[p]) << " to " << kv::KvTypeName(kTypes[d]);
    }
  }
}

// Not a promise, but what the documentation says: it is not what either alone gives.
TEST(MixedKv, ConvertedKvIsNotTheBitsOfTheDecodeWorkersOwn) {
  const auto bf16 = Runner(kv::KvType::kBf16), int8 = Runner(kv::KvType::kInt8);
  const auto other_int8 = Runner(kv::KvType::kInt8);
  const auto own = Continue(*other_int8, *int8);
  EXPECT_EQ(own, Continue(*other_int8, *int8));
  EXPECT_NE(own, Continue(*bf16, *int8));
}

}  // namespace
}  // namespace baton::model
