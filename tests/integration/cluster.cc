// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace baton::testing {
namespace {

// Generous: sanitizers and busy machines.
constexpr std::chrono::seconds kStartTimeout(20);

// The value of `key` in a port file; empty until the file is there.
std::string PortOf(const std::string& path, const char* key) {
  std::ifstream file(path);
  if (!file) return "";
  const nlohmann::json ports = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return ports.is_object() ? ports.value(key, "") : "";
}

// Adds pairs of flag and value; a flag that is there already gets the new value.
void Set(const std::vector<std::string>& flags, std::vector<std::string>& arguments) {
  for (size_t i = 0; i + 1 < flags.size(); i += 2) {
    const auto found = std::find(arguments.begin(), arguments.end(), flags[i]);
    if (found != arguments.end()) {
      *(found + 1) = flags[i + 1];
    } else {
      arguments.insert(arguments.end(), {flags[i], flags[i + 1]});
    }
  }
}

}  // namespace

std::string Binary(const std::string& name) {
  const char* const moved = getenv("BATON_BIN");
  return (moved == nullptr ? std::string(BATON_BINARY_DIR) + "/bin" : moved) + "/" + name;
}

bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::unique_ptr<Cluster> Cluster::Start(const ClusterOptions& options) {
  setenv("BATON_NCCL_LIBRARY", BATON_FAKE_NCCL, 0);  // for workers that are told to use it
  std::unique_ptr<Cluster> cluster(new Cluster(options));
  bool ready = cluster->StartRouter();
  for (int i = 1; ready && i <= options.prefill; ++i) {
    ready = cluster->StartWorker("prefill-" + std::to_string(i));
  }
  for (int i = 1; ready && i <= options.decode; ++i) {
    ready = cluster->StartWorker("decode-" + std::to_string(i));
  }
  for (size_t i = 0; ready && i < cluster->workers_.size(); ++i) {
    ready = cluster->AwaitWorker(cluster->workers_[i].name);
  }
  if (ready) return cluster;
  ADD_FAILURE() << "the cluster did not get ready\n" << cluster->Logs();
  return nullptr;
}

Cluster::Cluster(ClusterOptions options) : options_(std::move(options)) {
  std::string pattern = ::testing::TempDir() + "/baton-XXXXXX";
  folder_ = mkdtemp(pattern.data());
}

Cluster::~Cluster() {
  workers_.clear();
  router_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

bool Cluster::StartRouter() {
  const std::string ports = folder_ + "/router.ports";
  std::filesystem::remove(ports);
  std::vector<std::string> arguments = {Binary("baton-router"), "--model", options_.model,
                                        "--port-file", ports};
  Set({"--listen", router_address_.empty() ? "127.0.0.1:0" : router_address_}, arguments);
  Set({"--local-stall", "0s"}, arguments);  // a path left open is split, as tests expect
  Set(options_.router_flags, arguments);
  router_ = Process::Start(arguments, folder_ + "/router.log");
  if (router_ == nullptr) return false;
  if (!Eventually([&] { return !PortOf(ports, "listen").empty(); }, kStartTimeout)) return false;
  router_address_ = PortOf(ports, "listen");
  ClientOptions to_router;
  to_router.router = router_address_;
  client_ = Client::Connect(to_router);
  return client_->WaitReady(kStartTimeout).ok();
}

bool Cluster::RestartRouter() {
  router_.reset();
  return StartRouter();
}

Process& Cluster::worker(const std::string& name) {
  for (const Worker& worker : workers_) {
    if (worker.name == name) return *worker.process;
  }
  ADD_FAILURE() << "no worker " << name;
  return *router_;
}

bool Cluster::StartWorker(const std::string& name, const std::vector<std::string>& flags) {
  const bool prefill = name.starts_with("prefill");
  std::vector<std::string> arguments = {
      Binary(prefill ? "baton-prefill-worker" : "baton-decode-worker"),
      "--model",
      options_.model,
      "--router",
      router_address_,
      "--worker-id",
      name,
      "--kv-tokens",
      "65536",
      "--metrics-listen",
      ""};
  if (!prefill) Set({"--socket-dir", folder_}, arguments);
  Set(options_.worker_flags, arguments);
  Set(prefill ? options_.prefill_flags : options_.decode_flags, arguments);
  Set(flags, arguments);
  auto process = Process::Start(arguments, folder_ + "/" + name + ".log");
  if (process == nullptr) return false;
  std::erase_if(workers_, [&](const Worker& worker) { return worker.name == name; });
  workers_.push_back({.name = name, .process = std::move(process)});
  return true;
}

void Cluster::KillWorker(const std::string& name) {
  Process& process = worker(name);
  process.Signal(SIGKILL);
  EXPECT_TRUE(process.Wait(std::chrono::seconds(5)).has_value());
}

bool Cluster::AwaitWorker(const std::string& name, bool present) {
  bool ended = false;
  const bool found = Eventually(
      [&] {
        // One that ended will never come.
        ended = present && worker(name).Wait(std::chrono::milliseconds(0)).has_value();
        if (ended) return true;
        const auto [status, cluster] = client_->GetClusterStatus();
        return status.ok() &&
               present == std::any_of(cluster.workers.begin(), cluster.workers.end(),
                                      [&](const WorkerStatus& one) { return one.id == name; });
      },
      kStartTimeout);
  return found && !ended;
}

bool Cluster::AwaitIdle(std::chrono::milliseconds timeout) {
  return Eventually(
      [&] {
        const auto [status, cluster] = client_->GetClusterStatus();
        return status.ok() && cluster.running_requests == 0 && cluster.queued_requests == 0 &&
               std::all_of(
                   cluster.workers.begin(), cluster.workers.end(), [](const WorkerStatus& worker) {
                     return worker.kv_blocks_requests == 0 && worker.kv_blocks_transfers == 0 &&
                            worker.running_sequences == 0 && worker.waiting_sequences == 0;
                   });
      },
      timeout);
}

std::string Cluster::Describe() {
  const auto [status, cluster] = client_->GetClusterStatus();
  std::string text = std::string(StatusCodeName(status.code)) +
                     ": running=" + std::to_string(cluster.running_requests) +
                     " queued=" + std::to_string(cluster.queued_requests);
  for (const WorkerStatus& worker : cluster.workers) {
    text += "\n" + worker.id + ": waiting=" + std::to_string(worker.waiting_sequences) +
            " running=" + std::to_string(worker.running_sequences) +
            " request_blocks=" + std::to_string(worker.kv_blocks_requests) +
            " transfer_blocks=" + std::to_string(worker.kv_blocks_transfers);
  }
  return text;
}

std::string Cluster::Logs() {
  std::string text;
  if (router_ != nullptr) text += "--- router\n" + router_->Log();
  for (const Worker& worker : workers_) {
    text += "--- " + worker.name + "\n" + worker.process->Log();
  }
  return text;
}

}  // namespace baton::testing
