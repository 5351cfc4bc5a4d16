// SPDX-License-Identifier: Apache-2.0
// Products of packed weights with activations on tensor cores, from one row to
// thousands. Weights are operand A (16 outputs), rows operand B (8 rows).
//
// Both stream through shared memory, kStages ahead. The sum of a group of 32
// inputs starts from zero, is scaled and added in float32: one sequence of
// operations per output, whatever the tile, so that decoding and prompts of any
// chunk have the same bits.
#include "kernels/cuda/api/kernels.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/swiglu.h"
#include "kernels/cuda/weight_records.h"

namespace baton::gpu {
namespace {

constexpr uint32_t kRowRecord = 512;  // bytes of 8 rows' group
constexpr uint32_t kOnes = 0x3f803f80;

// What a block computes: kWarps x kTiles tiles of 16 outputs for kRowTiles
// tiles of 8 rows.
template <WeightFormat kFormatOf, int kWarpsOf, int kTilesOf, int kRowTilesOf, int kGroupsOf,
          int kStagesOf>
struct Shape {
  static constexpr WeightFormat kFormat = kFormatOf;
  static constexpr int kWarps = kWarpsOf, kTiles = kTilesOf, kRowTiles = kRowTilesOf;
  static constexpr int kGroups = kGroupsOf;  // of a stage
  static constexpr int kStages = kStagesOf;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlockTiles = kWarps * kTiles;
  static constexpr int kRecord = RecordBytes(kFormat);
  struct Stage {
    unsigned char weights[kBlockTiles][kGroups * kRecord];
    unsigned char rows[kRowTiles][kGroups * kRowRecord];
  };
  struct alignas(16) Shared {
    Stage stages[kStages];
  };
};

template <typename S>
BATON_DEVICE void LoadStageWeights(const LinearTask& task, typename S::Stage& stage,
                                   uint32_t first_group, uint32_t groups) {
  const uint32_t first_tile = BlockIndex().x * S::kBlockTiles, tiles = TilesOf(task.outputs);
  constexpr int kChunks = S::kGroups * S::kRecord / 16;  // of a tile
  for (int i = ThreadIndex(); i < S::kBlockTiles * kChunks; i += S::kThreads) {
    const uint32_t tile = i / kChunks, chunk = i % kChunks;
    const bool valid = first_tile + tile < tiles && first_group + chunk * 16 / S::kRecord < groups;
    const size_t record = valid ? size_t{first_tile + tile} * groups + first_group : 0;
    const auto* from = static_cast<const unsigned char*>(task.weights) + record * S::kRecord;
    CopyAsync16(&stage.weights[tile][chunk * 16], from + (valid ? chunk * 16 : 0), valid);
  }
}

template <typename S>
BATON_DEVICE void LoadStageRows(const LinearTask& task, typename S::Stage& stage,
                                uint32_t first_group, uint32_t groups) {
  constexpr int kRowChunks = S::kGroups * kRowRecord / 16;
  const uint32_t first_row_tile = BlockIndex().y * S::kRowTiles;
  for (int i = ThreadIndex(); i < S::kRowTiles * kRowChunks; i += S::kThreads) {
    const uint32_t tile = i / kRowChunks, chunk = i % kRowChunks;
    const bool valid = first_row_tile + tile < RowTilesOf(task.row_count) &&
                       first_group + chunk * 16 / kRowRecord < groups;
    const size_t record = valid ? size_t{first_row_tile + tile} * groups + first_group : 0;
    const auto* from = static_cast<const unsigned char*>(task.rows) + record * kRowRecord;
    CopyAsync16(&stage.rows[tile][chunk * 16], from + (valid ? chunk * 16 : 0), valid);
  }
}

// sums += the products of one group.
template <typename S>
BATON_DEVICE void MultiplyGroup(const typename S::Stage& stage, int group,
                                float (&sums)[S::kTiles][S::kRowTiles][4]) {
  Weights weights[S::kTiles];
  BATON_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    LoadWeights<S::kFormat>(&stage.weights[WarpIndex() * S::kTiles + tile][group * S::kRecord],
                            weights[tile]);
  }
  BATON_UNROLL
  for (int n = 0; n < S::kRowTiles; ++n) {
    const auto row = LoadAs<Words4>(&stage.rows[n][group * kRowRecord + Lane() * 16]);
    float row_sums[4] = {};  // of the activations, for minima
    if constexpr (S::kFormat == WeightFormat::kInt4Affine) {
      const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
      Mma(row_sums, ones, row.word[0], row.word[1]);
      Mma(row_sums, ones, row.word[2], row.word[3]);
    }
    BATON_UNROLL
    for (int tile = 0; tile < S::kTiles; ++tile) {
      float product[4] = {};
      Mma(product, weights[tile].a[0], row.word[0], row.word[1]);
      Mma(product, weights[tile].a[1], row.word[2], row.word[3]);
      float(&sum)[4] = sums[tile][n];
      BATON_UNROLL
      for (int i = 0; i < 4; ++i) {
        if constexpr (S::kFormat == WeightFormat::kBf16) {
          sum[i] = AddRn(sum[i], product[i]);
        } else {
          const float scale = i < 2 ? weights[tile].scale_low : weights[tile].scale_high;
          sum[i] = Fma(product[i], scale, sum[i]);
        }
        if constexpr (S::kFormat == WeightFormat::kInt4Affine) {
          const float minimum = i < 2 ? weights[tile].minimum_low : weights[tile].minimum_high;
          sum[i] = Fma(row_sums[i % 2], minimum, sum[i]);
        }
      }
    }
  }
}

// A tile's outputs for two rows: sum as c of Mma.
BATON_DEVICE void Store(const LinearTask& task, uint32_t tile, uint32_t first_row,
                        const float (&sum)[4]) {
  const uint32_t g = Lane() / 4, row = first_row + Lane() % 4 * 2;
  BATON_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    if (row + i >= task.row_count) continue;
    if (task.epilogue == Epilogue::kSwiGlu) {
      const uint32_t groups = GroupsOf(task.outputs / 2);
      static_cast<uint16_t*>(task.out)[ActivationIndex(row + i, tile * 8 + g, groups)] =
          FloatToBf16(GatedUp(sum[i], sum[2 + i]));
      continue;
    }
    BATON_UNROLL
    for (uint32_t high = 0; high < 2; ++high) {
      const uint32_t output = tile * kTileOutputs + g + high * 8;
      if (output >= task.outputs) continue;
      float value = sum[high * 2 + i];
      float* at = static_cast<float*>(task.out) + size_t{row + i} * task.out_stride + output;
      if (task.bias != nullptr) value = AddRn(value, task.bias[output]);
      *at = task.epilogue == Epilogue::kAdd ? AddRn(*at, value) : value;
    }
  }
}

