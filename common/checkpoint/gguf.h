// SPDX-License-Identifier: Apache-2.0
// The GGUF format, versions 2 and 3, little-endian (ggml, docs/gguf.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file.h"

namespace baton::checkpoint {

// A value of the metadata. Strings are views into the file. Arrays of arrays
// are checked and counted, but not kept.
struct GgufArrayOfArrays {};
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view,
                               std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
                               std::vector<bool>, std::vector<std::string_view>, GgufArrayOfArrays>;

// Metadata with typed access; errors name file and key. A number is accepted
// from any integer type of GGUF that holds it.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string file) : file_(std::move(file)) {}

  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  absl::StatusOr<uint32_t> Uint(std::string_view key, uint32_t low, uint32_t high,
                                std::optional<uint32_t> fallback = std::nullopt) const;
  absl::StatusOr<double> Number(std::string_view key, std::optional<double> fallback) const;
  absl::StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string_view> String(std::string_view key,
                                          std::optional<std::string_view> fallback) const;
  // Null when the key is absent.
  absl::StatusOr<const std::vector<std::string_view>*> Strings(std::string_view key) const;
  absl::StatusOr<const std::vector<double>*> Numbers(std::string_view key) const;
  absl::StatusOr<const std::vector<int64_t>*> Ints(std::string_view key) const;

  const std::string& file() const { return file_; }

 private:
  friend class GgufReader;
  const GgufValue* Find(std::string_view key) const;
  absl::Status Error(std::string_view key, std::string_view what) const;

  std::string file_;
  std::unordered_map<std::string_view, GgufValue> values_;
};

struct GgufFile {
  GgufMetadata metadata;
  std::vector<TensorView> tensors;
};

// INVALID_ARGUMENT with file and offset or tensor. Memory is in proportion to
// the file's size whatever numbers the file holds. Views point into `file`.
absl::StatusOr<GgufFile> ReadGguf(const File& file);

}  // namespace baton::checkpoint
