// SPDX-License-Identifier: Apache-2.0
// Decimal numbers between bounds.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/grammar/expr.h"

namespace baton::grammar {

struct NumberBound {
  double value = 0;
  bool exclusive = false;
};

struct NumberRange {
  std::optional<NumberBound> low, high;
  bool bounded() const { return low.has_value() || high.has_value(); }
};

// Integers of the range of at most 16 digits. INVALID_ARGUMENT when there are none.
absl::StatusOr<ExprPtr> IntegersIn(const NumberRange& range);

// Numbers of the range without exponent, below 10^9, with at most six digits
// behind the point, or as many as a bound has. No more than 15 digits in all, so
// that no reader's rounding takes one across a bound.
// INVALID_ARGUMENT when there are none, or a bound has too many digits.
absl::StatusOr<ExprPtr> NumbersIn(const NumberRange& range);

}  // namespace baton::grammar
