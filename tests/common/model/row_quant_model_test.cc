// SPDX-License-Identifier: Apache-2.0
// Checkpoints as ChatGLM2-6B's int8 and int4 ones are published, made here from
// the embedded model: of every matrix of a layer the integers and a float16
// scale per output row; embedding, head, norms and biases in float16.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/half_float.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/common/checkpoint/torch_files.h"
#include "tests/common/model/model_runner.h"

namespace baton::model {
namespace {

using checkpoint::SafetensorsBuilder;
using checkpoint::TempFolder;
using checkpoint::TensorType;
using checkpoint::TensorView;
using checkpoint::TorchBuilder;

bool IsLayerMatrix(const TensorView& tensor) {
  return tensor.shape.size() == 2 && tensor.name.find(".layers.") != std::string::npos;
}

std::vector<float> AllValues(const TensorView& tensor) {
  std::vector<float> values(tensor.shape[0] * (tensor.shape.size() == 2 ? tensor.shape[1] : 1));
  checkpoint::DequantizeRange(tensor, 0, values);
  return values;
}

std::string F32Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}
std::string F16Bytes(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += checkpoint::Bytes(FloatToHalf(value));
  return bytes;
}

struct RowQuantized {
  std::string codes, scales;
  std::vector<float> values;  // scale * code
};

RowQuantized Quantize(const std::vector<float>& matrix, size_t columns, int bits) {
  const float limit = bits == 8 ? 127 : 7;
  RowQuantized result;
  for (size_t begin = 0; begin < matrix.size(); begin += columns) {
    float largest = 0;
    for (size_t i = 0; i < columns; ++i) largest = std::max(largest, std::fabs(matrix[begin + i]));
    const uint16_t scale = FloatToHalf(largest / limit);
    result.scales += checkpoint::Bytes(scale);
    std::vector<int> codes;
    for (size_t i = 0; i < columns; ++i) {
      // A few that only two's complement has.
      codes.push_back(i == begin % columns
                          ? -static_cast<int>(limit) - 1
                          : static_cast<int>(std::lround(matrix[begin + i] / HalfToFloat(scale))));
      result.values.push_back(HalfToFloat(scale) * static_cast<float>(codes.back()));
    }
    for (size_t i = 0; i < columns; i += bits == 8 ? 1 : 2) {
      const int byte = bits == 8 ? codes[i] : (codes[i] & 15) << 4 | (codes[i + 1] & 15);
      result.codes += static_cast<char>(byte);
    }
  }
  return result;
}

// The folders "torch", "safetensors" and, in float32, "reference".
class RowQuantModelTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const auto embedded = checkpoint::OpenCheckpoint("embedded");
    ASSERT_TRUE(embedded.ok()) << embedded.status();
    const int bits = GetParam();
    TorchBuilder torch;
    SafetensorsBuilder safetensors, reference;
    for (const TensorView& tensor : (*embedded)->tensors()) {
      const std::vector<float> values = AllValues(tensor);
      if (!IsLayerMatrix(tensor)) {
        torch.Tensor(tensor.name, "Half", tensor.shape, F16Bytes(values));
        safetensors.Tensor(tensor.name, "F16", tensor.shape, F16Bytes(values));
        reference.Tensor(tensor.name, "F16", tensor.shape, F16Bytes(values));
        continue;
      }
      const RowQuantized quantized = Quantize(values, tensor.shape[1], bits);
      const std::vector<uint64_t> shape = {tensor.shape[0], tensor.shape[1] * bits / 8};
      torch.Tensor(tensor.name, "Char", shape, quantized.codes)
          .Tensor(tensor.name + "_scale", "Half", {shape[0]}, quantized.scales);
      safetensors.Tensor(tensor.name, "I8", shape, quantized.codes)
          .Tensor(tensor.name + "_scale", "F16", {shape[0]}, quantized.scales);
      reference.Tensor(tensor.name, "F32", tensor.shape, F32Bytes(quantized.values));
    }
    const std::string config = checkpoint::ReadFile(
        absl::StrCat(BATON_SOURCE_DIR, "/common/checkpoint/embedded/config.json"));
    const std::string quantized_config =
        absl::StrCat("{\"quantization_bit\": ", bits, ",", config.substr(1));
    torch_.Write("config.json", quantized_config);
    torch_.Write("pytorch_model.bin", torch.Build());
    safetensors_.Write("config.json", quantized_config);
    safetensors_.Write("model.safetensors", safetensors.Build());
    reference_.Write("config.json", config);
    reference_.Write("model.safetensors", reference.Build());
  }

  static std::vector<float> Logits(const TempFolder& folder, const LoadOptions& options) {
    ModelRunner runner(folder.path(), options);
    if (!runner.ok()) return {};
    TestSequence sequence = runner.NewSequence(64);
    return runner.Feed(sequence, RandomTokens(40, 600, 1), 16, LogitRows::kAll);
  }

  TempFolder torch_, safetensors_, reference_;
};

