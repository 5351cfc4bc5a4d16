// SPDX-License-Identifier: Apache-2.0
// Requests that wait for a worker.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"

namespace baton::router {

// Numbers requests in the order of their arrival; unique for the router's life.
using RequestKey = uint64_t;

// In order of arrival, bounded by requests and by prompt tokens.
// Thread safety: none.
class RequestQueue final {
 public:
  struct Limits {
    uint32_t requests = 1024;
    uint64_t prompt_tokens = 1 << 20;
  };
  explicit RequestQueue(const Limits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED names the bound and carries a retry hint. An empty
  // queue takes a prompt of any length.
  absl::Status Push(RequestKey key, uint64_t prompt_tokens);
  // Puts one that had been taken out back to its place; knows no bound.
  void Return(RequestKey key, uint64_t prompt_tokens);
  void Remove(RequestKey key);

  size_t size() const { return waiting_.size(); }
  uint64_t prompt_tokens() const { return prompt_tokens_; }
  // Prompt tokens by request, first come first.
  const std::map<RequestKey, uint64_t>& waiting() const { return waiting_; }

 private:
  const Limits limits_;
  std::map<RequestKey, uint64_t> waiting_;
  uint64_t prompt_tokens_ = 0;
};

}  // namespace baton::router
