// SPDX-License-Identifier: Apache-2.0
// Columns of text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton::cli {

// Rows under a header, columns two spaces apart; the first column is aligned to
// the left, others too unless every entry of theirs begins with a digit.
std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows);

// "1.50 MiB".
std::string FormatBytes(uint64_t bytes);
// "3.2 GB, 3.00 GiB".
std::string FormatBothUnits(uint64_t bytes);

}  // namespace baton::cli
