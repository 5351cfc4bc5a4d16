// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_metrics.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace baton::worker {
namespace {

metrics::Labels Plus(metrics::Labels labels, const char* name, std::string_view value) {
  labels.emplace(name, value);
  return labels;
}

// Sets the gauges to `now` and adds to the counters what came since `before`.
void Refresh(const engine::Load& now, const engine::Load& before, const metrics::Labels& labels,
             metrics::Metrics* metrics) {
  const auto blocks = [&](std::string_view owner, uint32_t count) {
    metrics
        ->Gauge("baton_worker_kv_blocks", "KV blocks by what holds them",
                Plus(labels, "owner", owner))
        .Set(count);
  };
  blocks("free", now.kv_blocks_free);
  blocks("request", now.kv_blocks_requests);
  blocks("transfer", now.kv_blocks_transfers);
  blocks("prefix_cache", now.kv_blocks_prefix_cache);
  const auto sequences = [&](std::string_view state, uint32_t count) {
    metrics->Gauge("baton_worker_sequences", "Sequences by state", Plus(labels, "state", state))
        .Set(count);
  };
  sequences("waiting", now.waiting_sequences);
  sequences("running", now.running_sequences);
  metrics->Gauge("baton_worker_queued_prompt_tokens", "Prompt tokens not computed yet", labels)
      .Set(static_cast<double>(now.queued_prompt_tokens));
  const auto add = [&](const char* name, const char* help, uint64_t to, uint64_t from) {
    metrics->Counter(name, help, labels).Increment(static_cast<double>(to - from));
  };
  add("baton_worker_steps_total", "Steps of the model", now.steps, before.steps);
  add("baton_worker_steps_ahead_total", "Steps started before the one before was read",
      now.steps_ahead, before.steps_ahead);
  add("baton_worker_prompt_tokens_total", "Prompt tokens computed", now.prompt_tokens_computed,
      before.prompt_tokens_computed);
  const auto preempted = [&](std::string_view kind, uint64_t to, uint64_t from) {
    metrics
        ->Counter("baton_worker_preemptions_total",
                  "Sequences put aside when KV blocks ran out, by what became of their KV",
                  Plus(labels, "kv", kind))
        .Increment(static_cast<double>(to - from));
  };
  preempted("swapped", now.swaps, before.swaps);
  preempted("dropped", now.preemptions - now.swaps, before.preemptions - before.swaps);
  add("baton_worker_recomputed_tokens_total", "Tokens computed again after a preemption",
      now.recomputed_tokens, before.recomputed_tokens);
  const auto drafted = [&](std::string_view result, uint64_t to, uint64_t from) {
    metrics
        ->Counter("baton_worker_draft_tokens_total", "Guessed tokens that were checked, by result",
                  Plus(labels, "result", result))
        .Increment(static_cast<double>(to - from));
  };
  drafted("accepted", now.accepted_tokens, before.accepted_tokens);
  drafted("rejected", now.drafted_tokens - now.accepted_tokens,
          before.drafted_tokens - before.accepted_tokens);
  add("baton_worker_swapped_bytes_total", "KV bytes copied to the swap area and back",
      now.swapped_bytes, before.swapped_bytes);
  metrics->Gauge("baton_worker_swap_bytes", "KV bytes in the swap area", labels)
      .Set(static_cast<double>(now.swap_bytes_used));
  metrics
      ->Counter("baton_worker_overhead_seconds_total", "Time of steps outside of the model", labels)
      .Increment(absl::ToDoubleSeconds(now.overhead - before.overhead));
  add("baton_worker_tokens_total", "Tokens sampled", now.tokens_sampled, before.tokens_sampled);
  metrics
      ->Gauge("baton_worker_kv_blocks_reclaimable", "Blocks that the prefix cache alone holds",
              labels)
      .Set(now.kv_blocks_reclaimable);
  add("baton_worker_prefix_lookups_total", "Prompts looked up in the prefix cache",
      now.prefix_lookups, before.prefix_lookups);
  add("baton_worker_prefix_lookup_tokens_total", "Tokens of those prompts",
      now.prefix_lookup_tokens, before.prefix_lookup_tokens);
  add("baton_worker_prefix_hit_tokens_total", "Of them, tokens found there", now.prefix_hit_tokens,
      before.prefix_hit_tokens);
  add("baton_worker_kv_blocks_moved_total", "KV blocks moved to give memory back", now.blocks_moved,
      before.blocks_moved);
  add("baton_worker_kv_returned_bytes_total", "Memory of the KV pool given back to the system",
      now.kv_bytes_returned, before.kv_bytes_returned);
  const auto copied = [&](std::string_view to, uint64_t after, uint64_t earlier) {
    metrics
        ->Counter("baton_worker_kv_copied_bytes_total",
                  "KV bytes copied between the memories of a GPU and of the host",
                  Plus(labels, "to", to))
        .Increment(static_cast<double>(after - earlier));
  };
  copied("host", now.mirror.to_arena, before.mirror.to_arena);
  copied("gpu", now.mirror.from_arena, before.mirror.from_arena);
  add("baton_worker_file_stored_blocks_total", "Evicted blocks written to --kv-file",
      now.file_stored_blocks, before.file_stored_blocks);
  add("baton_worker_file_loaded_blocks_total", "Blocks read back from there",
      now.file_loaded_blocks, before.file_loaded_blocks);
  add("baton_worker_file_damaged_blocks_total", "Blocks there whose checksum was wrong",
      now.file_damaged_blocks, before.file_damaged_blocks);
  metrics->Gauge("baton_worker_file_blocks", "Blocks there", labels).Set(now.file_blocks);
  add("baton_worker_prefix_evictions_total", "Blocks evicted from the prefix cache",
      now.prefix_evictions, before.prefix_evictions);
}

void RefreshDevice(const model::DeviceMemory& memory, const metrics::Labels& labels,
                   metrics::Metrics* metrics) {
  const auto set = [&](std::string_view kind, uint64_t bytes) {
    metrics
        ->Gauge("baton_worker_device_memory_bytes",
                "Memory of the GPU: in all and free, and what this worker uses it for",
                Plus(labels, "kind", kind))
        .Set(static_cast<double>(bytes));
  };
  set("total", memory.total_bytes);
  set("free", memory.free_bytes);
  set("weights", memory.weight_bytes);
  set("kv_pool", memory.kv_bytes);
  set("step_buffers", memory.step_bytes);
}

}  // namespace

