// SPDX-License-Identifier: Apache-2.0
// Weights as a checkpoint stores them into the records of fragments.h.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/api/linear.h"
#include "kernels/cuda/api/fragments.h"
#include "kernels/cuda/api/kernels.h"

namespace baton::gpu {

// The format that weights of a type are held in on a GPU: 8-bit and 4-bit types
// with one scale per 32 values keep their codes, everything else becomes bf16.
// Q4_K's scales and minima are rounded to float16.
WeightFormat FormatOf(kernels::WeightType type);

// What the device packs from; none: rows of that type become bf16 on the host
// first.
std::optional<StoredType> StoredTypeOf(kernels::WeightType type);

// One row as stored, or null: zeros.
using StoredRow = const std::byte*;

// Packs a tile of 16 outputs: GroupsOf(inputs) records. `inputs` is a multiple
// of 32; values of blocks beyond it are left out. out.size() is what they take.
void PackTile(kernels::WeightType type, std::span<const StoredRow, kTileOutputs> rows,
              uint32_t inputs, std::span<std::byte> out);

}  // namespace baton::gpu
