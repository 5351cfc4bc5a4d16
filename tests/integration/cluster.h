// SPDX-License-Identifier: Apache-2.0
// A router and its workers as real processes on loopback.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baton/client.h"
#include "tests/integration/process.h"

namespace baton::testing {

// The binary of that name in the build's bin folder, or in $BATON_BIN.
std::string Binary(const std::string& name);

// Those that the workers were built with.
inline std::vector<const char*> HandoffTransports() {
#ifdef BATON_HAS_UCX
  return {"shm", "ucx", "nccl", "tcp"};
#else
  return {"shm", "nccl", "tcp"};
#endif
}

// Polls `condition` until it holds; false after `timeout`.
bool Eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds timeout = std::chrono::seconds(10));

struct ClusterOptions {
  int prefill = 1;
  int decode = 1;
  std::string model = "fake";
  // Pairs of flag and value.
  std::vector<std::string> router_flags;
  std::vector<std::string> worker_flags;  // of both roles
  std::vector<std::string> prefill_flags;
  std::vector<std::string> decode_flags;
};

// Workers are named "prefill-1", "decode-2" and so on. Everything is killed and
// its folder removed when the object goes.
class Cluster final {
 public:
  // Null, with a test failure that shows the logs, when it does not get ready.
  static std::unique_ptr<Cluster> Start(const ClusterOptions& options);
  ~Cluster();

  Client& client() { return *client_; }
  const std::string& router_address() const { return router_address_; }
  const std::string& folder() const { return folder_; }

  Process& router() { return *router_; }
  Process& worker(const std::string& name);

  // Kills the router and starts it again on its port.
  bool RestartRouter();
  // Starts a worker, again under the name of one that is gone or anew.
  // `flags` win over those of the options.
  bool StartWorker(const std::string& name, const std::vector<std::string>& flags = {});
  // SIGKILL; returns when it is reaped.
  void KillWorker(const std::string& name);
  // Waits until the router lists the worker, or lists it no more.
  bool AwaitWorker(const std::string& name, bool present = true);

  // Waits until no worker holds a block or a sequence, as the router knows it.
  bool AwaitIdle(std::chrono::milliseconds timeout = std::chrono::seconds(1));
  // What the router knows, as text for failures.
  std::string Describe();
  std::string Logs();

 private:
  explicit Cluster(ClusterOptions options);
  bool StartRouter();

  struct Worker {
    std::string name;
    std::unique_ptr<Process> process;
  };

  const ClusterOptions options_;
  std::string folder_;
  std::string router_address_;
  std::unique_ptr<Process> router_;
  std::vector<Worker> workers_;
  std::unique_ptr<Client> client_;
};

}  // namespace baton::testing
