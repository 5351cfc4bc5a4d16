// SPDX-License-Identifier: Apache-2.0
// Which workers get a prompt when some have parts of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/prefix/block_hash.h"
#include "router/pairing.h"
#include "tests/router/fakes.h"

namespace baton::router {
namespace {

using Tokens = std::vector<TokenId>;

Tokens Prompt(size_t length, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens tokens(length);
  for (TokenId& token : tokens) token = random() % 500;
  return tokens;
}

class SteeringTest : public ::testing::Test {
 protected:
  Worker& Add(const std::string& id, v1::WorkerRole role, uint32_t blocks = 10000) {
    const LinkId link = ++last_;
    directory_.Open(link, std::make_shared<FakeLink>(), absl::UnixEpoch());
    Worker& worker = *directory_.Find(link);
    EXPECT_TRUE(directory_.Attach(worker, MakeHello(id, role, blocks).hello()).ok());
    return worker;
  }
  Worker& AddPrefill(const std::string& id) { return Add(id, v1::WORKER_ROLE_PREFILL); }
  Worker& AddDecode(const std::string& id) { return Add(id, v1::WORKER_ROLE_DECODE); }

  // Tells that `worker` has the first `tokens` of `prompt` cached.
  static void Cache(Worker& worker, const Tokens& prompt, size_t tokens,
                    const std::string& salt = "") {
    v1::PrefixChanges changes;
    for (const uint64_t digest : prefix::DigestChain(salt, std::span(prompt).first(tokens))) {
      changes.add_added(digest);
    }
    WorkerDirectory::PrefixesChanged(worker, changes);
  }
  Pairing Choose(const Tokens& prompt, v1::Path path = v1::PATH_UNSPECIFIED,
                 const std::string& salt = "") {
    const auto chain = prefix::DigestChain(salt, prompt);
    return ChoosePair(directory_.Attached(),
                      {prompt.size(), 10, path, TransportRule::kAuto, chain});
  }

