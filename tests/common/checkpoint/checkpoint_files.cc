// SPDX-License-Identifier: Apache-2.0
#include "tests/common/checkpoint/checkpoint_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::checkpoint {
namespace {

enum : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9 };

template <typename T>
std::string ArrayBytes(uint32_t type, const std::vector<T>& values) {
  std::string bytes = Bytes(type) + Bytes<uint64_t>(values.size());
  for (const T& value : values) bytes += Bytes(value);
  return bytes;
}

void PadTo(uint64_t alignment, std::string& bytes) {
  while (bytes.size() % alignment != 0) bytes += '\0';
}

}  // namespace

File MemoryFile(std::string_view bytes, std::string name) {
  return {.name = std::move(name), .bytes = std::as_bytes(std::span(bytes)), .mapping = nullptr};
}

std::string GgufString(std::string_view text) {
  return Bytes<uint64_t>(text.size()) + std::string(text);
}

GgufBuilder& GgufBuilder::Raw(std::string_view key, uint32_t type, std::string_view value) {
  keys_ += GgufString(key) + Bytes(type) + std::string(value);
  ++key_count_;
  return *this;
}
GgufBuilder& GgufBuilder::String(std::string_view key, std::string_view value) {
  return Raw(key, kString, GgufString(value));
}
GgufBuilder& GgufBuilder::Uint32(std::string_view key, uint32_t value) {
  return Raw(key, kUint32, Bytes(value));
}
GgufBuilder& GgufBuilder::Float32(std::string_view key, float value) {
  return Raw(key, kFloat32, Bytes(value));
}
GgufBuilder& GgufBuilder::Bool(std::string_view key, bool value) {
  return Raw(key, kBool, Bytes<uint8_t>(value ? 1 : 0));
}
GgufBuilder& GgufBuilder::Strings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes = Bytes<uint32_t>(kString) + Bytes<uint64_t>(values.size());
  for (const std::string& value : values) bytes += GgufString(value);
  return Raw(key, kArray, bytes);
}
GgufBuilder& GgufBuilder::Floats(std::string_view key, const std::vector<float>& values) {
  return Raw(key, kArray, ArrayBytes(kFloat32, values));
}
GgufBuilder& GgufBuilder::Ints(std::string_view key, const std::vector<int32_t>& values) {
  return Raw(key, kArray, ArrayBytes(kInt32, values));
}

GgufBuilder& GgufBuilder::Tensor(std::string_view name, const std::vector<uint64_t>& dimensions,
                                 std::string_view data, uint32_t type) {
  PadTo(alignment, data_);
  std::string entry = GgufString(name) + Bytes(static_cast<uint32_t>(dimensions.size()));
  for (uint64_t dimension : dimensions) entry += Bytes(dimension);
  return RawTensor(entry + Bytes(type) + Bytes<uint64_t>(data_.size()), data);
}
GgufBuilder& GgufBuilder::RawTensor(std::string_view entry, std::string_view data) {
  PadTo(alignment, data_);
  tensors_ += entry;
  data_ += data;
  ++tensor_count_;
  return *this;
}

std::string GgufBuilder::Build() const {
  std::string file = "GGUF" + Bytes(version) + Bytes<uint64_t>(tensor_count_ + extra_tensors) +
                     Bytes<uint64_t>(key_count_ + extra_keys) + keys_ + tensors_;
  if (tensor_count_ > 0) PadTo(alignment, file);
  return file + data_;
}

std::string Safetensors(std::string_view header, std::string_view data) {
  return Bytes<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

SafetensorsBuilder& SafetensorsBuilder::Tensor(std::string_view name, std::string_view dtype,
                                               const std::vector<uint64_t>& shape,
                                               std::string_view data) {
  absl::StrAppend(&header_, header_.empty() ? "" : ",", "\"", std::string(name), "\":{\"dtype\":\"",
                  std::string(dtype), "\",\"shape\":[", absl::StrJoin(shape, ","),
                  "],\"data_offsets\":[", data_.size(), ",", data_.size() + data.size(), "]}");
  data_ += data;
  return *this;
}
std::string SafetensorsBuilder::Build() const { return Safetensors("{" + header_ + "}", data_); }

GgufBuilder TinyLlamaKeys() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint32("llama.context_length", 32)
      .Uint32("llama.embedding_length", 8)
      .Uint32("llama.block_count", 1)
      .Uint32("llama.feed_forward_length", 16)
      .Uint32("llama.attention.head_count", 2)
      .Uint32("llama.attention.head_count_kv", 1)
      .Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .String("tokenizer.ggml.model", "llama")
      .Strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "▁", "a", "▁a"})
      .Floats("tokenizer.ggml.scores", {0, 0, 0, -3, -2, -1})
      .Ints("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1})
      .Uint32("tokenizer.ggml.bos_token_id", 1)
      .Uint32("tokenizer.ggml.eos_token_id", 2);
  return builder;
}

void AddTinyLlamaTensors(GgufBuilder& builder) {
  const auto floats = [](size_t count) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) bytes += Bytes(static_cast<float>(i));
    return bytes;
  };
  builder.Tensor("token_embd.weight", {8, 6}, floats(48))
      .Tensor("output_norm.weight", {8}, floats(8))
      .Tensor("blk.0.attn_norm.weight", {8}, floats(8))
      .Tensor("blk.0.attn_q.weight", {8, 8}, floats(64))
      .Tensor("blk.0.attn_k.weight", {8, 4}, floats(32))
      .Tensor("blk.0.attn_v.weight", {8, 4}, floats(32))
      .Tensor("blk.0.attn_output.weight", {8, 8}, floats(64))
      .Tensor("blk.0.ffn_norm.weight", {8}, floats(8))
      .Tensor("blk.0.ffn_gate.weight", {8, 16}, floats(128))
      .Tensor("blk.0.ffn_up.weight", {8, 16}, floats(128))
      .Tensor("blk.0.ffn_down.weight", {16, 8}, floats(128));
}

TempFolder::TempFolder() {
  std::string pattern = ::testing::TempDir() + "/baton-checkpoint-XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string TempFolder::Write(std::string_view name, std::string_view bytes) const {
  const std::string path = path_ + "/" + std::string(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string TempFolder::Link(std::string_view name, const std::string& target) const {
  const std::string path = path_ + "/" + std::string(name);
  std::filesystem::create_symlink(target, path);
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace baton::checkpoint
