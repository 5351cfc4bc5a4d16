// SPDX-License-Identifier: Apache-2.0
// First-token times of a serving trace under two policies, in virtual time:
// the policies, the planner and the costs of the service, with a prefill worker
// that computes nothing.
//
//   policy_replay_bench TRACE.csv [--policy srw] [--utilization 0.85] ...
//
// Prompt lengths are the trace's, scaled so that its longest prompt and answer
// fill the context; arrivals are Poisson (or, --arrivals trace, the trace's own
// gaps) at the rate that keeps the worker busy for --utilization of the time.
// Ends with 1 when a bar is missed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/config/command_line.h"
#include "common/sched/policies.h"
#include "tests/common/sched/replay.h"

namespace baton::sched {
namespace {

struct Flags {
  std::string trace;
  std::string policy = "srw";
  std::string arrivals = "poisson";
  uint32_t context = 8192;
  double utilization = 0.85;
  uint32_t requests = 5000;
  uint32_t seeds = 5, first_seed = 1;
  uint32_t chunk_tokens = 512;
  absl::Duration aging = PolicyOptions().aging;
  // SmolLM2-135M-Instruct Q4_1: see docs/performance.md.
  double step_us = 2800, token_us = 220, attended_ns = 97;
  double least_gain = 1.5, most_p99 = 1.3;
};

struct Row {
  double at = 0;  // seconds, of the day
  uint32_t prompt = 0, answer = 0;
};

double SecondsOfDay(const std::string& stamp) {
  int hour = 0, minute = 0;
  double second = 0;
  if (std::sscanf(stamp.c_str(), "%*d-%*d-%*d %d:%d:%lf", &hour, &minute, &second) != 3) return -1;
  return 3600.0 * hour + 60.0 * minute + second;
}

// Columns TIMESTAMP, ContextTokens, GeneratedTokens.
std::vector<Row> ReadTrace(const Flags& flags) {
  std::ifstream file(flags.trace);
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    Row row;
    if (cells.size() != 3 || !absl::SimpleAtoi(cells[1], &row.prompt)) continue;  // the header
    absl::SimpleAtoi(cells[2], &row.answer);
    row.at = SecondsOfDay(cells[0]);
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.at < b.at; });
  uint32_t longest = 1;
  for (const Row& row : rows) longest = std::max(longest, row.prompt + row.answer);
  const double scale = static_cast<double>(flags.context) / longest;
  for (Row& row : rows) {
    row.prompt = std::max(1u, static_cast<uint32_t>(std::lround(row.prompt * scale)));
  }
  return rows;
}

// A stretch of the trace that starts anywhere; Poisson arrivals forget it.
std::vector<Arrival> Draw(const std::vector<Row>& rows, const Flags& flags, const Worker& worker,
                          uint32_t seed) {
  std::mt19937 random(seed);
  const size_t first = random() % (rows.size() - flags.requests);
  std::vector<Arrival> arrivals(flags.requests);
  std::vector<double> gaps(flags.requests);
  double work = 0, time = 0;
  for (size_t i = 0; i < flags.requests; ++i) {
    const Row& row = rows[flags.arrivals == "poisson" ? random() % rows.size() : first + i];
    arrivals[i].tokens = row.prompt;
    work += absl::ToDoubleSeconds(WorkAlone(row.prompt, worker));
    gaps[i] = flags.arrivals == "poisson" ? std::exponential_distribution<double>(1)(random)
                                          : rows[first + i + 1].at - rows[first + i].at;
    time += gaps[i];
  }
  double at = 0;
  for (size_t i = 0; i < flags.requests; ++i) {
    at += gaps[i] * work / time / flags.utilization;
    arrivals[i].at = absl::Seconds(at);
  }
  return arrivals;
}

struct Figures {
  double mean = 0, p50 = 0, p99 = 0, worst = 0;
};

Figures Measure(const std::vector<Arrival>& arrivals, const std::vector<Served>& served) {
  std::vector<double> times;
  Figures figures;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    times.push_back(absl::ToDoubleSeconds(served[i].end - arrivals[i].at));
    figures.mean += times.back() / static_cast<double>(arrivals.size());
  }
  std::sort(times.begin(), times.end());
  figures.p50 = times[times.size() / 2];
  figures.p99 = times[times.size() * 99 / 100];
  figures.worst = times.back();
  return figures;
}

