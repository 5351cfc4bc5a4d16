// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/fingerprint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <type_traits>

namespace baton::checkpoint {
namespace {

constexpr size_t kSamples = 16, kSampleBytes = 64;

class Hasher {
 public:
  Hasher() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }

  void Add(std::span<const std::byte> bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  template <typename T>
  void AddNumber(T value) {
    static_assert(std::is_arithmetic_v<T>);
    Add(std::as_bytes(std::span(&value, 1)));
  }
  // With the length, so that neighbours cannot be cut differently.
  void AddText(std::string_view text) {
    AddNumber<uint64_t>(text.size());
    Add(std::as_bytes(std::span(text)));
  }

  std::string HexDigest() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    std::string hex;
    for (unsigned i = 0; i < size; ++i) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[digest[i] >> 4];
      hex += kDigits[digest[i] & 15];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void AddConfig(const ModelConfig& config, Hasher& hasher) {
  hasher.AddText(config.architecture);
  for (uint32_t value :
       {config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim, config.ffn,
        config.vocabulary, config.context, config.rotary_dims,
        static_cast<uint32_t>(config.rope_style), static_cast<uint32_t>(config.qkv_bias),
        static_cast<uint32_t>(config.tied_head)}) {
    hasher.AddNumber(value);
  }
  hasher.AddNumber(config.rope_base);
  hasher.AddNumber(config.norm_epsilon);
  hasher.AddNumber<uint64_t>(config.end_tokens.size());
  for (TokenId id : config.end_tokens) hasher.AddNumber(id);
}

void AddSamples(std::span<const std::byte> data, Hasher& hasher) {
  if (data.size() <= kSamples * kSampleBytes) return hasher.Add(data);
  const size_t last = data.size() - kSampleBytes;
  for (size_t i = 0; i < kSamples; ++i) {
    hasher.Add(data.subspan(last * i / (kSamples - 1), kSampleBytes));
  }
}

}  // namespace

std::string ComputeFingerprint(const ModelConfig& config, const std::vector<TensorView>& tensors) {
  Hasher hasher;
  AddConfig(config, hasher);
  hasher.AddNumber<uint64_t>(tensors.size());
  for (const TensorView& tensor : tensors) {
    hasher.AddText(tensor.name);
    hasher.AddText(tensor.type_name);
    hasher.AddNumber<uint64_t>(tensor.shape.size());
    for (uint64_t extent : tensor.shape) hasher.AddNumber(extent);
    AddSamples(tensor.data, hasher);
    if (!tensor.row_scales.empty()) AddSamples(tensor.row_scales, hasher);
  }
  return hasher.HexDigest();
}

}  // namespace baton::checkpoint
