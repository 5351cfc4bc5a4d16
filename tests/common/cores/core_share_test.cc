// SPDX-License-Identifier: Apache-2.0
#include "common/cores/core_share.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

namespace baton::cores {
namespace {

using Cpus = std::vector<uint32_t>;

TEST(Divide, AWorkerAloneGetsEveryCpu) {
  const Cpus cpus = {0, 1, 2, 3};
  EXPECT_EQ(Divide(cpus, Kind::kDecode, {.decode = 1}), (Cpus{0, 1, 2, 3}));
  EXPECT_EQ(Divide(cpus, Kind::kPrefill, {.prefill = 1}), (Cpus{3, 2, 1, 0}));
}

TEST(Divide, BothKindsGetHalvesAndMainThreadsStayInPlace) {
  const Busy both{.decode = 1, .prefill = 1};
  EXPECT_EQ(Divide(Cpus{0, 1}, Kind::kDecode, both), (Cpus{0}));
  EXPECT_EQ(Divide(Cpus{0, 1}, Kind::kPrefill, both), (Cpus{1}));
  EXPECT_EQ(Divide(Cpus{2, 5, 6}, Kind::kDecode, both), (Cpus{2, 5}));
  EXPECT_EQ(Divide(Cpus{2, 5, 6}, Kind::kPrefill, both), (Cpus{6}));
}

TEST(Divide, OneCpuIsSharedByAll) {
  const Busy both{.decode = 1, .prefill = 1};
  EXPECT_EQ(Divide(Cpus{3}, Kind::kDecode, both), (Cpus{3}));
  EXPECT_EQ(Divide(Cpus{3}, Kind::kPrefill, both), (Cpus{3}));
}

TEST(Divide, WorkersOfOneKindCoverTheirPartWithoutOverlap) {
  const Cpus cpus = {0, 1, 2, 3, 4, 5, 6};
  std::set<uint32_t> seen;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (uint32_t cpu : Divide(cpus, Kind::kPrefill, {.decode = 0, .prefill = 3, .rank = rank})) {
      EXPECT_TRUE(seen.insert(cpu).second) << cpu;
    }
  }
  EXPECT_EQ(seen.size(), cpus.size());
}

TEST(Divide, MoreWorkersThanCpusShareThemEvenly) {
  std::vector<int> workers(2);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const Cpus part = Divide(Cpus{0, 1}, Kind::kDecode, {.decode = 4, .rank = rank});
    ASSERT_EQ(part.size(), 1u);
    ++workers[part[0]];
  }
  EXPECT_EQ(workers, (std::vector<int>{2, 2}));
}

class CoreShareTest : public ::testing::Test {
 protected:
  CoreShareTest() {
    std::string name = ::testing::TempDir() + "/cores-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~CoreShareTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<CoreShare> Create(Kind kind) {
    auto share = CoreShare::Create(kind, folder_);
    EXPECT_TRUE(share.ok()) << share.status();
    return *std::move(share);
  }

  std::string folder_;
};

TEST_F(CoreShareTest, HalvesWhileTheOtherKindStepsAndTakesAllBackLater) {
  const size_t all = AllowedCpus().size();
  if (all < 2) GTEST_SKIP() << "one CPU cannot be divided";
  const auto decode = Create(Kind::kDecode), prefill = Create(Kind::kPrefill);
  EXPECT_EQ(decode->Begin().size(), all);
  decode->End();
  // Straight after a step, the decode worker counts as busy.
  EXPECT_EQ(prefill->Begin().size(), all / 2);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  size_t got = 0;
  while (got < all && std::chrono::steady_clock::now() < deadline) {
    prefill->End();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    got = prefill->Begin().size();
  }
  EXPECT_EQ(got, all);
  // A step of the prefill worker runs however long it takes.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(decode->Begin().size(), (all + 1) / 2);
}

TEST_F(CoreShareTest, AWorkerThatSaysSoLeavesTheCoresAtOnce) {
  const auto decode = Create(Kind::kDecode), prefill = Create(Kind::kPrefill);
  decode->Begin();
  decode->End();
  decode->Release();
  EXPECT_EQ(prefill->Begin().size(), AllowedCpus().size());
  // What it said does not hold for its next step.
  EXPECT_EQ(decode->Begin().size(), (AllowedCpus().size() + 1) / 2);
}

TEST_F(CoreShareTest, PartsChangeWithinAStepAsOthersComeAndGo) {
  const size_t all = AllowedCpus().size();
  const auto decode = Create(Kind::kDecode), prefill = Create(Kind::kPrefill);
  EXPECT_EQ(prefill->Begin().size(), all);
  decode->Begin();
  EXPECT_EQ(prefill->Again().size(), std::max<size_t>(1, all / 2));
  decode->Release();
  EXPECT_EQ(prefill->Again().size(), all);
  EXPECT_EQ(decode->Begin().size(), (all + 1) / 2) << "it is in a step still";
}

TEST_F(CoreShareTest, AWorkerThatWentAwayLeavesTheCores) {
  const auto decode = Create(Kind::kDecode);
  {
    const auto prefill = Create(Kind::kPrefill);
    prefill->Begin();
    EXPECT_EQ(decode->Begin().size(), (AllowedCpus().size() + 1) / 2);
  }
  EXPECT_EQ(decode->Begin().size(), AllowedCpus().size());
}

TEST_F(CoreShareTest, SaysWhyItCannotShare) {
  const auto share = CoreShare::Create(Kind::kDecode, folder_ + "/missing");
  EXPECT_EQ(share.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton::cores
