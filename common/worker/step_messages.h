// SPDX-License-Identifier: Apache-2.0
// What the engine says, in the words of proto/baton/v1/worker.proto.
#pragma once

#include <map>
#include <optional>

#include "absl/status/status.h"
#include "baton/v1/worker.pb.h"
#include "common/engine/engine.h"
#include "common/kv/layout.h"
#include "common/model/model.h"
#include "common/prefix/journal.h"

namespace baton::worker {

// One message per owner that the step concerns.
std::map<uint64_t, v1::StepOutput> SplitByOwner(const engine::StepOutput& output);

// A sequence that ends before the engine has it.
v1::SequenceEnd RefusedEnd(uint64_t sequence_key, const absl::Status& status);

v1::PrefixChanges PrefixMessage(const prefix::Changes& changes);

v1::WorkerLoad LoadMessage(const engine::Load& load, const kv::KvLayout& layout,
                           uint64_t resident_bytes,
                           const std::optional<model::DeviceMemory>& device = {});

}  // namespace baton::worker
