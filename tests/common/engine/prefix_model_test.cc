// SPDX-License-Identifier: Apache-2.0
// With real models too, sharing blocks changes no bit of an answer.
#include <gtest/gtest.h>

#include "common/checkpoint/checkpoint.h"
#include "common/model/load.h"
#include "tests/common/engine/harness.h"
#include "tests/testing/test_data.h"

namespace baton::engine {
namespace {

using Tokens = std::vector<TokenId>;

struct Case {
  const char* name;
  bool demo;  // SmolLM2; otherwise the embedded ChatGLM2-shaped model
  model::Precision precision;
  kv::KvType kv_type;
};

class PrefixModelTest : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<model::Model> Load() {
    auto checkpoint = checkpoint::OpenCheckpoint(GetParam().demo ? baton::testing::DemoModel()
                                                                 : std::string("embedded"));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    model::LoadOptions options;
    options.precision = GetParam().precision;
    options.kv_type = GetParam().kv_type;
    options.threads = 1;
    auto model = model::LoadModel(**checkpoint, options);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  static Options PoolOf(uint32_t chunk, bool cache) {
    Options options;
    options.kv_blocks = 60;
    options.chunk_tokens = chunk;
    options.prefix_cache = cache;
    return options;
  }
  Tokens Random(size_t length) {
    Tokens tokens(length);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % 300);
    return tokens;
  }
  // Prompts that share 300, 77 and 20 tokens, one twice, and next rounds.
  std::vector<SequenceSpec> Requests() {
    const Tokens prefix = Random(300);
    std::vector<SequenceSpec> specs;
    for (const size_t shared : {300, 300, 77, 20, 288}) {
      Tokens prompt(prefix.begin(), prefix.begin() + static_cast<ptrdiff_t>(shared));
      const Tokens own = Random(1 + specs.size() * 7);
      prompt.insert(prompt.end(), own.begin(), own.end());
      SequenceSpec spec = MakeSpec(specs.size() + 1, prompt, 8);
      spec.sampling.temperature = specs.size() % 2 == 0 ? 0.0f : 0.9f;
      spec.sampling.seed = specs.size();
      spec.sampling.logprobs = 2;
      specs.push_back(spec);
    }
    specs.push_back(specs[0]);
    specs.back().ref.key = specs.size();
    return specs;
  }
  static void ExpectSame(const std::vector<sampling::Sample>& samples,
                         const std::vector<sampling::Sample>& expected) {
    ASSERT_EQ(samples.size(), expected.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(samples[i].token, expected[i].token) << i;
      EXPECT_EQ(samples[i].logprobs->logprob, expected[i].logprobs->logprob) << i;
      EXPECT_EQ(samples[i].logprobs->top, expected[i].logprobs->top) << i;
    }
  }

  std::mt19937 random_{1};
};

INSTANTIATE_TEST_SUITE_P(
    Models, PrefixModelTest,
    ::testing::Values(Case{"GlmFast", false, model::Precision::kFast, kv::KvType::kBf16},
                      Case{"GlmFastF32", false, model::Precision::kFast, kv::KvType::kF32},
                      Case{"GlmExact", false, model::Precision::kExact, kv::KvType::kF32},
                      Case{"SmolLm2Fast", true, model::Precision::kFast, kv::KvType::kBf16},
                      Case{"SmolLm2Exact", true, model::Precision::kExact, kv::KvType::kF32}),
    [](const auto& instance) { return instance.param.name; });

TEST_P(PrefixModelTest, SharedPrefixesGiveTheBitsOfALoneColdRunOnEveryPath) {
  if (GetParam().demo) BATON_NEED_DATA(baton::testing::DemoModel());
  const std::vector<SequenceSpec> specs = Requests();
  std::vector<std::vector<sampling::Sample>> cold;
  Recorder recorder;
  {
    const auto engine = EngineOf(Load(), PoolOf(512, false), &recorder);
    for (const SequenceSpec& spec : specs) {
      engine->Submit(spec);
      ASSERT_TRUE(recorder.WaitForEnd(spec.ref, absl::Minutes(2)));
      cold.push_back(recorder.Of(spec.ref).samples);
    }
  }
  recorder.Forget();
  {
    const auto engine = EngineOf(Load(), PoolOf(64, true), &recorder);
    for (size_t i = 0; i < specs.size(); ++i) {
      engine->Submit(specs[i]);
      ASSERT_TRUE(recorder.WaitForEnd(specs[i].ref, absl::Minutes(2)));
      EXPECT_EQ(recorder.Of(specs[i].ref).cached > 0, i > 0);
      ExpectSame(recorder.Of(specs[i].ref).samples, cold[i]);
    }
    ExpectIdle(*engine);
  }
  Pair pair(Load(), PoolOf(96, true), Load(), PoolOf(512, true));
  for (size_t i = 0; i < specs.size(); ++i) {
    pair.Submit(specs[i]);
    ASSERT_TRUE(pair.WaitForEnd(specs[i].ref));
    auto samples = pair.prefill_heard.Of(specs[i].ref).samples;
    const auto rest = pair.decode_heard.Of(specs[i].ref).samples;
    samples.insert(samples.end(), rest.begin(), rest.end());
    ExpectSame(samples, cold[i]);
  }
  EXPECT_GT(pair.decode_heard.Of(specs.back().ref).end.cached_prompt_tokens, 0u);
  pair.ExpectIdle();
}

}  // namespace
}  // namespace baton::engine
