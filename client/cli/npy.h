// SPDX-License-Identifier: Apache-2.0
// numpy's file format, version 1.0 (numpy.lib.format): float32 matrices.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace baton::cli {

// Writes a [rows, columns] matrix row by row.
class NpyWriter final {
 public:
  // INVALID_ARGUMENT names a file that cannot be written.
  static absl::StatusOr<NpyWriter> Create(const std::string& path, uint64_t rows, uint64_t columns);

  // REQUIRES: row.size() == columns.
  void Append(std::span<const float> row);
  // DATA_LOSS when rows are missing, or the disk is full.
  absl::Status Finish();

 private:
  NpyWriter() = default;

  std::string path_;
  std::ofstream file_;
  uint64_t rows_ = 0, appended_ = 0;
};

}  // namespace baton::cli
