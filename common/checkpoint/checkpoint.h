// SPDX-License-Identifier: Apache-2.0
// A model on disk: configuration, tensors, tokenizer; every byte is hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/chat/prompt_format.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::checkpoint {

// Types that tensors of a checkpoint may have. Block types are GGUF's: blocks
// of 32 or 256 values along the last dimension (common/base/block_quant.h).
// Row types are ChatGLM2's: integers in two's complement with one f16 scale per
// row of a matrix (row_quant.h).
enum class TensorType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K,
  kI8Row,
  kI4Row,  // two to a byte, the first in the high half
  kOther
};

std::string_view TensorTypeName(TensorType type);
// Values per block, bytes per block: {1, 4} for kF32, {32, 20} for kQ4_1.
struct BlockShape {
  uint32_t values;
  uint32_t bytes;
};
BlockShape TensorBlock(TensorType type);  // REQUIRES: not kOther

// A tensor inside a mapped file, row-major; the last dimension is contiguous.
struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  std::string type_name;                  // as the file says it, for kOther
  std::vector<uint64_t> shape;            // outermost first: [out, in] for a linear layer
  std::span<const std::byte> data;        // its size fits shape and type, verified at open
  std::span<const std::byte> row_scales;  // of row types: f16 [rows]; else empty
};

// Writes out.size() values of `tensor` from flat index `begin` on as float32.
// REQUIRES: type != kOther; the range lies within the tensor.
void DequantizeRange(const TensorView& tensor, uint64_t begin, std::span<float> out);

enum class RopeStyle : uint8_t {
  kAdjacentPairs,  // (x[2i], x[2i+1]): ChatGLM; GGUF's llama, whose q and k rows are permuted to it
  kHalves,         // (x[i], x[i + rot/2]): Hugging Face's Llama
};

// The one block description of all families (docs/models.md).
struct ModelConfig {
  std::string name;
  std::string architecture;  // "chatglm", "llama", "qwen2"
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t ffn = 0;
  uint32_t vocabulary = 0;
  uint32_t context = 0;
  uint32_t rotary_dims = 0;  // of each head, from its start
  RopeStyle rope_style = RopeStyle::kHalves;
  double rope_base = 10000;
  float norm_epsilon = 1e-5f;
  bool qkv_bias = false;
  bool tied_head = false;
  std::vector<TokenId> end_tokens;
  uint32_t row_quant_bits = 0;  // 8 or 4: matrices are stored as row types; 0: they are not
};

// Where the weights of a block stand, after the family has mapped names. Fused
// matrices are views of rows: q, k, v of one tensor, gate and up of one.
struct LinearView {
  // Rows [row_begin, row_begin + rows) of `tensor` [all rows, in].
  const TensorView* tensor = nullptr;
  uint64_t row_begin = 0, rows = 0;
  // Bias [rows] at the same rows; null when there is none.
  const TensorView* bias = nullptr;
  // What the values are to become before they are packed; nothing: stay as they
  // are (common/model/weight_choice.h).
  std::optional<TensorType> convert_to = std::nullopt;
};

struct LayerWeights {
  const TensorView* attention_norm = nullptr;  // [hidden]
  LinearView q, k, v, attention_out;
  const TensorView* ffn_norm = nullptr;  // [hidden]
  LinearView gate, up, down;
};

struct ModelWeights {
  const TensorView* embedding = nullptr;  // [vocabulary, hidden]
  std::vector<LayerWeights> layers;
  const TensorView* final_norm = nullptr;
  LinearView head;  // the embedding when tied
};

// An open checkpoint. Maps its files; views stay valid for its life.
// Thread-safe: immutable.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual std::string_view format() const = 0;  // "safetensors", "pytorch", "gguf"
  virtual const ModelConfig& config() const = 0;
  virtual const std::vector<TensorView>& tensors() const = 0;
  // All weights, checked against the configuration's shapes; INVALID_ARGUMENT
  // names the tensor that is missing or has another shape or type.
  virtual absl::StatusOr<ModelWeights> Weights() const = 0;
  // Null when the checkpoint carries none: it then serves ids alone.
  virtual absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> LoadTokenizer() const = 0;
  // Name of the prompt format ("raw" without a tokenizer) and its settings.
  // INVALID_ARGUMENT when the checkpoint's template is unknown; the message
  // lists the names that an operator can choose from.
  struct ChatFormat {
    std::string name;
    chat::FormatOptions options;
  };
  virtual absl::StatusOr<ChatFormat> DetectChatFormat() const = 0;
  // Hex digest over configuration, tensor table and samples of every tensor's
  // bytes: cheap, and different for different models.
  virtual std::string Fingerprint() const = 0;
  // Sizes and times of change of the files: together with the fingerprint, what
  // a copy of the weights in another layout was made from.
  virtual std::string SourceStamp() const = 0;
  // Gives back the physical pages that reading `tensor` has brought in; a later
  // read brings them back. For who reads every tensor once.
  virtual void ReleasePages(const TensorView& tensor) const = 0;
  // Bytes of the mapped files.
  virtual uint64_t file_bytes() const = 0;
};

// Opens a GGUF file, a safetensors or PyTorch file with config.json beside it,
// or a folder that holds one of them (model.safetensors, pytorch_model.bin or
// the index of either).
// NOT_FOUND; INVALID_ARGUMENT with file, offset or tensor and what is wrong;
// UNIMPLEMENTED for an architecture or tensor type that is not supported.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path);

}  // namespace baton::checkpoint
