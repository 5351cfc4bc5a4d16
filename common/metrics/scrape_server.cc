// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/scrape_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"

namespace baton::metrics {
namespace {

constexpr auto kTimeout = std::chrono::seconds(2);
constexpr time_t kSilenceSeconds = 1;
constexpr size_t kThreads = 2;
constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

struct Address {
  std::string host;
  int port = 0;
};

absl::StatusOr<Address> Parse(const std::string& text) {
  std::optional<HostPort> parts = SplitHostPort(text);
  Address address;
  bool valid = parts.has_value();
  if (valid) {
    const char* const end = parts->port.data() + parts->port.size();
    const auto [rest, error] = std::from_chars(parts->port.data(), end, address.port);
    valid = error == std::errc() && rest == end && address.port >= 0 && address.port <= 65535;
  }
  if (!valid) return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not HOST:PORT"));
  address.host = std::move(parts->host);
  return address;
}

// The library's own choice shares a port between processes, and so hides that
// it is taken.
void AllowRestart(int socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace

struct ScrapeServer::Impl {
  httplib::Server server;
  std::thread thread;
};

ScrapeServer::ScrapeServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<ScrapeServer>> ScrapeServer::Start(const std::string& address,
                                                                  Page page) {
  const absl::StatusOr<Address> parsed = Parse(address);
  if (!parsed.ok()) return parsed.status();
  std::unique_ptr<ScrapeServer> self(new ScrapeServer(std::make_unique<Impl>()));
  httplib::Server& server = self->impl_->server;
  server.set_socket_options(AllowRestart);
  server.set_keep_alive_max_count(1);
  server.set_keep_alive_timeout(kSilenceSeconds);  // also before the first request
  server.set_read_timeout(kTimeout);
  server.set_write_timeout(kTimeout);
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.Get("/metrics",
             [page = std::move(page)](const httplib::Request&, httplib::Response& response) {
               response.set_content(page(), kContentType);
             });
  if (parsed->port == 0) {
    self->port_ = server.bind_to_any_port(parsed->host);
  } else if (server.bind_to_port(parsed->host, parsed->port)) {
    self->port_ = parsed->port;
  }
  if (self->port_ <= 0) return absl::UnavailableError(absl::StrCat("cannot listen on ", address));
  self->impl_->thread = std::thread([&server] { server.listen_after_bind(); });
  // Stopping works only once it runs.
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (!server.is_running()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::UnavailableError(absl::StrCat("no server starts on ", address));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return self;
}

ScrapeServer::~ScrapeServer() {
  if (!impl_->thread.joinable()) return;
  impl_->server.stop();
  impl_->thread.join();
}

}  // namespace baton::metrics
