// SPDX-License-Identifier: Apache-2.0
#include "client/cli/text_source.h"

#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace baton::cli {
namespace {

constexpr size_t kMostBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& flag, const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) return absl::NotFoundError(absl::StrCat("--", flag, ": cannot read ", path));
  }
  std::istream& source = path == "-" ? std::cin : file;
  std::string text;
  char buffer[1 << 16];
  while (source.read(buffer, sizeof(buffer)), source.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(source.gcount()));
    if (text.size() > kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": more than 64 MiB of text"));
    }
  }
  if (source.bad()) return absl::NotFoundError(absl::StrCat("--", flag, ": cannot read ", path));
  return text;
}

}  // namespace baton::cli
