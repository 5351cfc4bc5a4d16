// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>
#include <string>

#include "common/sched/policies.h"

namespace baton::sched {
namespace {

// Tenants that have left and are remembered; clients may invent names.
constexpr size_t kMostIdleTenants = 1024;

class FairShares final : public Policy {
 public:
  explicit FairShares(const std::map<std::string, double, std::less<>>& weights)
      : weights_(weights) {}
  std::string_view name() const override { return "fair"; }
  bool charges() const override { return true; }

  // Tenant by tenant each job moves its tenant's counter on, as it will when
  // it is served: so that many jobs of one tenant do not come in a row.
  std::vector<uint32_t> Order(std::span<const Job> jobs, absl::Time /*now*/) const override {
    std::map<std::string_view, double> counters;
    std::vector<double> start(jobs.size());
    for (const uint32_t i : OrderBy(jobs, [](const Job& job) { return job.arrival; })) {
      const auto [counter, first] = counters.try_emplace(jobs[i].tenant, 0);
      if (first) counter->second = CounterOf(jobs[i].tenant);
      start[i] = counter->second;
      counter->second += absl::ToDoubleSeconds(jobs[i].work) / WeightOf(jobs[i].tenant);
    }
    return OrderBy(jobs, [&](const Job& job) { return start[&job - jobs.data()]; });
  }

  // Who was away has saved nothing up: it starts level with the least served.
  void Join(std::string_view tenant) override {
    const std::optional<double> floor = LeastOfPresent();
    Account& account = AccountOf(tenant);
    if (account.jobs++ > 0) return;
    if (floor.has_value()) level_ = *floor;
    account.counter = std::max(account.counter, level_);
  }

  void Leave(std::string_view tenant) override {
    const auto found = accounts_.find(tenant);
    if (found == accounts_.end() || --found->second.jobs > 0) return;
    // The last one to leave leaves its mark for whoever comes next.
    level_ = LeastOfPresent().value_or(std::max(level_, found->second.counter));
    ForgetSettled();
  }

  void Charge(std::string_view tenant, const Usage& usage) override {
    const double used = absl::ToDoubleSeconds(usage.compute) + usage.pool_seconds;
    AccountOf(tenant).counter += used / WeightOf(tenant);
  }

 private:
  struct Account {
    double counter = 0;  // used / weight
    uint64_t jobs = 0;
  };

  Account& AccountOf(std::string_view tenant) {
    const auto found = accounts_.find(tenant);
    return found != accounts_.end() ? found->second : accounts_[std::string(tenant)];
  }

  double WeightOf(std::string_view tenant) const {
    const auto found = weights_.find(tenant);
    return found == weights_.end() ? 1 : found->second;
  }

  double CounterOf(std::string_view tenant) const {
    const auto found = accounts_.find(tenant);
    return found == accounts_.end() ? level_ : found->second.counter;
  }

  std::optional<double> LeastOfPresent() const {
    std::optional<double> least;
    for (const auto& [tenant, account] : accounts_) {
      if (account.jobs > 0) least = std::min(least.value_or(account.counter), account.counter);
    }
    return least;
  }

  // Those that are gone and owe nothing; beyond the bound, everybody gone.
  void ForgetSettled() {
    std::erase_if(accounts_, [this](const auto& entry) {
      return entry.second.jobs == 0 && entry.second.counter <= level_;
    });
    if (accounts_.size() <= kMostIdleTenants) return;
    std::erase_if(accounts_, [](const auto& entry) { return entry.second.jobs == 0; });
  }

  const std::map<std::string, double, std::less<>> weights_;
  std::map<std::string, Account, std::less<>> accounts_;
  double level_ = 0;  // of the least served tenant when last somebody came or went
};

}  // namespace

std::unique_ptr<Policy> MakeFairShares(
    const std::map<std::string, double, std::less<>>& tenant_weights) {
  return std::make_unique<FairShares>(tenant_weights);
}

}  // namespace baton::sched
