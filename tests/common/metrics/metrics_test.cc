// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>

namespace baton::metrics {
namespace {

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? fd : -1;
}

std::string Scrape(int port) {
  const int fd = Connect(port);
  if (fd < 0) return "";
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string response;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) {
    response.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return response;
}

TEST(Metrics, ShowsCountersGaugesAndHistogramsByLabel) {
  Metrics metrics;
  metrics.Counter("baton_test_requests_total", "Requests", {{"code", "OK"}}).Increment(3);
  metrics.Histogram("baton_test_seconds", "Seconds", {0.1, 1}).Observe(0.5);
  const std::string text = metrics.Text();
  EXPECT_NE(text.find("baton_test_requests_total{code=\"OK\"} 3"), std::string::npos) << text;
  EXPECT_NE(text.find("baton_test_seconds_bucket{le=\"1\"} 1"), std::string::npos) << text;
}

TEST(Metrics, GivesTheSameSeriesForTheSameNameAndLabels) {
  Metrics metrics;
  metrics.Counter("baton_test_total", "T").Increment();
  metrics.Counter("baton_test_total", "T").Increment();
  EXPECT_NE(metrics.Text().find("baton_test_total 2"), std::string::npos);
}

TEST(Metrics, ServesLiveValuesOverHttp) {
  Metrics metrics;
  auto& gauge = metrics.Gauge("baton_test_live", "Live");
  int scrapes = 0;
  metrics.OnScrape([&] { gauge.Set(++scrapes); });
  metrics.AddProcessMetrics();
  ASSERT_TRUE(metrics.Serve("127.0.0.1:0").ok());
  EXPECT_NE(Scrape(metrics.port()).find("baton_test_live 1"), std::string::npos);
  const std::string second = Scrape(metrics.port());
  EXPECT_NE(second.find("baton_test_live 2"), std::string::npos) << second;
  EXPECT_NE(second.find("process_resident_memory_bytes"), std::string::npos);
}

TEST(Metrics, StopsSoonWhileAClientSaysNothing) {
  auto metrics = std::make_unique<Metrics>();
  ASSERT_TRUE(metrics->Serve("127.0.0.1:0").ok());
  const int silent = Connect(metrics->port());
  ASSERT_GE(silent, 0);
  EXPECT_NE(Scrape(metrics->port()), "");
  const auto begin = std::chrono::steady_clock::now();
  metrics.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  close(silent);
}

TEST(Metrics, RefusesWhatIsNoAddress) {
  Metrics metrics;
  for (const char* address : {"", "localhost", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:9x"}) {
    const absl::Status status = metrics.Serve(address);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_NE(std::string(status.message()).find("--metrics-listen"), std::string::npos) << status;
  }
}

TEST(Metrics, NamesAnAddressThatIsTaken) {
  Metrics first, second;
  ASSERT_TRUE(first.Serve("127.0.0.1:0").ok());
  const std::string address = "127.0.0.1:" + std::to_string(first.port());
  const absl::Status status = second.Serve(address);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find(address), std::string::npos) << status;
}

}  // namespace
}  // namespace baton::metrics
