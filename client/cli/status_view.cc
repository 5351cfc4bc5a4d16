// SPDX-License-Identifier: Apache-2.0
#include "client/cli/status_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"

namespace baton::cli {
namespace {

// The same process at the earlier look; null: there was none.
const WorkerStatus* Before(const WorkerStatus& now, const std::optional<Earlier>& earlier) {
  if (!earlier || earlier->seconds <= 0) return nullptr;
  const auto& workers = earlier->cluster.workers;
  const auto before = std::find_if(workers.begin(), workers.end(), [&](const WorkerStatus& worker) {
    return worker.id == now.id && worker.pid == now.pid;
  });
  if (before == workers.end() || now.prompt_tokens < before->prompt_tokens ||
      now.tokens < before->tokens || now.handoff_bytes < before->handoff_bytes) {
    return nullptr;
  }
  return &*before;
}

// "prompt/output" tokens per second.
std::string Rates(const WorkerStatus& now, const std::optional<Earlier>& earlier) {
  const WorkerStatus* before = Before(now, earlier);
  if (before == nullptr) return "-";
  return absl::StrFormat(
      "%.0f/%.0f",
      static_cast<double>(now.prompt_tokens - before->prompt_tokens) / earlier->seconds,
      static_cast<double>(now.tokens - before->tokens) / earlier->seconds);
}

// KV handed over, per second.
std::string TransferRate(const WorkerStatus& now, const std::optional<Earlier>& earlier) {
  const WorkerStatus* before = Before(now, earlier);
  if (before == nullptr || now.role != "prefill") return "-";
  const double bytes = static_cast<double>(now.handoff_bytes - before->handoff_bytes);
  return FormatBytes(static_cast<uint64_t>(bytes / earlier->seconds));
}

// Share of the prompts' tokens that were found in the prefix cache.
std::string HitRate(const WorkerStatus& worker) {
  if (worker.prefix_lookup_tokens == 0) return "-";
  return absl::StrCat(worker.prefix_hit_tokens * 100 / worker.prefix_lookup_tokens, "%");
}

// "used/total", whoever uses it.
std::string GpuMemory(const WorkerStatus& worker) {
  const auto& memory = worker.device_memory;
  if (memory.total == 0) return "-";
  return absl::StrCat(FormatBytes(memory.total - memory.free), "/", FormatBytes(memory.total));
}

std::vector<std::string> Row(const WorkerStatus& worker, const std::optional<Earlier>& earlier) {
  return {worker.id,
          worker.role,
          worker.draining ? "draining" : "ready",
          absl::StrCat(worker.running_sequences),
          absl::StrCat(worker.waiting_sequences),
          absl::StrCat(worker.queued_prompt_tokens),
          Rates(worker, earlier),
          absl::StrCat(worker.kv_blocks_total - worker.kv_blocks_free, "/", worker.kv_blocks_total),
          absl::StrCat(worker.kv_blocks_requests, "+", worker.kv_blocks_transfers, "+",
                       worker.kv_blocks_prefix_cache),
          HitRate(worker),
          TransferRate(worker, earlier),
          FormatBytes(worker.kv_bytes_total),
          FormatBytes(worker.swap_bytes_used),
          absl::StrCat(worker.preemptions),
          FormatBytes(worker.resident_bytes),
          GpuMemory(worker),
          absl::StrCat(worker.threads),
          absl::StrCat(worker.pid),
          worker.compute};
}

}  // namespace

std::string FormatCluster(const ClusterStatus& cluster, const std::optional<Earlier>& earlier) {
  if (cluster.workers.empty()) return "no workers\n";
  std::vector<std::vector<std::string>> rows;
  for (const WorkerStatus& worker : cluster.workers) rows.push_back(Row(worker, earlier));
  return FormatTable(
      {"WORKER", "ROLE", "STATE", "RUNNING", "WAITING", "PROMPT TOKENS", "IN/OUT TOKENS/S",
       "KV BLOCKS", "REQ+XFER+CACHE", "HITS", "XFER/S", "KV MEMORY", "SWAPPED", "PUT ASIDE",
       "RESIDENT", "GPU MEMORY", "THREADS", "PID", "COMPUTE"},
      rows);
}

}  // namespace baton::cli
