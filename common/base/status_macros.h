// SPDX-License-Identifier: Apache-2.0
// Early returns for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BATON_CONCAT_INNER_(a, b) a##b
#define BATON_CONCAT_(a, b) BATON_CONCAT_INNER_(a, b)

// Returns from the enclosing function when `expression` is not OK.
#define BATON_RETURN_IF_ERROR(expression)          \
  do {                                             \
    absl::Status baton_status_ = (expression);     \
    if (!baton_status_.ok()) return baton_status_; \
  } while (false)

// BATON_ASSIGN_OR_RETURN(auto x, MakeX()): the value, or an early return.
#define BATON_ASSIGN_OR_RETURN(declaration, expression) \
  BATON_ASSIGN_OR_RETURN_IMPL_(BATON_CONCAT_(baton_or_, __LINE__), declaration, expression)
// A declaration takes no parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define BATON_ASSIGN_OR_RETURN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.ok()) return std::move(result).status();                \
  declaration = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
