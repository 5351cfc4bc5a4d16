// SPDX-License-Identifier: Apache-2.0
// Good files with random damage: whatever they say then, reading them ends
// with tensors that lie inside the file or with an error, never otherwise.
#include <gtest/gtest.h>

#include <random>

#include "common/checkpoint/family.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/gguf_tokenizer.h"
#include "common/checkpoint/row_quant.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/torch_file.h"
#include "common/tokenizer/sentencepiece.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/checkpoint/torch_files.h"

namespace baton::checkpoint {
namespace {

constexpr int kRounds = 4000;

// Changes one to four places within the first `reach` bytes: a bit, a byte, a
// 64-bit word of an edge value, a cut or a doubled stretch.
std::string Mutate(const std::string& good, size_t reach, std::mt19937& random) {
  constexpr uint64_t kEdges[] = {0,          1,          13,         0x7FFFFFFF, 0xFFFFFFFF,
                                 1ull << 31, 1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 31};
  std::string bytes = good;
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const size_t at = below(std::min(reach, bytes.size()));
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 2:
      case 3: {
        const std::string edge = Bytes(kEdges[below(std::size(kEdges))]);
        bytes.replace(at, 8, edge.substr(0, below(2) == 0 ? 8 : 4));
        break;
      }
      case 4:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, bytes.substr(at, below(64)));
    }
  }
  return bytes;
}

void ReadAll(const std::vector<TensorView>& tensors) {
  for (const TensorView& tensor : tensors) {
    if (tensor.type == TensorType::kOther || tensor.data.empty()) continue;
    const BlockShape block = TensorBlock(tensor.type);
    std::vector<float> values(tensor.data.size() / block.bytes * block.values);
    DequantizeRange(tensor, 0, values);
  }
}

TEST(MutatedFiles, GgufNeverBreaksTheReader) {
  GgufBuilder builder = TinyLlamaKeys();
  AddTinyLlamaTensors(builder);
  const std::string good = builder.Build();
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string bytes = Mutate(good, 1800, random);
    const auto file = ReadGguf(MemoryFile(bytes));
    if (!file.ok()) {
      ++refused;
      continue;
    }
    ReadAll(file->tensors);
    const auto config = LlamaFamily().parse_gguf(file->metadata);
    if (!config.ok() || !CheckConfig(*config, "mutated").ok()) continue;
    (void)MapWeights(*config, LlamaFamily().gguf_names, file->tensors);
    const auto tokenizer = LoadGgufTokenizer(file->metadata, *config);
    if (tokenizer.ok() && *tokenizer != nullptr) (*tokenizer)->Encode("a a é");
  }
  EXPECT_GT(refused, kRounds / 4);
}

TEST(MutatedFiles, SafetensorsNeverBreakTheReader) {
  const std::string good = Safetensors(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})",
      std::string(32, '\x3F'));
  std::mt19937 random(2);
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string bytes = Mutate(good, good.size(), random);
    const auto tensors = ReadSafetensors(MemoryFile(bytes));
    refused += tensors.ok() ? 0 : 1;
    if (tensors.ok()) ReadAll(*tensors);
  }
  EXPECT_GT(refused, kRounds / 2);
}

TEST(MutatedFiles, TorchFilesNeverBreakTheReader) {
  const std::string good = TorchBuilder()
                               .Tensor("a", "Float", {2, 3}, std::string(24, '\x3F'))
                               .Tensor("b", "BFloat16", {4}, std::string(8, '\x3F'))
                               .Build();
  const std::string pickle = PickleOf(PickleDict({{"a", PickleTensor({"Float", "0", 6, {2, 3}})}}));
  std::mt19937 random(4);
  int refused = 0;
  for (int round = 0; round < 2 * kRounds; ++round) {
    // Damage to the container, and to the pickle inside a good one.
    const std::string bytes =
        round % 2 == 0 ? Mutate(good, good.size(), random)
                       : TorchFile(Mutate(pickle, pickle.size(), random), {std::string(24, '1')});
    auto tensors = ReadTorchFile(MemoryFile(bytes));
    refused += tensors.ok() ? 0 : 1;
    if (!tensors.ok()) continue;
    (void)JoinRowScales(4, *tensors);
    ReadAll(*tensors);
  }
  EXPECT_GT(refused, kRounds);
}

TEST(MutatedFiles, ConfigurationsNeverBreakTheirReaders) {
  const auto folder = OpenEmbeddedFolder();
  const std::string good(folder->Open("config.json")->text());
  std::mt19937 random(3);
  for (int round = 0; round < kRounds; ++round) {
    const std::string bytes = Mutate(good, good.size(), random);
    const auto json = ParseJsonObject(bytes, "config.json");
    if (!json.ok()) continue;
    for (const Family* family : {&ChatGlmFamily(), &LlamaFamily()}) {
      const auto config = family->parse_hf(JsonFields(*json, "config.json"));
      if (config.ok()) (void)CheckConfig(*config, "config.json");
    }
  }
}

}  // namespace
}  // namespace baton::checkpoint
