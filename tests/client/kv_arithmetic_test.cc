// SPDX-License-Identifier: Apache-2.0
#include "client/cli/kv_arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/kv_options.h"

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
  EXPECT_THAT(text,
              HasSubstr("1024 blocks each x 917504 bytes = 939524096 (939.5 MB, 896.00 MiB)"));
  EXPECT_THAT(text, HasSubstr("= 9362 blocks = 299584 tokens"));
  const auto json = nlohmann::json::parse(KvToJson(question, *ComputeKv(question)));
  EXPECT_EQ(json["bytes_per_token"], 28672);
  EXPECT_EQ(json["sequences_that_fit"], 9);
}

// A published text says 2.3 GB for this shape; its formula says 3.2.
TEST(KvArithmetic, ThirtyTwoLayersOf96HeadsTake3Point2GB) {
  const KvQuestion question{.layers = 32, .kv_heads = 96, .head_dim = 128, .context = 2048};
  const KvAnswer answer = *ComputeKv(question);
  EXPECT_EQ(answer.needed_bytes, uint64_t{2} * 32 * 96 * 128 * 2 * 2048);
  EXPECT_THAT(ExplainKv(question, answer), HasSubstr("= 3221225472 (3.2 GB, 3.00 GiB)"));
}

TEST(KvArithmetic, Int8AddsAScaleToEachHead) {
  KvQuestion question = ChatGlm2();
  question.type = kv::KvType::kInt8;
  const KvAnswer answer = *ComputeKv(question);
  EXPECT_EQ(answer.bytes_per_token, 2u * 28 * 2 * 130);
  EXPECT_THAT(ExplainKv(question, answer),
              HasSubstr("x (128 head size x 1 bytes + 2 of scale) (int8) = 14560\n"));
}

TEST(KvArithmetic, WindowKeepsAFixedNumberOfBlocks) {
  KvQuestion question = ChatGlm2();
  question.window = {.tokens = 1024, .sinks = 32};
  for (const auto& [context, blocks] : {std::pair{64u, 2u}, {1088u, 34u}, {32'768u, 34u}}) {
    question.context = context;
    EXPECT_EQ(ComputeKv(question)->blocks_per_sequence, blocks) << context;
  }
  EXPECT_THAT(ExplainKv(question, *ComputeKv(question)),
              HasSubstr("32 sinks / 32 + 1024 window / 32 + 1) = 34 blocks"));
}

TEST(KvArithmetic, StrideAndRangesAddTheBlocksThatTheyKeep) {
  KvQuestion question = ChatGlm2();
  question.context = 32'768;
  question.window = {.tokens = 1024, .sinks = 32, .stride = 256, .keep = {{{64, 128}}}};
  // Of 1,024 blocks the last 33 and the first; of those between them every eighth
  // and two.
  EXPECT_EQ(ComputeKv(question)->blocks_per_sequence, 34u + 991 / 8 + 2);
  EXPECT_THAT(ExplainKv(question, *ComputeKv(question)),
              HasSubstr("32 sinks / 32 + 1024 window / 32 + 1 + 125 of stride and ranges) = 159 "));
  const auto json = nlohmann::json::parse(KvToJson(question, *ComputeKv(question)));
  EXPECT_EQ(json["stride"], 256);
  EXPECT_EQ(json["keep"], nlohmann::json::parse("[[64,128]]"));
  EXPECT_EQ(json["blocks_per_sequence"], 159);
  EXPECT_THAT(*KvOptionsTable(question), HasSubstr("1024 + 32, stride 256, ranges"));
}

TEST(KvArithmetic, PromptThatIsComputedHereGetsBlocksForAllOfIt) {
  KvQuestion question = ChatGlm2();
  question.context = 32'768;
  question.window = {.tokens = 1024, .sinks = 32};
  question.prompt = 4000;
  EXPECT_EQ(ComputeKv(question)->blocks_per_sequence, 126u);
  EXPECT_THAT(ExplainKv(question, *ComputeKv(question)),
              HasSubstr("max(ceil((4000 of the prompt + 1) / 32), 32 sinks"));
  question.prompt = 500;
  EXPECT_EQ(ComputeKv(question)->blocks_per_sequence, 34u);
}

TEST(KvOptionsTable, ListsKnownModelsWithGroupedHeadsInt8AndWindow) {
  const std::string table =
      *KvOptionsTable({.layers = 32, .kv_heads = 96, .head_dim = 128, .context = 2048});
  const auto line = [&](const std::string& begin) {
    return ::testing::ContainsRegex("\n" + begin);
  };
  EXPECT_THAT(table, line("as asked +32 +96 .own. +128 +bf16 +all +1572864 +3.2 GB, 3.00 GiB"));
  EXPECT_THAT(table, line("GPT-3 +96 +96 .own. +128 +bf16 +all +4718592 +9.7 GB, 9.00 GiB"));
  EXPECT_THAT(table, line("GPT-3 +96 +12 .GQA. +128 +int8 +all +299520 "));
  EXPECT_THAT(table, line("Llama-2-7B +32 +32 .own. +128 +bf16 +all +524288 +1.1 GB, 1.00 GiB"));
  EXPECT_THAT(table, line("Llama-2-7B +32 +4 .GQA. +128 +int8 +1024 . 32 "));
  EXPECT_THAT(table, line("ChatGLM2-6B +28 +32 .MHA. +128 +bf16 +all +458752 "));
  EXPECT_THAT(table, line("ChatGLM2-6B +28 +2 .own. +128 +int8 +all +14560 "));
}

TEST(KvArithmetic, RefusesNumbersThatMakeNoModel) {
  KvQuestion question = ChatGlm2();
  question.window = {.tokens = 100};
  EXPECT_THAT(std::string(ComputeKv(question).status().message()), HasSubstr("window is 100"));
  question.window = {.tokens = 64, .stride = 32};
  EXPECT_THAT(std::string(ComputeKv(question).status().message()), HasSubstr("stride is 32"));
  question = ChatGlm2();
  question.context = 10;
  question.prompt = 11;
  EXPECT_THAT(std::string(ComputeKv(question).status().message()), HasSubstr("--prompt is 11"));
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
