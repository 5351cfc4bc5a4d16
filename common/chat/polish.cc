// SPDX-License-Identifier: Apache-2.0
#include "common/chat/polish.h"

namespace baton::chat {
namespace {

constexpr std::string_view kAsciiSpace = " \t\n\v\f\r";
constexpr std::string_view kIdeographicSpace = "\xE3\x80\x80";

}  // namespace

std::string_view StripSpace(std::string_view text) {
  for (;;) {
    const size_t before = text.size();
    text.remove_prefix(std::min(text.find_first_not_of(kAsciiSpace), text.size()));
    text.remove_suffix(text.size() - (text.find_last_not_of(kAsciiSpace) + 1));
    if (text.starts_with(kIdeographicSpace)) text.remove_prefix(kIdeographicSpace.size());
    if (text.ends_with(kIdeographicSpace)) text.remove_suffix(kIdeographicSpace.size());
    if (text.size() == before) return text;
  }
}

std::string PolishChatGlm(std::string_view answer) {
  constexpr std::string_view kPlaceholder = "[[训练时间]]", kYear = "2023年";
  std::string polished(StripSpace(answer));
  for (size_t at = polished.find(kPlaceholder); at != std::string::npos;
       at = polished.find(kPlaceholder, at + kYear.size())) {
    polished.replace(at, kPlaceholder.size(), kYear);
  }
  return polished;
}

}  // namespace baton::chat
