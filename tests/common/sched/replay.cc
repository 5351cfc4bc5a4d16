// SPDX-License-Identifier: Apache-2.0
#include "tests/common/sched/replay.h"

#include <algorithm>

namespace baton::sched {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

class Server {
 public:
  Server(std::span<const Arrival> arrivals, Policy& policy, const Worker& worker)
      : arrivals_(arrivals), policy_(policy), worker_(worker), served_(arrivals.size()) {}

  std::vector<Served> Run() {
    while (next_ < arrivals_.size() || !jobs_.empty()) {
      if (jobs_.empty()) now_ = std::max(now_, kStart + arrivals_[next_].at);
      Admit();
      Refuse();
      if (!jobs_.empty()) Step();
    }
    return std::move(served_);
  }

 private:
  void Admit() {
    for (; next_ < arrivals_.size() && kStart + arrivals_[next_].at <= now_; ++next_) {
      const Arrival& arrival = arrivals_[next_];
      Job job;
      job.arrival = next_;
      job.since = kStart + arrival.at;
      job.tokens = arrival.tokens;
      job.deadline = job.since + arrival.deadline;
      job.priority = arrival.priority;
      job.tenant = arrival.tenant;
      jobs_.push_back(job);
      policy_.Join(job.tenant);
    }
    for (Job& job : jobs_) {
      job.work = worker_.costs.Prompt(arrivals_[job.arrival].tokens - job.tokens, job.tokens,
                                      worker_.limits.chunk_tokens);
    }
  }

  void Refuse() {
    std::vector<Job> waiting;
    absl::Duration begun;
    for (const Job& job : jobs_) {
      if (job.tokens == arrivals_[job.arrival].tokens) {
        waiting.push_back(job);
      } else {
        begun += job.work;
      }
    }
    for (const Refusal& refusal : policy_.Infeasible(waiting, begun, now_)) {
      const uint64_t arrival = waiting[refusal.job].arrival;
      served_[arrival].refused = true;
      for (Job& job : jobs_) {
        if (job.arrival == arrival) job.tokens = 0;
      }
    }
    DropDone();
  }

  void Step() {
    std::vector<uint32_t> remaining;
    for (const Job& job : jobs_) remaining.push_back(job.tokens);
    StepShape shape;
    const auto chunks = PlanChunks(remaining, policy_.Order(jobs_, now_), 0, worker_.limits);
    for (const Chunk& chunk : chunks) {
      Job& job = jobs_[chunk.prompt];
      const uint32_t whole = arrivals_[job.arrival].tokens;
      if (job.tokens == whole) served_[job.arrival].start = now_ - kStart;
      StepShape own;
      own.AddChunk(whole - job.tokens, chunk.tokens);
      shape.AddChunk(whole - job.tokens, chunk.tokens);
      policy_.Charge(job.tenant, {.compute = worker_.costs.Step(own)});
      job.tokens -= chunk.tokens;
    }
    now_ += worker_.costs.Step(shape);
    DropDone();
  }

  void DropDone() {
    for (const Job& job : jobs_) {
      if (job.tokens > 0) continue;
      served_[job.arrival].end = now_ - kStart;
      policy_.Leave(job.tenant);
    }
    std::erase_if(jobs_, [](const Job& job) { return job.tokens == 0; });
  }

  const std::span<const Arrival> arrivals_;
  Policy& policy_;
  const Worker& worker_;
  std::vector<Served> served_;
  std::vector<Job> jobs_;
  size_t next_ = 0;
  absl::Time now_ = kStart;
};

}  // namespace

std::vector<Served> Replay(std::span<const Arrival> arrivals, Policy& policy,
                           const Worker& worker) {
  return Server(arrivals, policy, worker).Run();
}

absl::Duration WorkAlone(uint32_t tokens, const Worker& worker) {
  return worker.costs.Prompt(0, tokens, worker.limits.chunk_tokens);
}

}  // namespace baton::sched
