// SPDX-License-Identifier: Apache-2.0
#include "common/worker/step_messages.h"

#include <gtest/gtest.h>

namespace baton::worker {
namespace {

engine::SequenceRef Ref(uint64_t owner, uint64_t key) { return {.owner = owner, .key = key}; }

TEST(SplitByOwner, EachRouterGetsItsOwnInOneMessage) {
  engine::StepOutput output;
  for (const uint64_t key : {1u, 2u, 3u}) {
    engine::TokenOutput token;
    token.ref = Ref(key % 2, key);
    token.index = static_cast<uint32_t>(10 * key);
    token.sample.token = static_cast<TokenId>(100 + key);
    output.tokens.push_back(token);
  }
  const auto steps = SplitByOwner(output);
  ASSERT_EQ(steps.size(), 2);
  ASSERT_EQ(steps.at(1).tokens_size(), 2);
  EXPECT_EQ(steps.at(1).tokens(1).sequence_key(), 3);
  EXPECT_EQ(steps.at(1).tokens(1).first_index(), 30);
  EXPECT_EQ(steps.at(1).tokens(1).token_ids(0), 103);
  EXPECT_EQ(steps.at(0).tokens_size(), 1);
}

TEST(SplitByOwner, TimesAndLogprobsTravel) {
  engine::StepOutput output;
  engine::TokenOutput token;
  token.ref = Ref(1, 1);
  token.prefill_end = absl::FromUnixMicros(1234567);
  token.first_step_start = absl::FromUnixMicros(7654321);
  token.sample.logprobs = sampling::TokenLogprobs{.logprob = -0.5f, .top = {{4, -0.5f}, {2, -2}}};
  output.tokens.push_back(token);
  output.started.push_back(
      {.ref = Ref(1, 1), .start = absl::FromUnixMicros(99), .cached_prompt_tokens = 32});
  output.prompt_logprobs.push_back({Ref(1, 1), 1, {{.logprob = -2, .top = {{9, -1}}}}});
  const v1::StepOutput step = SplitByOwner(output).at(1);
  ASSERT_EQ(step.prompt_logprobs_size(), 1);
  EXPECT_EQ(step.prompt_logprobs(0).first_index(), 1);
  EXPECT_EQ(step.prompt_logprobs(0).logprobs(0).logprob(), -2);
  EXPECT_EQ(step.prompt_logprobs(0).logprobs(0).top(0).token_id(), 9);
  EXPECT_EQ(step.tokens(0).prefill_end_unix_us(), 1234567);
  EXPECT_EQ(step.tokens(0).first_step_unix_us(), 7654321);
  ASSERT_EQ(step.tokens(0).logprobs_size(), 1);
  EXPECT_FLOAT_EQ(step.tokens(0).logprobs(0).logprob(), -0.5f);
  EXPECT_EQ(step.tokens(0).logprobs(0).top(1).token_id(), 2);
  EXPECT_EQ(step.started(0).start_unix_us(), 99);
  EXPECT_EQ(step.started(0).cached_prompt_tokens(), 32);
}

TEST(SplitByOwner, EndsCarryStatusOrReason) {
  engine::StepOutput output;
  engine::EndOutput good;
  good.ref = Ref(1, 1);
  good.reason = engine::FinishReason::kStop;
  good.handed_off = true;
  good.transport = "shm";
  good.handoff_bytes = 4096;
  good.preemptions = {
      .count = 2, .recomputed_tokens = 70, .swapped_bytes = 5, .time = absl::Milliseconds(30)};
  engine::EndOutput bad;
  bad.ref = Ref(1, 2);
  bad.status = absl::UnavailableError("gone \xff");  // a proto string must be UTF-8
  output.ends = {good, bad};
  const v1::StepOutput step = SplitByOwner(output).at(1);
  EXPECT_EQ(step.ends(0).code(), 0);
  EXPECT_EQ(step.ends(0).reason(), v1::FINISH_REASON_STOP);
  EXPECT_TRUE(step.ends(0).handed_off());
  EXPECT_EQ(step.ends(0).transport(), "shm");
  EXPECT_EQ(step.ends(0).handoff_bytes(), 4096);
  EXPECT_EQ(step.ends(0).scheduling().preemptions(), 2);
  EXPECT_EQ(step.ends(0).scheduling().recomputed_tokens(), 70);
  EXPECT_EQ(step.ends(0).scheduling().swapped_bytes(), 5);
  EXPECT_EQ(step.ends(0).scheduling().preempted(), 30);
  EXPECT_FALSE(step.ends(1).has_scheduling());
  EXPECT_EQ(step.ends(1).code(), 14);
  EXPECT_EQ(step.ends(1).reason(), v1::FINISH_REASON_UNSPECIFIED);
  v1::StepOutput parsed;
  EXPECT_TRUE(parsed.ParseFromString(step.SerializeAsString()));
}

TEST(PrefixMessage, CarriesEveryChange) {
  const v1::PrefixChanges message =
      PrefixMessage({.reset = true, .added = {1, 2}, .removed = {3}, .version = 9});
  EXPECT_TRUE(message.reset());
  EXPECT_EQ(message.added_size(), 2);
  EXPECT_EQ(message.removed(0), 3u);
}

TEST(LoadMessage, BytesFollowFromTheLayout) {
  kv::KvLayout layout;
  layout.layers = 2;
  layout.kv_heads = 2;
  layout.head_dim = 64;
  engine::Load load;
  load.kv_blocks_total = 10;
  load.kv_blocks_free = 4;
  load.kv_blocks_reclaimable = 3;
  load.prefix_hit_tokens = 96;
  const v1::WorkerLoad message = LoadMessage(load, layout, 77);
  EXPECT_EQ(message.kv_bytes_total(), 10 * layout.BlockBytes());
  EXPECT_EQ(message.kv_block_tokens(), 32);
  EXPECT_EQ(message.kv_blocks_free(), 4);
  EXPECT_EQ(message.resident_bytes(), 77);
  EXPECT_EQ(message.kv_blocks_reclaimable(), 3);
  EXPECT_EQ(message.prefix_hit_tokens(), 96);
  EXPECT_FALSE(message.has_device_memory());
}

TEST(LoadMessage, SaysWhatTheGpusMemoryIsUsedFor) {
  const v1::WorkerLoad message = LoadMessage({}, {}, 0, model::DeviceMemory{5, 4, 3, 2, 1});
  EXPECT_EQ(message.device_memory().total_bytes(), 5);
  EXPECT_EQ(message.device_memory().free_bytes(), 4);
  EXPECT_EQ(message.device_memory().weight_bytes(), 3);
  EXPECT_EQ(message.device_memory().kv_bytes(), 2);
  EXPECT_EQ(message.device_memory().step_bytes(), 1);
}

}  // namespace
}  // namespace baton::worker
