// SPDX-License-Identifier: Apache-2.0
#include "common/chat/polish.h"

#include <algorithm>
#include <array>
#include <utility>

namespace baton::chat {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kPlaceholder = "[[训练时间]]", kYear = "2023年";

// Those that Unicode calls white space, and four separators of ASCII.
constexpr std::array kSpaces = {
    "\t"sv,     "\n"sv,     "\v"sv,     "\f"sv,     "\r"sv,     "\x1c"sv,   "\x1d"sv,   "\x1e"sv,
    "\x1f"sv,   " "sv,      "\u0085"sv, "\u00a0"sv, "\u1680"sv, "\u2000"sv, "\u2001"sv, "\u2002"sv,
    "\u2003"sv, "\u2004"sv, "\u2005"sv, "\u2006"sv, "\u2007"sv, "\u2008"sv, "\u2009"sv, "\u200a"sv,
    "\u2028"sv, "\u2029"sv, "\u202f"sv, "\u205f"sv, "\u3000"sv};

// Bytes of the white space at the front or the back; 0: none.
size_t SpaceAtFront(std::string_view text) {
  const auto found = std::find_if(kSpaces.begin(), kSpaces.end(),
                                  [text](std::string_view s) { return text.starts_with(s); });
  return found == kSpaces.end() ? 0 : found->size();
}
size_t SpaceAtBack(std::string_view text) {
  const auto found = std::find_if(kSpaces.begin(), kSpaces.end(),
                                  [text](std::string_view s) { return text.ends_with(s); });
  return found == kSpaces.end() ? 0 : found->size();
}

std::string_view StripFront(std::string_view text) {
  while (const size_t space = SpaceAtFront(text)) text.remove_prefix(space);
  return text;
}
std::string_view StripBack(std::string_view text) {
  while (const size_t space = SpaceAtBack(text)) text.remove_suffix(space);
  return text;
}

// The end of `text` that may become the placeholder.
size_t PlaceholderBegun(std::string_view text) {
  for (size_t length = std::min(text.size(), kPlaceholder.size() - 1); length > 0; --length) {
    if (text.ends_with(kPlaceholder.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string_view StripSpace(std::string_view text) { return StripBack(StripFront(text)); }

std::string AnswerPolish::Push(std::string_view text) {
  held_ += text;
  if (!begun_) {
    held_.erase(0, held_.size() - StripFront(held_).size());
    begun_ = !held_.empty();
  }
  for (size_t at = held_.find(kPlaceholder); at != std::string::npos;
       at = held_.find(kPlaceholder, at + kYear.size())) {
    held_.replace(at, kPlaceholder.size(), kYear);
  }
  size_t ready = held_.size() - PlaceholderBegun(held_);
  if (ready == held_.size()) ready = StripBack(held_).size();
  std::string released = held_.substr(0, ready);
  held_.erase(0, ready);
  return released;
}

std::string AnswerPolish::Flush() { return std::string(StripBack(std::exchange(held_, {}))); }

}  // namespace baton::chat
