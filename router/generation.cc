// SPDX-License-Identifier: Apache-2.0
#include "router/generation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::router {
namespace {

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

}  // namespace

Generation::Generation(std::shared_ptr<const ValidatedRequest> request,
                       std::shared_ptr<const ServedModel> model, absl::Time arrival, Route route,
                       RouterMetrics* metrics)
    : request_(std::move(request)),
      model_(std::move(model)),
      arrival_(arrival),
      route_(std::move(route)),
      metrics_(metrics) {
  choices_.reserve(request_->choices_made);
  const bool first_apart = split() && !request_->begins_with_search;
  for (uint32_t i = 0; i < request_->choices_made; ++i) {
    choices_.emplace_back(request_.get(), model_.get(), first_apart);
  }
  if (request_->ranked()) held_.resize(choices_.size());
}

void Generation::OnStarted(const v1::PrefillStarted& started) {
  start_us_ = started.start_unix_us();
  cached_prompt_tokens_ = started.cached_prompt_tokens();
  metrics_->CachedPromptTokens(cached_prompt_tokens_);
}

bool Generation::WaitsForFirst() const {
  return std::any_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.waits_for_first(); });
}

bool Generation::AnyTokens() const {
  return std::any_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.tokens() > 0; });
}

bool Generation::handed_over() const {
  const bool taken_over = std::any_of(choices_.begin(), choices_.end(),
                                      [](const Choice& choice) { return choice.taken_over(); });
  return !WaitsForFirst() && (handed_off_ || taken_over);
}

uint64_t Generation::tokens() const {
  uint64_t tokens = request_->prompt.size();
  for (const Choice& choice : choices_) tokens += choice.tokens();
  return tokens;
}

uint64_t Generation::KvTokens(uint64_t block_tokens) const {
  const uint64_t prompt = request_->prompt.size();
  if (request_->width == 1) {
    return request_->window.Held(prompt + choices_.front().tokens() + 1);
  }
  if (request_->window.limited()) return SeenByChoices();
  uint64_t blocks = prompt / block_tokens;
  for (const Choice& choice : choices_) {
    const uint64_t own = prompt % block_tokens + choice.tokens() + 1;
    if (!choice.ended()) blocks += (own + block_tokens - 1) / block_tokens;
  }
  return blocks * block_tokens;
}

// The prompt's full blocks that any choice sees once, and of each choice its own.
uint64_t Generation::SeenByChoices() const {
  const kv::Window& window = request_->window;
  const auto prompt = static_cast<uint32_t>(request_->prompt.size());
  const uint32_t full = prompt / kv::kBlockTokens;
  uint64_t shared = 0, own = 0;
  for (const Choice& choice : choices_) {
    if (choice.ended()) continue;
    const uint32_t next = prompt + choice.tokens();
    const uint32_t common = window.SeenBelow(next, full);
    shared = std::max<uint64_t>(shared, common);
    own += window.SeenBlocks(next) - common;
  }
  return (shared + own) * kv::kBlockTokens;
}

absl::Status Generation::OnPromptLogprobs(const v1::SequencePromptLogprobs& scored) {
  const auto count = static_cast<uint32_t>(scored.logprobs_size());
  const auto prompt = static_cast<uint32_t>(request_->prompt.size());
  if (!request_->sampling.has_prompt_logprobs() || scored.first_index() != scored_ || AnyTokens() ||
      count > prompt - std::min(prompt, scored_)) {
    return absl::InternalError(absl::StrCat("a worker sent log-probabilities of ", count,
                                            " prompt tokens from ", scored.first_index(),
                                            "; expected from ", scored_, " and below ", prompt));
  }
  v1::PromptLogprobs& out = prompt_logprobs_.emplace_back();
  out.set_first_index(scored_);
  *out.mutable_logprobs() = scored.logprobs();
  for (v1::TokenLogprobs& logprobs : *out.mutable_logprobs()) {
    NameTokens(*model_, request_->prompt[scored_++], &logprobs);
  }
  return absl::OkStatus();
}

