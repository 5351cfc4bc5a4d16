// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/kernel_bench.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/gpu/bench/inputs.h"

namespace baton::gpu_bench {
namespace {

const char* NameOf(dev::WeightFormat format) {
  static constexpr const char* kNames[] = {"bf16", "int8", "int4", "int4-affine"};
  return kNames[static_cast<size_t>(format)];
}

constexpr dev::WeightFormat kFormats[] = {dev::WeightFormat::kBf16, dev::WeightFormat::kInt8,
                                          dev::WeightFormat::kInt4, dev::WeightFormat::kInt4Affine};

}  // namespace

bool KernelBench::Run() {
  const std::pair<const char*, std::function<absl::Status()>> parts[] = {
      {"ceilings", [this] { return Ceilings(); }},
      {"norm and embedding", [this] { return Rows(); }},
      {"products", [this] { return Products(); }},
      {"attention, bf16 KV", [this] { return Attention(false); }},
      {"attention, int8 KV", [this] { return Attention(true); }},
      {"sampling", [this] { return Sampling(); }},
      {"conversions of weights", [this] { return Conversions(); }},
      {"products by cuBLASLt", [this] { return Library(); }}};
  bool all = true;
  for (const auto& [name, part] : parts) {
    const absl::Status status = part();
    if (status.ok()) continue;
    all = false;
    records_.Write({{"kind", "missing"}, {"what", name}, {"reason", status.ToString()}});
  }
  return all;
}

absl::Status KernelBench::Measure(const KernelCase& one, const std::function<void(int i)>& run) {
  BATON_ASSIGN_OR_RETURN(const double seconds, SecondsPerRun(device_, timer_, run));
  records_.Write({{"kind", "kernel"},
                  {"kernel", one.kernel},
                  {"shape", one.shape},
                  {"microseconds", seconds * 1e6},
                  {"gb_per_s", one.bytes / seconds / 1e9},
                  {"tflop_per_s", one.flops / seconds / 1e12}});
  return absl::OkStatus();
}

// Every byte once read and once written: what bandwidth there is.
absl::Status KernelBench::Ceilings() {
  BATON_ASSIGN_OR_RETURN(const Buffer from, Floats(device_, shapes_.copy_bytes / sizeof(float)));
  BATON_ASSIGN_OR_RETURN(const Buffer to, device_.Allocate(shapes_.copy_bytes, "a copy"));
  const uint64_t block = shapes_.copy_bytes / 1024;
  BATON_RETURN_IF_ERROR(
      Measure({"CopyBlocks", absl::StrCat("1024 x ", block, " bytes"),
               2.0 * static_cast<double>(shapes_.copy_bytes), 0},
              [&](int) {
                device_.table().copy_blocks(
                    {from.data(), to.data(), nullptr, nullptr, block, 0, block, 0, block, 1024},
                    device_.stream());
              }));
  std::vector<uint32_t> all(1024);
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  BATON_ASSIGN_OR_RETURN(const Buffer index, Words(device_, all));
  return Measure({"ZeroBlocks", absl::StrCat("1024 x ", block, " bytes"),
                  static_cast<double>(shapes_.copy_bytes), 0},
                 [&](int) {
                   device_.table().zero_blocks(
                       {to.data(), index.as<uint32_t>(), block, block, 1024}, device_.stream());
                 });
}

absl::Status KernelBench::Rows() {
  const uint32_t most = shapes_.rows.back(), hidden = shapes_.hidden;
  const size_t values = size_t{most} * hidden;
  BATON_ASSIGN_OR_RETURN(const Buffer x, Floats(device_, values));
  BATON_ASSIGN_OR_RETURN(const Buffer weight, Floats(device_, hidden));
  BATON_ASSIGN_OR_RETURN(const Buffer out,
                         device_.Allocate(dev::ActivationBytes(most, hidden), "norms"));
  BATON_ASSIGN_OR_RETURN(const Buffer table, Bf16s(device_, size_t{shapes_.vocabulary} * hidden));
  std::vector<uint32_t> tokens(most);
  for (uint32_t i = 0; i < most; ++i) tokens[i] = i * 7919 % shapes_.vocabulary;
  BATON_ASSIGN_OR_RETURN(const Buffer ids, Words(device_, tokens));
  for (const uint32_t rows : shapes_.rows) {
    const double moved = 1.0 * rows * hidden;
    const std::string shape = absl::StrCat(rows, " x ", hidden);
    BATON_RETURN_IF_ERROR(Measure({"RmsNorm", shape, moved * 6, 0}, [&](int) {
      device_.table().rms_norm(
          {x.as<float>(), weight.as<float>(), nullptr, out.data(), rows, hidden, 1e-5f},
          device_.stream());
    }));
    BATON_RETURN_IF_ERROR(Measure({"Embed bf16", shape, moved * 6, 0}, [&](int) {
      device_.table().embed({dev::TableType::kBf16, table.data(), ids.as<uint32_t>(), nullptr,
                             nullptr, x.as<float>(), rows, hidden, shapes_.vocabulary},
                            device_.stream());
    }));
  }
  return absl::OkStatus();
}

absl::Status KernelBench::Products() {
  const uint32_t heads = shapes_.heads * shapes_.head_dim;
  for (const dev::WeightFormat format : kFormats) {
    BATON_RETURN_IF_ERROR(Product("qkv", format, shapes_.qkv(), shapes_.hidden, false));
    BATON_RETURN_IF_ERROR(Product("attention_out", format, shapes_.hidden, heads, false));
    BATON_RETURN_IF_ERROR(Product("gate_up", format, 2 * shapes_.ffn, shapes_.hidden, true));
    BATON_RETURN_IF_ERROR(Product("down", format, shapes_.hidden, shapes_.ffn, false));
    BATON_RETURN_IF_ERROR(Product("head", format, shapes_.vocabulary, shapes_.hidden, false));
  }
  return absl::OkStatus();
}

// Several copies of the weights in turn: a model's layers do not stay in a cache.
absl::Status KernelBench::Product(const std::string& name, dev::WeightFormat format,
                                  uint32_t outputs, uint32_t inputs, bool swiglu) {
  const size_t weight_bytes = dev::WeightBytes(format, outputs, inputs);
  const auto wanted = static_cast<int>((shapes_.spread_bytes + weight_bytes - 1) / weight_bytes);
  const int copies = std::clamp(wanted, 1, timer_.runs_of_graph);
  std::vector<Buffer> weights;
  for (int i = 0; i < copies; ++i) {
    BATON_ASSIGN_OR_RETURN(Buffer one, PackedWeights(device_, format, outputs, inputs));
    weights.push_back(std::move(one));
  }
  const uint32_t most = shapes_.rows.back();
  BATON_ASSIGN_OR_RETURN(const Buffer x, Bf16s(device_, dev::ActivationBytes(most, inputs) / 2));
  BATON_ASSIGN_OR_RETURN(const Buffer out, Floats(device_, size_t{most} * outputs));
  const bool head = name == "head";
  for (const uint32_t rows : shapes_.rows) {
    if (head && rows > 64) continue;  // prompts need the logits of one row
    const KernelCase one{absl::StrCat("Linear ", NameOf(format)),
                         absl::StrCat(name, " ", outputs, " x ", inputs, ", ", rows, " rows"),
                         static_cast<double>(weight_bytes) + 2.0 * rows * inputs +
                             (swiglu ? 1.0 : 4.0) * rows * outputs,
                         2.0 * rows * outputs * inputs};
    BATON_RETURN_IF_ERROR(Measure(one, [&](int i) {
      device_.table().linear({format, swiglu ? dev::Epilogue::kSwiGlu : dev::Epilogue::kStore,
                              weights[static_cast<size_t>(i % copies)].data(), x.data(), nullptr,
                              out.data(), outputs, rows, outputs, inputs},
                             device_.stream());
    }));
  }
  return absl::OkStatus();
}

absl::Status KernelBench::Sampling() {
  constexpr uint32_t kRows = 64;
  std::vector<dev::SampleRow> rows(kRows);
  for (uint32_t i = 0; i < kRows; ++i) {
    rows[i].usable_vocabulary = shapes_.vocabulary;
    rows[i].top_k = 50;
    rows[i].temperature = 0.8f;
    rows[i].top_p = 0.95f;
    rows[i].repetition_penalty = 1;
    rows[i].seed = i;
  }
  BATON_ASSIGN_OR_RETURN(const Buffer device_rows,
                         device_.Upload(std::as_bytes(std::span(rows)), "rows to sample"));
  const size_t logits = size_t{kRows} * shapes_.vocabulary;
  BATON_ASSIGN_OR_RETURN(const Buffer values, Floats(device_, logits));
  BATON_ASSIGN_OR_RETURN(const Buffer weights, device_.Allocate(logits * 4, "weights"));
  BATON_ASSIGN_OR_RETURN(const Buffer tokens, device_.Allocate(kRows * 4, "tokens"));
  for (const uint32_t count : {1u, kRows}) {
    BATON_RETURN_IF_ERROR(
        Measure({"Sample", absl::StrCat(count, " x ", shapes_.vocabulary, ", top-k 50, top-p 0.95"),
                 4.0 * count * shapes_.vocabulary, 0},
                [&](int) {
                  device_.table().sample({device_rows.as<dev::SampleRow>(), nullptr, nullptr,
                                          nullptr, nullptr, values.as<float>(), weights.as<float>(),
                                          tokens.as<uint32_t>(), count, shapes_.vocabulary},
                                         device_.stream());
                }));
  }
  return absl::OkStatus();
}

}  // namespace baton::gpu_bench
