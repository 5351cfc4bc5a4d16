// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a checkpoint come from: mapped files or the executable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton::checkpoint {

// A read-only file. Copies share the mapping. Thread-safe: immutable.
struct File {
  std::string name;  // for messages
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> mapping;  // keeps `bytes` alive; null for static bytes
  int64_t modified_ns = 0;              // time of the last change, since 1970; 0 for static bytes

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// Maps a regular file. NOT_FOUND, or INVALID_ARGUMENT when it is something else.
absl::StatusOr<File> MapFile(const std::string& path);

// The files of one folder. Thread-safe.
class Folder {
 public:
  virtual ~Folder() = default;
  virtual std::string_view name() const = 0;
  virtual bool Has(std::string_view file) const = 0;
  // NOT_FOUND with the path; INVALID_ARGUMENT for a name that leaves the folder.
  virtual absl::StatusOr<File> Open(std::string_view file) const = 0;
};

std::unique_ptr<Folder> OpenDiskFolder(const std::string& path);

// config.json, model.safetensors and tokenizer.model of the model that is
// compiled into the executable.
std::unique_ptr<Folder> OpenEmbeddedFolder();

}  // namespace baton::checkpoint
