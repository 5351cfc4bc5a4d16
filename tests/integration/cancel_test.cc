// SPDX-License-Identifier: Apache-2.0
// Clients that give up, at any moment: nothing is left behind.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/integration/requests.h"

namespace baton::testing {
namespace {

class CancelTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Transports, CancelTest, ::testing::ValuesIn(HandoffTransports()),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(CancelTest, RandomCancellationsLeaveNothingBehind) {
  ClusterOptions options;
  options.worker_flags = {"--transport",        GetParam(), "--chunk-tokens",    "64",
                          "--fake-token-delay", "20us",     "--fake-step-delay", "1ms"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  std::mt19937 random(17);
  int finished = 0, cancelled = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Running>> running;
    for (uint32_t i = 0; i < 16; ++i) {
      const Path path = i % 4 == 3 ? Path::kLocal : Path::kSplit;
      running.push_back(std::make_unique<Running>(
          cluster->client(),
          MakeRequest(RandomPrompt(30 + random() % 900, random()), 1 + random() % 60, path)));
    }
    for (auto& one : running) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
      if (random() % 4 != 0) one->Cancel();
    }
    for (auto& one : running) {
      const Result result = one->Get();
      if (result.status.ok()) {
        ++finished;
        EXPECT_EQ(result.token_ids, RightAnswer(one->request()));
      } else {
        ++cancelled;
        EXPECT_EQ(result.status.code, StatusCode::kCancelled) << result.status.message;
      }
    }
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe() << cluster->Logs();
  }
  EXPECT_GT(finished, 0);
  EXPECT_GT(cancelled, 10);
}

TEST(ExpiredDeadline, EndsOnceAndFreesBothWorkers) {
  ClusterOptions options;
  options.worker_flags = {"--fake-step-delay", "20ms"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Request request = MakeRequest(RandomPrompt(100, 1), 500, Path::kSplit);
  request.deadline = std::chrono::milliseconds(300);
  const Result result = cluster->client().Generate(request);
  EXPECT_EQ(result.status.code, StatusCode::kDeadlineExceeded) << result.status.message;
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

}  // namespace
}  // namespace baton::testing