TEST_P(RowQuantModelTest, ExactLogitsAreThoseOfTheDequantizedWeightsBitForBit) {
  for (const std::string& isa : AvailableIsas()) {
    const LoadOptions options = Options(isa, Precision::kExact, 1);
    const std::vector<float> expected = Logits(reference_, options);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(Logits(torch_, options), expected) << isa;
    EXPECT_EQ(Logits(safetensors_, options), expected) << isa;
  }
}

TEST_P(RowQuantModelTest, FastKernelsMultiplyTheIntegers) {
  for (const std::string& isa : AvailableIsas()) {
    const std::vector<float> expected = Logits(reference_, Options(isa, Precision::kExact, 1));
    const std::vector<float> fast = Logits(torch_, Options(isa, Precision::kFast, 1));
    EXPECT_EQ(Logits(safetensors_, Options(isa, Precision::kFast, 2)), fast) << isa;
    ASSERT_EQ(fast.size(), expected.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < fast.size(); ++i) {
      error += std::pow(double{fast[i]} - expected[i], 2);
      norm += std::pow(double{expected[i]}, 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 0.02) << isa;

    const auto opened = checkpoint::OpenCheckpoint(torch_.path());
    ASSERT_TRUE(opened.ok());
    const auto layout = PlanKvLayout(**opened, Options(isa, Precision::kFast, 1));
    ASSERT_TRUE(layout.ok());
    if (isa.starts_with("avx")) {
      EXPECT_NE(layout->numerics_id.find(GetParam() == 8 ? "w8a8-g32" : "w4a8-g32"),
                std::string::npos)
          << layout->numerics_id;
    }
  }
}

TEST_P(RowQuantModelTest, CheckpointSaysWhatItHolds) {
  const auto torch = checkpoint::OpenCheckpoint(torch_.path());
  ASSERT_TRUE(torch.ok()) << torch.status();
  EXPECT_EQ((*torch)->format(), "pytorch");
  EXPECT_EQ((*torch)->config().row_quant_bits, static_cast<uint32_t>(GetParam()));
  const auto weights = (*torch)->Weights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  const TensorView& matrix = *weights->layers[2].down.tensor;
  EXPECT_EQ(matrix.type, GetParam() == 8 ? TensorType::kI8Row : TensorType::kI4Row);
  EXPECT_EQ(matrix.shape, (std::vector<uint64_t>{96, 256}));
  EXPECT_EQ(weights->head.tensor->type, TensorType::kF16);
}

TEST_P(RowQuantModelTest, ScalesBelongToTheFingerprint) {
  const std::string before = (*checkpoint::OpenCheckpoint(safetensors_.path()))->Fingerprint();
  std::string file = checkpoint::ReadFile(safetensors_.path() + "/model.safetensors");
  const auto opened = checkpoint::OpenCheckpoint(safetensors_.path());
  const auto weights = (*opened)->Weights();
  ASSERT_TRUE(weights.ok());
  const auto scales = weights->layers[0].q.tensor->row_scales;
  const std::string bytes(reinterpret_cast<const char*>(scales.data()), scales.size());
  const size_t at = file.find(bytes);
  ASSERT_NE(at, std::string::npos);
  file[at] = static_cast<char>(file[at] ^ 1);
  safetensors_.Write("model.safetensors", file);
  EXPECT_NE((*checkpoint::OpenCheckpoint(safetensors_.path()))->Fingerprint(), before);
}

// Without the bits the configuration does not fit the tensors.
TEST_P(RowQuantModelTest, IntegersWithoutAWordInTheConfigurationAreRefused) {
  safetensors_.Write("config.json", checkpoint::ReadFile(reference_.path() + "/config.json"));
  const auto opened = checkpoint::OpenCheckpoint(safetensors_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->Weights().status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE((*opened)->Weights().status().message().find("I8"), absl::string_view::npos);
}

INSTANTIATE_TEST_SUITE_P(Bits, RowQuantModelTest, ::testing::Values(8, 4),
                         [](const auto& test) { return absl::StrCat("Int", test.param); });

}  // namespace
}  // namespace baton::model
