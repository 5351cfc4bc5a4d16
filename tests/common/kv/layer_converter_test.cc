// SPDX-License-Identifier: Apache-2.0
#include "common/kv/convert/layer_converter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/api/backend.h"

namespace baton::kv {
namespace {

using ::testing::HasSubstr;

KvLayout Layout(KvType type) {
  static const kernels::Backend* const ref = kernels::FindBackend("ref");
  const auto element = type == KvType::kF32    ? kernels::KvElement::kF32
                       : type == KvType::kBf16 ? kernels::KvElement::kBf16
                                               : kernels::KvElement::kInt8;
  KvLayout layout;
  layout.layers = 4;
  layout.kv_heads = 3;
  layout.head_dim = 64;
  layout.type = type;
  layout.slice_layout = std::string(ref->Attention(element).slice_layout());
  layout.model_fingerprint = "model-a";
  layout.compute_id = "ref exact";
  layout.numerics_id = "ref exact kv=" + std::string(KvTypeName(type));
  return layout;
}

constexpr KvType kTypes[] = {KvType::kF32, KvType::kBf16, KvType::kInt8};

// The layouts that this library knows by name are those of the kernels.
TEST(LayerConverter, KnowsTheLayoutsOfAllBackends) {
  for (const KvType from : kTypes) {
    EXPECT_EQ(StoredAs(Layout(KvType::kF32), from)->slice_layout, Layout(from).slice_layout);
    for (const KvType to : kTypes) {
      EXPECT_TRUE(LayerConverter::Create(Layout(from), Layout(to)).ok());
    }
  }
}

std::vector<float> RandomLayer(const KvLayout& layout) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> layer(layout.LayerBytes() / sizeof(float));
  for (float& value : layer) value = normal(random);
  return layer;
}

TEST(LayerConverter, EveryHeadComesBackInItsPlace) {
  const KvLayout f32 = Layout(KvType::kF32);
  const std::vector<float> layer = RandomLayer(f32);
  for (const KvType type : kTypes) {
    const KvLayout other = Layout(type);
    std::vector<std::byte> converted(other.LayerBytes());
    std::vector<float> back(layer.size());
    LayerConverter::Create(f32, other)
        ->Convert(reinterpret_cast<const std::byte*>(layer.data()), converted.data());
    LayerConverter::Create(other, f32)
        ->Convert(converted.data(), reinterpret_cast<std::byte*>(back.data()));
    for (size_t i = 0; i < layer.size(); ++i) {
      ASSERT_NEAR(back[i], layer[i], type == KvType::kF32 ? 0 : 0.04) << i;
    }
  }
}

TEST(LayerConverter, SameBytesGiveTheSameBytes) {
  const KvLayout f32 = Layout(KvType::kF32), int8 = Layout(KvType::kInt8);
  const std::vector<float> layer = RandomLayer(f32);
  const auto converter = LayerConverter::Create(f32, int8);
  std::vector<std::byte> first(int8.LayerBytes()), second(int8.LayerBytes(), std::byte{0x55});
  converter->Convert(reinterpret_cast<const std::byte*>(layer.data()), first.data());
  converter->Convert(reinterpret_cast<const std::byte*>(layer.data()), second.data());
  EXPECT_EQ(first, second);
}

TEST(LayerConverter, ForeignSliceLayoutsAreRefusedByName) {
  KvLayout foreign = Layout(KvType::kBf16);
  foreign.slice_layout = "amx-tiles/1";
  for (const auto& status : {LayerConverter::Create(foreign, Layout(KvType::kInt8)).status(),
                             LayerConverter::Create(Layout(KvType::kInt8), foreign).status(),
                             StoredAs(foreign, KvType::kInt8).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("amx-tiles/1"));
  }
  EXPECT_EQ(StoredAs(foreign, KvType::kBf16)->slice_layout, "amx-tiles/1") << "nothing to convert";
}

TEST(CheckHandoff, SaysWhatTheKvIsToTheReceiver) {
  const KvLayout ours = Layout(KvType::kInt8);
  for (const KvType type : kTypes) {
    KvLayout theirs = Layout(type);
    EXPECT_EQ(*CheckHandoff(ours, theirs),
              type == KvType::kInt8 ? KvOrigin::kOwn : KvOrigin::kConverted);
    theirs.compute_id = "avx2 fast";
    theirs.numerics_id = "avx2 fast kv=" + std::string(KvTypeName(type));
    EXPECT_EQ(*CheckHandoff(ours, theirs), KvOrigin::kMixed) << KvTypeName(type);
  }
  KvLayout revised = Layout(KvType::kInt8);
  revised.numerics_id = "ref exact kv=int8 attention/2";
  EXPECT_EQ(*CheckHandoff(ours, revised), KvOrigin::kMixed) << "not to pass as equal";
}

TEST(CheckHandoff, AnotherModelVariantOrShapeIsRefusedByName) {
  const KvLayout ours = Layout(KvType::kInt8);
  const std::pair<const char*, void (*)(KvLayout&)> changes[] = {
      {"layers", [](KvLayout& l) { l.layers = 5; }},
      {"kv_heads", [](KvLayout& l) { l.kv_heads = 1; }},
      {"head_dim", [](KvLayout& l) { l.head_dim = 128; }},
      {"model_fingerprint", [](KvLayout& l) { l.model_fingerprint = "model-b"; }},
      {"model_variant", [](KvLayout& l) { l.model_variant = "decay-1"; }},
      {"type", [](KvLayout& l) { l.slice_layout = "fake/1"; }}};
  for (const bool other_kernels : {false, true}) {
    for (const auto& [field, change] : changes) {
      KvLayout theirs = Layout(KvType::kBf16);
      change(theirs);
      if (other_kernels && field != std::string("type")) theirs.compute_id = "avx2 fast";
      const absl::Status status = CheckHandoff(ours, theirs).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << field;
      EXPECT_THAT(std::string(status.message()), HasSubstr(field));
    }
  }
}

// Blocks of a layout of their own cannot even be looked at by other kernels.
TEST(CheckHandoff, OtherKernelsNeedASharedLayout) {
  KvLayout ours = Layout(KvType::kBf16);
  ours.slice_layout = "tiles/1";
  KvLayout theirs = ours;
  EXPECT_EQ(*CheckHandoff(ours, theirs), KvOrigin::kOwn);
  theirs.compute_id = "avx2 fast";
  EXPECT_THAT(std::string(CheckHandoff(ours, theirs).status().message()),
              ::testing::AllOf(HasSubstr("compute_id"), HasSubstr("tiles/1")));
}

}  // namespace
}  // namespace baton::kv
