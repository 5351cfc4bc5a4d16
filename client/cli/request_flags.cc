// SPDX-License-Identifier: Apache-2.0
#include "client/cli/request_flags.h"

#include "absl/strings/str_cat.h"
#include "client/cli/id_list.h"
#include "client/cli/request_json.h"
#include "client/cli/text_source.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

std::optional<float> ToFloat(std::optional<double> value) {
  if (!value) return std::nullopt;
  return static_cast<float>(*value);
}

}  // namespace

void InputFlags::Register(config::CommandLine& line, bool with_ids) {
  line.Add("Input", "prompt", &prompt_, "Text to continue; - reads standard input");
  line.Add("Input", "chat", &chat_,
           "JSON file of a conversation: [{\"role\": ..., \"content\": ...}]; - reads standard "
           "input");
  if (with_ids) line.Add("Input", "prompt-ids", &prompt_ids_, "Token ids to continue: 1,2,3");
}

absl::Status InputFlags::Apply(Request* request) const {
  if (prompt_.has_value() + prompt_ids_.has_value() + chat_.has_value() > 1) {
    return absl::InvalidArgumentError("give one of --prompt, --prompt-ids and --chat");
  }
  if (prompt_) {
    request->prompt = *prompt_;
    if (*prompt_ == "-") {
      BATON_ASSIGN_OR_RETURN(request->prompt, ReadText("prompt", "-"));
    }
  }
  if (prompt_ids_) {
    BATON_ASSIGN_OR_RETURN(request->prompt_ids, ParseIdList("prompt-ids", *prompt_ids_));
  }
  if (chat_) {
    BATON_ASSIGN_OR_RETURN(const std::string text, ReadText("chat", *chat_));
    absl::StatusOr<std::vector<ChatTurn>> turns = ParseConversation(text);
    if (!turns.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(*chat_, ": ", std::string(turns.status().message())));
    }
    request->messages = *std::move(turns);
  }
  return absl::OkStatus();
}

void SamplingFlags::Register(config::CommandLine& line) {
  line.Add("Answer", "max-tokens", &max_tokens_, "Most tokens to generate");
  line.Add("Answer", "stop", &stop_, "Ends before this text; may be given several times");
  line.Add("Answer", "stop-token-ids", &stop_token_ids_, "Ends after any of these tokens: 1,2");
  line.Add("Answer", "min-tokens", &min_tokens_, "Least tokens to generate");
  line.Add("Answer", "stop-sequence", &stop_sequences_,
           "Ends before this run of tokens: 1,2; may be given several times");
  line.Add("Answer", "include-stop", &include_stop_, "Keeps the text that ended the answer");
  line.Add("Answer", "time-limit", &time_limit_,
           "Ends with what there is after this time: 500ms, 30s");
  line.Add("Answer", "ignore-eos", &ignore_eos_, "Goes on after the model's own end tokens");
  line.Add("Answer", "logprobs", &logprobs_,
           "Log-probability of each token, with this many alternatives (0 to 20)");
  line.Add("Answer", "prompt-logprobs", &prompt_logprobs_,
           "The same of each token of the prompt; with --json");
  RegisterSampling(line);
  RegisterDecoding(line);
  constraint_.Register(line);
  line.Add("Route", "model", &model_, "Name of the model; empty for the one that is served");
  line.AddChoice("Route", "path", &path_, {"auto", "split", "local"},
                 "split: prefill worker, then decode worker; local: decode worker alone");
  line.Add("Route", "tenant", &tenant_, "On whose account the request runs");
  line.Add("Route", "priority", &priority_, "-4 to 4; greater goes first");
  line.Add("Route", "cache-salt", &cache_salt_,
           "Shares cached prompts with requests of this salt alone");
  line.Add("Route", "no-prefix-cache", &no_prefix_cache_,
           "Computes all of the prompt, and leaves nothing for others");
  line.Add("Answer", "window", &window_,
           "Attention to so many latest tokens alone, a multiple of 32; 0: to all");
  line.Add("Answer", "window-sinks", &window_sinks_,
           "With --window: and to so many first ones, a multiple of 32");
  line.Add("Answer", "window-stride", &window_stride_,
           "With --window: and to the last 32 of every so many tokens, a multiple of 32");
  line.Add("Answer", "window-keep", &window_keep_,
           "With --window: and to the tokens BEGIN-END, multiples of 32 such as 64-128; may be "
           "repeated");
  line.Add("Answer", "draft-tokens", &draft_tokens_,
           "Most tokens that are guessed and checked in one step, at most 16; no token depends on "
           "it; default: the worker's");
  line.Add("Route", "deadline", &deadline_, "Gives up after this time: 500ms, 30s");
}

