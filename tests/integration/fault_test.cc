// SPDX-License-Identifier: Apache-2.0
// kill -9 of either worker at three moments: streams end once and soon, the
// survivor is clean, and a new worker serves at once.
#include <gtest/gtest.h>

#include "tests/integration/requests.h"
#include "tests/testing/environment.h"

namespace baton::testing {
namespace {

using std::chrono::milliseconds;

enum class Moment { kPrefill, kTransfer, kDecode };

struct Fault {
  const char* transport;
  const char* victim;
  Moment moment;
};

std::string NameOf(const Fault& fault) {
  const char* moment = fault.moment == Moment::kPrefill    ? "InPrefill"
                       : fault.moment == Moment::kTransfer ? "InTransfer"
                                                           : "InDecode";
  return std::string(fault.transport) + (fault.victim[0] == 'p' ? "Prefill" : "Decode") + moment;
}

std::vector<Fault> Faults() {
  std::vector<Fault> faults;
  for (const char* transport : HandoffTransports()) {
    for (const char* victim : {"prefill-1", "decode-1"}) {
      for (const Moment moment : {Moment::kPrefill, Moment::kTransfer, Moment::kDecode}) {
        faults.push_back({transport, victim, moment});
      }
    }
  }
  return faults;
}

class KillTest : public ::testing::TestWithParam<Fault> {
 protected:
  // Slow where the moment lies, so that the kill meets it.
  static ClusterOptions Options(const Fault& fault) {
    ClusterOptions options;
    options.worker_flags = {"--transport", fault.transport, "--chunk-tokens", "64"};
    options.decode_flags = {"--fake-step-delay", "10ms"};
    if (fault.moment == Moment::kPrefill) {
      options.prefill_flags = {"--fake-token-delay", "500us"};
    } else if (fault.moment == Moment::kTransfer) {
      options.prefill_flags = {"--fault", "delay-put=1,delay=20s"};
    }
    return options;
  }

