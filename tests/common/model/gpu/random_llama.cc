// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/gpu/random_llama.h"

#include <fstream>
#include <random>

#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {

void WriteRandomLlama(const std::string& path, uint32_t type, uint32_t other_type) {
  constexpr uint32_t kHidden = 128, kHeads = 2, kKvHeads = 1, kDim = 64, kFfn = 160, kWords = 50;
  GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint32("llama.context_length", 600)
      .Uint32("llama.embedding_length", kHidden)
      .Uint32("llama.block_count", 2)
      .Uint32("llama.feed_forward_length", kFfn)
      .Uint32("llama.attention.head_count", kHeads)
      .Uint32("llama.attention.head_count_kv", kKvHeads)
      .Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Uint32("llama.vocab_size", kWords);
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.09f);
  const auto tensor = [&](const std::string& name, uint64_t inputs, uint64_t outputs,
                          uint32_t kind) {
    std::string bytes;
    const uint64_t values = inputs * outputs;
    if (kind == 0) {
      for (uint64_t i = 0; i < values; ++i) bytes += Bytes(normal(random));
    } else {  // Q4_0 (2), Q4_1 (3), Q8_0 (8): a scale of 0.01 to 0.02, random codes
      for (uint64_t i = 0; i < values / 32; ++i) {
        const uint32_t codes = kind == 8 ? 32 : 16;
        bytes += Bytes(static_cast<uint16_t>(kind == 8 ? 0x1400 + random() % 0x200
                                                       : 0x2100 + random() % 0x400));
        if (kind == 3) bytes += Bytes(static_cast<uint16_t>(0xad00 + random() % 0x400));
        for (uint32_t j = 0; j < codes; ++j) bytes += static_cast<char>(random());
      }
    }
    builder.Tensor(name, {inputs, outputs}, bytes, kind);
  };
  const auto norm = [&](const std::string& name) {
    std::string bytes;
    for (uint32_t i = 0; i < kHidden; ++i) bytes += Bytes(1 + normal(random));
    builder.Tensor(name, {kHidden}, bytes);
  };
  tensor("token_embd.weight", kHidden, kWords, 0);
  norm("output_norm.weight");
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    norm(at + "attn_norm.weight");
    tensor(at + "attn_q.weight", kHidden, kHeads * kDim, type);
    tensor(at + "attn_k.weight", kHidden, kKvHeads * kDim, type);
    tensor(at + "attn_v.weight", kHidden, kKvHeads * kDim, other_type);
    tensor(at + "attn_output.weight", kHeads * kDim, kHidden, type);
    norm(at + "ffn_norm.weight");
    tensor(at + "ffn_gate.weight", kHidden, kFfn, type);
    tensor(at + "ffn_up.weight", kHidden, kFfn, type);
    tensor(at + "ffn_down.weight", kFfn, kHidden, other_type);
  }
  std::ofstream(path, std::ios::binary) << builder.Build();
}

}  // namespace baton::checkpoint
