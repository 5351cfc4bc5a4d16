// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "common/sched/policies.h"
#include "tests/common/sched/replay.h"

namespace baton::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(2000);
const Worker kWorker{{.chunk_tokens = 64, .max_step_tokens = 128}, {.prompt_token = 1e-3}};

std::unique_ptr<Policy> Make(const std::string& name, absl::Duration aging = absl::Seconds(15),
                             std::map<std::string, double, std::less<>> weights = {}) {
  auto policy = MakePolicy({.name = name, .aging = aging, .tenant_weights = std::move(weights)});
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

// `tokens` that take a millisecond each, submitted `waited` ago.
Job Waiting(uint64_t arrival, uint32_t tokens, absl::Duration waited = absl::ZeroDuration()) {
  Job job;
  job.arrival = arrival;
  job.since = kNow - waited;
  job.tokens = tokens;
  job.work = absl::Milliseconds(tokens);
  return job;
}

std::vector<Arrival> RandomArrivals(uint32_t seed, size_t count, double utilization) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> length(4.5, 1.2);
  std::exponential_distribution<double> gap(1);
  std::vector<Arrival> arrivals(count);
  double work = 0;
  for (Arrival& arrival : arrivals) {
    arrival.tokens = 1 + static_cast<uint32_t>(std::min(length(random), 5000.0));
    work += absl::ToDoubleSeconds(WorkAlone(arrival.tokens, kWorker));
  }
  double at = 0;
  for (Arrival& arrival : arrivals) {
    at += gap(random) * work / static_cast<double>(count) / utilization;
    arrival.at = absl::Seconds(at);
    arrival.priority = static_cast<int32_t>(random() % 9) - 4;
    arrival.tenant = std::string(1, static_cast<char>('a' + random() % 4));
  }
  return arrivals;
}

// --- All policies ---

TEST(EveryPolicy, IsMadeByNameAndBadOptionsAreNamed) {
  for (const std::string& name : PolicyNames()) EXPECT_EQ(Make(name)->name(), name);
  const auto message = [](const PolicyOptions& options) {
    return std::string(MakePolicy(options).status().message());
  };
  EXPECT_THAT(message({.name = "lifo"}), HasSubstr("\"lifo\"; it must be one of fcfs, srw"));
  EXPECT_THAT(message({.aging = absl::ZeroDuration()}), HasSubstr("aging is 0"));
  EXPECT_THAT(message({.tenant_weights = {{"a", 0}}}), HasSubstr("tenant \"a\" is 0"));
  EXPECT_EQ(ParseTenantWeight("a=b=2.5").value(), std::pair(std::string("a=b"), 2.5));
  for (const char* bad : {"a", "a=", "a=x", "a=-1", "a=nan", "a=1e9"}) {
    EXPECT_FALSE(ParseTenantWeight(bad).ok()) << bad;
  }
}

TEST(EveryPolicy, LeavesNobodyOutAndDependsOnNothingButItsArguments) {
  std::mt19937 random(3);
  for (const std::string& name : PolicyNames()) {
    const auto policy = Make(name, absl::Seconds(2));
    for (int round = 0; round < 200; ++round) {
      std::vector<Job> jobs(random() % 40);
      for (size_t i = 0; i < jobs.size(); ++i) {
        jobs[i] = Waiting(i, 1 + random() % 500, absl::Milliseconds(random() % 5000));
        jobs[i].priority = static_cast<int32_t>(random() % 9) - 4;
        jobs[i].tenant = random() % 2 == 0 ? "x" : "y";
        if (random() % 2 == 0) jobs[i].deadline = kNow + absl::Milliseconds(random() % 5000);
      }
      const auto order = policy->Order(jobs, kNow);
      EXPECT_EQ(order, policy->Order(jobs, kNow));
      auto sorted = order;
      std::sort(sorted.begin(), sorted.end());
      std::vector<uint32_t> all(jobs.size());
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(sorted, all) << name;
    }
  }
}

TEST(EveryPolicy, EqualJobsAreServedInOrderOfArrival) {
  std::vector<Job> jobs;
  for (const uint64_t arrival : {5, 3, 9, 1}) jobs.push_back(Waiting(arrival, 64));
  for (const std::string& name : PolicyNames()) {
    EXPECT_THAT(Make(name)->Order(jobs, kNow), ElementsAre(3, 1, 0, 2)) << name;
  }
}

