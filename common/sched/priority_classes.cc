// SPDX-License-Identifier: Apache-2.0
#include "common/sched/policies.h"

namespace baton::sched {
namespace {

class PriorityClasses final : public Policy {
 public:
  explicit PriorityClasses(absl::Duration aging) : aging_(aging) {}
  std::string_view name() const override { return "priority"; }
  std::vector<uint32_t> Order(std::span<const Job> jobs, absl::Time now) const override {
    return OrderBy(jobs,
                   [&](const Job& job) { return AgedClass(job.priority, job.since, aging_, now); });
  }

 private:
  const absl::Duration aging_;
};

}  // namespace

int64_t AgedClass(int32_t priority, absl::Time since, absl::Duration aging, absl::Time now) {
  const int64_t risen = now <= since ? 0 : (now - since) / aging;
  return std::max<int64_t>(0, int64_t{kHighestPriority} - priority - risen);
}

std::unique_ptr<Policy> MakePriorityClasses(absl::Duration aging) {
  return std::make_unique<PriorityClasses>(aging);
}

}  // namespace baton::sched
