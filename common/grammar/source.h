// SPDX-License-Identifier: Apache-2.0
// Constraints as requests state them, and their way to a program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar/program.h"

namespace baton::grammar {

enum class SourceKind : uint8_t { kAnyObject, kAnyValue, kSchema, kRegex, kChoices };

struct Source {
  SourceKind kind = SourceKind::kAnyObject;
  std::string text;                  // the schema or the expression
  std::vector<std::string> choices;  // of kChoices

  friend bool operator==(const Source&, const Source&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Source& source) {
    return H::combine(std::move(h), source.kind, source.text, source.choices);
  }
};

inline constexpr size_t kMostChoices = 4096;
inline constexpr size_t kMostChoiceBytes = 4096;

// INVALID_ARGUMENT says what is wrong or not supported, and where.
// RESOURCE_EXHAUSTED: the grammar is too large, or has too many readings of one
// text at once. Well under 100 ms whatever the source.
absl::StatusOr<std::shared_ptr<const Program>> Compile(const Source& source);

}  // namespace baton::grammar
