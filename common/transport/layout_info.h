// SPDX-License-Identifier: Apache-2.0
// KvLayout on the wire, and what two of them mean for each other.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/handoff.pb.h"
#include "common/kv/convert/layer_converter.h"
#include "common/kv/layout.h"

namespace baton::transport {

void FillLayoutInfo(const kv::KvLayout& layout, baton::v1::KvLayoutInfo& info);
// Says in `hello` how Puts travel, when that is not how `layout` stores them.
void FillWireInfo(const kv::KvLayout& layout, const kv::KvLayout& wire,
                  baton::v1::HandoffHello& hello);

// How the bytes of one sender's Puts become a receiver's blocks.
struct IncomingFormat {
  size_t wire_bytes = 0;                        // of one layer of one block
  std::optional<kv::LayerConverter> converter;  // none: the bytes are the same
  kv::KvOrigin origin = kv::KvOrigin::kOwn;     // kConverted also of what was so on its way
};

// FAILED_PRECONDITION, naming the first field that differs with both values,
// when the receiver with layout `ours` can make nothing of the sender's KV.
absl::StatusOr<IncomingFormat> PlanIncoming(const kv::KvLayout& ours,
                                            const baton::v1::HandoffHello& hello);

}  // namespace baton::transport
