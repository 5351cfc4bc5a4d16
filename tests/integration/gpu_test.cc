// SPDX-License-Identifier: Apache-2.0
// Workers on a GPU, emulated: hand-offs, prefix hits and preemption move blocks
// between both memories, and change no token. And workers without one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/integration/requests.h"
#include "tests/testing/environment.h"
#include "tests/testing/test_data.h"

namespace baton::testing {
namespace {

constexpr uint32_t kTokens = 12;

// Greedy and sampled, ragged in their blocks, one beyond a segment of 256.
std::vector<Request> Requests(Path path) {
  std::vector<Request> requests;
  for (const uint32_t length : {1u, 33u, 64u, 150u, 250u}) {
    std::vector<uint32_t> prompt = RandomPrompt(length, length);
    for (uint32_t& id : prompt) id = 3 + id % 600;  // of the embedded model's 671
    requests.push_back(MakeRequest(std::move(prompt), kTokens, path));
    requests.back().deadline = std::chrono::seconds(60);
    if (length % 2 == 1) continue;
    requests.back().temperature = 0.9f;
    requests.back().seed = length;
  }
  return requests;
}

std::unique_ptr<Cluster> StartCluster(const std::string& kv_type,
                                      const std::vector<std::string>& more = {}) {
  ClusterOptions options;
  options.model = "embedded";
  options.worker_flags = {"--device",  TestDevice(), "--kv-dtype",     kv_type,
                          "--threads", "1",          "--chunk-tokens", "64"};
  options.worker_flags.insert(options.worker_flags.end(), more.begin(), more.end());
  return Cluster::Start(options);
}

// `transport`: what split requests must have taken; empty: any.
std::vector<std::vector<uint32_t>> Answers(Cluster& cluster, Path path,
                                           const std::string& transport = "") {
  std::vector<std::unique_ptr<Running>> running;
  for (const Request& request : Requests(path)) {
    running.push_back(std::make_unique<Running>(cluster.client(), request));
  }
  std::vector<std::vector<uint32_t>> answers;
  for (const auto& one : running) {
    const Result result = one->Get();
    EXPECT_TRUE(result.status.ok()) << result.status.message << cluster.Logs();
    EXPECT_EQ(result.prefill_worker.empty(), path == Path::kLocal);
    if (!transport.empty()) {
      EXPECT_EQ(result.transport, transport);
    }
    answers.push_back(result.token_ids);
  }
  return answers;
}

class GpuWorkersTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuWorkersTest, TokensAreTheSameOnEveryPathAndTransportAndAfterPrefixHits) {
  std::vector<std::vector<uint32_t>> expected;
  for (const char* transport : {"cuda_ipc", "shm", "tcp"}) {
    const auto cluster = StartCluster(GetParam(), {"--transport", transport});
    ASSERT_NE(cluster, nullptr);
    const auto local = Answers(*cluster, Path::kLocal);
    if (expected.empty()) expected = local;
    EXPECT_EQ(local, expected);
    for (int round = 0; round < 2; ++round) {  // the second finds the first's blocks
      EXPECT_EQ(Answers(*cluster, Path::kSplit), expected) << transport << ", round " << round;
    }
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

// A pool that holds little more than the longest: others are put aside, swapped
// to the host or computed again.
TEST_P(GpuWorkersTest, ASmallPoolChangesNoToken) {
  const auto large = StartCluster(GetParam());
  const auto small = StartCluster(GetParam(), {"--kv-tokens", "320"});
  ASSERT_TRUE(large != nullptr && small != nullptr);
  EXPECT_EQ(Answers(*small, Path::kLocal), Answers(*large, Path::kLocal));
  EXPECT_EQ(Answers(*small, Path::kSplit), Answers(*large, Path::kSplit));
  EXPECT_TRUE(small->AwaitIdle()) << small->Describe();
}

// Of the prompt only what is in sight moves, into a pool that could not hold it all.
TEST_P(GpuWorkersTest, WindowsChangeNoTokenBetweenPathsAndPools) {
  const auto large = StartCluster(GetParam());
  ASSERT_NE(large, nullptr);
  Request request = Requests(Path::kLocal).back();
  request.window = 64;
  request.window_sinks = 32;
  const Result local = large->client().Generate(request);
  ASSERT_TRUE(local.status.ok()) << local.status.message;
  ASSERT_EQ(local.token_ids.size(), kTokens);
  request.path = Path::kSplit;
  EXPECT_EQ(large->client().Generate(request).token_ids, local.token_ids);
  ClusterOptions options;
  options.model = "embedded";
  options.worker_flags = {"--device", TestDevice(), "--kv-dtype", GetParam(), "--threads", "1"};
  options.decode_flags = {"--kv-tokens", "192"};
  const auto small = Cluster::Start(options);
  ASSERT_NE(small, nullptr);
  const Result rolled = small->client().Generate(request);
  EXPECT_EQ(rolled.token_ids, local.token_ids) << rolled.status.message << small->Logs();
  EXPECT_TRUE(small->AwaitIdle()) << small->Describe();
}

// What the worker says of KV bytes copied to "host" or "gpu"; -1: nothing.
double CopiedTo(const std::string& port_file, const std::string& side) {
  const std::string script =
      "import json,re,urllib.request as u\n"
      "a=json.load(open('" +
      port_file +
      "'))['metrics']\n"
      "t=u.urlopen('http://'+a+'/metrics',timeout=10).read().decode()\n"
      "print(re.search(r'kv_copied_bytes_total\\{[^}]*to=\"" +
      side + "\"[^}]*\\} (\\S+)',t)[1])\n";
  const std::string file = port_file + ".py";
  std::ofstream(file) << script;
  FILE* const pipe = popen(("python3 " + file).c_str(), "r");
  double value = -1;
  const int read = fscanf(pipe, "%lf", &value);
  return pclose(pipe) == 0 && read == 1 ? value : -1;
}

TEST_P(GpuWorkersTest, BlocksGoFromGpuToGpuAndNoneThroughTheHost) {
  ClusterOptions options;
  options.model = "embedded";
  options.worker_flags = {"--device",         TestDevice(), "--kv-dtype",     GetParam(),
                          "--threads",        "1",          "--chunk-tokens", "64",
                          "--metrics-listen", "127.0.0.1:0"};
  const std::string ports = ::testing::TempDir() + "baton-ipc-ports-" + std::to_string(getpid());
  options.prefill_flags = {"--port-file", ports + "-prefill"};
  options.decode_flags = {"--port-file", ports + "-decode"};
  const auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  const auto expected = Answers(*cluster, Path::kLocal);
  EXPECT_EQ(Answers(*cluster, Path::kSplit, "cuda_ipc"), expected);
  EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  for (const char* worker : {"-prefill", "-decode"}) {
    EXPECT_EQ(CopiedTo(ports + worker, "host"), 0) << worker;
    EXPECT_EQ(CopiedTo(ports + worker, "gpu"), 0) << worker;
  }
}

// The copies of the decode worker fail, in its first hand-off and in a later one, or it
// cannot map at all.
TEST_P(GpuWorkersTest, HandOffsWhoseCopiesFailEndWithTheSameTokensOverTheSocket) {
  if (TestDevice() != std::string("emulated")) GTEST_SKIP() << "the faults are the emulator's";
  std::vector<std::vector<uint32_t>> expected;
  for (const char* fault : {"copy-fails-after=0", "copy-fails-after=5", "map-fails"}) {
    const EnvironmentSetting faults("BATON_EMULATED_GPU", fault);
    const auto cluster = StartCluster(GetParam());
    ASSERT_NE(cluster, nullptr);
    if (expected.empty()) expected = Answers(*cluster, Path::kLocal);
    const bool maps = fault != std::string("map-fails");
    EXPECT_EQ(Answers(*cluster, Path::kSplit, maps ? "cuda_ipc" : "shm"), expected) << fault;
    EXPECT_EQ(
        cluster->Logs().find("cuda_ipc is lost, kv goes on over its socket") != std::string::npos,
        maps)
        << cluster->Logs();
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

TEST_P(GpuWorkersTest, AWorkerThatWasKilledIsFoundAgainOverCudaIpc) {
  const auto cluster = StartCluster(GetParam(), {"--transport", "cuda_ipc"});
  ASSERT_NE(cluster, nullptr);
  const auto expected = Answers(*cluster, Path::kLocal);
  for (const char* worker : {"prefill-1", "decode-1"}) {
    // In the middle of what it does.
    std::vector<std::unique_ptr<Running>> running;
    for (const Request& request : Requests(Path::kSplit)) {
      running.push_back(std::make_unique<Running>(cluster->client(), request));
    }
    cluster->KillWorker(worker);
    for (const auto& one : running) one->Get();
    ASSERT_TRUE(cluster->AwaitWorker(worker, false));
    ASSERT_TRUE(cluster->StartWorker(worker));
    ASSERT_TRUE(cluster->AwaitWorker(worker));
    EXPECT_EQ(Answers(*cluster, Path::kSplit, "cuda_ipc"), expected) << worker;
    EXPECT_TRUE(cluster->AwaitIdle()) << cluster->Describe();
  }
}

INSTANTIATE_TEST_SUITE_P(KvTypes, GpuWorkersTest, ::testing::Values("bf16", "int8"),
                         [](const auto& instance) { return std::string(instance.param); });

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(GpuAbsent, WorkerToldToUseCudaIpcOnACpuEndsWithOneSentence) {
  const auto worker = Process::Start({Binary("baton-prefill-worker"), "--router", "127.0.0.1:1",
                                      "--model", "fake", "--transport", "cuda_ipc"},
                                     ::testing::TempDir() + "baton-cpu-ipc.log");
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(worker->Wait(std::chrono::seconds(10)), 1);
  EXPECT_NE(worker->Log().find("cuda_ipc needs KV blocks in memory of a GPU"), std::string::npos)
      << worker->Log();
}

TEST(GpuAbsent, WorkerEndsAtOnceWithASentenceThatNamesTheWayOut) {
  if (std::ifstream("/dev/nvidiactl").good()) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const std::string log = ::testing::TempDir() + "/baton-no-gpu.log";
  for (const char* role : {"prefill", "decode"}) {
    const auto worker =
        Process::Start({Binary(std::string("baton-") + role + "-worker"), "--router", "127.0.0.1:1",
                        "--model", "embedded", "--device", "cuda:0"},
                       log);
    ASSERT_NE(worker, nullptr);
    const auto code = worker->Wait(std::chrono::seconds(2));
    ASSERT_TRUE(code.has_value()) << worker->Log();
    EXPECT_EQ(*code, 1);
    EXPECT_NE(worker->Log().find("--device cpu"), std::string::npos) << worker->Log();
    EXPECT_NE(worker->Log().find("cuda:0"), std::string::npos) << worker->Log();
  }
}

// CUDA is in the plugin alone: neither linked to the binaries nor mapped.
TEST(GpuAbsent, CpuWorkersHaveNothingOfCuda) {
  ClusterOptions options;
  options.model = "embedded";
  const auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  for (const char* worker : {"prefill-1", "decode-1"}) {
    const std::string maps =
        ReadAll("/proc/" + std::to_string(cluster->worker(worker).pid()) + "/maps");
    ASSERT_NE(maps.find("libc.so"), std::string::npos);
    for (const char* library : {"libcuda", "cudart", "cublas", "libnccl", "nvidia", "baton_cuda"}) {
      EXPECT_EQ(maps.find(library), std::string::npos) << worker << " maps " << library;
    }
  }
  for (const char* name : {"baton-router", "baton-prefill-worker", "baton-decode-worker"}) {
    FILE* pipe = popen(("readelf -d " + Binary(name)).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string text;
    std::array<char, 512> line;
    while (fgets(line.data(), line.size(), pipe) != nullptr) text += line.data();
    ASSERT_EQ(pclose(pipe), 0);
    ASSERT_NE(text.find("NEEDED"), std::string::npos);
    for (const char* library : {"cuda", "cublas", "nccl", "nvidia"}) {
      EXPECT_EQ(text.find(library), std::string::npos) << name << " needs " << library;
    }
  }
}

}  // namespace
}  // namespace baton::testing
