// SPDX-License-Identifier: Apache-2.0
// Doubles of what the router talks to.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/tokenizer/tokenizer.h"
#include "router/links.h"
#include "router/served_model.h"

namespace baton::router {

// Ids 0 to 255 are bytes, 256 is the end token, 257 a prefix token (both
// control), and from 258 on come the given pieces.
class FakeTokenizer final : public tokenizer::Tokenizer {
 public:
  static constexpr TokenId kEnd = 256;
  static constexpr TokenId kPrefix = 257;
  static constexpr TokenId kPieces = 258;

  explicit FakeTokenizer(std::vector<std::string> pieces = {}) : pieces_(std::move(pieces)) {}

  std::string_view kind() const override { return "fake"; }
  uint32_t size() const override { return kPieces + static_cast<uint32_t>(pieces_.size()); }
  std::vector<TokenId> Encode(std::string_view text, bool) const override {
    std::vector<TokenId> ids;
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return ids;
  }
  std::string TokenBytes(TokenId id) const override {
    if (id < 256) return std::string(1, static_cast<char>(id));
    if (id < kPieces || id >= size()) return "";
    return pieces_[id - kPieces];
  }
  bool drops_leading_space() const override { return false; }
  std::optional<TokenId> TokenByName(std::string_view) const override { return std::nullopt; }
  bool IsControl(TokenId id) const override { return id == kEnd || id == kPrefix; }
  const std::vector<TokenId>& prefix() const override { return prefix_; }
  const std::vector<TokenId>& end_tokens() const override { return end_; }

 private:
  const std::vector<std::string> pieces_;
  const std::vector<TokenId> prefix_{kPrefix};
  const std::vector<TokenId> end_{kEnd};
};

// Renders contents joined, for tests that need no real format.
class FakeFormat final : public chat::PromptFormat {
 public:
  std::string_view name() const override { return "fake"; }
  absl::StatusOr<std::vector<TokenId>> Render(
      const std::vector<chat::Message>& messages,
      const tokenizer::Tokenizer& tokenizer) const override {
    std::vector<TokenId> ids = tokenizer.prefix();
    for (const chat::Message& message : messages) {
      const auto more = tokenizer.Encode(message.content, true);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  }
};

inline std::shared_ptr<ServedModel> MakeTextModel(std::vector<std::string> pieces = {}) {
  auto model = std::make_shared<ServedModel>();
  model->name = "toy";
  model->architecture = "chatglm";
  model->vocabulary = 512;
  model->context = 100;
  model->fingerprint = "f00d";
  model->end_tokens = {FakeTokenizer::kEnd};
  model->tokenizer = std::make_unique<FakeTokenizer>(std::move(pieces));
  model->format = std::make_unique<FakeFormat>();
  return model;
}

// One without a tokenizer.
inline std::shared_ptr<ServedModel> MakeIdsModel() {
  auto model = MakeTextModel();
  model->tokenizer.reset();
  model->format.reset();
  return model;
}

// A client that records what it gets.
class FakeClient final : public ResponseStream {
 public:
  void Send(v1::GenerateResponse event, absl::Time) override {
    EXPECT_TRUE(IsValidUtf8(event.tokens().text()));
    if (event.has_started()) started.push_back(event.started());
    if (event.has_prompt_logprobs()) {
      EXPECT_EQ(started.size(), 1u);
      EXPECT_TRUE(ids.empty());
      prompt_logprobs.push_back(event.prompt_logprobs());
    }
    if (event.has_finished()) finished.push_back(event.finished());
    if (event.has_choice_finished()) choice_ends.push_back(event.choice_finished());
    if (event.has_tokens() && event.tokens().choice() > 0) {
      std::vector<uint32_t>& more = others[event.tokens().choice()];
      EXPECT_EQ(event.tokens().first_index(), more.size());
      more.insert(more.end(), event.tokens().token_ids().begin(), event.tokens().token_ids().end());
      other_texts[event.tokens().choice()] += event.tokens().text();
    } else if (event.has_tokens()) {
      EXPECT_EQ(event.tokens().first_index(), ids.size());
      ids.insert(ids.end(), event.tokens().token_ids().begin(), event.tokens().token_ids().end());
      text += event.tokens().text();
      logprobs += event.tokens().logprobs_size();
      scored.insert(scored.end(), event.tokens().logprobs().begin(),
                    event.tokens().logprobs().end());
    }
  }
  void Finish(const absl::Status& result, absl::Time) override { statuses.push_back(result); }
  absl::Status Check(absl::Time) const override { return health; }
  bool Reap(absl::Time) override { return true; }