  WorkerDirectory directory_;
  LinkId last_ = 0;
};

TEST_F(SteeringTest, PromptGoesToThePrefillWorkerThatHasMostOfIt) {
  AddPrefill("p1");
  Worker& p2 = AddPrefill("p2");
  Worker& p3 = AddPrefill("p3");
  AddDecode("d");
  const Tokens prompt = Prompt(1000, 1);
  Cache(p2, prompt, 320);
  Cache(p3, prompt, 640);
  const Pairing pairing = Choose(prompt);
  EXPECT_EQ(pairing.prefill, &p3);
  EXPECT_EQ(pairing.compute_tokens, 360u);
}

TEST_F(SteeringTest, QueuedPromptTokensWeighAsMuchAsMissingOnes) {
  Worker& p1 = AddPrefill("p1");
  Worker& p2 = AddPrefill("p2");
  AddDecode("d");
  const Tokens prompt = Prompt(1000, 1);
  Cache(p2, prompt, 640);
  const SequenceKey key = directory_.Assign(p2, 1, 0, 639);
  EXPECT_EQ(Choose(prompt).prefill, &p2);
  directory_.Assign(p2, 2, 0, 2);
  EXPECT_EQ(Choose(prompt).prefill, &p1);
  directory_.Release(key);
  EXPECT_EQ(Choose(prompt).prefill, &p2);
}

TEST_F(SteeringTest, DecodeWorkerWithThePrefixIsTakenUnlessItIsMuchBusier) {
  AddPrefill("p");
  AddDecode("d1");
  Worker& d2 = AddDecode("d2");
  const Tokens prompt = Prompt(1000, 1);
  Cache(d2, prompt, 960);
  for (RequestKey sequences = 0; sequences < 8; ++sequences) {
    EXPECT_EQ(Choose(prompt, v1::PATH_SPLIT).decode->id(), sequences < 4 ? "d2" : "d1")
        << sequences;
    directory_.Assign(d2, sequences, 10, 0);
  }
}

TEST_F(SteeringTest, ConversationStaysOnTheDecodeWorkerThatHasItsAnswers) {
  Worker& p = AddPrefill("p");
  AddDecode("d1");
  Worker& d2 = AddDecode("d2");
  const Tokens prompt = Prompt(500, 1);
  Cache(d2, prompt, 448);
  Cache(p, prompt, 320);  // the last prompt, without the answer to it
  const Pairing pairing = Choose(prompt);
  EXPECT_EQ(pairing.prefill, nullptr);
  EXPECT_EQ(pairing.decode, &d2);
  EXPECT_EQ(pairing.compute_tokens, 52u);
  EXPECT_EQ(pairing.fallback, "mostly_cached");
  // Asked for, the split is made all the same.
  EXPECT_EQ(Choose(prompt, v1::PATH_SPLIT).prefill, &p);
}

TEST_F(SteeringTest, SplitIsKeptWhenItIsDoneNoLater) {
  Worker& p = AddPrefill("p");
  Worker& d = AddDecode("d");
  const Tokens prompt = Prompt(1048, 1);
  Cache(d, prompt, 992);
  Cache(p, prompt, 992);
  EXPECT_EQ(Choose(prompt).prefill, &p) << "both have as much";
  directory_.Assign(p, 1, 0, 300);
  EXPECT_EQ(Choose(prompt).prefill, nullptr) << "it waits there";
  directory_.Assign(d, 2, 0, 400);
  EXPECT_EQ(Choose(prompt).prefill, &p) << "it waits longer here";
}

TEST_F(SteeringTest, DecodeWorkerDoesNotComputeMostOfAPrompt) {
  AddPrefill("p");
  Worker& d = AddDecode("d");
  const Tokens prompt = Prompt(1000, 1);
  Cache(d, prompt, 480);
  EXPECT_NE(Choose(prompt).prefill, nullptr);
  Cache(d, prompt, 512);
  EXPECT_EQ(Choose(prompt).prefill, nullptr);
}

TEST_F(SteeringTest, PrefixesOfOtherTenantsDoNotCount) {
  Worker& p1 = AddPrefill("p1");
  Worker& p2 = AddPrefill("p2");
  AddDecode("d");
  const Tokens prompt = Prompt(640, 1);
  Cache(p2, prompt, 640, "org_1");
  EXPECT_EQ(Choose(prompt, v1::PATH_SPLIT).prefill, &p1);
  EXPECT_EQ(Choose(prompt, v1::PATH_SPLIT, "org_12").prefill, &p1);
  EXPECT_EQ(Choose(prompt, v1::PATH_SPLIT, "org_1").prefill, &p2);
}

TEST_F(SteeringTest, LastTokenIsAlwaysExpectedToBeComputed) {
  Worker& p = AddPrefill("p");
  AddDecode("d");
  const Tokens prompt = Prompt(64, 1);
  Cache(p, prompt, 64);
  EXPECT_EQ(Choose(prompt, v1::PATH_SPLIT).compute_tokens, 1u);
}

TEST_F(SteeringTest, EvictedPrefixesAreForgottenAndAResetForgetsAll) {
  Worker& p = AddPrefill("p");
  const Tokens prompt = Prompt(96, 1);
  const auto chain = prefix::DigestChain("", prompt);
  Cache(p, prompt, 96);
  EXPECT_EQ(p.CachedTokens(chain), 96u);
  v1::PrefixChanges changes;
  changes.add_removed(chain[2]);
  WorkerDirectory::PrefixesChanged(p, changes);
  EXPECT_EQ(p.CachedTokens(chain), 64u);
  changes.Clear();
  changes.set_reset(true);
  changes.add_added(chain[0]);
  WorkerDirectory::PrefixesChanged(p, changes);
  EXPECT_EQ(p.CachedTokens(chain), 32u);
}

TEST_F(SteeringTest, WorkerCannotFillTheRoutersMemoryWithPrefixes) {
  Worker& p = AddPrefill("p");
  v1::PrefixChanges changes;
  for (uint64_t i = 0; i < 200000; ++i) changes.add_added(i);
  WorkerDirectory::PrefixesChanged(p, changes);
  EXPECT_EQ(p.prefixes.size(), size_t{1} << 17);
}

// A worker that was killed takes its prefixes with it, and comes back without.
TEST_F(SteeringTest, PrefixPinsNobodyToAWorkerThatIsGone) {
  Worker& p1 = AddPrefill("p1");
  Worker& p2 = AddPrefill("p2");
  AddDecode("d");
  const Tokens prompt = Prompt(640, 1);
  Cache(p2, prompt, 640);
  EXPECT_EQ(Choose(prompt).prefill, &p2);
  directory_.Remove(p2.link_id);
  EXPECT_EQ(Choose(prompt).prefill, &p1);
  EXPECT_EQ(AddPrefill("p2").CachedTokens(prefix::DigestChain("", prompt)), 0u);
  EXPECT_EQ(Choose(prompt).prefill, &p1);
}

// Over random clusters: the choice does not depend on the order of the workers,
// no other prefill worker would be done with the prompt earlier, and a worker
// that has more of the prompt and is no busier is never passed over.
TEST_F(SteeringTest, ChoiceIsAFunctionOfTheStateAndNeverBeatenByAnotherWorker) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    directory_ = WorkerDirectory();
    const Tokens prompt = Prompt(1 + random() % 1000, random());
    const auto chain = prefix::DigestChain("", prompt);
    std::vector<Worker*> workers;
    for (uint32_t i = 0, count = 1 + random() % 5; i < count; ++i) {
      workers.push_back(&AddPrefill("p" + std::to_string(i)));
      workers.push_back(&AddDecode("d" + std::to_string(i)));
    }
    for (Worker* worker : workers) {
      Cache(*worker, prompt, random() % (prompt.size() + 1));
      directory_.Assign(*worker, 1, random() % 200, random() % 3 == 0 ? random() % 1000 : 0);
    }
    const Need need{prompt.size(), 10, v1::PATH_SPLIT, TransportRule::kAuto, chain};
    const Pairing chosen = ChoosePair(workers, need);
    ASSERT_EQ(chosen.outcome, Pairing::Outcome::kRun);
    for (int shuffle = 0; shuffle < 3; ++shuffle) {
      std::shuffle(workers.begin(), workers.end(), random);
      const Pairing again = ChoosePair(workers, need);
      EXPECT_EQ(again.prefill, chosen.prefill);
      EXPECT_EQ(again.decode, chosen.decode);
    }
    const auto missing = [&](const Worker& worker) {
      return prompt.size() - std::min(worker.CachedTokens(chain), prompt.size() - 1);
    };
    for (const Worker* other : workers) {
      if (other->role() == v1::WORKER_ROLE_PREFILL) {
        EXPECT_LE(chosen.prefill->queued_prompt_tokens() + missing(*chosen.prefill),
                  other->queued_prompt_tokens() + missing(*other));
      } else if (other->sequences() <= chosen.decode->sequences()) {
        EXPECT_LE(missing(*chosen.decode), missing(*other));
      }
    }
  }
}

}  // namespace
}  // namespace baton::router
