// SPDX-License-Identifier: Apache-2.0
// Who is served next: one rule per file, all behind one interface, used by the
// router's queue and by the engines alike.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::sched {

// Priorities that a request may ask for; greater goes first.
inline constexpr int32_t kLowestPriority = -4;
inline constexpr int32_t kHighestPriority = 4;

// A prompt that waits, or of which some tokens are still to be computed.
struct Job {
  uint64_t arrival = 0;  // unique, grows; breaks ties
  absl::Time since;      // when it was submitted
  uint32_t tokens = 0;   // of the prompt, still to be computed; at least 1
  // What they take alone, by measured costs (see step_costs.h).
  absl::Duration work;
  absl::Time deadline = absl::InfiniteFuture();
  int32_t priority = 0;     // kLowestPriority to kHighestPriority
  std::string_view tenant;  // may be empty: a tenant like any other
  uint32_t kv_blocks = 0;   // held while it runs
};

struct PolicyOptions {
  std::string name = "srw";  // one of PolicyNames()
  // Bounds how long a job may be overtaken; see each policy.
  absl::Duration aging = absl::Seconds(30);
  // "fair": shares of tenants; those not named have 1.
  std::map<std::string, double, std::less<>> tenant_weights = {};
};

// What a tenant has used, in seconds of the whole worker: prompt tokens by the
// time they take, blocks by the share of the pool they are. One number, so that
// long prompts and long answers are weighed against each other.
struct Usage {
  absl::Duration compute = absl::ZeroDuration();
  double pool_seconds = 0;  // blocks held / blocks in the pool x seconds
};

// A job that cannot end in time.
struct Refusal {
  uint32_t job = 0;  // index
  absl::Status status;
};

// Every policy is work conserving (Order leaves nobody out), and none starves a
// job: policies.h says what each of them promises.
//
// Thread safety: none; one owner.
class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string_view name() const = 0;

  // Indices of all `jobs`, in the order in which they should be served now.
  // A function of its arguments and of what was charged so far.
  virtual std::vector<uint32_t> Order(std::span<const Job> jobs, absl::Time now) const = 0;

  // Jobs that cannot be done before their deadlines even if the order above is
  // kept and nothing else arrives, given `busy` of work before all of them:
  // DEADLINE_EXCEEDED with the numbers. To be asked before they cost anything.
  virtual std::vector<Refusal> Infeasible(std::span<const Job> /*jobs*/, absl::Duration /*busy*/,
                                          absl::Time /*now*/) const {
    return {};
  }

  // Accounts by tenant, for policies with a memory. A tenant has joined while
  // it has jobs that wait or run: one Leave for each Join.
  virtual void Join(std::string_view /*tenant*/) {}
  virtual void Leave(std::string_view /*tenant*/) {}
  virtual void Charge(std::string_view /*tenant*/, const Usage& /*usage*/) {}
  // False: Charge does nothing, and need not be called.
  virtual bool charges() const { return false; }
};

// INVALID_ARGUMENT names the option, its limit and value.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const PolicyOptions& options);

// "fcfs", "srw", "deadline", "priority", "fair".
std::vector<std::string> PolicyNames();

// The class of a job of `priority` that has waited since `since`: 0 is best, and
// it rises by one for each `aging`, so that everybody gets there.
int64_t AgedClass(int32_t priority, absl::Time since, absl::Duration aging, absl::Time now);

// "NAME=WEIGHT" as a flag gives it; WEIGHT is from 0.001 to 1000.
absl::StatusOr<std::pair<std::string, double>> ParseTenantWeight(std::string_view text);

}  // namespace baton::sched
