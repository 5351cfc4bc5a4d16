// SPDX-License-Identifier: Apache-2.0
#include "common/sched/policies.h"

namespace baton::sched {
namespace {

class Fcfs final : public Policy {
 public:
  std::string_view name() const override { return "fcfs"; }
  std::vector<uint32_t> Order(std::span<const Job> jobs, absl::Time /*now*/) const override {
    return OrderBy(jobs, [](const Job& job) { return job.arrival; });
  }
};

}  // namespace

std::unique_ptr<Policy> MakeFcfs() { return std::make_unique<Fcfs>(); }

}  // namespace baton::sched
