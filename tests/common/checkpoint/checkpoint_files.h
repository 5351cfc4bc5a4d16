// SPDX-License-Identifier: Apache-2.0
// Checkpoints made in the test, good ones and others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file.h"

namespace baton::checkpoint {

// Little-endian bytes of a number.
template <typename T>
std::string Bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// A File over memory; `bytes` must outlive it.
File MemoryFile(std::string_view bytes, std::string name = "test");

// Writes GGUF. Every part can be replaced by a wrong one.
class GgufBuilder {
 public:
  GgufBuilder& Raw(std::string_view key, uint32_t type, std::string_view value);
  GgufBuilder& String(std::string_view key, std::string_view value);
  GgufBuilder& Uint32(std::string_view key, uint32_t value);
  GgufBuilder& Float32(std::string_view key, float value);
  GgufBuilder& Bool(std::string_view key, bool value);
  GgufBuilder& Strings(std::string_view key, const std::vector<std::string>& values);
  GgufBuilder& Floats(std::string_view key, const std::vector<float>& values);
  GgufBuilder& Ints(std::string_view key, const std::vector<int32_t>& values);

  // `dimensions` innermost first, as in the file.
  GgufBuilder& Tensor(std::string_view name, const std::vector<uint64_t>& dimensions,
                      std::string_view data, uint32_t type = 0);
  // A list entry word by word, for wrong ones; data as Tensor would place it.
  GgufBuilder& RawTensor(std::string_view entry, std::string_view data);

  uint32_t version = 3;
  uint64_t alignment = 32;
  int64_t extra_tensors = 0, extra_keys = 0;  // lies of the header

  std::string Build() const;

 private:
  std::string keys_, tensors_, data_;
  uint64_t key_count_ = 0, tensor_count_ = 0;
};

std::string GgufString(std::string_view text);

// A safetensors file of this header and data.
std::string Safetensors(std::string_view header, std::string_view data);

// Writes safetensors, the data in the order of the calls.
class SafetensorsBuilder {
 public:
  // `dtype` as in the format: "F32", "I8", …
  SafetensorsBuilder& Tensor(std::string_view name, std::string_view dtype,
                             const std::vector<uint64_t>& shape, std::string_view data);
  std::string Build() const;

 private:
  std::string header_, data_;
};

// A Llama of one layer, hidden 8, 2 heads, 1 KV head, ffn 16, vocabulary 6, in
// GGUF, with an SPM tokenizer. `edit` runs before the tensors are added.
GgufBuilder TinyLlamaKeys();
void AddTinyLlamaTensors(GgufBuilder& builder);

// A folder of its own under the test's temporary directory.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  // Returns the path.
  std::string Write(std::string_view name, std::string_view bytes) const;
  std::string Link(std::string_view name, const std::string& target) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);

}  // namespace baton::checkpoint