  bool ended() const { return !statuses.empty(); }
  // The status of a stream that must have ended exactly once.
  absl::Status status() const {
    EXPECT_EQ(statuses.size(), 1u);
    return statuses.empty() ? absl::UnknownError("not ended") : statuses.front();
  }

  absl::Status health;
  std::vector<v1::Started> started;
  std::vector<v1::PromptLogprobs> prompt_logprobs;
  std::vector<v1::Finished> finished;
  std::vector<absl::Status> statuses;
  std::vector<uint32_t> ids;  // of choice 0
  std::string text;
  std::map<uint32_t, std::vector<uint32_t>> others;
  std::map<uint32_t, std::string> other_texts;
  std::vector<v1::ChoiceFinished> choice_ends;
  int logprobs = 0;
  std::vector<v1::TokenLogprobs> scored;
};

// A worker's stream that records what the router sends.
class FakeLink final : public WorkerLink {
 public:
  void Send(v1::RouterMessage message, absl::Time) override {
    if (message.has_welcome()) welcomed = true;
    if (message.has_assign()) assigns.push_back(message.assign());
    if (!message.has_cancel()) return;
    if (message.cancel().has_choice()) {
      choice_cancels.emplace_back(message.cancel().sequence_key(), message.cancel().choice());
    } else {
      cancels.push_back(message.cancel().sequence_key());
    }
  }
  void Close(const absl::Status& status, absl::Time) override { closed = status; }
  absl::Status Check(absl::Time) const override { return absl::OkStatus(); }
  void ReadNext() override { ++reads; }

  bool welcomed = false;
  std::vector<v1::Assign> assigns;
  std::vector<uint64_t> cancels;
  std::vector<std::pair<uint64_t, uint32_t>> choice_cancels;
  std::optional<absl::Status> closed;
  int reads = 0;
};

// A Hello that pairs with every other one of these.
inline v1::WorkerMessage MakeHello(const std::string& id, v1::WorkerRole role,
                                   uint32_t blocks = 100) {
  v1::WorkerMessage message;
  v1::Hello* hello = message.mutable_hello();
  hello->set_protocol_version(2);
  hello->mutable_info()->set_worker_id(id);
  hello->mutable_info()->set_role(role);
  hello->mutable_info()->set_model("toy");
  hello->mutable_info()->mutable_load()->set_kv_blocks_total(blocks);
  hello->mutable_info()->mutable_load()->set_kv_blocks_free(blocks);
  hello->mutable_info()->mutable_load()->set_kv_block_tokens(10);
  hello->set_model_fingerprint("f00d");
  hello->set_vocabulary_size(512);
  hello->set_context_tokens(100);
  hello->set_numerics_id("n1");
  hello->set_host_id("host");
  hello->set_windows(true);
  hello->set_sparse_windows(true);
  hello->add_transports("shm");
  hello->add_transports("tcp");
  if (role == v1::WORKER_ROLE_DECODE) {
    v1::HandoffEndpoint* tcp = hello->add_handoff_endpoints();
    tcp->set_transport("tcp");
    tcp->set_address("127.0.0.1:1");
    v1::HandoffEndpoint* shm = hello->add_handoff_endpoints();
    shm->set_transport("shm");
    shm->set_address("/tmp/s");
  }
  return message;
}

}  // namespace baton::router
