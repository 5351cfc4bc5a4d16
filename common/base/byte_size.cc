// SPDX-License-Identifier: Apache-2.0
#include "common/base/byte_size.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  static constexpr std::pair<std::string_view, uint64_t> kUnits[] = {{"", 1},
                                                                     {"b", 1},
                                                                     {"kb", 1'000},
                                                                     {"mb", 1'000'000},
                                                                     {"gb", 1'000'000'000},
                                                                     {"tb", 1'000'000'000'000},
                                                                     {"kib", uint64_t{1} << 10},
                                                                     {"mib", uint64_t{1} << 20},
                                                                     {"gib", uint64_t{1} << 30},
                                                                     {"tib", uint64_t{1} << 40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  for (const auto& [name, scale] : kUnits) {
    if (error != std::errc() ||
        !absl::EqualsIgnoreCase({unit.data(), unit.size()}, {name.data(), name.size()}))
      continue;
    const double bytes = number * static_cast<double>(scale);
    if (bytes >= 0 && bytes < 0x1p63) return static_cast<uint64_t>(bytes);
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text),
                                                 "\" is not an amount of memory such as 8GiB, "
                                                 "512MiB or 1073741824"));
}

}  // namespace baton
