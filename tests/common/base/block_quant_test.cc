// SPDX-License-Identifier: Apache-2.0
// Every block type against values that another decoder (gguf-py 0.19, numpy)
// gives for the same bytes.
#include "common/base/block_quant.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace baton {
namespace {

struct Fact {
  const BlockQuant* quant;
  size_t halves_at;  // where the block holds f16 0.1 and, of affine types, -0.185
  bool affine;
  std::vector<std::pair<size_t, float>> values;
  double sum;
};

const std::vector<Fact>& Facts() {
  static const std::vector<Fact> facts = {
      {&kQuantQ8_0,
       0,
       false,
       {{0, 0x1.7982p+2f},
        {1, 0x1.5651p+3f},
        {15, -0x1.5feap+2f},
        {16, -0x1.531ep+2f},
        {31, 0x1.831bp+3f}},
       0x1.ffep+3},
      {&kQuantQ4_0,
       0,
       false,
       {{0, 0x1.332p-2f},
        {1, 0x1.332p-2f},
        {15, 0x1.998p-4f},
        {16, -0x1.ffep-2f},
        {31, 0x1.998p-2f}},
       0x1.ffep-2},
      {&kQuantQ4_1,
       0,
       true,
       {{0, 0x1.6dfp-1f},
        {1, 0x1.426p-2f},
        {15, 0x1.d45p-1f},
        {16, 0x1.a12p-1f},
        {31, 0x1.1d58p+0f}},
       0x1.5c578p+4},
      {&kQuantQ5_0,
       0,
       false,
       {{0, 0x1.7fe8p+0f},
        {1, 0x1.665p-1f},
        {15, -0x1.1988p+0f},
        {16, 0x1.998p-2f},
        {31, 0x1.998p-3f}},
       0x1.ecaep+2},
      {&kQuantQ5_1,
       0,
       true,
       {{0, 0x1.5b6cp+1f},
        {1, -0x1.5c8p-4f},
        {15, 0x1.0ea4p+1f},
        {16, 0x1.9d5p+0f},
        {31, 0x1.3508p+1f}},
       0x1.b481cp+5},
      {&kQuantQ4K,
       0,
       true,
       {{0, 0x1.cd298p+4f},
        {17, 0x1.69bfcp+5f},
        {40, 0x1.6231ap+6f},
        {77, 0x1.40ce8p+4f},
        {100, 0x1.bfb84p+5f},
        {130, 0x1.2fa74p+5f},
        {191, 0x1.bb9ap+5f},
        {222, 0x1.33df8p+4f},
        {255, 0x1.3d558p+5f}},
       0x1.2d3688p+13},
      {&kQuantQ5K,
       0,
       true,
       {{0, 0x1.79a06p+6f},
        {17, 0x1.bb35ep+6f},
        {40, 0x1.c60ccp+5f},
        {77, 0x1.605b4p+5f},
        {100, 0x1.bbce6p+6f},
        {130, 0x1.2fa74p+5f},
        {191, 0x1.5a068p+5f},
        {222, 0x1.33df8p+4f},
        {255, 0x1.a5cd8p+6f}},
       0x1.2d6b7p+14},
      {&kQuantQ6K,
       208,
       false,
       {{0, 0x1.03896p+6f},
        {17, -0x1.f2474p+5f},
        {40, -0x1.cfe3p+3f},
        {77, -0x1.25edap+8f},
        {100, -0x1.4febp+5f},
        {130, -0x1.9a4ccp+5f},
        {191, 0x1.b1e4ep+6f},
        {222, 0x1.2aed5p+8f},
        {255, -0x1.d5e2ap+6f}},
       -0x1.4d1e6p+9},
  };
  return facts;
}

std::vector<std::byte> Block(const Fact& fact) {
  std::vector<std::byte> block(fact.quant->bytes);
  for (size_t i = 0; i < block.size(); ++i) {
    block[i] = static_cast<std::byte>(i * i * 7 + i * 13 + 5);
  }
  constexpr uint8_t kHalves[] = {0x66, 0x2E, 0xEC, 0xB1};
  for (size_t i = 0; i < (fact.affine ? 4 : 2); ++i) {
    block[fact.halves_at + i] = static_cast<std::byte>(kHalves[i]);
  }
  return block;
}

TEST(BlockQuant, EveryTypeHasTheValuesOfItsDefinition) {
  for (const Fact& fact : Facts()) {
    std::vector<float> values(fact.quant->values);
    Dequantize(*fact.quant, Block(fact).data(), 0, values);
    for (const auto& [index, value] : fact.values) {
      EXPECT_EQ(values[index], value) << fact.quant->name << " " << index;
    }
    double sum = 0;
    for (float value : values) sum += value;
    EXPECT_DOUBLE_EQ(sum, fact.sum) << fact.quant->name;
  }
}

TEST(BlockQuant, AnyRangeHasTheValuesOfTheWhole) {
  for (const Fact& fact : Facts()) {
    std::vector<std::byte> blocks = Block(fact);
    const std::vector<std::byte> one = blocks;
    for (int i = 0; i < 2; ++i) blocks.insert(blocks.end(), one.begin(), one.end());
    std::vector<float> all(size_t{3} * fact.quant->values);
    Dequantize(*fact.quant, blocks.data(), 0, all);
    for (size_t begin : {size_t{0}, size_t{1}, size_t{31}, size_t{33}, all.size() / 2 - 5}) {
      for (size_t count : {size_t{0}, size_t{1}, size_t{40}, all.size() - begin}) {
        std::vector<float> part(count);
        Dequantize(*fact.quant, blocks.data(), begin, part);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], all[begin + i]) << fact.quant->name;
      }
    }
  }
}

// Groups 4 to 7 have their bits in two places.
TEST(BlockQuant, KScalesUseAllSixBits) {
  std::byte packed[12] = {};
  packed[1] = std::byte{0b10'000001};  // scale 1, top of scale 5
  packed[5] = std::byte{0b11'100000};  // minimum 1, top of minimum 5
  packed[9] = std::byte{0b0101'1010};  // low bits of minimum 5 and scale 5
  const KScales k = UnpackKScales(packed);
  EXPECT_EQ(k.scales[1], 1);
  EXPECT_EQ(k.minima[1], 32);
  EXPECT_EQ(k.scales[5], 0b10'1010);
  EXPECT_EQ(k.minima[5], 0b11'0101);
  EXPECT_EQ(k.scales[0] + k.scales[4] + k.minima[0] + k.minima[7], 0);
}

}  // namespace
}  // namespace baton
