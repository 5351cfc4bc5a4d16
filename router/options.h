// SPDX-License-Identifier: Apache-2.0
// What an operator can set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config/command_line.h"
#include "common/rpc/server.h"
#include "router/dispatcher.h"
#include "router/inference_service.h"
#include "router/served_model.h"

namespace baton::router {

struct Options {
  ModelChoice model;
  std::string listen = "127.0.0.1:8500";
  std::string worker_listen;                   // for workers; empty: `listen` serves them too
  std::string metrics_listen = "127.0.0.1:0";  // empty: none
  std::string port_file;
  rpc::TlsOptions tls;
  bool reflection = true;
  uint64_t max_message_bytes = 4 << 20;

  uint32_t max_queue = 1024;
  uint64_t max_queued_prompt_tokens = 1 << 20;
  absl::Duration default_deadline = absl::Hours(1);
  absl::Duration pair_wait = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(10);
  absl::Duration heartbeat = absl::Milliseconds(250);
  std::string transport = "auto";
  std::string mixed_pairs = "off";
  sched::PolicyOptions policy = {.name = "fcfs"};
  std::vector<std::string> tenant_weights;  // TENANT=WEIGHT
  absl::Duration local_stall = DispatcherOptions().local_stall;
  uint32_t tokenizer_threads = 2;

  uint64_t max_pending_bytes = 1 << 20;
  absl::Duration max_stall = absl::Seconds(30);
  absl::Duration drain_timeout = absl::Seconds(60);
  std::string log_level = "info";
};

void AddFlags(config::CommandLine& line, Options* options);

// INVALID_ARGUMENT names the flag, its limit and value.
absl::Status Check(const Options& options);

DispatcherOptions MakeDispatcherOptions(const Options& options);
InferenceOptions MakeInferenceOptions(const Options& options);

}  // namespace baton::router
