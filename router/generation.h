// SPDX-License-Identifier: Apache-2.0
// One answer in the making: what workers produce becomes the client's events.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "router/router_metrics.h"
#include "router/served_model.h"
#include "router/text_stream.h"
#include "router/validation.h"

namespace baton::router {

// Which of the two workers speaks.
enum class Source : uint8_t { kPrefill, kDecode };

// Merges both workers' tokens by index, each exactly once and in order. On a
// split path token 0 is the prefill worker's and the rest the decode worker's;
// the two streams are independent, so tokens that overtake token 0 wait for it.
// Finds stop texts, keeps the ledger of times, builds Started, Tokens, Finished.
//
// Thread safety: none. No method may be called once finished() is true.
class Generation final {
 public:
  struct Route {
    std::string prefill_worker;  // empty: the decode worker does all
    std::string decode_worker;
    // Milliseconds to the second token, when the router weighed both paths.
    double predicted_split = 0, predicted_local = 0;
    std::string reason;  // of v1::Route
  };
  Generation(std::shared_ptr<const ValidatedRequest> request,
             std::shared_ptr<const ServedModel> model, absl::Time arrival, Route route,
             RouterMetrics* metrics);

  void OnStarted(const v1::PrefillStarted& started);
  // INTERNAL: a gap, a repeat, or more than was asked for.
  absl::Status OnPromptLogprobs(const v1::SequencePromptLogprobs& scored);
  // INTERNAL: a gap, a repeat, or more than was asked for.
  absl::Status OnTokens(Source source, const v1::SequenceTokens& tokens, absl::Time now);
  // A worker's own error, when it ended with one.
  absl::Status OnEnd(Source source, const v1::SequenceEnd& end, absl::Time now);

  // Ends with what there is. False, and nothing happens, before the first token.
  bool EndInTime(absl::Time now);

  // Events since the last call, in order.
  std::vector<v1::GenerateResponse> TakeEvents();
  // Finished is among the events; nothing follows.
  bool finished() const { return finished_; }
  // Nothing more is needed from the prefill worker: its token has come, and the
  // decode worker is known to have taken over.
  // Prompt and output tokens so far.
  uint64_t tokens() const { return request_->prompt.size() + next_index_; }
  // From the end of the prompt to the decode worker's first step, once known.
  std::optional<absl::Duration> handoff_time() const;
  bool handed_over() const { return next_index_ > 0 && (handed_off_ || decode_next_ > 1); }

 private:
  bool split() const { return !route_.prefill_worker.empty(); }
  absl::Status CheckOrder(Source source, const v1::SequenceTokens& tokens);
  void Append(const v1::SequenceTokens& tokens, absl::Time now);
  void Observe(uint32_t count, absl::Time now);
  void ReplayEarly(absl::Time now);
  void Finish(v1::FinishReason reason, absl::Time now);
  void SetReason(v1::FinishReason reason, v1::Finished* finished) const;
  void NameToken(TokenId id, v1::TokenLogprobs* logprobs) const;
  v1::Tokens* OpenTokens();
  void FillTiming(absl::Time now, v1::Timing* timing) const;

  const std::shared_ptr<const ValidatedRequest> request_;
  const std::shared_ptr<const ServedModel> model_;
  const absl::Time arrival_;
  const Route route_;
  RouterMetrics* const metrics_;
  TextStream text_;

  uint32_t next_index_ = 0;    // of the output
  uint32_t prefill_next_ = 0;  // expected next from each worker
  uint32_t decode_next_;
  bool handed_off_ = false;
  bool finished_ = false;
  std::vector<v1::SequenceTokens> early_;  // of the decode worker, before token 0
  v1::FinishReason early_end_ = v1::FINISH_REASON_UNSPECIFIED;

  std::vector<v1::PromptLogprobs> prompt_logprobs_;  // until Started
  uint32_t scored_ = 1;                              // prompt tokens that have theirs
  std::vector<v1::GenerateResponse> events_;
  std::string transport_;
  uint32_t cached_prompt_tokens_ = 0;
  uint64_t handoff_bytes_ = 0;
  uint32_t handoff_cached_tokens_ = 0;
  v1::Scheduling scheduling_;
  int64_t start_us_ = 0, prefill_end_us_ = 0, first_step_us_ = 0;
  absl::Time first_token_, last_token_;
  TokenId last_id_ = 0;
};

}  // namespace baton::router
