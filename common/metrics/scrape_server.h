// SPDX-License-Identifier: Apache-2.0
// Serves one page of text over HTTP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace baton::metrics {

// GET /metrics answers what the page gives; any other path is 404. Two threads,
// one request per connection, and short timeouts: a client that says nothing
// holds up neither the next scrape nor the end.
class ScrapeServer final {
 public:
  using Page = std::function<std::string()>;

  // Listens on HOST:PORT, port 0 for any free one. `page` runs on the server's
  // threads. INVALID_ARGUMENT: not an address; UNAVAILABLE: it is taken.
  static absl::StatusOr<std::unique_ptr<ScrapeServer>> Start(const std::string& address, Page page);
  // Waits for a scrape that is being answered.
  ~ScrapeServer();

  int port() const { return port_; }

 private:
  struct Impl;
  explicit ScrapeServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

}  // namespace baton::metrics
