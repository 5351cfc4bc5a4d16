// SPDX-License-Identifier: Apache-2.0
// Constraints of messages.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "baton/v1/types.pb.h"
#include "common/grammar/source.h"

namespace baton::grammar {

// INVALID_ARGUMENT names the fields when none or several are set; what is in
// them is not looked at.
absl::StatusOr<Source> SourceFromWire(const v1::Constraint& wire);

// The field that a source comes from, such as "json_schema".
const char* FieldOf(SourceKind kind);

}  // namespace baton::grammar
