// SPDX-License-Identifier: Apache-2.0
// Prometheus metrics over prometheus-cpp, one registry per process.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton::metrics {

using Labels = std::map<std::string, std::string>;

// Families are made on first use and live as long as the registry.
// Names: baton_<noun>_<unit>[_total]. Thread-safe.
class Metrics final {
 public:
  Metrics();
  ~Metrics();

  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const Labels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const Labels& labels = {});
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& bounds, const Labels& labels = {});
  // Runs before every scrape, to set gauges from live state.
  void OnScrape(std::function<void()> refresh);

  // Text exposition, as a scrape would get it; for tests.
  std::string Text();

  // Serves /metrics on HOST:PORT. UNAVAILABLE names an address that is taken,
  // INVALID_ARGUMENT one that is none.
  absl::Status Serve(const std::string& address);
  int port() const;  // of Serve; 0 before

  // Process memory, CPU seconds, open descriptors and threads, refreshed on scrape.
  void AddProcessMetrics();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Bucket bounds: seconds from 1 ms to 120 s.
std::vector<double> LatencyBuckets();

}  // namespace baton::metrics
