// SPDX-License-Identifier: Apache-2.0
// DecodingParams as clients send them to what workers take.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/types.pb.h"
#include "router/served_model.h"
#include "router/validation.h"

namespace baton::router {

// Errors: INVALID_ARGUMENT with the field, its limit and the value; of two that
// do not go together, both.

// All that does not depend on the prompt. REQUIRES: out.sampling and out.window
// are set.
absl::Status SetDecoding(const v1::DecodingParams& in, const ServedModel& model,
                         ValidatedRequest& out);

// What does. REQUIRES: out.max_tokens is set.
absl::Status CheckLengths(const ValidatedRequest& request);

}  // namespace baton::router
