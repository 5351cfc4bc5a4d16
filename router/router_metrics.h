// SPDX-License-Identifier: Apache-2.0
// What the router tells Prometheus.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"

namespace baton::router {

// Gauges are set where the state changes, so that none stands still when
// nothing runs. Thread-safe.
class RouterMetrics final {
 public:
  // `metrics` must outlive this.
  explicit RouterMetrics(metrics::Metrics* metrics);

  // Every request counts once, refused ones too.
  void RequestEnded(absl::StatusCode code);
  void PromptTokens(uint64_t tokens) { prompt_tokens_.Increment(static_cast<double>(tokens)); }
  // A worker found as many of a prompt in its prefix cache.
  void CachedPromptTokens(uint64_t tokens) {
    cached_prompt_tokens_.Increment(static_cast<double>(tokens));
  }
  void FirstToken(absl::Duration since_arrival);
  // `tokens` came `gap` after those before.
  void MoreTokens(uint32_t tokens, absl::Duration gap);
  void Fallback(const std::string& reason);
  // A request took `path`, "split" or "local", for `reason` (v1::Route).
  void Path(const std::string& path, const std::string& reason);
  void SetQueue(uint64_t requests, uint64_t prompt_tokens);
  void SetRunning(uint64_t requests) { running_.Set(static_cast<double>(requests)); }
  void SetWorkers(uint64_t prefill, uint64_t decode);
  void SetStreams(int64_t streams) { streams_.Set(static_cast<double>(streams)); }

 private:
  metrics::Metrics& metrics_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& cached_prompt_tokens_;
  prometheus::Counter& generated_tokens_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& inter_token_;
  prometheus::Gauge& queued_;
  prometheus::Gauge& queued_prompt_tokens_;
  prometheus::Gauge& running_;
  prometheus::Gauge& prefill_workers_;
  prometheus::Gauge& decode_workers_;
  prometheus::Gauge& streams_;
};

}  // namespace baton::router
