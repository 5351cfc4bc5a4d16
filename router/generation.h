// SPDX-License-Identifier: Apache-2.0
// The answers of a request in the making: what workers produce becomes the
// client's events.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"
#include "router/choice.h"
#include "router/router_metrics.h"
#include "router/served_model.h"
#include "router/validation.h"

namespace baton::router {

// Merges both workers' tokens by choice and index. On a split path token 0 of
// each choice is the prefill worker's and the rest the decode worker's, but for
// an answer that begins with a beam search, of which the decode worker tells all.
// Keeps the ledger of times, builds Started, Tokens, ChoiceFinished, Finished.
// What has to be ranked first is told at the end.
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
    bool foreign_kv = false;
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
  // Choices of which no more tokens are wanted, since the last call, while
  // others go on.
  std::vector<uint32_t> TakeStopped() { return std::exchange(stopped_, {}); }
  // Blocks that the decode worker holds for it, in tokens, if blocks have
  // `block_tokens`.
  uint64_t KvTokens(uint64_t block_tokens) const;
  // From the end of the prompt to the decode worker's first step, once known.
  std::optional<absl::Duration> handoff_time() const;
  // Nothing more is needed from the prefill worker: its tokens have come, and the
  // decode worker is known to have taken over.
  bool handed_over() const;

 private:
  bool split() const { return !route_.prefill_worker.empty(); }
  // Prompt and output tokens so far.
  uint64_t tokens() const;
  // Some choice's token 0 is still to come from the prefill worker.
  bool WaitsForFirst() const;
  bool AnyTokens() const;
  // KvTokens() of several choices with a window.
  uint64_t SeenByChoices() const;
  void Append(uint32_t choice, const v1::SequenceTokens& tokens, absl::Time now);
  void Observe(Choice& choice, uint32_t count, absl::Time now);
  void EndChoice(uint32_t choice, v1::FinishReason reason);
  void Finish(v1::FinishReason reason, absl::Time now);
  // Indices of the choices that are returned, the best first.
  std::vector<uint32_t> Ranking() const;
  std::optional<double> ScoreOf(const Choice& choice) const;
  void TellRanked(const std::vector<uint32_t>& ranking);
  void TellEnd(uint32_t told_as, const Choice& choice);
  void TellStarted();
  // The Tokens event that a choice's new tokens go to.
  v1::Tokens* OpenTokens(uint32_t choice);
  void FillTiming(absl::Time now, v1::Timing* timing) const;

  const std::shared_ptr<const ValidatedRequest> request_;
  const std::shared_ptr<const ServedModel> model_;
  const absl::Time arrival_;
  const Route route_;
  RouterMetrics* const metrics_;
  std::vector<Choice> choices_;
  // Answers that are ranked before they are told, by choice.
  std::vector<v1::Tokens> held_;
  bool started_ = false;  // told
  bool handed_off_ = false;
  bool finished_ = false;
  v1::FinishReason early_end_ = v1::FINISH_REASON_UNSPECIFIED;
  std::vector<uint32_t> stopped_;

  std::vector<v1::PromptLogprobs> prompt_logprobs_;  // until Started
  uint32_t scored_ = 1;                              // prompt tokens that have theirs
  std::vector<v1::GenerateResponse> events_;
  std::string transport_;
  uint32_t cached_prompt_tokens_ = 0;
  uint64_t handoff_bytes_ = 0;
  uint32_t handoff_cached_tokens_ = 0;
  v1::Scheduling scheduling_;
  v1::Speculation speculation_;
  int64_t start_us_ = 0, prefill_end_us_ = 0, first_step_us_ = 0;
  std::optional<absl::Time> first_token_;
  absl::Time last_token_;
};

}  // namespace baton::router