template <typename S>
BATON_KERNEL(S::kThreads)
LinearKernel(LinearTask task) {
  BATON_DYNAMIC_SHARED(typename S::Shared, shared);
  const uint32_t groups = GroupsOf(task.inputs);
  const uint32_t stages = (groups + S::kGroups - 1) / S::kGroups;
  float sums[S::kTiles][S::kRowTiles][4] = {};
  if constexpr (kStartsEarly) {
    // Weights are nobody's results: they are on their way while the kernel before ends.
    for (uint32_t s = 0; s + 1 < S::kStages && s < stages; ++s) {
      LoadStageWeights<S>(task, shared.stages[s], s * S::kGroups, groups);
    }
  }
  StartAfterProducers();
  for (uint32_t s = 0; s + 1 < S::kStages; ++s) {
    if (s < stages) {
      if constexpr (!kStartsEarly) {
        LoadStageWeights<S>(task, shared.stages[s], s * S::kGroups, groups);
      }
      LoadStageRows<S>(task, shared.stages[s], s * S::kGroups, groups);
    }
    CommitCopies();
  }
  for (uint32_t s = 0; s < stages; ++s) {
    WaitCopies<S::kStages - 2>();
    SyncBlock();  // the stage is there for all, and the one before has been used by all
    const uint32_t next = s + S::kStages - 1;
    if (next < stages) {
      LoadStageWeights<S>(task, shared.stages[next % S::kStages], next * S::kGroups, groups);
      LoadStageRows<S>(task, shared.stages[next % S::kStages], next * S::kGroups, groups);
    }
    CommitCopies();
    BATON_UNROLL
    for (int group = 0; group < S::kGroups; ++group) {
      if (s * S::kGroups + group >= groups) break;
      MultiplyGroup<S>(shared.stages[s % S::kStages], group, sums);
    }
  }
  BATON_UNROLL
  for (int tile = 0; tile < S::kTiles; ++tile) {
    const uint32_t at = BlockIndex().x * S::kBlockTiles + WarpIndex() * S::kTiles + tile;
    if (at >= TilesOf(task.outputs)) break;
    BATON_UNROLL
    for (int n = 0; n < S::kRowTiles; ++n) {
      Store(task, at, (BlockIndex().y * S::kRowTiles + n) * kTileRows, sums[tile][n]);
    }
  }
}

template <typename S>
void LaunchShape(const LinearTask& task, Stream stream) {
  const Dim grid = {(TilesOf(task.outputs) + S::kBlockTiles - 1) / S::kBlockTiles,
                    (RowTilesOf(task.row_count) + S::kRowTiles - 1) / S::kRowTiles};
  Launch(LinearKernel<S>, grid, S::kThreads, sizeof(typename S::Shared), stream, task);
}

template <WeightFormat kFormat>
void LaunchFormat(const LinearTask& task, Stream stream) {
  if (task.row_count <= 8) {
    LaunchShape<Shape<kFormat, 2, 1, 1, 4, 6>>(task, stream);
  } else if (task.row_count <= 32) {
    LaunchShape<Shape<kFormat, 2, 1, 4, 4, 4>>(task, stream);
  } else {
    LaunchShape<Shape<kFormat, 4, 2, 8, 1, 4>>(task, stream);
  }
}

}  // namespace

void Linear(const LinearTask& task, Stream stream) {
  switch (task.format) {
    case WeightFormat::kBf16:
      return LaunchFormat<WeightFormat::kBf16>(task, stream);
    case WeightFormat::kInt8:
      return LaunchFormat<WeightFormat::kInt8>(task, stream);
    case WeightFormat::kInt4:
      return LaunchFormat<WeightFormat::kInt4>(task, stream);
    case WeightFormat::kInt4Affine:
      return LaunchFormat<WeightFormat::kInt4Affine>(task, stream);
  }
}

}  // namespace baton::gpu
