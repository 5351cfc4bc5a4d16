// SPDX-License-Identifier: Apache-2.0
// The part of kernel_bench.h that is about KV.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/packing/kv_slices.h"
#include "tests/gpu/bench/inputs.h"
#include "tests/gpu/bench/kernel_bench.h"

namespace baton::gpu_bench {
namespace {

uint32_t BlocksOf(uint32_t tokens) { return (tokens + dev::kBlockTokens - 1) / dev::kBlockTokens; }

// Positions of one prompt.
std::vector<uint32_t> Counting(uint32_t count, uint32_t divisor) {
  std::vector<uint32_t> values(count);
  for (uint32_t i = 0; i < count; ++i) values[i] = i / divisor;
  return values;
}

}  // namespace

absl::Status KernelBench::Attention(bool int8) {
  const uint32_t most_prompt = *std::max_element(shapes_.prompts.begin(), shapes_.prompts.end());
  const uint32_t decoding = shapes_.decode_batches.back() * BlocksOf(shapes_.decode_tokens);
  const uint32_t blocks = std::max(BlocksOf(most_prompt), decoding);
  const size_t slice = kernels::KvSliceBytes(
      int8 ? kernels::KvElement::kInt8 : kernels::KvElement::kBf16, shapes_.head_dim);
  const size_t block_bytes = 2 * slice * shapes_.kv_heads;
  BATON_ASSIGN_OR_RETURN(const Buffer memory, Bf16s(device_, block_bytes * blocks / 2));
  const dev::KvPool pool{int8 ? dev::KvElement::kInt8 : dev::KvElement::kBf16,
                         memory.data(),
                         block_bytes,
                         0,
                         shapes_.kv_heads,
                         static_cast<uint32_t>(slice),
                         shapes_.head_dim};
  const std::string type = int8 ? " int8" : " bf16";
  BATON_RETURN_IF_ERROR(Append(pool, type));
  BATON_RETURN_IF_ERROR(Decode(pool, type));
  return Prompt(pool, type);
}

absl::Status KernelBench::Append(const dev::KvPool& pool, const std::string& type) {
  const uint32_t most = *std::max_element(shapes_.prompts.begin(), shapes_.prompts.end());
  BATON_ASSIGN_OR_RETURN(const Buffer qkv, Floats(device_, size_t{most} * shapes_.qkv()));
  BATON_ASSIGN_OR_RETURN(const Buffer angles, Floats(device_, size_t{most} * shapes_.head_dim));
  BATON_ASSIGN_OR_RETURN(const Buffer positions, Words(device_, Counting(most, 1)));
  BATON_ASSIGN_OR_RETURN(const Buffer blocks, Words(device_, Counting(most, dev::kBlockTokens)));
  BATON_ASSIGN_OR_RETURN(
      const Buffer q, device_.Allocate(size_t{most} * shapes_.heads * shapes_.head_dim * 2, "q"));
  for (const uint32_t rows : shapes_.prompts) {
    const double written = 2.0 * shapes_.heads * shapes_.head_dim +
                           2.0 * pool.kv_heads * pool.slice_bytes / dev::kBlockTokens;
    BATON_RETURN_IF_ERROR(Measure({absl::StrCat("RopeAppend", type), absl::StrCat(rows, " rows"),
                                   rows * (4.0 * shapes_.qkv() + written), 0},
                                  [&](int) {
                                    dev::QkvTask task{};
                                    task.qkv = qkv.as<float>();
                                    task.angles = angles.as<float>();
                                    task.sines_at = size_t{most} * shapes_.head_dim / 4;
                                    task.positions = positions.as<int32_t>();
                                    task.blocks = blocks.as<uint32_t>();
                                    task.q = q.data();
                                    task.pool = pool;
                                    task.rows = rows;
                                    task.heads = shapes_.heads;
                                    task.rotary_dims = shapes_.head_dim / 2;
                                    task.scale = 0.1f;
                                    device_.table().rope_append(task, device_.stream());
                                  }));
  }
  return absl::OkStatus();
}

absl::Status KernelBench::Decode(const dev::KvPool& pool, const std::string& type) {
  const uint32_t tokens = shapes_.decode_tokens, stride = BlocksOf(tokens);
  const uint32_t most = shapes_.decode_batches.back(), heads = shapes_.heads;
  const uint32_t segments = (tokens - 1) / dev::kSegmentTokens + 1;
  const size_t parts = size_t{most} * heads * segments;
  BATON_ASSIGN_OR_RETURN(const Buffer tables, Words(device_, Counting(most * stride, 1)));
  BATON_ASSIGN_OR_RETURN(const Buffer rows, Words(device_, Counting(most, 1)));
  BATON_ASSIGN_OR_RETURN(const Buffer positions,
                         Words(device_, std::vector<uint32_t>(most, tokens - 1)));
  BATON_ASSIGN_OR_RETURN(const Buffer q, Bf16s(device_, size_t{most} * heads * pool.head_dim));
  BATON_ASSIGN_OR_RETURN(const Buffer out, device_.Allocate(parts * pool.head_dim * 4, "parts"));
  BATON_ASSIGN_OR_RETURN(const Buffer sums, device_.Allocate(parts * 2 * 4, "sums"));
  BATON_ASSIGN_OR_RETURN(
      const Buffer context,
      device_.Allocate(dev::ActivationBytes(most, heads * pool.head_dim), "context"));
  for (const uint32_t batch : shapes_.decode_batches) {
    const double kv = 2.0 * batch * stride * pool.kv_heads * pool.slice_bytes;
    const KernelCase one{absl::StrCat("DecodeAttention", type),
                         absl::StrCat(batch, " sequences of ", tokens, " tokens"), kv,
                         4.0 * batch * tokens * heads * pool.head_dim};
    BATON_RETURN_IF_ERROR(Measure(one, [&](int) {
      device_.table().decode_attention(
          {pool, q.data(), rows.as<uint32_t>(), positions.as<int32_t>(), tables.as<uint32_t>(),
           out.as<float>(), sums.as<float>(), context.data(), batch, batch, heads, stride,
           segments},
          device_.stream());
    }));
  }
  return absl::OkStatus();
}

absl::Status KernelBench::Prompt(const dev::KvPool& pool, const std::string& type) {
  const uint32_t heads = shapes_.heads;
  for (const uint32_t tokens : shapes_.prompts) {
    std::vector<dev::PrefillItem> items;
    const uint32_t packed = tokens * shapes_.group();
    for (uint32_t first = 0; first < packed; first += dev::kPrefillRows) {
      items.push_back(
          {0, first, std::min(dev::kPrefillRows, packed - first), 0, 0, dev::kAllBefore});
    }
    BATON_ASSIGN_OR_RETURN(const Buffer work,
                           device_.Upload(std::as_bytes(std::span(items)), "items"));
    BATON_ASSIGN_OR_RETURN(const Buffer table, Words(device_, Counting(BlocksOf(tokens), 1)));
    BATON_ASSIGN_OR_RETURN(const Buffer q, Bf16s(device_, size_t{tokens} * heads * pool.head_dim));
    BATON_ASSIGN_OR_RETURN(
        const Buffer context,
        device_.Allocate(dev::ActivationBytes(tokens, heads * pool.head_dim), "context"));
    // As PyTorch's is counted: the causal half alone.
    const double flops = 2.0 * tokens * (tokens + 1.0) * heads * pool.head_dim;
    BATON_RETURN_IF_ERROR(Measure(
        {absl::StrCat("PrefillAttention", type), absl::StrCat(tokens, " tokens, causal"), 0, flops},
        [&](int) {
          device_.table().prefill_attention(
              {pool, q.data(), work.as<dev::PrefillItem>(), table.as<uint32_t>(), context.data(),
               static_cast<uint32_t>(items.size()), tokens, heads, BlocksOf(tokens)},
              device_.stream());
        }));
  }
  return absl::OkStatus();
}

}  // namespace baton::gpu_bench
