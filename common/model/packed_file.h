// SPDX-License-Identifier: Apache-2.0
// A file of packed weights, mapped read-only by all processes that use them.
//
//   FileHeader | description | CRC-32C of each piece of the data | zeros | data
//
// Numbers are little-endian. The description is text: what the data were made
// from and where each section lies (packed_model.cc). A file is good for a
// model when its description is the expected one byte for byte; nothing in the
// file is trusted beyond that. The data begin at 2 MiB or a multiple.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/model/aligned_buffer.h"
#include "common/model/pack_sink.h"
#include "common/model/thread_pool.h"

namespace baton::model {

// Writes a file next to its final place and renames it there when it is whole:
// under its final name there never is half a file. Needs some MiB of memory.
class PackedFileWriter final : public PackSink {
 public:
  // Begins `path`.partial, over whatever is there. One writer at a time
  // (packed_cache.h holds a lock).
  static absl::StatusOr<std::unique_ptr<PackedFileWriter>> Create(const std::string& path,
                                                                  std::string description,
                                                                  uint64_t data_bytes);
  // Removes the partial file unless Finish has succeeded.
  ~PackedFileWriter() override;

  std::span<std::byte> Room(size_t bytes) override;
  absl::Status Commit() override;
  // REQUIRES: `data_bytes` were committed. Flushes to the disk, then renames.
  absl::Status Finish();

 private:
  PackedFileWriter(std::string path, std::string description, uint64_t data_bytes, UniqueFd fd);
  absl::Status Write(const void* bytes, size_t count, uint64_t offset);
  absl::Status Flush(std::span<const std::byte> piece);

  const std::string path_, partial_path_, description_;
  const uint64_t data_bytes_, data_offset_;
  UniqueFd fd_;
  AlignedBuffer buffer_;          // not yet written
  size_t filled_ = 0, room_ = 0;  // bytes of buffer_: committed, given out behind them
  uint64_t written_ = 0;
  std::vector<uint32_t> checksums_;
};

// Maps the data of a file, read-only and shared, after comparing the whole of
// it with its checksums, by all threads of the pool: a second for some ten GB,
// and it brings in the pages that the first step would wait for.
// NOT_FOUND; FAILED_PRECONDITION: of another model, build or version;
// DATA_LOSS: damaged.
absl::StatusOr<std::shared_ptr<const std::byte>> MapPackedFile(const std::string& path,
                                                               std::string_view description,
                                                               uint64_t data_bytes,
                                                               ThreadPool& pool);

}  // namespace baton::model
