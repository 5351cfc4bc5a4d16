// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/params.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton::sampling {
namespace {

using MaybeBad = std::optional<BadParam>;

MaybeBad OutOfRange(std::string field, double value, const char* range) {
  return BadParam{std::move(field), absl::StrFormat("is %g; it must be in %s", value, range)};
}

MaybeBad TooMany(std::string field, size_t count, size_t limit) {
  return BadParam{std::move(field), absl::StrCat("has ", count, " entries; the limit is ", limit)};
}

MaybeBad FindBadBias(const Params& params) {
  if (params.logit_bias.size() > kMostBiases) {
    return TooMany("logit_bias", params.logit_bias.size(), kMostBiases);
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (!(bias >= -100 && bias <= 100)) {
      return OutOfRange(absl::StrCat("logit_bias[", token, "]"), bias, "[-100, 100]");
    }
  }
  return std::nullopt;
}

MaybeBad FindBadSequence(const Params& params) {
  if (params.bad_sequences.size() > kMostBadSequences) {
    return TooMany("bad_token_sequences", params.bad_sequences.size(), kMostBadSequences);
  }
  for (size_t i = 0; i < params.bad_sequences.size(); ++i) {
    const size_t tokens = params.bad_sequences[i].size();
    if (tokens == 0 || tokens > kMostBadSequenceTokens) {
      return BadParam{
          absl::StrCat("bad_token_sequences[", i, "]"),
          absl::StrCat("has ", tokens, " tokens; it must have 1 to ", kMostBadSequenceTokens)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<BadParam> FindBadParam(const Params& params) {
  // Written so that NaN fails every comparison.
  const auto within = [](float value, float low, float high) {
    return value >= low && value <= high;
  };
  const auto above = [](float value, float low, float high) {
    return value > low && value <= high;
  };
  const struct {
    const char* field;
    float value;
    bool inside;
    const char* range;
  } ranges[] = {
      {"temperature", params.temperature, within(params.temperature, 0, 100), "[0, 100]"},
      {"top_p", params.top_p, above(params.top_p, 0, 1), "(0, 1]"},
      {"min_p", params.min_p, within(params.min_p, 0, 1), "[0, 1]"},
      {"typical_p", params.typical_p, above(params.typical_p, 0, 1), "(0, 1]"},
      {"repetition_penalty", params.repetition_penalty, above(params.repetition_penalty, 0, 10),
       "(0, 10]"},
      {"presence_penalty", params.presence_penalty, within(params.presence_penalty, -2, 2),
       "[-2, 2]"},
      {"frequency_penalty", params.frequency_penalty, within(params.frequency_penalty, -2, 2),
       "[-2, 2]"},
  };
  for (const auto& range : ranges) {
    if (!range.inside) return OutOfRange(range.field, range.value, range.range);
  }
  const std::pair<const char*, uint32_t> counts[] = {
      {"logprobs", params.logprobs.value_or(0)},
      {"prompt_logprobs", params.prompt_logprobs.value_or(0)}};
  for (const auto& [field, count] : counts) {
    if (count <= kMostLogprobs) continue;
    return BadParam{field, absl::StrCat("is ", count, "; the limit is ", kMostLogprobs)};
  }
  if (MaybeBad bad = FindBadBias(params)) return bad;
  return FindBadSequence(params);
}

absl::Status Validate(const Params& params) {
  const std::optional<BadParam> bad = FindBadParam(params);
  if (!bad.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(bad->field, " ", bad->problem));
}

}  // namespace baton::sampling
