// SPDX-License-Identifier: Apache-2.0
#include "common/worker/options.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/kv/layout.h"
#include "common/model/head_decay.h"
#include "common/model/load.h"
#include "common/model/weight_choice.h"
#include "common/speculation/draft_policy.h"
#include "common/transport/kv_transport.h"
#include "common/worker/host_id.h"

namespace baton::worker {
namespace {

// CLI11 shows no option of the unnamed group in --help.
constexpr const char* kHidden = "";

absl::Status FlagError(std::string_view flag, std::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", std::string(flag), ": ", std::string(problem)));
}

absl::Status CheckNumbers(const Options& options) {
  if (options.chunk_tokens == 0 || options.chunk_tokens % kv::kBlockTokens != 0 ||
      options.chunk_tokens > 65536) {
    return FlagError("chunk-tokens",
                     absl::StrCat("must be a multiple of ", kv::kBlockTokens, " from ",
                                  kv::kBlockTokens, " to 65536, is ", options.chunk_tokens));
  }
  if (options.max_sequences == 0 || options.max_sequences > 4096) {
    return FlagError("max-sequences",
                     absl::StrCat("must be 1 to 4096, is ", options.max_sequences));
  }
  if (options.kv_tokens.has_value() && !options.kv_memory.empty()) {
    return FlagError("kv-tokens", "cannot be given together with --kv-memory");
  }
  if (options.handoff_timeout <= absl::ZeroDuration()) {
    return FlagError("handoff-timeout", "must be more than 0");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view RoleName(WorkerRole role) {
  return role == WorkerRole::kPrefill ? "prefill" : "decode";
}

void AddFlags(config::CommandLine& line, Options* options) {
  line.Add("Model", "model", &options->model,
           "Checkpoint (a GGUF, safetensors or PyTorch file, or its folder), or \"embedded\"");
  line.AddChoice("Model", "precision", &options->precision, {"fast", "exact"},
                 "fast: weights as stored; exact: float32 throughout");
  line.AddChoice("Model", "weights", &options->weights, model::WeightChoiceNames(),
                 "stored: as the checkpoint has them; others: F32, F16 and BF16 matrices become "
                 "4 or 8 bits in blocks of 32, or BF16, when they are packed");
  line.AddChoice("Model", "kv-dtype", &options->kv_dtype, {"auto", "bf16", "int8", "f32"},
                 "Type of the KV cache; auto: bf16 for fast, f32 for exact");
  line.Add("Model", "threads", &options->threads,
           "Compute threads; 0: what CPU affinity and cgroup quota allow");
  line.AddChoice("Model", "share-cores", &options->share_cores, {"auto", "off"},
                 "auto: pin threads, and divide the cores with workers of this host and user "
                 "that compute at the same time");
  line.AddChoice("Model", "isa", &options->isa, model::IsaNames(), "Instruction set");
  line.Add("Model", "device", &options->device,
           "Where the model runs: cpu, or cuda:N with libbaton_cuda.so (docs/gpu.md)");
  line.Add("Model", "deterministic", &options->deterministic,
           "false: a GPU computes prompts by cuBLASLt, and tokens may depend on how a prompt "
           "was cut; only with --device cuda");
  line.Add("Model", "head-decay", &options->head_decay,
           "LAYERS:HEADS=FACTOR, such as 2:0-3=0.9 or *:*=0: an experiment, in which these heads "
           "weigh tokens less by FACTOR for each 256 that they lie behind; may be repeated "
           "(docs/models.md)");
  line.Add("Model", "packed-cache", &options->packed_cache,
           "Folder of packed weights that workers share, or off; default: "
           "$BATON_CACHE_DIR/packed or ~/.cache/baton/packed");
  line.Add("Model", "packed-cache-gib", &options->packed_cache_gib,
           "Most GiB in that folder; what was not used for longest is removed");

  line.Add("Capacity", "kv-tokens", &options->kv_tokens, "KV pool, in tokens");
  line.Add("Capacity", "kv-memory", &options->kv_memory,
           "KV pool, such as 1GiB, or 70% of free memory; default: a quarter of it, at most 64 "
           "contexts");
  line.Add("Capacity", "kv-floor", &options->kv_floor,
           "Memory of the KV pool beyond this, such as 512MiB or 10% of free memory, is given back "
           "to the system when it was not needed, and taken again on demand; default: none is");
  line.Add("Capacity", "kv-return-after", &options->kv_return_after,
           "How long it must not have been needed for that");
  line.Add("Capacity", "kv-swap", &options->kv_swap,
           "Decode worker: host memory for KV of sequences that are put aside when blocks run "
           "out, such as 1GiB; 0: they are computed again; default: 256MiB, at most an eighth of "
           "free memory");
  line.Add("Capacity", "kv-file", &options->kv_file,
           "File for cached KV that no longer fits into the pool, one for each worker; holds "
           "prompts in clear; default: none");
  line.Add("Capacity", "kv-file-size", &options->kv_file_size, "Of that file, such as 4GiB");
  line.Add("Capacity", "kv-file-keep", &options->kv_file_keep,
           "Leaves the file for the next start of this worker");
  line.Add("Capacity", "chunk-tokens", &options->chunk_tokens, "Prompt tokens per step");
  line.Add("Capacity", "chunk-stall", &options->chunk_stall,
           "By how much prompts may hold up a step of running streams; 32 tokens are taken anyway");
  line.Add("Capacity", "max-sequences", &options->max_sequences, "Sequences running at once");
  line.Add("Capacity", "max-waiting", &options->max_waiting, "Sequences waiting at most");
  line.AddChoice("Capacity", "prefix-cache", &options->prefix_cache, {"on", "off"},
                 "on: KV stays in free blocks, for prompts that begin alike");
  line.AddChoice("Capacity", "windows", &options->windows, {"on", "off"},
                 "on: requests may ask for a sliding window of attention, with sinks");
  line.Add("Capacity", "draft-tokens", &options->draft_tokens,
           "Decode worker: most tokens that are guessed from a request's prompt and answer and "
           "checked beside its next one, where that pays; 0: none, unless a request asks for "
           "some; no token depends on it");

  line.AddChoice("Scheduling", "policy", &options->policy.name, sched::PolicyNames(),
                 "Which prompts go first: fcfs, first come; srw, shortest remaining work with "
                 "ageing; deadline, earliest deadline, and refuses what cannot be done in time; "
                 "priority, classes with ageing; fair, weighted shares of tenants");
  line.Add("Scheduling", "aging", &options->policy.aging,
           "Bounds how long a prompt may be overtaken");
  line.Add("Scheduling", "tenant-weight", &options->tenant_weights,
           "TENANT=WEIGHT for --policy fair; may be repeated; others have 1");

  line.Add("Cluster", "router", &options->routers, "HOST:PORT of a router; may be repeated");
  line.Add("Cluster", "worker-id", &options->worker_id, "Unique name; default: ROLE-HOST-PID");
  line.Add("Cluster", "host-id", &options->host_id,
           "Workers with equal ids share a file system for sockets; default: found out");
  line.Add(
      "Cluster", "transport", &options->transports,
      "Ways KV may travel, best first: cuda_ipc (between GPU workers of a host, from GPU memory "
      "to GPU memory), shm, ucx (RDMA, in builds with UCX), nccl (between "
      "GPUs, by the library BATON_NCCL_LIBRARY names, else libnccl.so.2), tcp; may be "
      "repeated; default: shm, tcp, between them ucx on a host with an RDMA device and nccl "
      "with --device cuda, which begins with cuda_ipc");
  line.Add("Cluster", "handoff-timeout", &options->handoff_timeout,
           "A hand-off that takes longer is given up");

  line.Add("Network", "listen", &options->listen,
           "Address of health checks, reflection and baton status --kv-dump");
  line.Add("Network", "metrics-listen", &options->metrics_listen,
           "Address of Prometheus metrics; empty: none");
  rpc::AddTlsFlags(line, &options->tls);

  line.Add("Process", "drain-timeout", &options->drain_timeout,
           "Longest wait for running sequences after SIGTERM");
  line.Add("Process", "liveness-timeout", &options->liveness_timeout,
           "Liveness fails when the step loop stood still for so long");
  line.Add("Process", "profile", &options->profile,
           "File, or folder of files, to write a trace of steps, sequences and hand-offs to, for "
           "chrome://tracing or "
           "ui.perfetto.dev");
  line.AddChoice("Process", "log-level", &options->log_level, {"debug", "info", "warning", "error"},
                 "Least severe lines to log");
  line.Add("Process", "port-file", &options->port_file,
           "JSON file that gets the bound ports once the worker serves");

  line.Add(kHidden, "fake-token-delay", &options->fake.token_delay, "Delay per token of a step");
  line.Add(kHidden, "fake-step-delay", &options->fake.step_delay, "Delay per step");
  line.Add(kHidden, "fake-context", &options->fake.context, "Context of the fake model");
  line.Add(kHidden, "fake-seed", &options->fake.seed, "Other seeds are other models");
}

absl::Status Complete(Options* options) {
  LogLevel level = LogLevel::kInfo;
  if (!ParseLogLevel(options->log_level, level)) {
    return FlagError("log-level", "must be debug, info, warning or error");
  }
  SetLogLevel(level);
  if (absl::Status status = CheckNumbers(*options); !status.ok()) return status;
  if (options->routers.empty()) {
    return FlagError("router", "give the HOST:PORT of at least one router");
  }
  if (options->transports.empty()) {
    options->transports = transport::DefaultTransports(options->device);
  }
  const std::vector<std::string> known = transport::TransportNames();
  for (const std::string& name : options->transports) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return FlagError("transport",
                     name == "ucx"
                         ? "ucx is not in this build: libucx-dev was not installed"
                         : absl::StrCat("must be cuda_ipc, shm, ucx, nccl or tcp, is ", name));
  }
  if (const auto decay = model::ParseHeadDecays(options->head_decay); !decay.ok()) {
    return FlagError("head-decay", std::string(decay.status().message()));
  }
  if (!options->deterministic && options->device == "cpu") {
    return FlagError("deterministic",
                     "false is for --device cuda; on the CPU all kernels are deterministic");
  }
  if (options->draft_tokens > speculation::kMostDraftTokens) {
    return FlagError("draft-tokens", absl::StrCat("must be at most ", speculation::kMostDraftTokens,
                                                  ", is ", options->draft_tokens));
  }
  for (const std::string& text : options->tenant_weights) {
    const auto weight = sched::ParseTenantWeight(text);
    if (!weight.ok()) return FlagError("tenant-weight", std::string(weight.status().message()));
    options->policy.tenant_weights.insert(*weight);
  }
  if (const absl::Status status = sched::MakePolicy(options->policy).status(); !status.ok()) {
    return FlagError("aging", std::string(status.message()));
  }
  if (options->host_id.empty()) options->host_id = HostId();
  if (options->worker_id.empty()) {
    options->worker_id =
        absl::StrCat(std::string(RoleName(options->role)), "-", HostName(), "-", getpid());
  }
  if (options->worker_id.size() > 128) {
    return FlagError("worker-id",
                     absl::StrCat("must be at most 128 bytes, is ", options->worker_id.size()));
  }
  return absl::OkStatus();
}

}  // namespace baton::worker
