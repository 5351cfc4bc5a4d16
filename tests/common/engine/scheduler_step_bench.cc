// SPDX-License-Identifier: Apache-2.0
// What a step costs beside the model: 256 sequences that run, FakeModel.
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

constexpr uint32_t kSequences = 256;
constexpr absl::Duration kMost = absl::Microseconds(100);

class Silent final : public Listener {
 public:
  void OnStep(const StepOutput& output) override { ended += output.ends.size(); }
  std::atomic<size_t> ended = 0;
};

// The least of several windows: other work on the machine only adds to it.
TEST(SchedulerStep, With256RunningSequencesTakesAtMost100Microseconds) {
  Silent listener;
  Options options;
  options.kv_blocks = 8192;
  options.max_sequences = kSequences;
  const auto engine = MakeEngine({.vocabulary_size = 16, .end_tokens = {}}, options, &listener);
  for (uint64_t key = 1; key <= kSequences; ++key) {
    engine->Submit(MakeSpec(key, {1, 2, 3}, 1000));
  }
  ASSERT_TRUE(Eventually([&] { return engine->load().running_sequences == kSequences; }));
  absl::Duration least = absl::InfiniteDuration();
  Load before = engine->load();
  while (listener.ended == 0) {
    absl::SleepFor(absl::Milliseconds(5));
    const Load now = engine->load();
    if (now.steps < before.steps + 20) continue;
    const auto steps = static_cast<int64_t>(now.steps - before.steps);
    least = std::min(least, (now.overhead - before.overhead) / steps);
    before = now;
  }
  std::printf("scheduler step with %u running sequences: %.1f us\n", kSequences,
              absl::ToDoubleMicroseconds(least));
  EXPECT_LE(least, kMost);
}

}  // namespace
}  // namespace baton::engine