// Work conserving: whatever the order, the work is done at the same time; and
// with load below 1 everybody is served.
TEST(EveryPolicy, IsBusyWhenTheOthersAre) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const auto arrivals = RandomArrivals(seed, 400, 0.9);
    std::vector<absl::Duration> ends;
    for (const std::string& name : PolicyNames()) {
      absl::Duration last;
      for (const Served& served : Replay(arrivals, *Make(name), kWorker)) {
        EXPECT_FALSE(served.refused);
        last = std::max(last, served.end);
      }
      ends.push_back(last);
    }
    for (const absl::Duration end : ends) EXPECT_EQ(end, ends[0]);
  }
}

// --- Shortest remaining work ---

TEST(ShortestWork, ShortestFirst) {
  const std::vector<Job> jobs = {Waiting(1, 500), Waiting(5, 10), Waiting(3, 100)};
  EXPECT_THAT(Make("srw")->Order(jobs, kNow), ElementsAre(1, 2, 0));
}

TEST(ShortestWork, JobFallsDueAfterTwelveTimesItsWorkOrTheAging) {
  const auto srw = Make("srw", absl::Seconds(3));
  // 100 tokens fall due 1,200 ms after they came, 5,000 after the 3 s of ageing.
  const Job medium = Waiting(1, 100, absl::Milliseconds(1080));
  const Job large = Waiting(2, 5000, absl::Milliseconds(2991));
  const auto first = [&](const Job& other) {
    const std::vector<Job> jobs = {medium, large, other};
    return srw->Order(jobs, kNow);
  };
  EXPECT_THAT(first(Waiting(3, 1)), ElementsAre(1, 2, 0));
  EXPECT_THAT(first(Waiting(3, 10)), ElementsAre(1, 0, 2));
}

// Beyond 600 tokens it grows by their square root alone.
TEST(ShortestWork, PatienceWithLongJobsGrowsMoreSlowlyThanTheirWork) {
  const absl::Duration never = absl::InfiniteDuration();
  EXPECT_EQ(Patience(Waiting(1, 600), never), 12 * absl::Milliseconds(600));
  EXPECT_EQ(Patience(Waiting(1, 2400), never), 6 * absl::Milliseconds(2400));
}

// The bound of policies.h, exactly, on random loads: nobody starts later than
// one that came by its patience later would under fcfs.
TEST(ShortestWork, NobodyWaitsBeyondItsBound) {
  const absl::Duration aging = absl::Seconds(6);
  const absl::Duration step = kWorker.costs.Prompt(0, kWorker.limits.chunk_tokens, 64);
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const auto arrivals = RandomArrivals(seed, 500, seed % 2 == 0 ? 0.9 : 1.3);
    const auto served = Replay(arrivals, *Make("srw", aging), kWorker);
    for (size_t i = 0; i < arrivals.size(); ++i) {
      Job job = Waiting(i, arrivals[i].tokens);
      job.work = WorkAlone(job.tokens, kWorker);
      const absl::Duration patience = Patience(job, aging);
      const absl::Duration virtually = arrivals[i].at + patience;
      absl::Duration ahead;  // when all that came before is done
      for (const Arrival& other : arrivals) {
        if (other.at > virtually) break;
        if (&other == &arrivals[i]) continue;
        ahead = std::max(ahead, other.at) + WorkAlone(other.tokens, kWorker);
      }
      // Fill the rest of a step, less than a block, that those before cannot use.
      for (size_t k = 0; k < arrivals.size(); ++k) {
        if (arrivals[k].at <= virtually || served[k].start >= served[i].start) continue;
        EXPECT_LT(arrivals[k].tokens, 32u);
        ahead += WorkAlone(arrivals[k].tokens, kWorker);
      }
      ASSERT_LE(served[i].start, std::max(ahead, virtually) + step) << "seed " << seed;
    }
  }
}

// Short prompts at twice the capacity for a minute, and one long one among
// them: it starts within the documented bound, and ends soon after.
TEST(ShortestWork, LongPromptIsNotStarvedByAStreamOfShortOnes) {
  std::vector<Arrival> arrivals;
  for (int ms = 0; ms < 60000; ms += 5) {
    arrivals.push_back({.at = absl::Milliseconds(ms), .tokens = ms == 1000 ? 1500u : 10u});
  }
  const auto served = Replay(arrivals, *Make("srw", absl::Seconds(2)), kWorker);
  // Due at 3 s; by then 6 s of work have come.
  EXPECT_LE(served[200].start, absl::Milliseconds(6100));
  EXPECT_LE(served[200].end - served[200].start, absl::Milliseconds(1600));
}

// A prompt in progress does not keep the worker from a short one.
TEST(ShortestWork, ShortPromptIsNotHeldUpByALongOneInProgress) {
  std::vector<Arrival> arrivals = {{.at = absl::ZeroDuration(), .tokens = 8000},
                                   {.at = absl::Seconds(1), .tokens = 20}};
  const auto served = Replay(arrivals, *Make("srw"), kWorker);
  EXPECT_LE(served[1].end, absl::Milliseconds(1000 + 2 * 64));
}

