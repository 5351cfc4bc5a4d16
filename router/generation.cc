// SPDX-License-Identifier: Apache-2.0
#include "router/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::router {
namespace {

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

TextRules RulesOf(const ValidatedRequest& request, const ServedModel& model) {
  TextRules rules;
  rules.stops = request.stops;
  rules.stop_sequences = request.stop_sequences;
  rules.include_stop = request.include_stop;
  rules.min_tokens = request.min_tokens;
  // An end token is no text, even in a vocabulary that spells it out.
  rules.silent = model.end_tokens;
  if (!request.include_stop) {
    rules.silent.insert(rules.silent.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  }
  return rules;
}

}  // namespace

Generation::Generation(std::shared_ptr<const ValidatedRequest> request,
                       std::shared_ptr<const ServedModel> model, absl::Time arrival, Route route,
                       RouterMetrics* metrics)
    : request_(std::move(request)),
      model_(std::move(model)),
      arrival_(arrival),
      route_(std::move(route)),
      metrics_(metrics),
      text_(model_->tokenizer.get(), RulesOf(*request_, *model_)),
      decode_next_(route_.prefill_worker.empty() ? 0 : 1) {}

void Generation::OnStarted(const v1::PrefillStarted& started) {
  start_us_ = started.start_unix_us();
  cached_prompt_tokens_ = started.cached_prompt_tokens();
  metrics_->CachedPromptTokens(cached_prompt_tokens_);
}

absl::Status Generation::CheckOrder(Source source, const v1::SequenceTokens& tokens) {
  uint32_t& expected = source == Source::kPrefill ? prefill_next_ : decode_next_;
  const uint32_t count = static_cast<uint32_t>(tokens.token_ids_size());
  const uint32_t limit = source == Source::kPrefill ? 1 : request_->max_tokens;
  if (tokens.first_index() != expected || count == 0 || count > limit - std::min(limit, expected)) {
    return absl::InternalError(
        absl::StrCat(source == Source::kPrefill ? "the prefill" : "the decode", " worker sent ",
                     count, " tokens from index ", tokens.first_index(), "; expected from ",
                     expected, " and below ", limit));
  }
  if (request_->sampling.has_logprobs() && tokens.logprobs_size() != tokens.token_ids_size()) {
    return absl::InternalError(absl::StrCat("a worker sent ", tokens.logprobs_size(),
                                            " log-probabilities for ", count, " tokens"));
  }
  expected += count;
  return absl::OkStatus();
}

absl::Status Generation::OnPromptLogprobs(const v1::SequencePromptLogprobs& scored) {
  const auto count = static_cast<uint32_t>(scored.logprobs_size());
  const auto prompt = static_cast<uint32_t>(request_->prompt.size());
  if (!request_->sampling.has_prompt_logprobs() || scored.first_index() != scored_ ||
      next_index_ > 0 || count > prompt - std::min(prompt, scored_)) {
    return absl::InternalError(absl::StrCat("a worker sent log-probabilities of ", count,
                                            " prompt tokens from ", scored.first_index(),
                                            "; expected from ", scored_, " and below ", prompt));
  }
  v1::PromptLogprobs& out = prompt_logprobs_.emplace_back();
  out.set_first_index(scored_);
  *out.mutable_logprobs() = scored.logprobs();
  for (v1::TokenLogprobs& logprobs : *out.mutable_logprobs()) {
    NameToken(request_->prompt[scored_++], &logprobs);
  }
  return absl::OkStatus();
}

// Each token's own bytes: those of neighbours may make a character together.
void Generation::NameToken(TokenId id, v1::TokenLogprobs* logprobs) const {
  if (model_->tokenizer == nullptr) return;
  logprobs->set_token_bytes(model_->tokenizer->TokenBytes(id));
  for (v1::TokenLogprob& top : *logprobs->mutable_top()) {
    top.set_token_bytes(model_->tokenizer->TokenBytes(top.token_id()));
  }
}

absl::Status Generation::OnTokens(Source source, const v1::SequenceTokens& tokens, absl::Time now) {
  BATON_RETURN_IF_ERROR(CheckOrder(source, tokens));
  if (tokens.prefill_end_unix_us() != 0) prefill_end_us_ = tokens.prefill_end_unix_us();
  if (tokens.first_step_unix_us() != 0) first_step_us_ = tokens.first_step_unix_us();
  if (tokens.first_index() > next_index_) {  // overtook token 0
    early_.push_back(tokens);
    return absl::OkStatus();
  }
  Append(tokens, now);
  if (source == Source::kPrefill) ReplayEarly(now);
  return absl::OkStatus();
}

absl::Status Generation::OnEnd(Source source, const v1::SequenceEnd& end, absl::Time now) {
  if (end.code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(end.code()), end.message());
  }
  if (!end.transport().empty()) transport_ = end.transport();
  if (source == Source::kPrefill) handoff_bytes_ = end.handoff_bytes();
  if (source == Source::kDecode) handoff_cached_tokens_ = end.cached_prompt_tokens();
  if (end.has_scheduling()) scheduling_ = end.scheduling();
  if (source == Source::kPrefill && end.handed_off()) {
    handed_off_ = true;
    return absl::OkStatus();
  }
  if (end.reason() == v1::FINISH_REASON_UNSPECIFIED) {
    return absl::InternalError("a worker ended the sequence without a reason");
  }
  if (next_index_ > 0) {
    Finish(end.reason(), now);
    return absl::OkStatus();
  }
  if (source == Source::kPrefill || !split()) {
    return absl::InternalError("a worker ended the sequence without a token");
  }
  early_end_ = end.reason();
  return absl::OkStatus();
}

