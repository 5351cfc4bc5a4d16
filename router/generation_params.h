// SPDX-License-Identifier: Apache-2.0
// SamplingParams and StopParams as clients send them to what workers take.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "baton/v1/types.pb.h"
#include "router/served_model.h"
#include "router/validation.h"

namespace baton::router {

// Errors: INVALID_ARGUMENT with the field, its limit and the value.

absl::Status CheckIds(std::string_view field, const google::protobuf::RepeatedField<uint32_t>& ids,
                      const ServedModel& model);

// Resolves preset, defaults and bad_words.
absl::Status SetSampling(const v1::SamplingParams& in, const ServedModel& model,
                         v1::SamplingParams& out);

// The same of a phase: what `in` does not set is that of `base`. `field` names `in`.
absl::Status ResolveSampling(const std::string& field, const v1::SamplingParams& base,
                             const v1::SamplingParams& in, const ServedModel& model,
                             v1::SamplingParams& out);

// All of StopParams but max_tokens, which depends on the prompt.
absl::Status SetStops(const v1::StopParams& in, const ServedModel& model, ValidatedRequest& out);

}  // namespace baton::router
