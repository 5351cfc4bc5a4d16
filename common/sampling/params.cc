// SPDX-License-Identifier: Apache-2.0
#include "common/sampling/params.h"

#include "absl/strings/str_cat.h"

namespace baton::sampling {
namespace {

constexpr uint32_t kMaxLogprobs = 20;

absl::Status OutOfRange(const char* field, double value, const char* range) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be in ", range));
}

}  // namespace

absl::Status Validate(const Params& params) {
  // Written so that NaN fails every comparison.
  if (!(params.temperature >= 0 && params.temperature <= 100)) {
    return OutOfRange("temperature", params.temperature, "[0, 100]");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return OutOfRange("top_p", params.top_p, "(0, 1]");
  }
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= 10)) {
    return OutOfRange("repetition_penalty", params.repetition_penalty, "(0, 10]");
  }
  if (params.logprobs.value_or(0) > kMaxLogprobs) {
    return OutOfRange("logprobs", *params.logprobs, "[0, 20]");
  }
  return absl::OkStatus();
}

}  // namespace baton::sampling
