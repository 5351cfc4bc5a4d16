// SPDX-License-Identifier: Apache-2.0
#include "router/generation_params.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/sampling/wire.h"

namespace baton::router {
namespace {

using google::protobuf::RepeatedPtrField;

constexpr int kMaxStops = 16;
constexpr size_t kMaxTextBytes = 256;
constexpr int kMaxStopTokens = 64;
constexpr int kMaxSequences = 16;
constexpr int kMaxSequenceTokens = 64;
constexpr int kMaxBadWords = 64;
constexpr uint32_t kMaxTopK = std::numeric_limits<int32_t>::max();

std::string Indexed(std::string_view field, int index) {
  return absl::StrCat(std::string(field), "[", index, "]");
}

absl::Status CheckCount(std::string_view field, int count, int limit, std::string_view what) {
  if (count <= limit) return absl::OkStatus();
  return rpc::BadField(
      field, absl::StrCat("has ", count, " ", std::string(what), "; the limit is ", limit));
}

// Texts that are looked for or avoided.
absl::Status CheckTexts(std::string_view field, const RepeatedPtrField<std::string>& texts,
                        int limit, std::string_view instead, const ServedModel& model) {
  BATON_RETURN_IF_ERROR(CheckCount(field, texts.size(), limit, "texts"));
  if (!texts.empty() && model.tokenizer == nullptr) {
    return rpc::BadField(field, absl::StrCat("needs a tokenizer, and model \"", model.name,
                                             "\" has none; use ", std::string(instead)));
  }
  for (int i = 0; i < texts.size(); ++i) {
    const size_t bytes = texts[i].size();
    if (bytes == 0 || bytes > kMaxTextBytes) {
      return rpc::BadField(
          Indexed(field, i),
          absl::StrCat("has ", bytes, " bytes; it must have 1 to ", kMaxTextBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSequences(std::string_view field, const RepeatedPtrField<v1::TokenIds>& sequences,
                            int limit, int most_tokens, const ServedModel& model) {
  BATON_RETURN_IF_ERROR(CheckCount(field, sequences.size(), limit, "sequences"));
  for (int i = 0; i < sequences.size(); ++i) {
    const int tokens = sequences[i].ids_size();
    if (tokens == 0 || tokens > most_tokens) {
      return rpc::BadField(
          Indexed(field, i),
          absl::StrCat("has ", tokens, " tokens; it must have 1 to ", most_tokens));
    }
    BATON_RETURN_IF_ERROR(
        CheckIds(absl::StrCat(Indexed(field, i), ".ids"), sequences[i].ids(), model));
  }
  return absl::OkStatus();
}

absl::Status ApplyPreset(v1::SamplingPreset preset, v1::SamplingParams& out) {
  switch (preset) {
    case v1::SAMPLING_PRESET_UNSPECIFIED:
    case v1::SAMPLING_PRESET_GREEDY:
      return absl::OkStatus();  // the defaults
    case v1::SAMPLING_PRESET_CHATGLM2:
      out.set_temperature(0.8f);
      out.set_top_p(0.8f);
      return absl::OkStatus();
    case v1::SAMPLING_PRESET_LLAMA2:
      out.set_temperature(0.6f);
      out.set_top_p(0.9f);
      return absl::OkStatus();
    default:
      return rpc::BadField("sampling.preset",
                           absl::StrCat("is ", static_cast<int>(preset), "; it must be 0 to ",
                                        static_cast<int>(v1::SamplingPreset_MAX)));
  }
}

v1::SamplingParams Defaults() {
  v1::SamplingParams params;
  params.set_temperature(0);
  params.set_top_k(0);
  params.set_top_p(1);
  params.set_min_p(0);
  params.set_typical_p(1);
  params.set_repetition_penalty(1);
  params.set_presence_penalty(0);
  params.set_frequency_penalty(0);
  return params;
}

// The ways in which a text may be tokenized where it stands.
void AddBadWord(const std::string& word, const ServedModel& model, v1::SamplingParams& out) {
  std::vector<std::vector<TokenId>> forms = {model.tokenizer->Encode(word, /*first=*/true),
                                             model.tokenizer->Encode(word, /*first=*/false),
                                             model.tokenizer->Encode(" " + word, /*first=*/false)};
  std::sort(forms.begin(), forms.end());
  forms.erase(std::unique(forms.begin(), forms.end()), forms.end());
  for (const std::vector<TokenId>& form : forms) {
    if (form.empty() || form.size() > sampling::kMostBadSequenceTokens) continue;
    out.add_bad_token_sequences()->mutable_ids()->Add(form.begin(), form.end());
  }
}

absl::Status CheckBias(const std::string& field, const v1::SamplingParams& in,
                       const ServedModel& model) {
  for (const auto& [id, bias] : in.logit_bias()) {
    if (id >= model.vocabulary) {
      return rpc::BadField(
          absl::StrCat(field, ".logit_bias[", id, "]"),
          absl::StrCat("is of id ", id, "; the vocabulary has ", model.vocabulary, " tokens"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckIds(std::string_view field, const google::protobuf::RepeatedField<uint32_t>& ids,
                      const ServedModel& model) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= model.vocabulary) {
      return rpc::BadField(Indexed(field, i), absl::StrCat("is ", ids[i], "; the vocabulary has ",
                                                           model.vocabulary, " tokens"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetSampling(const v1::SamplingParams& in, const ServedModel& model,
                         v1::SamplingParams& out) {
  v1::SamplingParams base = Defaults();
  BATON_RETURN_IF_ERROR(ApplyPreset(in.preset(), base));
  if (!in.has_seed()) base.set_seed(RandomU64());
  return ResolveSampling("sampling", base, in, model, out);
}

absl::Status ResolveSampling(const std::string& field, const v1::SamplingParams& base,
                             const v1::SamplingParams& in, const ServedModel& model,
                             v1::SamplingParams& out) {
  // Cheap bounds first: lists are copied below.
  BATON_RETURN_IF_ERROR(CheckCount(absl::StrCat(field, ".logit_bias"),
                                   static_cast<int>(in.logit_bias_size()),
                                   static_cast<int>(sampling::kMostBiases), "entries"));
  BATON_RETURN_IF_ERROR(CheckTexts(absl::StrCat(field, ".bad_words"), in.bad_words(), kMaxBadWords,
                                   "bad_token_sequences", model));
  BATON_RETURN_IF_ERROR(CheckSequences(absl::StrCat(field, ".bad_token_sequences"),
                                       in.bad_token_sequences(), kMaxBadWords,
                                       sampling::kMostBadSequenceTokens, model));
  BATON_RETURN_IF_ERROR(CheckBias(field, in, model));
  out = base;
  out.MergeFrom(in);
  out.clear_preset();
  out.clear_bad_words();
  for (const std::string& word : in.bad_words()) AddBadWord(word, model, out);
  if (out.top_k() > kMaxTopK) {
    return rpc::BadField(absl::StrCat(field, ".top_k"),
                         absl::StrCat("is ", out.top_k(), "; the limit is ", kMaxTopK));
  }
  if (const auto bad = sampling::FindBadParam(sampling::ParamsFromWire(out))) {
    return rpc::BadField(absl::StrCat(field, ".", bad->field), bad->problem);
  }
  return absl::OkStatus();
}

absl::Status SetStops(const v1::StopParams& in, const ServedModel& model, ValidatedRequest& out) {
  if (in.has_max_tokens() && in.max_tokens() == 0) {
    return rpc::BadField("stop.max_tokens", "is 0; it must be at least 1");
  }
  if (in.has_max_tokens() && in.min_tokens() > in.max_tokens()) {
    return rpc::BadField("stop.min_tokens", absl::StrCat("is ", in.min_tokens(),
                                                         "; stop.max_tokens is ", in.max_tokens()));
  }
  if (in.has_time_limit_ms() && in.time_limit_ms() == 0) {
    return rpc::BadField("stop.time_limit_ms", "is 0; it must be at least 1");
  }
  BATON_RETURN_IF_ERROR(CheckTexts("stop.stop", in.stop(), kMaxStops, "stop_token_ids", model));
  BATON_RETURN_IF_ERROR(
      CheckCount("stop.stop_token_ids", in.stop_token_ids_size(), kMaxStopTokens, "ids"));
  BATON_RETURN_IF_ERROR(CheckIds("stop.stop_token_ids", in.stop_token_ids(), model));
  BATON_RETURN_IF_ERROR(CheckSequences("stop.stop_sequences", in.stop_sequences(), kMaxSequences,
                                       kMaxSequenceTokens, model));
  out.stops.assign(in.stop().begin(), in.stop().end());
  out.stop_tokens.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  if (!in.ignore_eos()) {
    out.stop_tokens.insert(out.stop_tokens.end(), model.end_tokens.begin(), model.end_tokens.end());
  }
  for (const v1::TokenIds& sequence : in.stop_sequences()) {
    out.stop_sequences.emplace_back(sequence.ids().begin(), sequence.ids().end());
  }
  out.min_tokens = in.min_tokens();
  out.include_stop = in.include_stop();
  if (in.has_time_limit_ms()) out.time_limit = absl::Milliseconds(in.time_limit_ms());
  return absl::OkStatus();
}

}  // namespace baton::router
