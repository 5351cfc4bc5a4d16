// SPDX-License-Identifier: Apache-2.0
// KvLayout on the wire.
#pragma once

#include "absl/status/status.h"
#include "baton/v1/handoff.pb.h"
#include "common/kv/layout.h"

namespace baton::transport {

void FillLayoutInfo(const kv::KvLayout& layout, baton::v1::KvLayoutInfo& info);

// FAILED_PRECONDITION, naming the first field that differs with both values.
absl::Status CheckLayoutInfo(const kv::KvLayout& ours, const baton::v1::KvLayoutInfo& theirs);

}  // namespace baton::transport
