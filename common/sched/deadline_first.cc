// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "common/sched/policies.h"

namespace baton::sched {
namespace {

class DeadlineFirst final : public Policy {
 public:
  explicit DeadlineFirst(absl::Duration aging) : aging_(aging) {}
  std::string_view name() const override { return "deadline"; }

  std::vector<uint32_t> Order(std::span<const Job> jobs, absl::Time /*now*/) const override {
    return OrderBy(jobs, [this](const Job& job) { return Due(job); });
  }

  // A job that is refused takes no time from those after it.
  std::vector<Refusal> Infeasible(std::span<const Job> jobs, absl::Duration busy,
                                  absl::Time now) const override {
    std::vector<Refusal> refusals;
    for (const uint32_t index : Order(jobs, now)) {
      const Job& job = jobs[index];
      if (now + busy + job.work <= job.deadline) {
        busy += job.work;
        continue;
      }
      refusals.push_back(
          {index, absl::DeadlineExceededError(absl::StrCat(
                      "the deadline is in ", Text(job.deadline - now), "; the prompt needs ",
                      Text(job.work), " and ", Text(busy), " of other work comes first"))});
    }
    return refusals;
  }

 private:
  absl::Time Due(const Job& job) const { return std::min(job.deadline, job.since + aging_); }
  static std::string Text(absl::Duration time) {
    return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(1)));
  }

  const absl::Duration aging_;
};

}  // namespace

std::unique_ptr<Policy> MakeDeadlineFirst(absl::Duration aging) {
  return std::make_unique<DeadlineFirst>(aging);
}

}  // namespace baton::sched
