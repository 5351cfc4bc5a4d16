// SPDX-License-Identifier: Apache-2.0
// Start, drain and end of the processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/requests.h"

namespace baton::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Drain, RunningStreamFinishesNewWorkGoesElsewhereAndTheWorkerExitsWith0) {
  ClusterOptions options;
  options.decode = 2;
  options.decode_flags = {"--fake-step-delay", "20ms"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Running running(cluster->client(), MakeRequest(RandomPrompt(50, 1), 60, Path::kSplit));
  ASSERT_TRUE(Eventually([&] { return running.tokens() > 3; }));
  std::string busy, idle;
  ASSERT_TRUE(Eventually([&] {
    busy.clear();
    for (const WorkerStatus& worker : cluster->client().GetClusterStatus().second.workers) {
      if (worker.role == "decode") (worker.running_sequences > 0 ? busy : idle) = worker.id;
    }
    return !busy.empty();
  }));
  cluster->worker(busy).Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] {
    for (const WorkerStatus& worker : cluster->client().GetClusterStatus().second.workers) {
      if (worker.id == busy && worker.draining) return true;
    }
    return false;
  })) << cluster->Logs();
  const Request request = MakeRequest(RandomPrompt(60, 2), 5, Path::kSplit);
  const Result other = cluster->client().Generate(request);
  EXPECT_TRUE(other.status.ok()) << other.status.message;
  EXPECT_EQ(other.decode_worker, idle);
  EXPECT_EQ(other.token_ids, RightAnswer(request));
  const Result result = running.Get();
  EXPECT_TRUE(result.status.ok()) << result.status.message;
  EXPECT_EQ(result.token_ids, RightAnswer(running.request()));
  EXPECT_EQ(cluster->worker(busy).Wait(seconds(5)), 0) << cluster->Logs();
}

