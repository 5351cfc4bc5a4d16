// SPDX-License-Identifier: Apache-2.0
// One answer of a request, in the making.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "router/served_model.h"
#include "router/text_stream.h"
#include "router/validation.h"

namespace baton::router {

// Which of the two workers speaks.
enum class Source : uint8_t { kPrefill, kDecode };

// Takes a choice's tokens by index, each exactly once and in order, from both
// workers: the two streams are independent, so tokens that overtake token 0
// wait for it. Finds stop texts.
//
// Thread safety: none.
class Choice final {
 public:
  // `first_apart`: token 0 is the prefill worker's. Both must outlive this.
  Choice(const ValidatedRequest* request, const ServedModel* model, bool first_apart);

  // INTERNAL: a gap, a repeat, or more than was asked for.
  absl::Status CheckOrder(Source source, const v1::SequenceTokens& tokens);
  // Keeps tokens that overtook token 0. False: it is their turn.
  bool KeepEarly(const v1::SequenceTokens& tokens);
  std::vector<v1::SequenceTokens> TakeEarly() { return std::exchange(early_, {}); }

  // Adds tokens and the text they complete, up to what ends it. Returns how many.
  uint32_t Append(const v1::SequenceTokens& tokens, v1::Tokens* out);
  // A stop text or a stop sequence was found.
  bool matched() const { return text_.matched(); }
  // No further tokens; returns text that was held back. What matched is the
  // reason if anything did.
  std::string End(v1::FinishReason reason);

  bool ended() const { return reason_ != v1::FINISH_REASON_UNSPECIFIED; }
  v1::FinishReason reason() const { return reason_; }
  // Reason and what matched, of a choice that has ended.
  template <typename Message>
  void FillEnd(Message* message) const {
    message->set_reason(reason_);
    if (text_.matched_stop().has_value()) {
      message->set_matched_stop(*text_.matched_stop());
    } else if (text_.matched_sequence().has_value()) {
      message->mutable_matched_token_ids()->Add(text_.matched_sequence()->begin(),
                                                text_.matched_sequence()->end());
    } else if (reason_ == v1::FINISH_REASON_STOP) {
      // The text of a constraint may be complete without an end token.
      const std::vector<TokenId>& ends = request_->stop_tokens;
      const bool matched =
          !request_->constraint || std::find(ends.begin(), ends.end(), last_id_) != ends.end();
      if (matched) message->add_matched_token_ids(last_id_);
    }
  }

  uint32_t tokens() const { return next_index_; }
  bool waits_for_first() const { return first_apart_ && next_index_ == 0 && !ended(); }
  // The decode worker has sent some.
  bool taken_over() const { return decode_next_ > (first_apart_ ? 1u : 0u); }
  // Mean log-probability of its tokens, when the workers tell it.
  double mean_logprob() const { return next_index_ == 0 ? 0 : sum_logprob_ / next_index_; }
  std::optional<double> score() const { return score_; }

  absl::Time last_token;  // of its latest tokens

 private:
  const ValidatedRequest* const request_;
  const ServedModel* const model_;
  const bool first_apart_;
  TextStream text_;
  uint32_t next_index_ = 0;    // of the output
  uint32_t prefill_next_ = 0;  // expected next from each worker
  uint32_t decode_next_;
  std::vector<v1::SequenceTokens> early_;  // of the decode worker, before token 0
  TokenId last_id_ = 0;
  double sum_logprob_ = 0;
  std::optional<double> score_;
  v1::FinishReason reason_ = v1::FINISH_REASON_UNSPECIFIED;
};

// Gives each token its own bytes: those of neighbours may make a character together.
void NameTokens(const ServedModel& model, TokenId id, v1::TokenLogprobs* logprobs);

}  // namespace baton::router
