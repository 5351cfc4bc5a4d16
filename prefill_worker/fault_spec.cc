// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/fault_spec.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace baton::prefill_worker {
namespace {

// Where a counted fault stands in the plan; null when there is none of that name.
uint64_t* Counter(const std::string& name, transport::FaultPlan& plan) {
  if (name == "delay-put") return &plan.delay_put;
  if (name == "fail-put") return &plan.fail_put;
  if (name == "drop-put") return &plan.drop_put;
  if (name == "corrupt-frame") return &plan.corrupt_frame;
  if (name == "truncate-frame") return &plan.truncate_frame;
  if (name == "kill-after-bytes") return &plan.kill_after_bytes;
  if (name == "lose-path-after-bytes") return &plan.lose_path_after_bytes;
  return nullptr;
}

}  // namespace

absl::StatusOr<transport::FaultPlan> ParseFaultPlan(const std::string& spec) {
  transport::FaultPlan plan;
  for (const auto& part : absl::StrSplit(spec, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> fault = absl::StrSplit(part, absl::MaxSplits('=', 1));
    uint64_t* const counter = Counter(fault.first, plan);
    const bool understood = counter != nullptr ? absl::SimpleAtoi(fault.second, counter)
                                               : fault.first == "delay" &&
                                                     absl::ParseDuration(fault.second, &plan.delay);
    if (!understood) {
      return absl::InvalidArgumentError(absl::StrCat("--fault: cannot read \"", part, "\""));
    }
  }
  return plan;
}

}  // namespace baton::prefill_worker
