// SPDX-License-Identifier: Apache-2.0
// State dicts as torch.save writes them since PyTorch 1.6: a zip container with
// a pickle of names and shapes, and an entry of plain numbers per storage.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file.h"

namespace baton::checkpoint {

// Tensors of a dict of names to tensors, in its order; several may share a
// storage. Nothing in the file is executed: the pickle is read as data
// (pickle.h). INVALID_ARGUMENT, with the file and the tensor, for a tensor
// outside its storage, one that is no contiguous row-major view, and whatever
// zip.h and pickle.h refuse; UNIMPLEMENTED for another byte order, another kind
// of storage, the format before 1.6, and a pickle with any other global.
absl::StatusOr<std::vector<TensorView>> ReadTorchFile(const File& file);

}  // namespace baton::checkpoint