TEST(ShortestWork, LowersTheMeanWaitOfMixedLengths) {
  const auto mean = [](const std::string& name) {
    absl::Duration sum;
    const auto arrivals = RandomArrivals(7, 2000, 0.85);
    const auto served = Replay(arrivals, *Make(name), kWorker);
    for (size_t i = 0; i < arrivals.size(); ++i) sum += served[i].end - arrivals[i].at;
    return sum;
  };
  EXPECT_LT(mean("srw") * 1.5, mean("fcfs"));
}

// --- Deadlines ---

TEST(DeadlineFirst, EarliestGoesFirstAndNoneIsDueAtItsAging) {
  std::vector<Job> jobs = {Waiting(1, 10), Waiting(2, 10), Waiting(3, 10, absl::Seconds(9)),
                           Waiting(4, 10)};
  jobs[0].deadline = kNow + absl::Seconds(5);
  jobs[1].deadline = kNow + absl::Seconds(2);
  jobs[3].deadline = kNow + absl::Hours(1);  // counts as 10 s
  const auto policy = Make("deadline", absl::Seconds(10));
  EXPECT_THAT(policy->Order(jobs, kNow), ElementsAre(2, 1, 0, 3));
}

TEST(DeadlineFirst, RefusesWhatCannotBeDoneInTimeWithTheNumbers) {
  std::vector<Job> jobs = {Waiting(1, 400), Waiting(2, 300), Waiting(3, 200), Waiting(4, 900)};
  jobs[0].deadline = kNow + absl::Milliseconds(500);
  jobs[1].deadline = kNow + absl::Milliseconds(600);  // 100 + 400 + 300
  jobs[2].deadline = kNow + absl::Milliseconds(700);  // 100 + 400 + 200: just so
  jobs[3].deadline = kNow + absl::Milliseconds(899);  // never
  const auto refusals = Make("deadline")->Infeasible(jobs, absl::Milliseconds(100), kNow);
  ASSERT_EQ(refusals.size(), 2u);
  EXPECT_EQ(refusals[0].job, 1u);
  EXPECT_EQ(refusals[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(std::string(refusals[0].status.message()),
            "the deadline is in 600ms; the prompt needs 300ms and 500ms of other work comes first");
  EXPECT_EQ(refusals[1].job, 3u);
}

// At twice the capacity: what is begun ends in time, but for the rest of a
// step, and the worker does nothing for those that do not.
TEST(DeadlineFirst, GoodputStaysNearCapacityInABurst) {
  std::vector<Arrival> arrivals;
  for (int second = 0; second < 60; ++second) {
    arrivals.push_back({.at = absl::Seconds(second), .tokens = 1990, .deadline = absl::Seconds(3)});
  }
  size_t in_time = 0, refused = 0;
  const auto served = Replay(arrivals, *Make("deadline"), kWorker);
  for (size_t i = 0; i < arrivals.size(); ++i) {
    refused += served[i].refused ? 1 : 0;
    in_time +=
        !served[i].refused && served[i].end - arrivals[i].at <= absl::Milliseconds(3064) ? 1 : 0;
  }
  EXPECT_EQ(in_time + refused, arrivals.size()) << "work was done in vain";
  EXPECT_GE(in_time, 29u);  // of the 30 that fit
}

TEST(DeadlineFirst, JobWithoutDeadlineIsNotStarved) {
  std::vector<Arrival> arrivals = {{.at = absl::ZeroDuration(), .tokens = 64}};
  for (int ms = 0; ms < 30000; ms += 10) {
    arrivals.push_back(
        {.at = absl::Milliseconds(ms), .tokens = 10, .deadline = absl::Milliseconds(500)});
  }
  const auto served = Replay(arrivals, *Make("deadline", absl::Seconds(4)), kWorker);
  EXPECT_LE(served[0].start, absl::Milliseconds(4100));
}

// --- Priorities ---

TEST(PriorityClasses, HighestFirstAndOneClassUpForEachAging) {
  std::vector<Job> jobs = {Waiting(3, 10), Waiting(2, 10, absl::Seconds(4)),
                           Waiting(1, 10, absl::Seconds(5)), Waiting(4, 10)};
  jobs[0].priority = 1;
  jobs[1].priority = -1;
  jobs[2].priority = -1;
  jobs[3].priority = 4;
  const auto policy = Make("priority", absl::Seconds(5));
  EXPECT_THAT(policy->Order(jobs, kNow), ElementsAre(3, 0, 2, 1));
}

TEST(PriorityClasses, LowestClassIsServedAfterItsAgingAtTheLatest) {
  std::vector<Arrival> arrivals = {
      {.at = absl::ZeroDuration(), .tokens = 64, .priority = kLowestPriority},
      {.at = absl::ZeroDuration(), .tokens = 64, .priority = kHighestPriority}};
  for (int ms = 0; ms < 30000; ms += 64) {  // the capacity: one of them always waits
    arrivals.push_back({.at = absl::Milliseconds(ms), .tokens = 64, .priority = kHighestPriority});
  }
  const auto served = Replay(arrivals, *Make("priority", absl::Seconds(1)), kWorker);
  EXPECT_GE(served[0].start, absl::Seconds(7));
  EXPECT_LE(served[0].start, absl::Milliseconds(8100));
}

// --- Fairness among tenants ---

// Served tokens of each tenant until `until`, of jobs that all wait from 0 on.
std::map<std::string, uint32_t> Shares(Policy& policy, const std::map<std::string, uint32_t>& sizes,
                                       absl::Duration until) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 400; ++i) {
    for (const auto& [tenant, tokens] : sizes) {
      arrivals.push_back({.at = absl::ZeroDuration(), .tokens = tokens, .tenant = tenant});
    }
  }
  const auto served = Replay(arrivals, policy, kWorker);
  std::map<std::string, uint32_t> shares;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    if (served[i].end <= until) shares[arrivals[i].tenant] += arrivals[i].tokens;
  }
  return shares;
}