// Requests that started later than their bound (policies.h): when everything
// that came before they fell due would be done under fcfs, and a step.
size_t BeyondBound(const std::vector<Arrival>& arrivals, const std::vector<Served>& served,
                   const std::vector<Served>& fcfs, const Worker& worker, const Flags& flags) {
  StepShape longest;
  longest.AddChunk(flags.context, worker.limits.chunk_tokens);
  std::vector<absl::Duration> done;  // of the first requests; short ones may end before others
  for (const Served& each : fcfs) {
    done.push_back(done.empty() ? each.end : std::max(done.back(), each.end));
  }
  size_t beyond = 0;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    Job job;
    job.tokens = arrivals[i].tokens;
    job.work = WorkAlone(job.tokens, worker);
    const absl::Duration patience = Patience(job, flags.aging);
    const absl::Duration due = arrivals[i].at + patience;
    const auto before = std::upper_bound(
        arrivals.begin(), arrivals.end(), due,
        [](absl::Duration time, const Arrival& arrival) { return time < arrival.at; });
    const absl::Duration ahead = done[static_cast<size_t>(before - arrivals.begin()) - 1];
    if (served[i].start > std::max(due, ahead) + worker.costs.Step(longest)) ++beyond;
  }
  return beyond;
}

int Run(const Flags& flags) {
  const std::vector<Row> rows = ReadTrace(flags);
  if (rows.size() <= flags.requests) {
    std::fprintf(stderr, "%s has %zu requests; %u are needed\n", flags.trace.c_str(), rows.size(),
                 flags.requests + 1);
    return 2;
  }
  const Worker worker{{flags.chunk_tokens, flags.chunk_tokens},
                      {.prompt_step = flags.step_us * 1e-6,
                       .prompt_token = flags.token_us * 1e-6,
                       .prompt_attended = flags.attended_ns * 1e-9}};
  bool met = true;
  std::printf(
      "seed  fcfs mean   p50   p99   max | %s mean   p50   p99   max | mean better, p99, "
      "beyond bound\n",
      flags.policy.c_str());
  for (uint32_t run = 0; run < flags.seeds; ++run) {
    const uint32_t seed = flags.first_seed + run;
    const auto arrivals = Draw(rows, flags, worker, seed);
    const auto first = Replay(arrivals, **MakePolicy({.name = "fcfs"}), worker);
    const auto second =
        Replay(arrivals, **MakePolicy({.name = flags.policy, .aging = flags.aging}), worker);
    const Figures fcfs = Measure(arrivals, first), other = Measure(arrivals, second);
    const size_t beyond = BeyondBound(arrivals, second, first, worker, flags);
    const double gain = fcfs.mean / other.mean, tail = other.p99 / fcfs.p99;
    met = met && gain >= flags.least_gain && tail <= flags.most_p99 && beyond == 0;
    std::printf("%4u  %9.2f %5.2f %5.1f %5.1f | %8.2f %5.2f %5.1f %5.1f | %.2fx, %.2fx, %zu\n",
                seed, fcfs.mean, fcfs.p50, fcfs.p99, fcfs.worst, other.mean, other.p50, other.p99,
                other.worst, gain, tail, beyond);
  }
  std::printf("%s: mean at least %.2fx better, p99 at most %.2fx, nobody beyond the bound\n",
              met ? "met" : "MISSED", flags.least_gain, flags.most_p99);
  return met ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  config::CommandLine line("policy_replay_bench", "A serving trace under two policies.");
  line.Add("Replay", "trace", &flags.trace, "CSV file: TIMESTAMP,ContextTokens,GeneratedTokens");
  line.AddChoice("Replay", "policy", &flags.policy, PolicyNames(), "Compared with fcfs");
  line.AddChoice("Replay", "arrivals", &flags.arrivals, {"poisson", "trace"}, "Gaps of requests");
  line.Add("Replay", "context", &flags.context, "The trace's longest request is scaled to this");
  line.Add("Replay", "utilization", &flags.utilization, "Share of the time that work takes");
  line.Add("Replay", "requests", &flags.requests, "Of each run");
  line.Add("Replay", "seeds", &flags.seeds, "Runs");
  line.Add("Replay", "first-seed", &flags.first_seed, "Of the first run; the next has the next");
  line.Add("Replay", "aging", &flags.aging, "As --aging of the worker");
  line.Add("Costs", "chunk-tokens", &flags.chunk_tokens, "Prompt tokens per step");
  line.Add("Costs", "step-us", &flags.step_us, "Of a step");
  line.Add("Costs", "token-us", &flags.token_us, "Of a prompt token");
  line.Add("Costs", "attended-ns", &flags.attended_ns, "Of a position it attends to");
  line.Add("Bars", "least-gain", &flags.least_gain, "Of the mean");
  line.Add("Bars", "most-p99", &flags.most_p99, "Of the 99th percentile");
  if (const std::optional<int> code = line.Parse(argc, argv)) return *code;
  return Run(flags);
}

}  // namespace
}  // namespace baton::sched

int main(int argc, char** argv) { return baton::sched::Main(argc, argv); }
