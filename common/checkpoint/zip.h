// SPDX-License-Identifier: Apache-2.0
// Zip containers of uncompressed entries (PKWARE's APPNOTE 6.3.10), with or
// without the zip64 extension: what PyTorch writes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/file.h"

namespace baton::checkpoint {

// Both point into the file.
struct ZipEntry {
  std::string_view name;
  std::span<const std::byte> data;
};

// All entries, in the order of their data. INVALID_ARGUMENT, with the file and
// the entry, unless the directory stands right before the end records, names
// are unique, local headers agree with it, and no entry overlaps another or the
// directory; UNIMPLEMENTED for an entry that is compressed or encrypted and for
// archives in several parts. Checksums are not compared: PyTorch may leave them
// out. Memory is in proportion to the directory, whatever numbers it holds.
absl::StatusOr<std::vector<ZipEntry>> ReadStoredZip(const File& file);

}  // namespace baton::checkpoint
