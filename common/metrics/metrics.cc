// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <prometheus/exposer.h>
#include <prometheus/text_serializer.h>

#include <mutex>

#include "common/metrics/process.h"

namespace baton::metrics {

// Refreshes live gauges, then hands out the registry. What prometheus-cpp's
// exposer scrapes.
struct Metrics::Impl final : public prometheus::Collectable {
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex);
      callbacks = refreshers;
    }
    for (const auto& refresh : callbacks) refresh();
    return registry->Collect();
  }

  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  mutable std::mutex mutex;
  std::vector<std::function<void()>> refreshers;
  std::unique_ptr<prometheus::Exposer> exposer;
  int port = 0;
};

Metrics::Metrics() : impl_(std::make_shared<Impl>()) {}
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

std::string Metrics::Text() { return prometheus::TextSerializer().Serialize(impl_->Collect()); }

absl::Status Metrics::Serve(const std::string& address) {
  try {
    // One thread: a scrape is short, and these machines have few cores.
    impl_->exposer = std::make_unique<prometheus::Exposer>(address, 1);
  } catch (const std::exception& error) {
    return absl::UnavailableError("metrics cannot listen on " + address + " (" + error.what() +
                                  "); choose another --metrics-listen");
  }
  impl_->exposer->RegisterCollectable(impl_);
  const std::vector<int> ports = impl_->exposer->GetListeningPorts();
  impl_->port = ports.empty() ? 0 : ports.front();
  return absl::OkStatus();
}

int Metrics::port() const { return impl_->port; }

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
