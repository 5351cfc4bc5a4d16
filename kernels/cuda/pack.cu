// SPDX-License-Identifier: Apache-2.0
// Weights as a checkpoint stores them into the records of api/fragments.h: byte for
// byte what api/pack.cc makes of them on the host. A warp per record.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"

namespace baton::gpu {
namespace {

constexpr unsigned kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;

// What a lane packs: rows g and g + 8 of the tile, of one group of inputs.
struct Place16 {
  const unsigned char* rows[2];  // null: there is no such row
  uint32_t group, t;
};

// The float32, float16 or bf16 value of an input as bf16.
template <StoredType kType>
BATON_DEVICE uint32_t Bf16Of(const unsigned char* row, uint32_t input) {
  if constexpr (kType == StoredType::kF32) return FloatToBf16(LoadAs<float>(row + input * 4));
  const auto bits = LoadAs<uint16_t>(row + input * 2);
  return kType == StoredType::kF16 ? FloatToBf16(HalfToFloat(bits)) : bits;
}

template <StoredType kType>
BATON_DEVICE void PackFloats(const Place16& place, unsigned char* record) {
  BATON_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    Words4 words;
    BATON_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const unsigned char* row = place.rows[i % 2];
      const uint32_t input = place.group * kGroupInputs + half * 16 + i / 2 * 8 + place.t * 2;
      words.word[i] = row == nullptr ? 0
                                     : Bf16Of<kType>(row, input) | Bf16Of<kType>(row, input + 1)
                                                                       << 16;
    }
    *reinterpret_cast<Words4*>(record + half * 512 + Lane() * 16) = words;
  }
}

// A group of a block type: where its codes stand, and its scale and minimum as
// float16.
struct StoredGroup {
  const unsigned char* codes;
  uint32_t shift;  // of its nibbles, where two groups share bytes
  uint16_t scale, minimum;
};

// Scale and minimum, six bits each, of a Q4_K block's eight groups.
BATON_DEVICE uint32_t KScale(const unsigned char* packed, uint32_t group) {
  return group < 4 ? packed[group] & 63u
                   : (packed[group + 4] & 15u) | (packed[group - 4] >> 6 << 4);
}
BATON_DEVICE uint32_t KMinimum(const unsigned char* packed, uint32_t group) {
  return group < 4 ? packed[group + 4] & 63u : packed[group + 4] >> 4 | (packed[group] >> 6 << 4);
}

template <StoredType kType>
BATON_DEVICE StoredGroup GroupOf(const unsigned char* row, uint32_t group) {
  if constexpr (kType == StoredType::kQ4K) {
    const unsigned char* block = row + group / 8 * 144;
    const uint32_t in_block = group % 8;
    const float scale = HalfToFloat(LoadAs<uint16_t>(block));
    const float minimum = HalfToFloat(LoadAs<uint16_t>(block + 2));
    const auto of = [](float unit, uint32_t count) {
      return MulRn(unit, static_cast<float>(count));
    };
    return {block + 16 + in_block / 2 * 32, in_block % 2 * 4,
            FloatToHalf(of(scale, KScale(block + 4, in_block))),
            FloatToHalf(-of(minimum, KMinimum(block + 4, in_block)))};
  }
  constexpr uint32_t kBytes = kType == StoredType::kQ8_0 ? 34 : kType == StoredType::kQ4_0 ? 18 : 20;
  const unsigned char* block = row + group * kBytes;
  constexpr bool kAffine = kType == StoredType::kQ4_1;
  return {block + (kAffine ? 4 : 2), 0, LoadAs<uint16_t>(block),
          static_cast<uint16_t>(kAffine ? LoadAs<uint16_t>(block + 2) : 0)};
}

template <StoredType kType>
BATON_DEVICE uint32_t NibbleOf(const StoredGroup& group, uint32_t input) {
  if constexpr (kType == StoredType::kQ4K) return group.codes[input] >> group.shift & 15u;
  return group.codes[input % 16] >> (input / 16 * 4) & 15u;
}

BATON_DEVICE void PackBytes(const StoredGroup (&groups)[2], const Place16& place,
                            unsigned char* record) {
  Words4 words{};
  BATON_UNROLL
  for (uint32_t i = 0; i < 16; ++i) {  // byte i % 4 of word i / 4
    const StoredGroup& group = groups[i % 2];
    const uint32_t input = i / 4 * 8 + place.t * 2 + i % 4 / 2;
    const uint32_t code = group.codes == nullptr ? 0 : group.codes[input];
    words.word[i / 4] |= code << (i % 4 * 8);
  }
  *reinterpret_cast<Words4*>(record + Lane() * 16) = words;
}

