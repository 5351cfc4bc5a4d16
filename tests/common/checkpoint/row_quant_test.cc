// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/row_quant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/checkpoint/checkpoint_files.h"

namespace baton::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorView View(const std::string& name, const std::string& type, std::vector<uint64_t> shape,
                const std::string& bytes) {
  TensorView view;
  view.name = name;
  view.type = type == "F16" ? TensorType::kF16 : TensorType::kOther;
  view.type_name = type;
  view.shape = std::move(shape);
  view.data = std::as_bytes(std::span(bytes));
  return view;
}

// Scales 0.5 and 2.
const std::string kScales("\x00\x38\x00\x40", 4);

TEST(RowQuant, EightBitsAreTwosComplementTimesTheScaleOfTheRow) {
  const std::string codes("\x01\xff\x80\x7f\x00\x02", 6);
  std::vector<TensorView> tensors = {View("x.weight", "I8", {2, 3}, codes),
                                     View("x.weight_scale", "F16", {2}, kScales)};
  ASSERT_TRUE(JoinRowScales(8, tensors).ok());
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].type, TensorType::kI8Row);
  float values[6];
  DequantizeRange(tensors[0], 0, values);
  EXPECT_THAT(values, ElementsAre(0.5f, -0.5f, -64.0f, 254.0f, 0.0f, 4.0f));
  float middle[3];
  DequantizeRange(tensors[0], 2, middle);
  EXPECT_THAT(middle, ElementsAre(-64.0f, 254.0f, 0.0f));
}

TEST(RowQuant, FourBitsStandTwoToAByteTheFirstHigh) {
  const std::string codes("\x1f\x87\x70\x0e", 4);
  std::vector<TensorView> tensors = {View("x.weight_scale", "F16", {2}, kScales),
                                     View("x.weight", "I8", {2, 2}, codes)};
  ASSERT_TRUE(JoinRowScales(4, tensors).ok());
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].type, TensorType::kI4Row);
  EXPECT_EQ(tensors[0].shape, (std::vector<uint64_t>{2, 4}));
  float values[8];
  DequantizeRange(tensors[0], 0, values);
  EXPECT_THAT(values, ElementsAre(0.5f, -0.5f, -4.0f, 3.5f, 14.0f, 0.0f, 0.0f, -4.0f));
  int8_t codes_read[3];
  ReadRowCodes(tensors[0], 3, codes_read);
  EXPECT_THAT(codes_read, ElementsAre(7, 7, 0));
}

TEST(RowQuant, RefusesScalesThatDoNotFitTheirMatrix) {
  const std::string bytes(64, '\0');
  const auto refused = [&](std::vector<TensorView> tensors, const std::string& why) {
    const absl::Status status = JoinRowScales(4, tensors);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  const TensorView scale = View("x.weight_scale", "F16", {2}, bytes);
  refused({View("x.weight", "F16", {2, 3}, bytes), scale}, "\"x.weight\" has a weight_scale, but");
  refused({View("x.weight", "U8", {2, 3}, bytes), scale}, "no matrix of type I8");
  refused({View("x.weight", "I8", {6}, bytes), scale}, "no matrix of type I8");
  refused({View("x.weight", "I8", {3, 2}, bytes), scale}, "F16 and shape [3]");
  refused({View("x.weight", "I8", {2, 2}, bytes), View("x.weight_scale", "F32", {2}, bytes)},
          "\"x.weight_scale\" must be of type F16");
  refused({View("x.weight", "I8", {2, uint64_t{1} << 63}, bytes), scale}, "overflows");
}

TEST(RowQuant, LeavesAllElseAlone) {
  const std::string bytes(64, '\0');
  std::vector<TensorView> tensors = {View("x.weight", "I8", {2, 3}, bytes),
                                     View("y.weight_scale", "F16", {2}, bytes)};
  ASSERT_TRUE(JoinRowScales(8, tensors).ok());
  EXPECT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].type, TensorType::kOther);
  tensors[1].name = "x.weight_scale";
  ASSERT_TRUE(JoinRowScales(0, tensors).ok());
  EXPECT_EQ(tensors.size(), 2u);
}

}  // namespace
}  // namespace baton::checkpoint
