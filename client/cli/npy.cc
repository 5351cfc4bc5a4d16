// SPDX-License-Identifier: Apache-2.0
#include "client/cli/npy.h"

#include <bit>

#include "absl/strings/str_cat.h"

namespace baton::cli {

static_assert(std::endian::native == std::endian::little, "'<f4' is written as it stands");

absl::StatusOr<NpyWriter> NpyWriter::Create(const std::string& path, uint64_t rows,
                                            uint64_t columns) {
  NpyWriter writer;
  writer.path_ = path;
  writer.rows_ = rows;
  writer.file_.open(path, std::ios::binary | std::ios::trunc);
  if (!writer.file_) return absl::InvalidArgumentError(absl::StrCat("cannot write ", path));
  constexpr size_t kFixedBytes = 10;  // magic, version, length of the text
  std::string header = absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows,
                                    ", ", columns, "), }");
  // Data starts at a multiple of 64; the text ends with a line break.
  const size_t used = kFixedBytes + header.size() + 1;
  header.append((64 - used % 64) % 64, ' ');
  header.push_back('\n');
  const char fixed[kFixedBytes] = {'\x93',
                                   'N',
                                   'U',
                                   'M',
                                   'P',
                                   'Y',
                                   1,
                                   0,
                                   static_cast<char>(header.size() & 0xFF),
                                   static_cast<char>(header.size() >> 8)};
  writer.file_.write(fixed, kFixedBytes);
  writer.file_ << header;
  return writer;
}

void NpyWriter::Append(std::span<const float> row) {
  file_.write(reinterpret_cast<const char*>(row.data()),
              static_cast<std::streamsize>(row.size_bytes()));
  ++appended_;
}

absl::Status NpyWriter::Finish() {
  file_.close();
  if (!file_) return absl::DataLossError(absl::StrCat("writing ", path_, " failed"));
  if (appended_ != rows_) {
    return absl::DataLossError(
        absl::StrCat(path_, " has ", appended_, " rows where its header says ", rows_));
  }
  return absl::OkStatus();
}

}  // namespace baton::cli
