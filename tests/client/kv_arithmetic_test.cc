// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kv_arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;

// ChatGLM2-6B: 28 layers, multi-query attention with 2 groups of 128.
KvQuestion ChatGlm2() {
  KvQuestion question;
  question.layers = 28;
  question.kv_heads = 2;
  question.head_dim = 128;
  question.type = kv::KvType::kBf16;
  return question;
}

TEST(KvArithmetic, ChatGlm2Takes28KiBPerToken) {
  EXPECT_EQ(ComputeKv(ChatGlm2())->bytes_per_token, 28'672u);
  KvQuestion question = ChatGlm2();
  question.type = kv::KvType::kF32;
  EXPECT_EQ(ComputeKv(question)->bytes_per_token, 57'344u);
}

TEST(KvArithmetic, CountsWholeBlocks) {
  KvQuestion question = ChatGlm2();
  question.context = 33;  // two blocks of 32
  question.batch = 3;
  question.memory_bytes = 5 * 32 * 28'672 + 1;
  const KvAnswer answer = *ComputeKv(question);
  EXPECT_EQ(answer.bytes_per_block, 917'504u);
  EXPECT_EQ(answer.blocks_per_sequence, 2u);
  EXPECT_EQ(answer.needed_bytes, 3u * 2 * 917'504);
  EXPECT_EQ(answer.blocks_that_fit, 5u);
  EXPECT_EQ(answer.tokens_that_fit, 160u);
  EXPECT_EQ(answer.sequences_that_fit, 2u);
}

TEST(KvArithmetic, AgreesWithTheLayoutOfRealBlocks) {
  KvQuestion question = ChatGlm2();
  question.head_dim = 120;
  const KvAnswer answer = *ComputeKv(question);
  kv::KvLayout layout;
  layout.layers = 28;
  layout.kv_heads = 2;
  layout.head_dim = 128;  // 120 rounded up to 16
  layout.type = kv::KvType::kBf16;
  EXPECT_EQ(answer.stored_head_dim, 128u);
  EXPECT_EQ(answer.bytes_per_block, layout.BlockBytes());
}

TEST(KvArithmetic, ShowsTheFormulaWithItsNumbers) {
  KvQuestion question = ChatGlm2();
  question.context = 32768;
  question.memory_bytes = uint64_t{8} << 30;
  const std::string text = ExplainKv(question, *ComputeKv(question));
  EXPECT_THAT(text, HasSubstr("2 (K and V) x 28 layers x 2 KV heads x 128 head size x 2 bytes "
                              "(bf16) = 28672\n"));
  EXPECT_THAT(text, HasSubstr("1024 blocks each x 917504 bytes = 939524096 (896.00 MiB)"));
  EXPECT_THAT(text, HasSubstr("= 9362 blocks = 299584 tokens"));
  const auto json = nlohmann::json::parse(KvToJson(question, *ComputeKv(question)));
  EXPECT_EQ(json["bytes_per_token"], 28672);
  EXPECT_EQ(json["sequences_that_fit"], 9);
}

TEST(KvArithmetic, RefusesNumbersThatMakeNoModel) {
  KvQuestion question = ChatGlm2();
  question.kv_heads = 0;
  EXPECT_THAT(std::string(ComputeKv(question).status().message()),
              HasSubstr("--kv-heads must be 1 to 10000, got 0"));
  question = ChatGlm2();
  question.layers = 10'000;
  question.kv_heads = 10'000;
  question.head_dim = 65'536;
  question.context = UINT32_MAX;
  question.batch = 1'000'000;
  EXPECT_FALSE(ComputeKv(question).ok());
}

}  // namespace
}  // namespace baton::cli