absl::Status Generation::OnTokens(Source source, const v1::SequenceTokens& tokens, absl::Time now) {
  if (tokens.choice() >= choices_.size()) {
    return absl::InternalError(
        absl::StrCat("a worker sent tokens of choice ", tokens.choice(), " of ", choices_.size()));
  }
  if (tokens.prefill_end_unix_us() != 0) prefill_end_us_ = tokens.prefill_end_unix_us();
  if (tokens.first_step_unix_us() != 0) first_step_us_ = tokens.first_step_unix_us();
  if (tokens.token_ids().empty() && request_->begins_with_search) return absl::OkStatus();
  Choice& choice = choices_[tokens.choice()];
  if (choice.ended()) return absl::OkStatus();  // by what it says, which the worker learns late
  BATON_RETURN_IF_ERROR(choice.CheckOrder(source, tokens));
  if (choice.KeepEarly(tokens)) return absl::OkStatus();
  Append(tokens.choice(), tokens, now);
  if (source == Source::kPrefill) {
    for (const v1::SequenceTokens& early : choice.TakeEarly()) {
      if (!choice.ended()) Append(tokens.choice(), early, now);
    }
  }
  const bool late_end = early_end_ != v1::FINISH_REASON_UNSPECIFIED && !WaitsForFirst();
  if (late_end && !finished_) Finish(early_end_, now);
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
  if (end.has_speculation()) speculation_ = end.speculation();
  if (source == Source::kPrefill && end.handed_off()) {
    handed_off_ = true;
    return absl::OkStatus();
  }
  if (end.reason() == v1::FINISH_REASON_UNSPECIFIED) {
    return absl::InternalError("a worker ended the sequence without a reason");
  }
  if (source == Source::kDecode && WaitsForFirst()) {
    early_end_ = end.reason();
    return absl::OkStatus();
  }
  if (!AnyTokens()) return absl::InternalError("a worker ended the sequence without a token");
  Finish(end.reason(), now);
  return absl::OkStatus();
}

void Generation::Append(uint32_t index, const v1::SequenceTokens& tokens, absl::Time now) {
  Choice& choice = choices_[index];
  const uint32_t count = choice.Append(tokens, OpenTokens(index));
  Observe(choice, count, now);
  if (choice.matched()) {
    EndChoice(index, v1::FINISH_REASON_STOP_TEXT);
    const bool others = std::any_of(choices_.begin(), choices_.end(),
                                    [](const Choice& other) { return !other.ended(); });
    if (!others) return Finish(v1::FINISH_REASON_STOP_TEXT, now);
    if (tokens.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) stopped_.push_back(index);
  } else if (tokens.finish_reason() != v1::FINISH_REASON_UNSPECIFIED && choices_.size() > 1) {
    // The last one waits for what the worker's end says.
    EndChoice(index, tokens.finish_reason());
  }
}

void Generation::Observe(Choice& choice, uint32_t count, absl::Time now) {
  if (!first_token_) {
    first_token_ = now;
    metrics_->FirstToken(now - arrival_);
    if (count > 1) metrics_->MoreTokens(count - 1, absl::ZeroDuration());
  } else {
    const bool first = choice.tokens() == count;
    metrics_->MoreTokens(count, first ? absl::ZeroDuration() : now - choice.last_token);
  }
  choice.last_token = last_token_ = now;
}

void Generation::TellStarted() {
  if (std::exchange(started_, true)) return;
  v1::Started* started = events_.emplace_back().mutable_started();
  started->set_request_id(request_->request_id);
  started->set_model(model_->name);
  started->set_prompt_tokens(static_cast<uint32_t>(request_->prompt.size()));
  started->set_seed(request_->sampling.seed());
  for (v1::PromptLogprobs& scored : std::exchange(prompt_logprobs_, {})) {
    *events_.emplace_back().mutable_prompt_logprobs() = std::move(scored);
  }
}

v1::Tokens* Generation::OpenTokens(uint32_t choice) {
  TellStarted();
  if (!held_.empty()) return &held_[choice];
  if (events_.empty() || !events_.back().has_tokens() ||
      events_.back().tokens().choice() != choice) {
    v1::Tokens* tokens = events_.emplace_back().mutable_tokens();
    tokens->set_first_index(choices_[choice].tokens());
    tokens->set_choice(choice);
  }
  return events_.back().mutable_tokens();
}

void Generation::EndChoice(uint32_t index, v1::FinishReason reason) {
  Choice& choice = choices_[index];
  if (choice.ended()) return;
  if (const std::string rest = choice.End(reason); !rest.empty()) {
    OpenTokens(index)->mutable_text()->append(rest);
  }
  if (held_.empty() && choices_.size() > 1) TellEnd(index, choice);
}