struct WorkerMetrics::Watched {
  absl::Mutex mutex;
  const engine::Engine* engine ABSL_GUARDED_BY(mutex) = nullptr;
  engine::Load last ABSL_GUARDED_BY(mutex);
};

WorkerMetrics::WorkerMetrics(metrics::Metrics* metrics, metrics::Labels labels)
    : metrics_(metrics),
      labels_(std::move(labels)),
      step_seconds_(metrics->Histogram("baton_worker_step_seconds", "Time of one step of the model",
                                       metrics::LatencyBuckets(), labels_)),
      routers_(
          metrics->Gauge("baton_worker_routers", "Routers this worker is attached to", labels_)),
      watched_(std::make_shared<Watched>()) {}

void WorkerMetrics::Watch(const engine::Engine* engine) {
  {
    absl::MutexLock lock(&watched_->mutex);
    watched_->engine = engine;
  }
  metrics_->OnScrape([watched = watched_, metrics = metrics_, labels = labels_] {
    absl::MutexLock lock(&watched->mutex);
    if (watched->engine == nullptr) return;
    const engine::Load load = watched->engine->load();
    Refresh(load, watched->last, labels, metrics);
    const auto memory = watched->engine->model().device_memory();
    if (memory) RefreshDevice(*memory, labels, metrics);
    watched->last = load;
  });
}

void WorkerMetrics::StopWatching() {
  absl::MutexLock lock(&watched_->mutex);
  watched_->engine = nullptr;
}

void WorkerMetrics::CountEnd(absl::StatusCode code) {
  metrics_
      ->Counter("baton_worker_sequences_ended_total", "Sequences ended, by status",
                Plus(labels_, "code", absl::StatusCodeToString(code)))
      .Increment();
}

void WorkerMetrics::ObserveStep(absl::Duration elapsed) {
  step_seconds_.Observe(absl::ToDoubleSeconds(elapsed));
}

void WorkerMetrics::SetRouters(int attached) { routers_.Set(attached); }

HandoffMetrics::HandoffMetrics(metrics::Metrics* metrics, metrics::Labels labels)
    : metrics_(metrics),
      labels_(std::move(labels)),
      seconds_(metrics->Histogram("baton_worker_handoff_seconds",
                                  "Time from a hand-off's begin to its commit",
                                  metrics::LatencyBuckets(), labels_)) {}

void HandoffMetrics::Count(const std::string& transport, absl::StatusCode code, uint64_t bytes,
                           absl::Duration elapsed) {
  metrics_
      ->Counter("baton_worker_handoffs_total", "Hand-offs ended, by status",
                Plus(labels_, "code", absl::StatusCodeToString(code)))
      .Increment();
  metrics_
      ->Counter("baton_worker_handoff_bytes_total", "KV bytes handed over, by transport",
                Plus(labels_, "transport", transport.empty() ? "none" : transport))
      .Increment(static_cast<double>(bytes));
  if (code == absl::StatusCode::kOk) seconds_.Observe(absl::ToDoubleSeconds(elapsed));
}

}  // namespace baton::worker