void SamplingFlags::RegisterSampling(config::CommandLine& line) {
  line.Add("Sampling", "temperature", &temperature_, "0 is greedy; the router's default is 0");
  line.Add("Sampling", "top-k", &top_k_, "Draws from the k most probable tokens; 0 from all");
  line.Add("Sampling", "top-p", &top_p_, "Draws from the smallest set that reaches top-p");
  line.Add("Sampling", "seed", &seed_, "Equal seeds give equal answers");
  line.Add("Sampling", "repetition-penalty", &repetition_penalty_, "Over 1: repeats less");
  line.Add("Sampling", "min-p", &min_p_,
           "Draws from tokens of at least min-p times the highest probability");
  line.Add("Sampling", "typical-p", &typical_p_,
           "Draws from the most typical tokens that reach typical-p");
  line.Add("Sampling", "presence-penalty", &presence_penalty_,
           "Over 0: fewer tokens that the answer has already");
  line.Add("Sampling", "frequency-penalty", &frequency_penalty_,
           "Over 0: fewer tokens that the answer has often");
  line.Add("Sampling", "logit-bias", &logit_bias_, "Added to logits of tokens: 15=-2.5,7=10");
  line.Add("Sampling", "bad-word", &bad_words_,
           "Text that is not produced; may be given several times");
  line.Add("Sampling", "bad-token-ids", &bad_token_ids_,
           "Run of tokens that is not produced: 1,2; may be given several times");
  line.Add("Sampling", "preset", &preset_,
           "greedy, chatglm2 (temperature 0.8, top-p 0.8) or llama2 (0.6, 0.9); other flags win");
}

void SamplingFlags::RegisterDecoding(config::CommandLine& line) {
  line.Add("Decoding", "n", &n_, "Answers to the prompt; tagged by index with --json");
  line.Add("Decoding", "best-of", &best_of_,
           "Samples so many answers and gives the n of the highest mean log-probability");
  line.Add("Decoding", "beams", &beams_, "Beam search of this width instead of sampling");
  line.Add("Decoding", "length-penalty", &length_penalty_,
           "With --beams: exponent of the length that sums are divided by; default 1");
  line.Add("Decoding", "early-stopping", &early_stopping_,
           "With --beams: heuristic, always or never");
  line.Add("Decoding", "phases", &phases_,
           "JSON list of the answer's parts: [{\"beams\": 3, \"max_tokens\": 8}, "
           "{\"temperature\": 0.7}]");
}

absl::Status SamplingFlags::ApplyDecoding(Request* request) const {
  request->n = n_;
  request->best_of = best_of_;
  if (beams_) {
    request->beam = Beam{.width = *beams_,
                         .length_penalty = ToFloat(length_penalty_),
                         .early_stopping = early_stopping_};
  } else if (length_penalty_ || !early_stopping_.empty()) {
    return absl::InvalidArgumentError(
        "--length-penalty and --early-stopping are of a beam search; give --beams");
  }
  if (phases_.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<Phase>> phases = ParsePhases(phases_);
  if (!phases.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", std::string(phases.status().message())));
  }
  request->phases = *std::move(phases);
  return absl::OkStatus();
}

absl::Status SamplingFlags::Apply(Request* request) const {
  request->model = model_;
  request->temperature = ToFloat(temperature_);
  request->top_p = ToFloat(top_p_);
  request->repetition_penalty = ToFloat(repetition_penalty_);
  request->top_k = top_k_;
  request->logprobs = logprobs_;
  request->prompt_logprobs = prompt_logprobs_;
  request->max_tokens = max_tokens_;
  request->seed = seed_;
  request->tenant = tenant_;
  request->priority = priority_;
  request->min_p = ToFloat(min_p_);
  request->typical_p = ToFloat(typical_p_);
  request->presence_penalty = ToFloat(presence_penalty_);
  request->frequency_penalty = ToFloat(frequency_penalty_);
  request->bad_words = bad_words_;
  request->preset = preset_;
  BATON_ASSIGN_OR_RETURN(request->logit_bias, ParseBiases("logit-bias", logit_bias_));
  BATON_ASSIGN_OR_RETURN(request->bad_token_sequences,
                         ParseIdLists("bad-token-ids", bad_token_ids_));
  BATON_RETURN_IF_ERROR(ApplyStops(request));
  BATON_RETURN_IF_ERROR(ApplyDecoding(request));
  BATON_RETURN_IF_ERROR(constraint_.Apply(request));
  request->cache_salt = cache_salt_;
  request->prefix_cache = !no_prefix_cache_;
  request->window = window_;
  request->window_sinks = window_sinks_;
  request->window_stride = window_stride_;
  BATON_ASSIGN_OR_RETURN(request->window_keep, ParseRanges("window-keep", window_keep_));
  request->draft_tokens = draft_tokens_;
  BATON_ASSIGN_OR_RETURN(request->path, ParsePath(path_));
  if (deadline_) {
    BATON_ASSIGN_OR_RETURN(request->deadline, ParseDuration("deadline", *deadline_));
  }
  return absl::OkStatus();
}

absl::Status SamplingFlags::ApplyStops(Request* request) const {
  request->min_tokens = min_tokens_;
  request->stop = stop_;
  request->ignore_eos = ignore_eos_;
  request->include_stop = include_stop_;
  BATON_ASSIGN_OR_RETURN(request->stop_token_ids, ParseIdList("stop-token-ids", stop_token_ids_));
  BATON_ASSIGN_OR_RETURN(request->stop_sequences, ParseIdLists("stop-sequence", stop_sequences_));
  if (time_limit_) {
    BATON_ASSIGN_OR_RETURN(request->time_limit, ParseDuration("time-limit", *time_limit_));
  }
  return absl::OkStatus();
}

}  // namespace baton::cli