void Generation::TellEnd(uint32_t told_as, const Choice& choice) {
  v1::ChoiceFinished* end = events_.emplace_back().mutable_choice_finished();
  end->set_choice(told_as);
  choice.FillEnd(end);
  end->set_completion_tokens(choice.tokens());
  if (const auto score = ScoreOf(choice)) end->set_score(*score);
}

std::optional<double> Generation::ScoreOf(const Choice& choice) const {
  if (request_->picks_best()) return choice.mean_logprob();
  return choice.score();
}

std::vector<uint32_t> Generation::Ranking() const {
  std::vector<uint32_t> ranking(choices_.size());
  std::iota(ranking.begin(), ranking.end(), 0);
  if (request_->picks_best()) {
    std::stable_sort(ranking.begin(), ranking.end(), [this](uint32_t a, uint32_t b) {
      return choices_[a].mean_logprob() > choices_[b].mean_logprob();
    });
  }
  ranking.resize(request_->choices);
  return ranking;
}

void Generation::TellRanked(const std::vector<uint32_t>& ranking) {
  for (uint32_t rank = 0; rank < ranking.size(); ++rank) {
    v1::Tokens& tokens = held_[ranking[rank]];
    tokens.set_choice(rank);
    *events_.emplace_back().mutable_tokens() = std::move(tokens);
    TellEnd(rank, choices_[ranking[rank]]);
  }
}

void Generation::Finish(v1::FinishReason reason, absl::Time now) {
  finished_ = true;
  for (uint32_t i = 0; i < choices_.size(); ++i) EndChoice(i, reason);
  const std::vector<uint32_t> ranking = Ranking();
  if (!held_.empty()) TellRanked(ranking);
  v1::Finished* finished = events_.emplace_back().mutable_finished();
  choices_[ranking.front()].FillEnd(finished);
  v1::Usage* usage = finished->mutable_usage();
  usage->set_prompt_tokens(static_cast<uint32_t>(request_->prompt.size()));
  usage->set_cached_prompt_tokens(cached_prompt_tokens_);
  usage->set_completion_tokens(static_cast<uint32_t>(tokens() - request_->prompt.size()));
  FillTiming(now, finished->mutable_timing());
  v1::Route* route = finished->mutable_route();
  route->set_prefill_worker(route_.prefill_worker);
  route->set_decode_worker(route_.decode_worker);
  route->set_transport(transport_);
  route->set_handoff_bytes(handoff_bytes_);
  route->set_handoff_cached_tokens(handoff_cached_tokens_);
  route->set_reason(route_.reason);
  route->set_foreign_kv(route_.foreign_kv);
  route->set_predicted_split(route_.predicted_split);
  route->set_predicted_local(route_.predicted_local);
  *finished->mutable_scheduling() = scheduling_;
  *finished->mutable_speculation() = speculation_;
}

bool Generation::EndInTime(absl::Time now) {
  if (!AnyTokens()) return false;
  Finish(v1::FINISH_REASON_TIME, now);
  return true;
}

// Start times come from the workers' clocks: on another host they may be off,
// so they are kept inside what the router has seen itself.
void Generation::FillTiming(absl::Time now, v1::Timing* timing) const {
  const absl::Time first_token = first_token_.value_or(now);
  const absl::Duration first = first_token - arrival_;
  absl::Duration queue = absl::ZeroDuration();
  if (start_us_ != 0) {
    queue = std::clamp(absl::FromUnixMicros(start_us_) - arrival_, absl::ZeroDuration(), first);
  }
  timing->set_queue(Milliseconds(queue));
  timing->set_prefill(Milliseconds(first - queue));
  timing->set_first_token(Milliseconds(first));
  timing->set_decode(Milliseconds(last_token_ - first_token));
  timing->set_total(Milliseconds(now - arrival_));
  if (const auto time = handoff_time()) timing->set_transfer(Milliseconds(*time));
}

std::optional<absl::Duration> Generation::handoff_time() const {
  if (!split() || prefill_end_us_ == 0 || first_step_us_ <= prefill_end_us_) return std::nullopt;
  return absl::Microseconds(first_step_us_ - prefill_end_us_);
}

std::vector<v1::GenerateResponse> Generation::TakeEvents() { return std::exchange(events_, {}); }

}  // namespace baton::router
