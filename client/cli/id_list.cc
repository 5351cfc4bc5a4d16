// SPDX-License-Identifier: Apache-2.0
#include "client/cli/id_list.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::cli {

absl::StatusOr<std::vector<uint32_t>> ParseIdList(std::string_view flag, std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n[]";
  std::vector<uint32_t> ids;
  size_t begin = 0;
  while ((begin = text.find_first_not_of(kSeparators, begin)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    const std::string_view piece = text.substr(begin, end - begin);
    uint32_t id = 0;
    const auto [stop, error] = std::from_chars(piece.data(), piece.data() + piece.size(), id);
    if (error != std::errc() || stop != piece.data() + piece.size()) {
      return absl::InvalidArgumentError(absl::StrCat("--", std::string(flag), ": \"",
                                                     std::string(piece),
                                                     "\" is not a number from 0 to 4294967295"));
    }
    ids.push_back(id);
    begin = end;
  }
  return ids;
}

std::string JoinIds(const std::vector<uint32_t>& ids) { return absl::StrJoin(ids, ","); }

}  // namespace baton::cli
