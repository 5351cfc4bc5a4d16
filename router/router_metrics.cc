// SPDX-License-Identifier: Apache-2.0
#include "router/router_metrics.h"

namespace baton::router {

RouterMetrics::RouterMetrics(metrics::Metrics* metrics)
    : metrics_(*metrics),
      prompt_tokens_(metrics->Counter("baton_router_prompt_tokens_total",
                                      "Prompt tokens of requests that were handed to workers")),
      cached_prompt_tokens_(metrics->Counter("baton_router_cached_prompt_tokens_total",
                                             "Of them, tokens that no worker computed")),
      generated_tokens_(metrics->Counter("baton_router_generated_tokens_total",
                                         "Tokens that came back from workers")),
      first_token_(metrics->Histogram("baton_router_time_to_first_token_seconds",
                                      "From a request's arrival to its first token",
                                      metrics::LatencyBuckets())),
      inter_token_(metrics->Histogram("baton_router_inter_token_latency_seconds",
                                      "Between tokens of one answer", metrics::LatencyBuckets())),
      queued_(metrics->Gauge("baton_router_requests_waiting", "Requests in the queue")),
      queued_prompt_tokens_(metrics->Gauge("baton_router_waiting_prompt_tokens",
                                           "Prompt tokens of requests in the queue")),
      running_(metrics->Gauge("baton_router_requests_running",
                              "Requests handed to workers and not finished")),
      prefill_workers_(
          metrics->Gauge("baton_router_workers", "Attached workers", {{"role", "prefill"}})),
      decode_workers_(
          metrics->Gauge("baton_router_workers", "Attached workers", {{"role", "decode"}})),
      streams_(metrics->Gauge("baton_router_streams", "Open streams of clients and workers")) {}

void RouterMetrics::RequestEnded(absl::StatusCode code) {
  metrics_
      .Counter("baton_router_requests_total", "Requests by outcome",
               {{"code", absl::StatusCodeToString(code)}})
      .Increment();
}

void RouterMetrics::FirstToken(absl::Duration since_arrival) {
  generated_tokens_.Increment();
  first_token_.Observe(absl::ToDoubleSeconds(since_arrival));
}

void RouterMetrics::MoreTokens(uint32_t tokens, absl::Duration gap) {
  generated_tokens_.Increment(tokens);
  const double each = absl::ToDoubleSeconds(gap) / tokens;
  for (uint32_t i = 0; i < tokens; ++i) inter_token_.Observe(each);
}

void RouterMetrics::Fallback(const std::string& reason) {
  metrics_
      .Counter("baton_router_fallbacks_total",
               "Requests that ran locally though they might have been split", {{"reason", reason}})
      .Increment();
}

void RouterMetrics::Path(const std::string& path, const std::string& reason) {
  metrics_
      .Counter("baton_router_paths_total", "Requests by the path they took, and why",
               {{"path", path}, {"reason", reason}})
      .Increment();
}

void RouterMetrics::SetQueue(uint64_t requests, uint64_t prompt_tokens) {
  queued_.Set(static_cast<double>(requests));
  queued_prompt_tokens_.Set(static_cast<double>(prompt_tokens));
}

void RouterMetrics::SetWorkers(uint64_t prefill, uint64_t decode) {
  prefill_workers_.Set(static_cast<double>(prefill));
  decode_workers_.Set(static_cast<double>(decode));
}

}  // namespace baton::router
