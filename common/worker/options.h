// SPDX-License-Identifier: Apache-2.0
// What an operator can set on a worker of either role.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config/command_line.h"
#include "common/rpc/server.h"
#include "common/sched/policy.h"

namespace baton::worker {

enum class WorkerRole : uint8_t { kPrefill, kDecode };

std::string_view RoleName(WorkerRole role);  // "prefill", "decode"

// The model of tests that computes nothing (common/model/fake_model.h).
struct FakeModelFlags {
  absl::Duration token_delay;  // per token of a step
  absl::Duration step_delay;   // per step
  uint32_t context = 8192;
  uint64_t seed = 1;  // other seeds, other text
};

struct Options {
  WorkerRole role = WorkerRole::kPrefill;

  std::string model = "embedded";  // path, "embedded" or "fake"
  std::string precision = "fast";
  std::string weights = "stored";
  std::string kv_dtype = "auto";
  std::string isa = "auto";
  std::string device = "cpu";
  bool deterministic = true;
  std::vector<std::string> head_decay;  // model::ParseHeadDecays
  uint32_t threads = 0;                 // 0: what affinity and cgroup quota allow
  std::string share_cores = "auto";
  std::string packed_cache;  // folder, "off", or empty for the default
  uint32_t packed_cache_gib = 64;
  FakeModelFlags fake;

  std::optional<uint64_t> kv_tokens;
  std::string kv_memory;  // "1GiB" or "70%"; empty: a share of free memory
  std::string kv_floor;   // "512MiB"; empty: all of the pool
  absl::Duration kv_return_after = absl::Seconds(60);
  uint32_t chunk_tokens = 512;
  absl::Duration chunk_stall = absl::Milliseconds(20);
  uint32_t max_sequences = 64;
  uint32_t max_waiting = 1024;
  std::string kv_swap;  // "256MiB", "0"; empty: see SwapBytes()
  std::string kv_file;  // path; empty: none
  std::string kv_file_size = "1GiB";
  bool kv_file_keep = false;
  sched::PolicyOptions policy;
  std::vector<std::string> tenant_weights;  // TENANT=WEIGHT; Complete() puts them into policy
  std::string prefix_cache = "on";
  std::string windows = "on";
  uint32_t draft_tokens = 8;

  std::string profile;  // file of a trace; empty: none

  std::vector<std::string> routers;
  std::string worker_id;  // empty: role-host-pid
  std::string host_id;    // empty: found out
  std::vector<std::string> transports;
  absl::Duration handoff_timeout = absl::Seconds(120);

  std::string listen = "127.0.0.1:0";
  std::string metrics_listen = "127.0.0.1:0";  // empty: none
  rpc::TlsOptions tls;

  absl::Duration drain_timeout = absl::Seconds(60);
  absl::Duration liveness_timeout = absl::Seconds(30);
  std::string log_level = "info";
  std::string port_file;
};

// Adds the flags of both roles to `line`; values land in `options`.
void AddFlags(config::CommandLine& line, Options* options);

// Fills in what has a default that depends on the process or on other flags,
// and checks the rest. INVALID_ARGUMENT names the flag, its limit and value.
absl::Status Complete(Options* options);

}  // namespace baton::worker
