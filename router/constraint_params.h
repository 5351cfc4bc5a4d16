// SPDX-License-Identifier: Apache-2.0
// Constraints as clients send them to what workers take.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/types.pb.h"
#include "router/served_model.h"
#include "router/validation.h"

namespace baton::router {

// Compiles it, so that what is wrong with it is known before anything waits.
// INVALID_ARGUMENT with the field and what is wrong; of two fields that do not
// go together, both.
absl::Status SetConstraint(const v1::Constraint& in, const v1::StopParams& stop,
                           const ServedModel& model, ValidatedRequest& out);

// Whether an answer of `out.max_tokens` can match. REQUIRES: it is set.
absl::Status CheckConstraintLength(const ValidatedRequest& out);

}  // namespace baton::router
