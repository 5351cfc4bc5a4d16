// SPDX-License-Identifier: Apache-2.0
#include "router/options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/random.h"

namespace baton::router {

void AddFlags(config::CommandLine& line, Options* options) {
  line.Add("Model", "model", &options->model.model,
           "Checkpoint (a GGUF, safetensors or PyTorch file, or its folder), \"embedded\", or "
           "\"fake\": token ids alone, limits from the first worker");
  line.Add("Model", "model-name", &options->model.name,
           "Name that requests use; default: the checkpoint's own");
  line.Add("Model", "prompt-format", &options->model.prompt_format,
           "Prompt format of Chat; default: the checkpoint's own");

  line.Add("Network", "listen", &options->listen, "HOST:PORT of the gRPC API");
  line.Add("Network", "worker-listen", &options->worker_listen,
           "HOST:PORT where workers attach, apart from the API, so that only they can reach it; "
           "empty: at --listen");
  line.Add("Network", "metrics-listen", &options->metrics_listen,
           "HOST:PORT of Prometheus metrics; empty: none");
  line.Add("Network", "reflection", &options->reflection, "Serve gRPC reflection");
  line.Add("Network", "max-message-bytes", &options->max_message_bytes,
           "Largest request that is taken");
  rpc::AddTlsFlags(line, &options->tls);

  line.Add("Admission", "max-queue", &options->max_queue, "Most requests that wait for a worker");
  line.Add("Admission", "max-queued-prompt-tokens", &options->max_queued_prompt_tokens,
           "Most prompt tokens of requests that wait");
  line.Add("Admission", "default-deadline", &options->default_deadline,
           "For requests that come without a deadline; 0s: none");
  line.Add("Admission", "tokenizer-threads", &options->tokenizer_threads,
           "Threads that parse and tokenize requests");

  line.AddChoice("Admission", "policy", &options->policy.name, sched::PolicyNames(),
                 "Which waiting requests go first: fcfs; srw, shortest prompt with ageing; "
                 "deadline, which refuses what cannot be done in time; priority; fair, weighted "
                 "shares of tenants. Workers have a --policy of their own");
  line.Add("Admission", "aging", &options->policy.aging,
           "Bounds how long a request may be overtaken");
  line.Add("Admission", "tenant-weight", &options->tenant_weights,
           "TENANT=WEIGHT for --policy fair; may be repeated; others have 1");
  line.Add("Admission", "local-stall", &options->local_stall,
           "A prompt is computed on a decode worker where that is expected to be faster, unless "
           "a step of it takes longer than this; 0s: only where no split is possible");

  line.Add("Workers", "pair-wait", &options->pair_wait,
           "How long a request waits for a role of which no worker is attached");
  line.Add("Workers", "lease", &options->lease,
           "A worker is dropped after this long without a message");
  line.Add("Workers", "heartbeat", &options->heartbeat, "Interval asked of workers");
  line.AddChoice(
      "Workers", "transport", &options->transport,
      {"auto", "cuda_ipc", "shm", "ucx", "nccl", "tcp"},
      "Transports offered for KV hand-offs; auto: all that both workers have, best first");
  line.AddChoice("Workers", "mixed-pairs", &options->mixed_pairs, {"off", "on"},
                 "Where no equal pair has room, workers of other kernels, devices or precision "
                 "hand over to each other: tokens may then differ from those of either alone");

  line.Add("Streams", "max-pending-bytes", &options->max_pending_bytes,
           "A client that leaves more than this unread is ended");
  line.Add("Streams", "max-stall", &options->max_stall,
           "A client that takes nothing for this long is ended");

  line.Add("Process", "drain-timeout", &options->drain_timeout,
           "After SIGTERM, how long running streams may go on");
  line.Add("Process", "port-file", &options->port_file,
           "File to write the addresses and the pid to once the router listens");
  line.AddChoice("Process", "log-level", &options->log_level, {"debug", "info", "warning", "error"},
                 "Lines below it are dropped");
}

absl::Status Check(const Options& options) {
  const auto at_least_one = [](std::string_view flag, uint64_t value) {
    if (value > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--", std::string(flag), " is 0; it must be at least 1"));
  };
  for (const absl::Status& status :
       {at_least_one("max-queue", options.max_queue),
        at_least_one("max-queued-prompt-tokens", options.max_queued_prompt_tokens),
        at_least_one("tokenizer-threads", options.tokenizer_threads)}) {
    if (!status.ok()) return status;
  }
  for (const std::string& text : options.tenant_weights) {
    if (const absl::Status status = sched::ParseTenantWeight(text).status(); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tenant-weight: ", std::string(status.message())));
    }
  }
  if (const absl::Status status = sched::MakePolicy(options.policy).status(); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--aging: ", std::string(status.message())));
  }
  constexpr uint64_t kMaxMessage = 256 << 20;
  if (options.max_message_bytes == 0 || options.max_message_bytes > kMaxMessage) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-message-bytes is ", options.max_message_bytes, "; it must be 1 to ", kMaxMessage));
  }
  if (options.heartbeat < absl::Milliseconds(10) || options.lease < 2 * options.heartbeat) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lease is ", absl::FormatDuration(options.lease), " and --heartbeat ",
                     absl::FormatDuration(options.heartbeat),
                     "; a lease needs at least two heartbeats of at least 10ms"));
  }
  return absl::OkStatus();
}

DispatcherOptions MakeDispatcherOptions(const Options& options) {
  DispatcherOptions out;
  out.queue = {options.max_queue, options.max_queued_prompt_tokens};
  out.pair_wait = options.pair_wait;
  out.heartbeat = options.heartbeat;
  out.policy = options.policy;
  for (const std::string& text : options.tenant_weights) {
    if (auto weight = sched::ParseTenantWeight(text); weight.ok()) {
      out.policy.tenant_weights.insert(*std::move(weight));
    }
  }
  out.local_stall = options.local_stall;
  out.lease = options.lease;
  out.transport = options.transport == "cuda_ipc" ? TransportRule::kCudaIpc
                  : options.transport == "shm"    ? TransportRule::kShm
                  : options.transport == "ucx"    ? TransportRule::kUcx
                  : options.transport == "nccl"   ? TransportRule::kNccl
                  : options.transport == "tcp"    ? TransportRule::kTcp
                                                  : TransportRule::kAuto;
  out.mixed_pairs = options.mixed_pairs == "on";
  out.router_id = absl::StrFormat("router-%016x", RandomU64());
  return out;
}

InferenceOptions MakeInferenceOptions(const Options& options) {
  InferenceOptions out;
  out.max_message_bytes = options.max_message_bytes;
  if (options.default_deadline > absl::ZeroDuration()) {
    out.default_deadline = options.default_deadline;
  }
  out.stream = {static_cast<size_t>(options.max_pending_bytes), options.max_stall};
  return out;
}

}  // namespace baton::router
