// SPDX-License-Identifier: Apache-2.0
#include "common/model/weight_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/half_float.h"
#include "common/base/quantize.h"
#include "common/model/convert_rows.h"
#include "common/model/load.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/model/model_runner.h"

namespace baton::model {
namespace {

using checkpoint::LinearView;
using checkpoint::TensorType;
using checkpoint::TensorView;
using ::testing::HasSubstr;

constexpr WeightChoice kConversions[] = {WeightChoice::kInt4, WeightChoice::kInt8,
                                         WeightChoice::kBf16};

LoadOptions Chosen(WeightChoice choice, const std::string& isa = "generic",
                   Precision precision = Precision::kExact) {
  LoadOptions options = Options(isa, precision, 1);
  options.weights = choice;
  return options;
}

std::vector<float> Logits(const std::string& model, const LoadOptions& options) {
  ModelRunner runner(model, options);
  if (!runner.ok()) return {};
  TestSequence sequence = runner.NewSequence(64);
  return runner.Feed(sequence, RandomTokens(40, 600, 1), 16, LogitRows::kAll);
}

// True for value `at` of the fused q, k, v that lies in a row of v: the last 32.
bool IsValueRow(const TensorView& tensor, size_t at) {
  return tensor.name.ends_with("query_key_value.weight") &&
         at / tensor.shape[1] >= tensor.shape[0] - 32;
}

// A checkpoint of float32 weights as `choice` leaves them, from the blocks
// themselves.
std::string WriteConverted(const checkpoint::TempFolder& folder, WeightChoice choice) {
  const auto embedded = checkpoint::OpenCheckpoint("embedded");
  checkpoint::SafetensorsBuilder builder;
  for (const TensorView& tensor : (*embedded)->tensors()) {
    uint64_t count = 1;
    for (const uint64_t extent : tensor.shape) count *= extent;
    std::vector<float> values(count);
    checkpoint::DequantizeRange(tensor, 0, values);
    const bool layer = tensor.name.find(".layers.") != std::string::npos;
    const bool head = tensor.name.find("output_layer") != std::string::npos;
    if (tensor.shape.size() == 2 && (layer || head)) {
      for (size_t at = 0; at < values.size(); at += kQuantGroup) {
        std::byte block[34];
        if (choice == WeightChoice::kBf16) {
          for (size_t i = at; i < at + kQuantGroup; ++i) {
            values[i] = Bf16ToFloat(FloatToBf16(values[i]));
          }
        } else if (choice == WeightChoice::kInt4 && layer && !IsValueRow(tensor, at)) {
          QuantizeQ4_0(&values[at], block);
          Dequantize(kQuantQ4_0, block, 0, std::span(values).subspan(at, kQuantGroup));
        } else {
          QuantizeQ8_0(&values[at], block);
          Dequantize(kQuantQ8_0, block, 0, std::span(values).subspan(at, kQuantGroup));
        }
      }
    }
    builder.Tensor(tensor.name, "F32", tensor.shape,
                   {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  folder.Write("config.json", checkpoint::ReadFile(absl::StrCat(
                                  BATON_SOURCE_DIR, "/common/checkpoint/embedded/config.json")));
  folder.Write("model.safetensors", builder.Build());
  return folder.path();
}

TEST(WeightChoice, HasNames) {
  for (const std::string& name : WeightChoiceNames()) {
    const auto choice = ParseWeightChoice(name);
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(WeightChoiceName(*choice), name);
  }
  EXPECT_THAT(std::string(ParseWeightChoice("int3").status().message()),
              HasSubstr("stored, int4, int8, bf16, got \"int3\""));
}

TEST(WeightChoice, MatricesAreConvertedAndNothingElse) {
  const auto embedded = checkpoint::OpenCheckpoint("embedded");
  auto weights = (*embedded)->Weights();
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(PackedType(weights->head), TensorType::kF16);
  ASSERT_TRUE(ChooseWeights(WeightChoice::kInt4, *weights).ok());
  EXPECT_EQ(PackedType(weights->layers[1].k), TensorType::kQ4_0);
  EXPECT_EQ(PackedType(weights->layers[1].down), TensorType::kQ4_0);
  EXPECT_EQ(PackedType(weights->layers[1].v), TensorType::kQ8_0);
  EXPECT_EQ(PackedType(weights->head), TensorType::kQ8_0);
  EXPECT_EQ(ConversionName(weights->head), "F16 to Q8_0/1");
  EXPECT_EQ(weights->embedding->type, TensorType::kF16);
}

TEST(WeightChoice, LogitsAreThoseOfTheConvertedWeightsBitForBit) {
  for (const WeightChoice choice : kConversions) {
    const checkpoint::TempFolder folder;
    const std::string converted = WriteConverted(folder, choice);
    for (const std::string& isa : AvailableIsas()) {
      const auto expected = Logits(converted, Chosen(WeightChoice::kStored, isa));
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(Logits("embedded", Chosen(choice, isa)), expected)
          << isa << " " << WeightChoiceName(choice);
    }
  }
}

TEST(WeightChoice, EveryChoiceHasItsOwnNumericsAndDescription) {
  const auto embedded = checkpoint::OpenCheckpoint("embedded");
  std::set<std::string> ids;
  size_t count = 0;
  for (const Precision precision : {Precision::kExact, Precision::kFast}) {
    for (const std::string& name : WeightChoiceNames()) {
      const auto layout =
          PlanKvLayout(**embedded, Chosen(*ParseWeightChoice(name), "generic", precision));
      ASSERT_TRUE(layout.ok()) << layout.status();
      ids.insert(layout->numerics_id);
      ++count;
    }
  }
  EXPECT_EQ(ids.size(), count);
  const auto model = LoadModel(**embedded, Chosen(WeightChoice::kInt4));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->info().compute, "generic exact int4");
}

TEST(WeightChoice, EveryChoiceHasItsOwnFileInThePackedCache) {
  const checkpoint::TempFolder folder;
  for (int load = 0; load < 2; ++load) {
    for (const std::string& name : WeightChoiceNames()) {
      LoadOptions options = Chosen(*ParseWeightChoice(name));
      const std::vector<float> expected = Logits("embedded", options);
      options.cache.folder = folder.path();
      options.cache.least_bytes = 0;
      EXPECT_EQ(Logits("embedded", options), expected) << name;
    }
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.path().extension() == ".packed" ? 1 : 0;
  }
  EXPECT_EQ(files, WeightChoiceNames().size());
}

TEST(WeightChoice, RefusesWhatIsQuantizedByTensorAndType) {
  constexpr uint32_t kGgmlQ8_0 = 8;
  checkpoint::GgufBuilder builder = checkpoint::TinyLlamaKeys();
  builder.Uint32("llama.vocab_size", 6);
  const auto floats = [](size_t count) { return std::string(count * sizeof(float), '\0'); };
  builder.Uint32("llama.attention.key_length", 16);
  builder.Tensor("token_embd.weight", {8, 6}, floats(48))
      .Tensor("output_norm.weight", {8}, floats(8))
      .Tensor("blk.0.attn_norm.weight", {8}, floats(8))
      .Tensor("blk.0.attn_q.weight", {8, 32}, floats(256))
      .Tensor("blk.0.attn_k.weight", {8, 16}, floats(128))
      .Tensor("blk.0.attn_v.weight", {8, 16}, floats(128))
      .Tensor("blk.0.attn_output.weight", {32, 8}, std::string(8 * 34, '\0'), kGgmlQ8_0)
      .Tensor("blk.0.ffn_norm.weight", {8}, floats(8))
      .Tensor("blk.0.ffn_gate.weight", {8, 16}, floats(128))
      .Tensor("blk.0.ffn_up.weight", {8, 16}, floats(128))
      .Tensor("blk.0.ffn_down.weight", {16, 8}, floats(128));
  const checkpoint::TempFolder folder;
  const auto opened = checkpoint::OpenCheckpoint(folder.Write("m.gguf", builder.Build()));
  ASSERT_TRUE(opened.ok()) << opened.status();
  for (const WeightChoice choice : kConversions) {
    const auto model = LoadModel(**opened, Chosen(choice));
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(model.status().message()),
                HasSubstr("\"blk.0.attn_output.weight\" has type Q8_0 already"));
  }
  EXPECT_TRUE(LoadModel(**opened, Chosen(WeightChoice::kStored)).ok());
}

// Rows that are not whole blocks get zeros behind them.
TEST(ConvertRows, PadsTheLastBlock) {
  constexpr uint64_t kInputs = 44;
  std::vector<float> matrix(3 * kInputs);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = std::sin(static_cast<float>(i));
  TensorView tensor;
  tensor.shape = {3, kInputs};
  tensor.data = std::as_bytes(std::span(matrix));
  LinearView view{.tensor = &tensor, .row_begin = 0, .rows = 3};
  view.convert_to = TensorType::kQ8_0;
  std::vector<std::byte> out(2 * RowBytes(TensorType::kQ8_0, kInputs));
  ASSERT_EQ(out.size(), 2 * 2 * 34u);
  ConvertRows(view, 1, 2, out.data());
  std::vector<float> values(64);
  Dequantize(kQuantQ8_0, out.data() + out.size() / 2, 0, values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], i < kInputs ? matrix[2 * kInputs + i] : 0, 5e-3f);
  }
}

TEST(WeightChoice, ModelsWhoseRowsAreNoWholeBlocksRun) {
  const checkpoint::TempFolder folder;
  checkpoint::GgufBuilder builder = checkpoint::TinyLlamaKeys();
  checkpoint::AddTinyLlamaTensors(builder);  // rows of 8 and 16 values
  const std::string path = folder.Write("m.gguf", builder.Build());
  const auto logits = [&](const LoadOptions& options) {
    ModelRunner runner(path, options);
    EXPECT_TRUE(runner.ok());
    TestSequence sequence = runner.NewSequence(8);
    const std::vector<TokenId> tokens = {1, 4, 5};
    return runner.Feed(sequence, tokens, 3, LogitRows::kLast);
  };
  for (const std::string& isa : AvailableIsas()) {
    const auto expected = logits(Chosen(WeightChoice::kStored, isa));
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      const auto actual = logits(Chosen(WeightChoice::kInt8, isa, precision));
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_NEAR(actual[i], expected[i], 0.02 * std::fabs(expected[i]) + 0.5) << isa;
      }
    }
  }
}

}  // namespace
}  // namespace baton::model
