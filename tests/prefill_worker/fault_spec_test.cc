// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/fault_spec.h"

#include <gtest/gtest.h>

namespace baton::prefill_worker {
namespace {

TEST(ParseFaultPlan, ReadsCountersAndDelay) {
  const auto plan = ParseFaultPlan("delay-put=3,delay=2s,kill-after-bytes=20000");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->delay_put, 3);
  EXPECT_EQ(plan->delay, absl::Seconds(2));
  EXPECT_EQ(plan->kill_after_bytes, 20000);
  EXPECT_EQ(plan->fail_put, 0);
}

TEST(ParseFaultPlan, RefusesWhatItDoesNotKnow) {
  for (const char* spec : {"explode=1", "fail-put", "fail-put=x", "delay=soon", "=1"}) {
    EXPECT_EQ(ParseFaultPlan(spec).status().code(), absl::StatusCode::kInvalidArgument) << spec;
  }
}

}  // namespace
}  // namespace baton::prefill_worker