void Generation::ReplayEarly(absl::Time now) {
  for (const v1::SequenceTokens& tokens : std::exchange(early_, {})) {
    if (!finished_) Append(tokens, now);
  }
  if (early_end_ != v1::FINISH_REASON_UNSPECIFIED && !finished_) Finish(early_end_, now);
}

void Generation::Append(const v1::SequenceTokens& tokens, absl::Time now) {
  v1::Tokens* out = OpenTokens();
  uint32_t count = 0;
  for (const TokenId id : tokens.token_ids()) {
    out->add_token_ids(id);
    if (tokens.logprobs_size() > 0) {
      v1::TokenLogprobs* logprobs = out->add_logprobs();
      *logprobs = tokens.logprobs(static_cast<int>(count));
      NameToken(id, logprobs);
    }
    ++count;
    last_id_ = id;
    out->mutable_text()->append(text_.Push(id));
    if (text_.matched()) break;
  }
  next_index_ += count;
  Observe(count, now);
  if (text_.matched()) Finish(v1::FINISH_REASON_STOP_TEXT, now);
}

void Generation::Observe(uint32_t count, absl::Time now) {
  if (next_index_ == count) {
    first_token_ = now;
    metrics_->FirstToken(now - arrival_);
    if (count > 1) metrics_->MoreTokens(count - 1, absl::ZeroDuration());
  } else {
    metrics_->MoreTokens(count, now - last_token_);
  }
  last_token_ = now;
}

// The Tokens event that new tokens go to; Started comes before the first.
v1::Tokens* Generation::OpenTokens() {
  if (next_index_ == 0) {
    v1::Started* started = events_.emplace_back().mutable_started();
    started->set_request_id(request_->request_id);
    started->set_model(model_->name);
    started->set_prompt_tokens(static_cast<uint32_t>(request_->prompt.size()));
    started->set_seed(request_->sampling.seed());
    for (v1::PromptLogprobs& scored : std::exchange(prompt_logprobs_, {})) {
      *events_.emplace_back().mutable_prompt_logprobs() = std::move(scored);
    }
  }
  if (events_.empty() || !events_.back().has_tokens()) {
    events_.emplace_back().mutable_tokens()->set_first_index(next_index_);
  }
  return events_.back().mutable_tokens();
}

void Generation::Finish(v1::FinishReason reason, absl::Time now) {
  finished_ = true;
  if (const std::string rest = text_.Flush(); !rest.empty()) {
    OpenTokens()->mutable_text()->append(rest);
  }
  v1::Finished* finished = events_.emplace_back().mutable_finished();
  SetReason(reason, finished);
  v1::Usage* usage = finished->mutable_usage();
  usage->set_prompt_tokens(static_cast<uint32_t>(request_->prompt.size()));
  usage->set_cached_prompt_tokens(cached_prompt_tokens_);
  usage->set_completion_tokens(next_index_);
  FillTiming(now, finished->mutable_timing());
  v1::Route* route = finished->mutable_route();
  route->set_prefill_worker(route_.prefill_worker);
  route->set_decode_worker(route_.decode_worker);
  route->set_transport(transport_);
  route->set_handoff_bytes(handoff_bytes_);
  route->set_handoff_cached_tokens(handoff_cached_tokens_);
  route->set_reason(route_.reason);
  route->set_predicted_split(route_.predicted_split);
  route->set_predicted_local(route_.predicted_local);
  *finished->mutable_scheduling() = scheduling_;
}

void Generation::SetReason(v1::FinishReason reason, v1::Finished* finished) const {
  if (text_.matched_stop().has_value()) {
    reason = v1::FINISH_REASON_STOP_TEXT;
    finished->set_matched_stop(*text_.matched_stop());
  } else if (text_.matched_sequence().has_value()) {
    reason = v1::FINISH_REASON_STOP_SEQUENCE;
    finished->mutable_matched_token_ids()->Add(text_.matched_sequence()->begin(),
                                               text_.matched_sequence()->end());
  } else if (reason == v1::FINISH_REASON_STOP) {
    finished->add_matched_token_ids(last_id_);
  } else if (reason == v1::FINISH_REASON_LENGTH && request_->ends_at_context) {
    reason = v1::FINISH_REASON_CONTEXT;
  }
  finished->set_reason(reason);
}

bool Generation::EndInTime(absl::Time now) {
  if (next_index_ == 0) return false;
  Finish(v1::FINISH_REASON_TIME, now);
  return true;
}

// Start times come from the workers' clocks: on another host they may be off,
// so they are kept inside what the router has seen itself.
void Generation::FillTiming(absl::Time now, v1::Timing* timing) const {
  const absl::Duration first = first_token_ - arrival_;
  absl::Duration queue = absl::ZeroDuration();
  if (start_us_ != 0) {
    queue = std::clamp(absl::FromUnixMicros(start_us_) - arrival_, absl::ZeroDuration(), first);
  }
  timing->set_queue(Milliseconds(queue));
  timing->set_prefill(Milliseconds(first - queue));
  timing->set_first_token(Milliseconds(first));
  timing->set_decode(Milliseconds(last_token_ - first_token_));
  timing->set_total(Milliseconds(now - arrival_));
  if (const auto time = handoff_time()) timing->set_transfer(Milliseconds(*time));
}

std::optional<absl::Duration> Generation::handoff_time() const {
  if (!split() || prefill_end_us_ == 0 || first_step_us_ <= prefill_end_us_) return std::nullopt;
  return absl::Microseconds(first_step_us_ - prefill_end_us_);
}

std::vector<v1::GenerateResponse> Generation::TakeEvents() { return std::exchange(events_, {}); }

}  // namespace baton::router
