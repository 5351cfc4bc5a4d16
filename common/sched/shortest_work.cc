// SPDX-License-Identifier: Apache-2.0
#include "common/sched/policies.h"

namespace baton::sched {
namespace {

class ShortestWork final : public Policy {
 public:
  explicit ShortestWork(absl::Duration aging) : aging_(aging) {}
  std::string_view name() const override { return "srw"; }
  std::vector<uint32_t> Order(std::span<const Job> jobs, absl::Time /*now*/) const override {
    return OrderBy(jobs, [this](const Job& job) { return job.since + Patience(job, aging_); });
  }

 private:
  const absl::Duration aging_;
};

}  // namespace

std::unique_ptr<Policy> MakeShortestWork(absl::Duration aging) {
  return std::make_unique<ShortestWork>(aging);
}

}  // namespace baton::sched
