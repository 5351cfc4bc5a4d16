// SPDX-License-Identifier: Apache-2.0
// The characters, classes and escapes of a regular expression; a part of
// ParseRegex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/grammar/char_set.h"

namespace baton::grammar {

// Reads from left to right. The first error is kept; what is read after it is void.
// Thread safety: none.
class RegexReader final {
 public:
  // REQUIRES: valid UTF-8.
  explicit RegexReader(std::string_view pattern) : pattern_(pattern) {}

  bool at_end() const { return at_ >= pattern_.size(); }
  size_t at() const { return at_; }
  char peek() const { return at_end() ? '\0' : pattern_[at_]; }
  bool Take(char c);
  // The $ that is next is the last of its alternative.
  bool EndsAlternativeBehind() const;

  CodeRange ReadCharacter();
  // At "[".
  CharSet ReadClass();
  // At "\".
  Shorthand ReadEscape(bool in_class);
  // Of "{2}", "{2,}", "{2,4}"; false, and nothing taken, when something else is next.
  bool TakeCounts(uint32_t* min, uint32_t* max);
  // Behind "(": what says the kind of the group. `group` is where it begins.
  void SkipGroupName(size_t group);

  const absl::Status& status() const { return status_; }
  void Fail(std::string_view what, size_t at);
  void Unsupported(std::string_view what, size_t at);

 private:
  bool TakeText(std::string_view text);
  uint32_t ReadHex(size_t digits, size_t at);
  uint32_t ReadCode(size_t escape);
  struct ClassItem;
  ClassItem ReadClassItem();

  const std::string_view pattern_;
  size_t at_ = 0;
  absl::Status status_;
};

}  // namespace baton::grammar
