// SPDX-License-Identifier: Apache-2.0
// Thousands of random operations against a prefill and a decode engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/time/clock.h"
#include "tests/common/engine/harness.h"

namespace baton::engine {
namespace {

using model::FakeOptions;
using model::FakeReference;

struct Live {
  SequenceSpec spec;
  bool split = false;
  bool disturbed = false;  // cancelled, or with a deadline
};

class Storm {
 public:
  explicit Storm(uint32_t seed) : random_(seed), pair_(fake_, Prefill(), Decode(seed)) {}

  void Operate() {
    switch (random_() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Submit();
      case 4:
        return CancelOne();
      case 5:
        return pair_.sender.SetFrozen(random_() % 3 == 0);
      case 6:
        return pair_.sender.FailCommits(random_() % 4 == 0 ? absl::UnavailableError("fault")
                                                           : absl::OkStatus());
      case 7:
        return CancelOwner();
      default:
        return absl::SleepFor(absl::Microseconds(static_cast<int64_t>(random_() % 300)));
    }
  }

  // Waits for every end, and checks what each sequence said.
  void Settle() {
    pair_.sender.SetFrozen(false);
    pair_.sender.FailCommits(absl::OkStatus());
    for (const auto& [ref, live] : live_) {
      ASSERT_TRUE(live.split ? pair_.WaitForEnd(ref) : pair_.decode_heard.WaitForEnd(ref));
      Check(ref, live);
    }
    pair_.ExpectIdle();
  }
  uint64_t preemptions() const { return pair_.decode->load().preemptions; }

 private:
  static Options Prefill() {
    Options options;
    options.kv_blocks = 24;
    options.chunk_tokens = 64;
    options.max_sequences = 6;
    return options;
  }
  // So few blocks that sequences are put aside; every other seed has a swap area.
  static Options Decode(uint32_t seed) {
    Options options = Prefill();
    options.kv_blocks = 14;
    options.max_sequences = 8;
    options.swap_bytes = seed % 2 == 0 ? 1 << 18 : 0;
    return options;
  }

  void Submit() {
    Live live;
    live.spec = MakeSpec(++key_, Prompt(), 1 + static_cast<uint32_t>(random_() % 50));
    live.spec.ref.owner = random_() % 5;
    live.split = random_() % 3 != 0;
    if (random_() % 10 == 0) {
      live.spec.deadline =
          absl::Now() + absl::Microseconds(static_cast<int64_t>(random_() % 20000));
      live.disturbed = true;
    }
    if (live.split) {
      pair_.Submit(live.spec);
    } else {
      pair_.decode->Submit(live.spec);
    }
    live_.emplace(live.spec.ref, live);
  }

  // Half of them begin as some others do.
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt = RandomPrompt(random_, 1 + random_() % 200, fake_);
    if (random_() % 2 == 0) {
      const size_t common = random_() % prompt.size();
      std::fill_n(prompt.begin(), common, static_cast<TokenId>(3 + random_() % 3));
    }
    return prompt;
  }

  void CancelOne() {
    if (live_.empty()) return;
    auto it = std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_() % live_.size()));
    it->second.disturbed = true;
    if (random_() % 2 == 0) pair_.prefill->Cancel(it->first, absl::CancelledError("one"));
    if (random_() % 2 == 0) pair_.decode->Cancel(it->first, absl::CancelledError("one"));
  }

  void CancelOwner() {
    if (random_() % 5 != 0) return;
    const uint64_t owner = random_() % 5;
    for (auto& [ref, live] : live_) live.disturbed |= ref.owner == owner;
    pair_.prefill->CancelOwner(owner, absl::CancelledError("owner"));
    pair_.decode->CancelOwner(owner, absl::CancelledError("owner"));
  }

  // Right as far as it goes; whole unless something was done to it.
  void Check(SequenceRef ref, const Live& live) {
    const std::vector<TokenId> tokens =
        live.split ? pair_.Tokens(ref) : pair_.decode_heard.Of(ref).tokens;
    const auto expected = FakeReference(fake_, live.spec.prompt, live.spec.max_tokens);
    ASSERT_LE(tokens.size(), expected.size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin())) << ref.key;
    const EndOutput first = pair_.prefill_heard.Of(ref).end;
    const EndOutput end = live.split && !first.handed_off ? first : pair_.decode_heard.Of(ref).end;
    if (end.status.ok()) {
      EXPECT_EQ(tokens.size(), expected.size());
    } else if (!live.disturbed) {
      EXPECT_EQ(end.status.message(), "fault");
    }
    EXPECT_EQ(pair_.decode_heard.Of(ref).ends, 1u);
    EXPECT_EQ(pair_.prefill_heard.Of(ref).ends, live.split ? 1u : 0u);
  }

  const FakeOptions fake_{.vocabulary_size = 200};
  std::mt19937 random_;
  Pair pair_;
  std::map<SequenceRef, Live> live_;
  uint64_t key_ = 0;
};

TEST(Storm, NothingIsLostLeakedOrMixedUp) {
  uint64_t preemptions = 0;
  for (uint32_t seed : {1u, 2u}) {
    Storm storm(seed);
    for (int i = 0; i < 1000; ++i) storm.Operate();
    storm.Settle();
    preemptions += storm.preemptions();
  }
  // Time decides how many there are; mostly some.
  RecordProperty("preemptions", std::to_string(preemptions));
}

}  // namespace
}  // namespace baton::engine
