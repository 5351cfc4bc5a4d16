// SPDX-License-Identifier: Apache-2.0
// A dispatcher with links and clients that write down what they are told.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "router/dispatcher.h"
#include "tests/router/fakes.h"

namespace baton::router {

using Code = absl::StatusCode;

// What one message of a worker holds.
class Step {
 public:
  Step& Started(uint64_t key, int64_t start_us = 0, uint32_t cached = 0) {
    v1::PrefillStarted* started = message_.mutable_step()->add_started();
    started->set_sequence_key(key);
    started->set_start_unix_us(start_us);
    started->set_cached_prompt_tokens(cached);
    return *this;
  }
  Step& Tokens(uint64_t key, uint32_t first, const std::vector<uint32_t>& ids) {
    v1::SequenceTokens* tokens = message_.mutable_step()->add_tokens();
    tokens->set_sequence_key(key);
    tokens->set_first_index(first);
    tokens->mutable_token_ids()->Add(ids.begin(), ids.end());
    return *this;
  }
  v1::SequenceTokens& last() {
    return *message_.mutable_step()->mutable_tokens(message_.step().tokens_size() - 1);
  }
  Step& AddPrefix(uint64_t digest) {
    message_.mutable_step()->add_prefixes()->add_added(digest);
    return *this;
  }
  Step& End(uint64_t key, v1::FinishReason reason, uint32_t cached = 0) {
    v1::SequenceEnd* end = message_.mutable_step()->add_ends();
    end->set_sequence_key(key);
    end->set_reason(reason);
    end->set_cached_prompt_tokens(cached);
    return *this;
  }
  Step& Fail(uint64_t key, Code code, const std::string& why) {
    End(key, v1::FINISH_REASON_UNSPECIFIED);
    v1::SequenceEnd* end = message_.mutable_step()->mutable_ends(message_.step().ends_size() - 1);
    end->set_code(static_cast<int>(code));
    end->set_message(why);
    return *this;
  }
  Step& HandedOff(uint64_t key, uint64_t bytes = 0) {
    End(key, v1::FINISH_REASON_UNSPECIFIED);
    v1::SequenceEnd* end = message_.mutable_step()->mutable_ends(message_.step().ends_size() - 1);
    end->set_handed_off(true);
    end->set_handoff_bytes(bytes);
    end->set_transport("shm");
    return *this;
  }
  const v1::WorkerMessage& message() const { return message_; }

 private:
  v1::WorkerMessage message_;
};

class DispatcherTest : public ::testing::Test {
 protected:
  static constexpr LinkId kP = 1, kD = 2;

  void SetUp() override { Make(); }

  // With `options_` as they are now.
  void Make() { core_ = std::make_unique<Dispatcher>(options_, &slot_, &router_metrics_); }

  std::shared_ptr<FakeLink> Attach(LinkId id, const v1::WorkerMessage& hello) {
    auto link = std::make_shared<FakeLink>();
    core_->OpenLink(id, link, now_);
    core_->OnMessage(id, hello, now_);
    return link;
  }
  std::shared_ptr<FakeLink> AttachPrefill(const std::string& id = "p", LinkId link = kP) {
    return Attach(link, MakeHello(id, v1::WORKER_ROLE_PREFILL));
  }
  std::shared_ptr<FakeLink> AttachDecode(const std::string& id = "d", LinkId link = kD,
                                         uint32_t blocks = 100) {
    return Attach(link, MakeHello(id, v1::WORKER_ROLE_DECODE, blocks));
  }

  static ValidatedRequest Request(v1::Path path = v1::PATH_UNSPECIFIED) {
    ValidatedRequest request;
    request.request_id = "r";
    request.prompt = {1, 2, 3};
    request.max_tokens = 7;
    request.stop_tokens = {FakeTokenizer::kEnd};
    request.path = path;
    request.sampling.set_seed(42);
    return request;
  }

  std::shared_ptr<FakeClient> Submit(const ValidatedRequest& request,
                                     absl::Duration deadline = absl::InfiniteDuration()) {
    auto client = std::make_shared<FakeClient>();
    core_->Submit({++last_request_, request, model_, client, now_, now_ + deadline}, now_);
    return client;
  }

  void Accept(LinkId id, uint64_t key) {
    v1::WorkerMessage message;
    message.mutable_accepted()->set_sequence_key(key);
    core_->OnMessage(id, message, now_);
  }
  void Say(LinkId id, const Step& step) { core_->OnMessage(id, step.message(), now_); }
  void Beat(LinkId id) {
    v1::WorkerMessage message;
    message.mutable_heartbeat();
    core_->OnMessage(id, message, now_);
  }
  void Advance(absl::Duration by) {
    now_ += by;
    core_->Tick(now_);
  }

  // A split request up to the point where the prefill worker has it.
  struct Split {
    std::shared_ptr<FakeLink> p, d;
    std::shared_ptr<FakeClient> client;
    uint64_t p_key = 0, d_key = 0;
  };
  Split StartSplit(const ValidatedRequest& request = Request()) {
    Split s;
    s.p = AttachPrefill();
    s.d = AttachDecode();
    s.client = Submit(request);
    s.d_key = s.d->assigns.at(0).sequence_key();
    Accept(kD, s.d_key);
    s.p_key = s.p->assigns.at(0).sequence_key();
    return s;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  DispatcherOptions options_;
  metrics::Metrics metrics_;
  RouterMetrics router_metrics_{&metrics_};
  std::shared_ptr<ServedModel> model_ = MakeTextModel({"DEF", "G", "HI", "J", "KLM"});
  ModelSlot slot_{model_};
  std::unique_ptr<Dispatcher> core_;
  RequestKey last_request_ = 0;
};

}  // namespace baton::router
