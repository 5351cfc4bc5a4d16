// SPDX-License-Identifier: Apache-2.0
#include "client/cli/result_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/quantile.h"
#include "common/base/utf8.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Milliseconds with three decimals: more are noise.
double Rounded(double ms) { return std::round(ms * 1000) / 1000; }

// Of the answers, which took a step less for each right guess.
double TokensPerStep(const Result& result) {
  const uint32_t steps = result.completion_tokens - result.speculation.accepted_tokens;
  return steps == 0 ? 0 : static_cast<double>(result.completion_tokens) / steps;
}

OrderedJson GapsToJson(const std::vector<double>& gaps) {
  return {{"p50", Rounded(Quantile(gaps, 0.5))},
          {"p99", Rounded(Quantile(gaps, 0.99))},
          {"max", Rounded(Quantile(gaps, 1))}};
}

OrderedJson TimingToJson(const Result::Timing& timing) {
  return {{"queue", Rounded(timing.queue)},       {"prefill", Rounded(timing.prefill)},
          {"transfer", Rounded(timing.transfer)}, {"first_token", Rounded(timing.first_token)},
          {"decode", Rounded(timing.decode)},     {"total", Rounded(timing.total)}};
}

// A part of a character has no text of its own: then its bytes are given too.
void AddText(const std::string& bytes, OrderedJson* json) {
  (*json)["text"] = ReplaceInvalidUtf8(bytes);
  if (IsValidUtf8(bytes)) return;
  OrderedJson& list = (*json)["bytes"] = OrderedJson::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
}

// `list` may hold an entry for a token that nothing predicts.
OrderedJson LogprobsToJson(const std::vector<TokenLogprobs>& logprobs,
                           OrderedJson list = OrderedJson::array()) {
  for (const TokenLogprobs& token : logprobs) {
    OrderedJson top = OrderedJson::array();
    for (size_t i = 0; i < token.top.size(); ++i) {
      OrderedJson& one = top.emplace_back(
          OrderedJson{{"token_id", token.top[i].first}, {"logprob", token.top[i].second}});
      if (i < token.top_bytes.size()) AddText(token.top_bytes[i], &one);
    }
    OrderedJson& entry = list.emplace_back(OrderedJson{{"logprob", token.logprob}});
    AddText(token.bytes, &entry);
    entry["top"] = std::move(top);
  }
  return list;
}

void AddMatched(const std::string& stop, const std::vector<uint32_t>& ids, OrderedJson* json) {
  if (!stop.empty()) (*json)["matched_stop"] = stop;
  if (!ids.empty()) (*json)["matched_token_ids"] = ids;
}

OrderedJson ChoicesToJson(const std::vector<Choice>& choices) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    OrderedJson& json = list.emplace_back(OrderedJson{{"index", i},
                                                      {"token_ids", choice.token_ids},
                                                      {"text", choice.text},
                                                      {"finish_reason", choice.finish_reason}});
    AddMatched(choice.matched_stop, choice.matched_token_ids, &json);
    if (choice.score) json["score"] = *choice.score;
    if (!choice.logprobs.empty()) json["logprobs"] = LogprobsToJson(choice.logprobs);
  }
  return list;
}

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

std::string ErrorToJson(const Status& status) {
  OrderedJson error = {{"code", StatusCodeName(status.code)}, {"message", status.message}};
  if (!status.field.empty()) error["field"] = status.field;
  if (status.retry_after) error["retry_after_ms"] = status.retry_after->count();
  return Dump({{"error", std::move(error)}});
}

