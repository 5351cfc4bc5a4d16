// SPDX-License-Identifier: Apache-2.0
#include "client/cli/id_list.h"

#include <charconv>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

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

absl::StatusOr<std::vector<std::vector<uint32_t>>> ParseIdLists(
    std::string_view flag, const std::vector<std::string>& texts) {
  std::vector<std::vector<uint32_t>> lists;
  for (const std::string& text : texts) {
    BATON_ASSIGN_OR_RETURN(lists.emplace_back(), ParseIdList(flag, text));
  }
  return lists;
}

absl::StatusOr<std::vector<std::pair<uint32_t, float>>> ParseBiases(std::string_view flag,
                                                                    std::string_view text) {
  std::vector<std::pair<uint32_t, float>> biases;
  const std::vector<std::string> pieces = absl::StrSplit(
      absl::string_view(text.data(), text.size()), absl::ByAnyChar(", "), absl::SkipEmpty());
  for (const std::string& piece : pieces) {
    const std::vector<std::string> parts = absl::StrSplit(piece, '=');
    uint32_t id = 0;
    float bias = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &id) ||
        !absl::SimpleAtof(parts[1], &bias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", std::string(flag), ": \"", piece, "\" is not ID=NUMBER"));
    }
    biases.emplace_back(id, bias);
  }
  return biases;
}

absl::StatusOr<std::vector<std::pair<uint32_t, uint32_t>>> ParseRanges(
    std::string_view flag, const std::vector<std::string>& texts) {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  for (const std::string& text : texts) {
    const std::vector<std::string> parts = absl::StrSplit(text, '-');
    std::pair<uint32_t, uint32_t>& range = ranges.emplace_back();
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &range.first) ||
        !absl::SimpleAtoi(parts[1], &range.second)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", std::string(flag), ": \"", text, "\" is not BEGIN-END"));
    }
  }
  return ranges;
}

std::string JoinIds(const std::vector<uint32_t>& ids) { return absl::StrJoin(ids, ","); }

}  // namespace baton::cli
