// SPDX-License-Identifier: Apache-2.0
#include "client/cli/table.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton::cli {
namespace {

// Characters, not bytes, so that names in other scripts keep columns straight.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

bool IsNumeric(const std::vector<std::vector<std::string>>& rows, size_t column) {
  return column > 0 && std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
           return !row[column].empty() &&
                  std::isdigit(static_cast<unsigned char>(row[column][0])) != 0;
         });
}

}  // namespace

std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  std::vector<bool> numeric;
  for (size_t column = 0; column < header.size(); ++column) {
    size_t width = Width(header[column]);
    for (const auto& row : rows) width = std::max(width, Width(row[column]));
    widths.push_back(width);
    numeric.push_back(IsNumeric(rows, column));
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string fill(widths[column] - Width(row[column]), ' ');
      absl::StrAppend(&line, column > 0 ? "  " : "", numeric[column] ? fill : "", row[column],
                      numeric[column] ? "" : fill);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  };
  add(header);
  for (const auto& row : rows) add(row);
  return text;
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " bytes")
                   : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string FormatBothUnits(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  if (unit == 0) return FormatBytes(bytes);
  return absl::StrFormat("%.1f %s, %s", value, kUnits[unit], FormatBytes(bytes));
}

}  // namespace baton::cli
