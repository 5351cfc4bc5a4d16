// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "common/metrics/process.h"
#include "common/metrics/scrape_server.h"

namespace baton::metrics {

struct Metrics::Impl final {
  // Refreshes live gauges, then reads the registry. The server's threads.
  std::string Text() const {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex);
      callbacks = refreshers;
    }
    for (const auto& refresh : callbacks) refresh();
    return prometheus::TextSerializer().Serialize(registry->Collect());
  }

  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  mutable std::mutex mutex;
  std::vector<std::function<void()>> refreshers;
  std::unique_ptr<ScrapeServer> server;  // last: calls Text
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*impl_->registry).Add(labels);
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help,
                                  const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*impl_->registry).Add(labels);
}

prometheus::Histogram& Metrics::Histogram(const std::string& name, const std::string& help,
                                          const std::vector<double>& bounds, const Labels& labels) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Register(*impl_->registry)
      .Add(labels, bounds);
}

void Metrics::OnScrape(std::function<void()> refresh) {
  const std::lock_guard lock(impl_->mutex);
  impl_->refreshers.push_back(std::move(refresh));
}

std::string Metrics::Text() { return impl_->Text(); }

absl::Status Metrics::Serve(const std::string& address) {
  auto server = ScrapeServer::Start(address, [impl = impl_.get()] { return impl->Text(); });
  if (!server.ok()) {
    return absl::Status(server.status().code(), absl::StrCat("metrics: ", server.status().message(),
                                                             "; choose another --metrics-listen"));
  }
  impl_->server = *std::move(server);
  return absl::OkStatus();
}

int Metrics::port() const { return impl_->server == nullptr ? 0 : impl_->server->port(); }

void Metrics::AddProcessMetrics() {
  auto& resident = Gauge("process_resident_memory_bytes", "Resident memory");
  auto& cpu = Gauge("process_cpu_seconds", "User and system time since the start");
  auto& descriptors = Gauge("process_open_fds", "Open file descriptors");
  auto& threads = Gauge("process_threads", "Threads");
  OnScrape([&] {
    const ProcessUsage usage = ReadProcessUsage();
    resident.Set(static_cast<double>(usage.resident_bytes));
    cpu.Set(usage.cpu_seconds);
    descriptors.Set(usage.open_descriptors);
    threads.Set(usage.threads);
  });
}

std::vector<double> LatencyBuckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
}

}  // namespace baton::metrics
