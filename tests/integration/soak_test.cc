// SPDX-License-Identifier: Apache-2.0
// Many requests at once, round after round, three of four given up at a random
// moment: nothing is left behind, and memory stays where it was.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

#include "tests/integration/requests.h"

namespace baton::testing {
namespace {

constexpr int kRounds = 5;
constexpr uint32_t kRequests = 200;
constexpr uint32_t kConcurrency = 16;
// Heaps settle in the first rounds; a leak of one KiB per request would show.
constexpr int kSettledRound = 2;
constexpr int64_t kAllowedGrowthKib = 512;

// But for the KV pool, whose pages come when they are first written to: the
// mapping that asks for huge pages.
int64_t ResidentKib(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/smaps");
  int64_t sum = 0, mapping = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind("Rss:", 0) == 0) mapping = std::stoll(line.substr(4));
    if (line.rfind("VmFlags:", 0) == 0 && line.find(" hg") == std::string::npos) sum += mapping;
  }
  return sum;
}

struct Outcomes {
  std::atomic<int> finished{0}, cancelled{0};
};

// One request, given up after a random time in three of four cases.
void RunOne(Cluster& cluster, uint32_t seed, Outcomes& outcomes) {
  std::mt19937 random(seed);
  const Path path = random() % 4 == 3 ? Path::kLocal : Path::kSplit;
  Running running(cluster.client(), MakeRequest(RandomPrompt(30 + random() % 900, random()),
                                                1 + random() % 60, path));
  if (random() % 4 != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    running.Cancel();
  }
  const Result result = running.Get();
  if (result.status.ok()) {
    ++outcomes.finished;
    EXPECT_EQ(result.token_ids, RightAnswer(running.request()));
  } else {
    ++outcomes.cancelled;
    EXPECT_EQ(result.status.code, StatusCode::kCancelled) << result.status.message;
  }
}

void RunRound(Cluster& cluster, uint32_t round, Outcomes& outcomes) {
  std::atomic<uint32_t> next{0};
  std::vector<std::thread> clients;
  for (uint32_t i = 0; i < kConcurrency; ++i) {
    clients.emplace_back([&] {
      for (uint32_t n = next++; n < kRequests; n = next++) {
        RunOne(cluster, round * kRequests + n, outcomes);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

class SoakTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Transports, SoakTest, ::testing::Values("shm", "tcp"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(SoakTest, RoundsOfCancelledRequestsLeaveNoBlockAndNoMemory) {
  ClusterOptions options;
  // A pool that prefix caches fill in the first rounds: their tables grow until then.
  options.worker_flags = {"--transport",        GetParam(), "--chunk-tokens",    "64",
                          "--fake-token-delay", "20us",     "--fake-step-delay", "1ms",
                          "--kv-tokens",        "49152"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  const std::map<std::string, pid_t> processes = {{"router", cluster->router().pid()},
                                                  {"prefill-1", cluster->worker("prefill-1").pid()},
                                                  {"decode-1", cluster->worker("decode-1").pid()}};
  std::map<std::string, int64_t> settled;
  Outcomes outcomes;
  for (int round = 0; round < kRounds; ++round) {
    RunRound(*cluster, static_cast<uint32_t>(round), outcomes);
    EXPECT_TRUE(cluster->AwaitIdle(std::chrono::seconds(1)))
        << cluster->Describe() << cluster->Logs();
    std::ostringstream line;
    for (const auto& [name, pid] : processes) {
      const int64_t kib = ResidentKib(pid);
      line << "  " << name << " " << kib << " KiB";
      if (round == kSettledRound) settled[name] = kib;
      // ASan keeps what is freed for a while.
      if (round > kSettledRound && !BATON_SANITIZED) {
        EXPECT_LE(kib, settled[name] + kAllowedGrowthKib) << name << " in round " << round;
      }
    }
    std::printf("round %d:%s\n", round, line.str().c_str());
  }
  EXPECT_EQ(outcomes.finished + outcomes.cancelled, static_cast<int>(kRounds * kRequests));
  EXPECT_GT(outcomes.finished, 100);
  EXPECT_GT(outcomes.cancelled, 100);
  std::printf("%d finished, %d cancelled\n", outcomes.finished.load(), outcomes.cancelled.load());
}

}  // namespace
}  // namespace baton::testing
