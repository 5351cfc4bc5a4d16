// SPDX-License-Identifier: Apache-2.0
// CommitState as frames carry it.
#pragma once

#include "baton/v1/handoff.pb.h"
#include "common/transport/kv_transport.h"

namespace baton::transport {

void FillState(const CommitState& state, baton::v1::SamplingState& out);
// Nothing is checked but the version, by the receiver.
CommitState StateFrom(const baton::v1::SamplingState& state);

}  // namespace baton::transport