TEST(Drain, PrefillWorkerHandsOverWhatItHasAndExitsWith0) {
  ClusterOptions options;
  options.worker_flags = {"--chunk-tokens", "64", "--fake-token-delay", "300us"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Running running(cluster->client(), MakeRequest(RandomPrompt(1000, 1), 20, Path::kSplit));
  ASSERT_TRUE(Eventually([&] {
    for (const WorkerStatus& worker : cluster->client().GetClusterStatus().second.workers) {
      if (worker.role == "prefill" && worker.kv_blocks_requests > 0) return true;
    }
    return false;
  }));
  cluster->worker("prefill-1").Signal(SIGTERM);
  const Result result = running.Get();
  EXPECT_TRUE(result.status.ok()) << result.status.message;
  EXPECT_EQ(result.token_ids, RightAnswer(running.request()));
  EXPECT_EQ(cluster->worker("prefill-1").Wait(seconds(5)), 0) << cluster->Logs();
}

TEST(Drain, TimeoutCutsStreamsOffWithUnavailable) {
  ClusterOptions options;
  options.decode_flags = {"--fake-step-delay", "20ms", "--drain-timeout", "300ms"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Running running(cluster->client(), MakeRequest(RandomPrompt(50, 1), 2000, Path::kSplit));
  ASSERT_TRUE(Eventually([&] { return running.tokens() > 3; }));
  cluster->worker("decode-1").Signal(SIGTERM);
  EXPECT_EQ(running.Get().status.code, StatusCode::kUnavailable);
  EXPECT_EQ(cluster->worker("decode-1").Wait(seconds(5)), 0) << cluster->Logs();
}

TEST(Drain, SecondSignalEndsTheProcessAtOnce) {
  ClusterOptions options;
  options.decode_flags = {"--fake-step-delay", "20ms"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Running running(cluster->client(), MakeRequest(RandomPrompt(50, 1), 2000, Path::kSplit));
  ASSERT_TRUE(Eventually([&] { return running.tokens() > 3; }));
  cluster->worker("decode-1").Signal(SIGTERM);
  EXPECT_FALSE(cluster->worker("decode-1").Wait(milliseconds(300)).has_value());
  cluster->worker("decode-1").Signal(SIGTERM);
  EXPECT_EQ(cluster->worker("decode-1").Wait(milliseconds(500)), 130);
  EXPECT_EQ(running.Get().status.code, StatusCode::kUnavailable);
}

TEST(Attach, WorkerWithAnotherModelIsRefusedAndSaysWhatToChange) {
  auto cluster = Cluster::Start({});
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(cluster->StartWorker("decode-2", {"--fake-seed", "2"}));
  EXPECT_TRUE(Eventually([&] {
    const std::string log = cluster->worker("decode-2").Log();
    return log.find("FAILED_PRECONDITION") != std::string::npos &&
           log.find("--model") != std::string::npos;
  })) << cluster->worker("decode-2").Log();
  EXPECT_EQ(cluster->client().GetClusterStatus().second.workers.size(), 2);
  EXPECT_FALSE(cluster->worker("decode-2").Wait(milliseconds(0)).has_value());
}

TEST(Attach, WorkersComeBackAfterTheRouterWasAway) {
  // The same port again, as behind a service address.
  auto cluster = Cluster::Start({});
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(cluster->RestartRouter());
  EXPECT_TRUE(cluster->AwaitWorker("prefill-1"));
  EXPECT_TRUE(cluster->AwaitWorker("decode-1"));
  const Request request = MakeRequest(RandomPrompt(100, 7), 10, Path::kSplit);
  const Result result = cluster->client().Generate(request);
  EXPECT_TRUE(result.status.ok()) << result.status.message;
  EXPECT_EQ(result.token_ids, RightAnswer(request));
}

TEST(Start, PortInUseEndsTheProcessWithItsAddress) {
  auto cluster = Cluster::Start({});
  ASSERT_NE(cluster, nullptr);
  for (const char* flag : {"--listen", "--kv-listen", "--metrics-listen"}) {
    ASSERT_TRUE(cluster->StartWorker("decode-2", {flag, cluster->router_address()}));
    Process& worker = cluster->worker("decode-2");
    EXPECT_EQ(worker.Wait(seconds(10)), 1) << flag << worker.Log();
    EXPECT_THAT(worker.Log(), ::testing::HasSubstr(cluster->router_address())) << flag;
  }
}

TEST(Start, PortFileNamesBoundPorts) {
  auto cluster = Cluster::Start({});
  ASSERT_NE(cluster, nullptr);
  const std::string file = cluster->folder() + "/ports";
  ASSERT_TRUE(
      cluster->StartWorker("decode-2", {"--port-file", file, "--metrics-listen", "127.0.0.1:0"}));
  nlohmann::json ports;
  ASSERT_TRUE(Eventually([&] {
    std::ifstream stream(file);
    ports = nlohmann::json::parse(stream, nullptr, false);
    return ports.is_object();
  }));
  EXPECT_EQ(ports["pid"], cluster->worker("decode-2").pid());
  EXPECT_THAT(ports["listen"].get<std::string>(), ::testing::MatchesRegex("127.0.0.1:[1-9][0-9]+"));
  EXPECT_THAT(ports["metrics"].get<std::string>(),
              ::testing::MatchesRegex("127.0.0.1:[1-9][0-9]+"));
}

TEST(Start, WrongFlagsEndTheProcessWithASentence) {
  auto cluster = Cluster::Start({});
  ASSERT_NE(cluster, nullptr);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--chunk-tokens", "33"}, "--chunk-tokens"},
      {{"--kv-tokens", "999999999999"}, "--kv-tokens"},
      {{"--transport", "pigeon"}, "--transport"},
      {{"--model", "/nowhere"}, "/nowhere"},
      {{"--worker-idd", "x"}, "--worker-id"},
  };
  for (const auto& [flags, expected] : cases) {
    ASSERT_TRUE(cluster->StartWorker("decode-2", flags));
    Process& worker = cluster->worker("decode-2");
    const std::optional<int> code = worker.Wait(seconds(10));
    ASSERT_TRUE(code.has_value()) << flags[0];
    EXPECT_NE(*code, 0) << flags[0];
    EXPECT_THAT(worker.Log(), ::testing::HasSubstr(expected));
  }
}

}  // namespace
}  // namespace baton::testing