TEST(FairShares, BackloggedTenantsGetTheirWeightsWhateverTheirLengths) {
  const auto fair = Make("fair", absl::Seconds(15), {{"gold", 3}});
  const auto shares = Shares(*fair, {{"gold", 64}, {"long", 640}, {"short", 16}},
                             absl::Seconds(10));  // 10,000 tokens
  EXPECT_NEAR(shares.at("gold"), 6000, 700);
  EXPECT_NEAR(shares.at("long"), 2000, 700);
  EXPECT_NEAR(shares.at("short"), 2000, 700);
}

TEST(FairShares, ATenantsFloodDelaysNobodyElse) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 500; ++i) {
    arrivals.push_back({.at = absl::ZeroDuration(), .tokens = 100, .tenant = "flood"});
  }
  for (int second = 1; second < 20; ++second) {
    arrivals.push_back({.at = absl::Seconds(second), .tokens = 100, .tenant = "calm"});
  }
  const auto served = Replay(arrivals, *Make("fair"), kWorker);
  for (size_t i = 500; i < arrivals.size(); ++i) {
    EXPECT_LE(served[i].end - arrivals[i].at, absl::Milliseconds(400));
  }
}

TEST(FairShares, WhoWasAwayHasSavedNothingUp) {
  const auto fair = Make("fair");
  fair->Join("a");
  fair->Charge("a", {.compute = absl::Seconds(100)});
  fair->Join("b");  // starts level with a
  fair->Charge("b", {.compute = absl::Seconds(1)});
  std::vector<Job> jobs = {Waiting(2, 10), Waiting(1, 10)};
  jobs[0].tenant = "a";
  jobs[1].tenant = "b";
  EXPECT_THAT(fair->Order(jobs, kNow), ElementsAre(0, 1));
}

TEST(FairShares, BlocksHeldCountLikePromptsComputed) {
  const auto fair = Make("fair");
  fair->Join("long answers");
  fair->Join("long prompts");
  fair->Charge("long answers", {.pool_seconds = 3});
  fair->Charge("long prompts", {.compute = absl::Seconds(2)});
  std::vector<Job> jobs = {Waiting(1, 10), Waiting(2, 10)};
  jobs[0].tenant = "long answers";
  jobs[1].tenant = "long prompts";
  EXPECT_THAT(fair->Order(jobs, kNow), ElementsAre(1, 0));
}

// Names of tenants come from clients.
TEST(FairShares, InventedTenantsAreForgotten) {
  const auto fair = Make("fair");
  for (int i = 0; i < 20000; ++i) {
    const std::string tenant = std::to_string(i);
    fair->Join(tenant);
    fair->Charge(tenant, {.compute = absl::Seconds(i)});
    fair->Leave(tenant);
  }
  std::vector<Job> jobs = {Waiting(1, 10), Waiting(2, 10)};
  jobs[0].tenant = "new";
  jobs[1].tenant = "19999";
  EXPECT_THAT(fair->Order(jobs, kNow), ElementsAre(0, 1));
}

}  // namespace
}  // namespace baton::sched