std::string ResultToJson(const Result& result) {
  if (!result.status.ok()) return ErrorToJson(result.status);
  OrderedJson json = {{"token_ids", result.token_ids},
                      {"text", result.text},
                      {"finish_reason", result.finish_reason},
                      {"usage",
                       {{"prompt_tokens", result.prompt_tokens},
                        {"cached_prompt_tokens", result.cached_prompt_tokens},
                        {"completion_tokens", result.completion_tokens}}},
                      {"timing_ms", TimingToJson(result.timing)},
                      {"itl_ms", GapsToJson(result.token_gaps_ms)},
                      {"path",
                       {{"prefill_worker", result.prefill_worker},
                        {"decode_worker", result.decode_worker},
                        {"transport", result.transport},
                        {"handoff_bytes", result.handoff_bytes},
                        {"handoff_cached_tokens", result.handoff_cached_tokens},
                        {"foreign_kv", result.foreign_kv},
                        {"reason", result.path_reason},
                        {"predicted_split_ms", Rounded(result.predicted_split)},
                        {"predicted_local_ms", Rounded(result.predicted_local)}}},
                      {"scheduling",
                       {{"preemptions", result.scheduling.preemptions},
                        {"recomputed_tokens", result.scheduling.recomputed_tokens},
                        {"swapped_bytes", result.scheduling.swapped_bytes},
                        {"preempted_ms", Rounded(result.scheduling.preempted)}}},
                      {"speculation",
                       {{"steps", result.speculation.steps},
                        {"drafted_tokens", result.speculation.drafted_tokens},
                        {"accepted_tokens", result.speculation.accepted_tokens},
                        {"tokens_per_step", Rounded(TokensPerStep(result))}}}};
  AddMatched(result.matched_stop, result.matched_token_ids, &json);
  const auto& choices = result.choices;
  if (choices.size() > 1 || (!choices.empty() && choices.front().score)) {
    json["choices"] = ChoicesToJson(choices);
  }
  if (!result.logprobs.empty()) json["logprobs"] = LogprobsToJson(result.logprobs);
  if (!result.prompt_logprobs.empty()) {
    json["prompt_logprobs"] = LogprobsToJson(result.prompt_logprobs, OrderedJson::array({nullptr}));
  }
  return Dump(json);
}

std::string TimingSummary(const Result& result) {
  const Result::Timing& timing = result.timing;
  std::string text = absl::StrFormat(
      "prompt %u tokens (%u cached), answer %u tokens (%s) in %.0f ms: queue %.1f, prefill %.1f, "
      "transfer %.1f, first token %.1f, decode %.1f",
      result.prompt_tokens, result.cached_prompt_tokens, result.completion_tokens,
      result.finish_reason, timing.total, timing.queue, timing.prefill, timing.transfer,
      timing.first_token, timing.decode);
  if (result.completion_tokens > 1 && timing.decode > 0) {
    absl::StrAppendFormat(&text, " ms (%.1f tokens/s)",
                          (result.completion_tokens - 1) / timing.decode * 1000);
  } else {
    absl::StrAppend(&text, " ms");
  }
  if (result.speculation.steps > 0) {
    absl::StrAppendFormat(&text, "; %u of %u guesses right, %.2f tokens a step",
                          result.speculation.accepted_tokens, result.speculation.drafted_tokens,
                          TokensPerStep(result));
  }
  if (result.scheduling.preemptions > 0) {
    absl::StrAppendFormat(&text, "; put aside %u times for %.0f ms", result.scheduling.preemptions,
                          result.scheduling.preempted);
  }
  if (result.prefill_worker.empty()) {
    absl::StrAppend(&text, "; ", result.decode_worker, " alone");
  } else {
    absl::StrAppend(&text, "; ", result.prefill_worker, " -> ", result.decode_worker);
    if (!result.transport.empty()) absl::StrAppend(&text, " over ", result.transport);
  }
  return text;
}

std::string StatusLine(const Status& status) {
  std::string text = absl::StrCat(StatusCodeName(status.code), ": ", status.message);
  const bool named = status.message.find(status.field) != std::string::npos;
  if (!named) absl::StrAppend(&text, " (field ", status.field, ")");
  if (status.retry_after) {
    absl::StrAppend(&text, " (try again in ", status.retry_after->count(), " ms)");
  }
  return text;
}

}  // namespace baton::cli
