// SPDX-License-Identifier: Apache-2.0
// Requests to the fake model, and the answers that are right.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <vector>

#include "baton/client.h"
#include "common/model/fake/fake_model.h"
#include "tests/integration/cluster.h"

namespace baton::testing {

inline std::vector<uint32_t> RandomPrompt(uint32_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<uint32_t> id(3, 999);
  std::vector<uint32_t> prompt(tokens);
  for (uint32_t& token : prompt) token = id(random);
  return prompt;
}

// Greedy, and not ended by the model.
inline Request MakeRequest(std::vector<uint32_t> prompt, uint32_t max_tokens, Path path) {
  Request request;
  request.prompt_ids = std::move(prompt);
  request.max_tokens = max_tokens;
  request.temperature = 0;
  request.ignore_eos = true;
  request.path = path;
  request.deadline = std::chrono::seconds(30);
  return request;
}

inline std::vector<uint32_t> RightAnswer(const Request& request) {
  return model::FakeReference({}, *request.prompt_ids, *request.max_tokens);
}

// A request that runs on a thread of its own.
class Running final {
 public:
  Running(Client& client, Request request)
      : request_(std::move(request)), result_(std::async(std::launch::async, [this, &client] {
          Result result = client.Generate(
              request_,
              [this](const TokenEvent& event) {
                tokens_ += static_cast<uint32_t>(event.token_ids.size());
                return true;
              },
              cancel_);
          ended_ = std::chrono::steady_clock::now();
          return result;
        })) {}

  const Request& request() const { return request_; }
  uint32_t tokens() const { return tokens_; }
  void Cancel() { cancel_.Cancel(); }
  bool done() { return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  // Waits for the end.
  Result Get() { return result_.get(); }
  // After Get: when it ended.
  std::chrono::steady_clock::time_point ended() const { return ended_; }

 private:
  const Request request_;
  Client::CancelToken cancel_;
  std::atomic<uint32_t> tokens_{0};
  std::chrono::steady_clock::time_point ended_;
  std::future<Result> result_;
};

}  // namespace baton::testing
