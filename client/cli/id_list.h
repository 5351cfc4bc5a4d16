// SPDX-License-Identifier: Apache-2.0
// Lists of numbers on a command line: "1,2,3".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::cli {

// Numbers of 32 bits separated by commas or white space; brackets around the
// list are allowed. INVALID_ARGUMENT names `flag` and the piece at fault.
absl::StatusOr<std::vector<uint32_t>> ParseIdList(std::string_view flag, std::string_view text);

// "1,2,3".
// Several such lists.
absl::StatusOr<std::vector<std::vector<uint32_t>>> ParseIdLists(
    std::string_view flag, const std::vector<std::string>& texts);

// "15=-2.5, 7=10": pairs of id and number.
absl::StatusOr<std::vector<std::pair<uint32_t, float>>> ParseBiases(std::string_view flag,
                                                                    std::string_view text);

// "64-128": the first number of a range, and the one behind its last. INVALID_ARGUMENT
// names `flag` and the text.
absl::StatusOr<std::vector<std::pair<uint32_t, uint32_t>>> ParseRanges(
    std::string_view flag, const std::vector<std::string>& texts);

std::string JoinIds(const std::vector<uint32_t>& ids);

}  // namespace baton::cli
