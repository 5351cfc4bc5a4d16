// SPDX-License-Identifier: Apache-2.0
// What operators learn of a GPU's memory: in the status, in metrics, and when a
// model does not fit.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/integration/requests.h"
#include "tests/testing/environment.h"
#include "tests/testing/test_data.h"

namespace baton::testing {
namespace {

// What a worker's metrics page says, by way of the address in its port file.
std::string Metrics(const std::string& port_file) {
  std::ifstream file(port_file);
  const auto ports = nlohmann::json::parse(file, nullptr, false);
  if (ports.is_discarded()) return "no port file";
  const std::string command =
      "python3 -c 'import sys,urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' "
      "http://" +
      ports.value("metrics", "") + "/metrics";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> part;
  while (fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  pclose(pipe);
  return text;
}

TEST(GpuMemory, StatusAndMetricsSayWhatAWorkerHolds) {
  const std::string port_file = ::testing::TempDir() + "/baton-gpu-memory-ports.json";
  ClusterOptions options;
  options.model = "embedded";
  options.worker_flags = {"--threads", "1", "--kv-tokens", "640"};
  options.decode_flags = {"--device",    TestDevice(),  "--metrics-listen",
                          "127.0.0.1:0", "--port-file", port_file};
  const auto cluster = Cluster::Start(options);
  ASSERT_NE(cluster, nullptr);
  Request request = MakeRequest({5, 6, 7}, 4, Path::kLocal);
  ASSERT_TRUE(cluster->client().Generate(request).status.ok()) << cluster->Logs();
  const auto memory_of = [&](const std::string& id) {
    for (const WorkerStatus& worker : cluster->client().GetClusterStatus().second.workers) {
      if (worker.id == id) return worker.device_memory;
    }
    return WorkerStatus::DeviceMemory{};
  };
  EXPECT_EQ(memory_of("prefill-1").total, 0u) << "runs on the CPU";
  ASSERT_TRUE(Eventually([&] { return memory_of("decode-1").step_buffers > 0; }))
      << cluster->Logs();
  const WorkerStatus::DeviceMemory memory = memory_of("decode-1");
  EXPECT_GT(memory.weights, 100'000u);
  EXPECT_GT(memory.kv_pool, 100'000u);
  EXPECT_GE(memory.total - memory.free, memory.weights + memory.kv_pool);
  const std::string metrics = Metrics(port_file);
  for (const char* kind : {"total", "free", "weights", "kv_pool", "step_buffers"}) {
    EXPECT_NE(metrics.find("kind=\"" + std::string(kind) + "\""), std::string::npos) << metrics;
  }
}

TEST(GpuMemory, AModelThatDoesNotFitEndsTheWorkerWithTheArithmetic) {
  if (TestDevice() != "emulated") GTEST_SKIP() << "sets the emulator's memory";
  const EnvironmentSetting size("BATON_EMULATED_GPU_BYTES", "300000000");
  const auto worker =
      Process::Start({Binary("baton-decode-worker"), "--router", "127.0.0.1:1", "--model",
                      "embedded", "--device", "emulated", "--kv-memory", "64MiB"},
                     ::testing::TempDir() + "/baton-gpu-memory.log");
  ASSERT_NE(worker, nullptr);
  const auto code = worker->Wait(std::chrono::seconds(10));
  ASSERT_TRUE(code.has_value()) << worker->Log();
  EXPECT_EQ(*code, 1);
  for (const char* part : {"weights 0.0", "KV pool 0.06", "reserve 0.25", "0.28 GiB free",
                           "--kv-memory", "--device cpu"}) {
    EXPECT_NE(worker->Log().find(part), std::string::npos) << part << "\n" << worker->Log();
  }
}

}  // namespace
}  // namespace baton::testing
