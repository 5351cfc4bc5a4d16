// SPDX-License-Identifier: Apache-2.0
#include "router/request_queue.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"

namespace baton::router {
namespace {

absl::Status Full(const std::string& problem) {
  return rpc::Retry(absl::StatusCode::kResourceExhausted, "the queue is full: " + problem,
                    absl::Seconds(1));
}

}  // namespace

absl::Status RequestQueue::Push(RequestKey key, uint64_t prompt_tokens) {
  if (waiting_.size() >= limits_.requests) {
    return Full(absl::StrCat(waiting_.size(), " requests wait; the limit is ", limits_.requests));
  }
  if (!waiting_.empty() && prompt_tokens_ + prompt_tokens > limits_.prompt_tokens) {
    return Full(absl::StrCat(prompt_tokens_, " prompt tokens wait and this request has ",
                             prompt_tokens, "; the limit is ", limits_.prompt_tokens));
  }
  Return(key, prompt_tokens);
  return absl::OkStatus();
}

void RequestQueue::Return(RequestKey key, uint64_t prompt_tokens) {
  waiting_.emplace(key, prompt_tokens);
  prompt_tokens_ += prompt_tokens;
}

void RequestQueue::Remove(RequestKey key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  prompt_tokens_ -= found->second;
  waiting_.erase(found);
}

}  // namespace baton::router
