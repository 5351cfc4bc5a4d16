// SPDX-License-Identifier: Apache-2.0
// Faults of the hand-off that a test asks a whole process for.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/transport/fault/fault_sender.h"

namespace baton::prefill_worker {

// From --fault, such as "delay-put=1,delay=2s" or "kill-after-bytes=20000";
// the names are those of transport::FaultPlan with dashes. INVALID_ARGUMENT
// names the part that is not understood.
absl::StatusOr<transport::FaultPlan> ParseFaultPlan(const std::string& spec);

}  // namespace baton::prefill_worker