  static bool Reached(Moment moment, Running& one) {
    switch (moment) {
      case Moment::kPrefill:
        return true;
      case Moment::kTransfer:
        return one.tokens() == 1;
      case Moment::kDecode:
        return one.tokens() > 3;
    }
    return false;
  }
};

INSTANTIATE_TEST_SUITE_P(All, KillTest, ::testing::ValuesIn(Faults()),
                         [](const auto& instance) { return NameOf(instance.param); });

TEST_P(KillTest, StreamsEndOnceSurvivorIsCleanAndNewWorkerServes) {
  const Fault& fault = GetParam();
  auto cluster = Cluster::Start(Options(fault));
  ASSERT_NE(cluster, nullptr);

  // The shortest of four prompts goes first, so in prefill the others are
  // queued. The fault delays the first transfer alone.
  const uint32_t requests = fault.moment == Moment::kTransfer ? 1 : 4;
  const uint32_t prompt = fault.moment == Moment::kPrefill ? 2000 : 200;
  std::vector<std::unique_ptr<Running>> running;
  for (uint32_t i = 0; i < requests; ++i) {
    running.push_back(std::make_unique<Running>(
        cluster->client(), MakeRequest(RandomPrompt(prompt + i, i), 60, Path::kSplit)));
  }
  if (fault.moment == Moment::kPrefill) {
    ASSERT_TRUE(Eventually([&] {
      const auto [status, state] = cluster->client().GetClusterStatus();
      return state.running_requests == 4 && state.workers.size() == 2 &&
             state.workers[0].kv_blocks_requests + state.workers[1].kv_blocks_requests > 0;
    })) << cluster->Describe();
  }
  for (auto& one : running) {
    ASSERT_TRUE(Eventually([&] { return Reached(fault.moment, *one); })) << cluster->Logs();
  }

  const auto killed = std::chrono::steady_clock::now();
  cluster->KillWorker(fault.victim);
  const bool unharmed = fault.moment == Moment::kDecode && fault.victim[0] == 'p';
  for (auto& one : running) {
    const Result result = one->Get();
    if (unharmed) {  // the baton was passed
      EXPECT_TRUE(result.status.ok()) << result.status.message;
      EXPECT_EQ(result.token_ids, RightAnswer(one->request()));
    } else {
      EXPECT_EQ(result.status.code, StatusCode::kUnavailable) << result.status.message;
      EXPECT_LT(one->ended() - killed, milliseconds(1000));
    }
  }
  EXPECT_TRUE(cluster->AwaitWorker(fault.victim, false));
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe() << cluster->Logs();

  // Without the fault this time.
  if (fault.moment == Moment::kTransfer && fault.victim[0] == 'd') {
    cluster->KillWorker("prefill-1");
    EXPECT_TRUE(cluster->AwaitWorker("prefill-1", false));
    ASSERT_TRUE(cluster->StartWorker("prefill-1", {"--fault", ""}));
    EXPECT_TRUE(cluster->AwaitWorker("prefill-1"));
  }
  ASSERT_TRUE(cluster->StartWorker(fault.victim, fault.victim[0] == 'p'
                                                     ? std::vector<std::string>{"--fault", ""}
                                                     : std::vector<std::string>{}));
  ASSERT_TRUE(cluster->AwaitWorker(fault.victim)) << cluster->Logs();
  const Request request = MakeRequest(RandomPrompt(100, 77), 10, Path::kSplit);
  const Result result = cluster->client().Generate(request);
  EXPECT_TRUE(result.status.ok()) << result.status.message;
  EXPECT_EQ(result.token_ids, RightAnswer(request));
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

class TransferFaultTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, TransferFaultTest,
                         ::testing::Values("fail-put=2", "corrupt-frame=2", "truncate-frame=2",
                                           "kill-after-bytes=20000"));

TEST_P(TransferFaultTest, BadTransferFailsItsRequestAloneAndTheNextIsRight) {
  for (const char* transport : HandoffTransports()) {
    ClusterOptions options;
    options.worker_flags = {"--transport", transport, "--chunk-tokens", "64"};
    options.prefill_flags = {"--fault", GetParam()};
    auto cluster = Cluster::Start(options);
    ASSERT_NE(cluster, nullptr);
    const Request request = MakeRequest(RandomPrompt(300, 5), 20, Path::kSplit);
    const Result broken = cluster->client().Generate(request);
    EXPECT_FALSE(broken.status.ok());
    EXPECT_NE(broken.status.code, StatusCode::kCancelled) << broken.status.message;
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
    const Result whole = cluster->client().Generate(request);
    EXPECT_TRUE(whole.status.ok()) << whole.status.message << cluster->Logs();
    EXPECT_EQ(whole.token_ids, RightAnswer(request));
  }
}

// However the bytes have travelled in the end: the route names what was chosen.
void ExpectRightAnswers(Cluster& cluster, uint32_t count, const char* transport) {
  for (uint32_t seed = 1; seed <= count; ++seed) {
    const Request request = MakeRequest(RandomPrompt(300, seed), 20, Path::kSplit);
    const Result result = cluster.client().Generate(request);
    EXPECT_TRUE(result.status.ok()) << result.status.message << cluster.Logs();
    EXPECT_EQ(result.token_ids, RightAnswer(request));
    EXPECT_EQ(result.transport, transport);
  }
}

#ifdef BATON_HAS_UCX
TEST(PathFault, RequestWhoseHandOffLosesUcxEndsWithTheSameTokensOverTheSocket) {
  for (const char* fault : {"lose-path-after-bytes=1", "lose-path-after-bytes=20000"}) {
    ClusterOptions options;
    options.worker_flags = {"--transport", "ucx", "--chunk-tokens", "64"};
    options.prefill_flags = {"--fault", fault};
    auto cluster = Cluster::Start(options);
    ASSERT_NE(cluster, nullptr);
    ExpectRightAnswers(*cluster, 2, "ucx");
    EXPECT_NE(cluster->Logs().find("kv goes on over tcp"), std::string::npos);
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}
#endif

// Either worker's communicator dies in the middle, or never begins; the router's
// pair is the same, and so are the tokens.
TEST(PathFault, RequestWhoseCommunicatorDiesEndsWithTheSameTokensOverTheSocket) {
  for (const char* fault : {"rank=0,pairs=1,error-after=2", "rank=1,pairs=1,refuse-after=3",
                            "rank=1,pairs=1,error-after=2"}) {
    const EnvironmentSetting faults("BATON_FAKE_NCCL", fault);
    ClusterOptions options;
    options.worker_flags = {"--transport", "nccl", "--chunk-tokens", "64"};
    auto cluster = Cluster::Start(options);
    ASSERT_NE(cluster, nullptr);
    ExpectRightAnswers(*cluster, 2, "nccl");
    EXPECT_NE(cluster->Logs().find("nccl is lost, kv goes on over tcp"), std::string::npos)
        << fault;
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

TEST(PathFault, RequestWhoseCommunicatorHangsEndsWithTheSameTokensAfterTheStallLimit) {
  const EnvironmentSetting faults("BATON_FAKE_NCCL", "rank=0,pairs=1,hang-after=2");
  ClusterOptions options;
  options.worker_flags = {"--transport", "nccl", "--chunk-tokens", "64"};
  auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  ExpectRightAnswers(*cluster, 1, "nccl");
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
}

TEST(PathFault, WorkerToldToUseNcclWithoutItsLibraryEndsWithOneSentence) {
  const EnvironmentSetting library("BATON_NCCL_LIBRARY", "libno_such_nccl.so");
  const auto worker = Process::Start({Binary("baton-prefill-worker"), "--model", "fake", "--router",
                                      "127.0.0.1:1", "--transport", "nccl"},
                                     ::testing::TempDir() + "baton-without-nccl.log");
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(worker->Wait(std::chrono::seconds(10)), 1);
  EXPECT_NE(worker->Log().find("nccl cannot be used"), std::string::npos) << worker->Log();
}

}  // namespace
}  // namespace baton::testing