template <StoredType kType>
BATON_DEVICE void PackNibbles(const StoredGroup (&groups)[2], const Place16& place,
                              unsigned char* record) {
  constexpr uint32_t kZero = kType == StoredType::kQ4_0 ? 8 : 0;
  struct alignas(8) Words2 {
    uint32_t word[2];
  } words{};
  BATON_UNROLL
  for (uint32_t i = 0; i < 16; ++i) {  // nibble i % 8 of word i / 8
    const StoredGroup& group = groups[i % 2];
    const uint32_t input = i / 8 * 16 + i / 2 % 2 * 8 + place.t * 2 + i % 8 / 4;
    const uint32_t code = group.codes == nullptr ? kZero : NibbleOf<kType>(group, input);
    words.word[i / 8] |= code << (i % 8 * 4);
  }
  *reinterpret_cast<Words2*>(record + Lane() * 8) = words;
}

template <StoredType kType>
BATON_DEVICE void PackBlocks(const Place16& place, unsigned char* record) {
  StoredGroup groups[2] = {};
  BATON_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (place.rows[i] != nullptr) groups[i] = GroupOf<kType>(place.rows[i], place.group);
  }
  constexpr bool kBytes = kType == StoredType::kQ8_0;
  if constexpr (kBytes) {
    PackBytes(groups, place, record);
  } else {
    PackNibbles<kType>(groups, place, record);
  }
  if (place.t != 0) return;
  constexpr bool kAffine = kType == StoredType::kQ4_1 || kType == StoredType::kQ4K;
  auto* pairs = reinterpret_cast<uint32_t*>(record + (kBytes ? 512 : 256)) + Lane() / 4;
  pairs[0] = groups[0].scale | static_cast<uint32_t>(groups[1].scale) << 16;
  if constexpr (kAffine) {
    pairs[8] = groups[0].minimum | static_cast<uint32_t>(groups[1].minimum) << 16;
  }
}

template <StoredType kType>
BATON_KERNEL(kThreads)
PackKernel(PackTask task) {
  StartAfterProducers();
  const uint32_t groups = GroupsOf(task.inputs), tile = BlockIndex().y;
  Place16 place{{}, BlockIndex().x * kWarps + WarpIndex(), Lane() % 4};
  if (place.group >= groups) return;
  BATON_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t row = tile * kTileOutputs + Lane() / 4 + i * 8;
    place.rows[i] = row < task.row_count
                        ? static_cast<const unsigned char*>(task.rows) + row * task.row_bytes
                        : nullptr;
  }
  unsigned char* record = static_cast<unsigned char*>(task.out) +
                          (size_t{tile} * groups + place.group) * RecordBytes(FormatOf(kType));
  if constexpr (FormatOf(kType) == WeightFormat::kBf16) {
    PackFloats<kType>(place, record);
  } else {
    PackBlocks<kType>(place, record);
  }
}

template <StoredType kType>
void LaunchPack(const PackTask& task, Stream stream) {
  const Dim grid = {(GroupsOf(task.inputs) + kWarps - 1) / kWarps, TilesOf(task.row_count)};
  Launch(PackKernel<kType>, grid, kThreads, 0, stream, task);
}

}  // namespace

void PackWeights(const PackTask& task, Stream stream) {
  switch (task.type) {
    case StoredType::kF32:
      return LaunchPack<StoredType::kF32>(task, stream);
    case StoredType::kF16:
      return LaunchPack<StoredType::kF16>(task, stream);
    case StoredType::kBf16:
      return LaunchPack<StoredType::kBf16>(task, stream);
    case StoredType::kQ8_0:
      return LaunchPack<StoredType::kQ8_0>(task, stream);
    case StoredType::kQ4_0:
      return LaunchPack<StoredType::kQ4_0>(task, stream);
    case StoredType::kQ4_1:
      return LaunchPack<StoredType::kQ4_1>(task, stream);
    case StoredType::kQ4K:
      return LaunchPack<StoredType::kQ4K>(task, stream);
  }
}

}  // namespace baton::gpu
