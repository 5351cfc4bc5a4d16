// SPDX-License-Identifier: Apache-2.0
#include "router/choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

TextRules RulesOf(const ValidatedRequest& request, const ServedModel& model) {
  TextRules rules;
  rules.stops = request.stops;
  rules.stop_sequences = request.stop_sequences;
  rules.include_stop = request.include_stop;
  rules.min_tokens = request.min_tokens;
  rules.polish = request.polish;
  // An end token is no text, even in a vocabulary that spells it out.
  rules.silent = model.end_tokens;
  if (!request.include_stop) {
    rules.silent.insert(rules.silent.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  }
  return rules;
}

}  // namespace

Choice::Choice(const ValidatedRequest* request, const ServedModel* model, bool first_apart)
    : request_(request),
      model_(model),
      first_apart_(first_apart),
      text_(model->tokenizer.get(), RulesOf(*request, *model)),
      decode_next_(first_apart ? 1 : 0) {}

absl::Status Choice::CheckOrder(Source source, const v1::SequenceTokens& tokens) {
  uint32_t& expected = source == Source::kPrefill ? prefill_next_ : decode_next_;
  const uint32_t count = static_cast<uint32_t>(tokens.token_ids_size());
  const uint32_t prefill_limit = first_apart_ ? 1 : 0;
  const uint32_t limit = source == Source::kPrefill ? prefill_limit : request_->max_tokens;
  if (tokens.first_index() != expected || count == 0 || count > limit - std::min(limit, expected)) {
    return absl::InternalError(
        absl::StrCat(source == Source::kPrefill ? "the prefill" : "the decode", " worker sent ",
                     count, " tokens of choice ", tokens.choice(), " from index ",
                     tokens.first_index(), "; expected from ", expected, " and below ", limit));
  }
  const bool wanted = request_->sampling.has_logprobs();
  if (wanted && tokens.logprobs_size() != tokens.token_ids_size()) {
    return absl::InternalError(absl::StrCat("a worker sent ", tokens.logprobs_size(),
                                            " log-probabilities for ", count, " tokens"));
  }
  expected += count;
  return absl::OkStatus();
}

bool Choice::KeepEarly(const v1::SequenceTokens& tokens) {
  if (tokens.first_index() <= next_index_) return false;
  early_.push_back(tokens);
  return true;
}

uint32_t Choice::Append(const v1::SequenceTokens& tokens, v1::Tokens* out) {
  if (tokens.has_score()) score_ = tokens.score();
  uint32_t count = 0;
  for (const TokenId id : tokens.token_ids()) {
    out->add_token_ids(id);
    if (tokens.logprobs_size() > 0) {
      const v1::TokenLogprobs& logprobs = tokens.logprobs(static_cast<int>(count));
      sum_logprob_ += logprobs.logprob();
      if (!request_->hides_logprobs) {
        *out->add_logprobs() = logprobs;
        NameTokens(*model_, id, out->mutable_logprobs(out->logprobs_size() - 1));
      }
    }
    ++count;
    last_id_ = id;
    out->mutable_text()->append(text_.Push(id));
    if (text_.matched()) break;
  }
  next_index_ += count;
  return count;
}

std::string Choice::End(v1::FinishReason reason) {
  std::string rest = text_.Flush();
  if (text_.matched_stop().has_value()) {
    reason = v1::FINISH_REASON_STOP_TEXT;
  } else if (text_.matched_sequence().has_value()) {
    reason = v1::FINISH_REASON_STOP_SEQUENCE;
  } else if (reason == v1::FINISH_REASON_LENGTH && request_->ends_at_context) {
    reason = v1::FINISH_REASON_CONTEXT;
  }
  reason_ = reason;
  return rest;
}

void NameTokens(const ServedModel& model, TokenId id, v1::TokenLogprobs* logprobs) {
  if (model.tokenizer == nullptr) return;
  logprobs->set_token_bytes(model.tokenizer->TokenBytes(id));
  for (v1::TokenLogprob& top : *logprobs->mutable_top()) {
    top.set_token_bytes(model.tokenizer->TokenBytes(top.token_id()));
  }
}

}  // namespace baton::router
