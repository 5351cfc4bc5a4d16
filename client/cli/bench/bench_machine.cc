// SPDX-License-Identifier: Apache-2.0
// `baton bench machine`: peaks of instructions, bandwidth of caches and memory.
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cli/bench/bench_commands.h"
#include "client/cli/bench/machine.h"
#include "common/model/load.h"

namespace baton::cli {
namespace {

// One line: on one thread, on all.
struct Line {
  std::string name;
  Rate one, all;
};

std::vector<Line> Peaks(uint32_t threads, double seconds) {
  std::vector<Line> lines;
  for (const InstructionPeak& peak : MeasureInstructions(1, seconds)) {
    lines.push_back({peak.instruction, peak.rate, peak.rate});
  }
  if (threads == 1) return lines;
  const std::vector<InstructionPeak> all = MeasureInstructions(threads, seconds);
  for (size_t i = 0; i < all.size(); ++i) lines[i].all = all[i].rate;
  return lines;
}

std::vector<Line> Bandwidths(uint32_t threads, const CacheSizes& caches, double seconds) {
  std::vector<Line> lines;
  for (MemoryLevel level : {MemoryLevel::kL2, MemoryLevel::kL3, MemoryLevel::kMemory}) {
    const Rate one = Reader(level, 1, caches).Measure(seconds);
    const Rate all = threads == 1 ? one : Reader(level, threads, caches).Measure(seconds);
    lines.push_back({std::string(MemoryLevelName(level)), one, all});
  }
  return lines;
}

class BenchMachineCommand final : public Command {
 public:
  explicit BenchMachineCommand(config::CommandLine* line) : Command(line) {
    line->Add("Compute", "threads", &threads_, "0: as many as affinity and cgroup quota allow");
    line->Add("Work", "seconds", &seconds_, "Seconds of each measurement");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
  }

  int Run() override {
    if (!(seconds_ > 0)) return UsageError("--seconds must be above 0");
    const uint32_t threads = threads_ == 0 ? model::UsableThreads() : threads_;
    const CacheSizes caches = ReadCacheSizes();
    const std::vector<Line> peaks = Peaks(threads, seconds_);
    const std::vector<Line> bandwidths = Bandwidths(threads, caches, seconds_);
    const std::string mode =
        threads == 1
            ? "one thread"
            : std::string(MemoryMode(bandwidths.back().one.best, bandwidths.back().all.best));
    json_ ? PrintJson(threads, caches, peaks, bandwidths, mode)
          : PrintText(threads, caches, peaks, bandwidths, mode);
    return kExitOk;
  }

 private:
  static void PrintText(uint32_t threads, const CacheSizes& caches, const std::vector<Line>& peaks,
                        const std::vector<Line>& bandwidths, const std::string& mode) {
    const auto print = [&](const std::vector<Line>& lines, const char* unit) {
      std::cout << absl::StreamFormat("%-18s %10s %10s %10s   %s, best (and median) of 1 ms\n", "",
                                      "1 thread", absl::StrFormat("%u threads", threads),
                                      "(median)", unit);
      for (const Line& line : lines) {
        std::cout << absl::StreamFormat("%-18s %10.1f %10.1f %10.1f\n", line.name,
                                        line.one.best / 1e9, line.all.best / 1e9,
                                        line.all.median / 1e9);
      }
    };
    print(peaks, "GOP/s");
    print(bandwidths, "GB/s read");
    std::cout << absl::StreamFormat("caches: L2 %u KiB, L3 %u KiB; memory: %s\n", caches.l2 >> 10,
                                    caches.l3 >> 10, mode);
  }

  static void PrintJson(uint32_t threads, const CacheSizes& caches, const std::vector<Line>& peaks,
                        const std::vector<Line>& bandwidths, const std::string& mode) {
    using Json = nlohmann::ordered_json;
    const auto rounded = [](double value) { return std::round(value / 1e8) / 10; };
    const auto lines = [&](const std::vector<Line>& of) {
      Json json = Json::object();
      for (const Line& line : of) {
        json[line.name] = {{"one_thread", rounded(line.one.best)},
                           {"all_threads", rounded(line.all.best)},
                           {"all_threads_median", rounded(line.all.median)}};
      }
      return json;
    };
    const Json json = {{"threads", threads},
                       {"l2_bytes", caches.l2},
                       {"l3_bytes", caches.l3},
                       {"gops", lines(peaks)},
                       {"read_gb_per_s", lines(bandwidths)},
                       {"memory_mode", mode}};
    std::cout << json.dump() << std::endl;
  }

  uint32_t threads_ = 0;
  double seconds_ = 0.5;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchMachineCommand(config::CommandLine& bench) {
  return std::make_unique<BenchMachineCommand>(
      bench.Command("machine", "Peaks of instructions, bandwidth of caches and memory."));
}

}  // namespace baton::cli
