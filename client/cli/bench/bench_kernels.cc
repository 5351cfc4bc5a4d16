// SPDX-License-Identifier: Apache-2.0
// `baton bench kernels`: every matrix shape of a model, and its attention, with
// the share of what the machine allows.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/bench/bench_commands.h"
#include "client/cli/bench/kernel_speed.h"
#include "client/cli/bench/machine.h"
#include "client/cli/bench/model_work.h"
#include "client/cli/id_list.h"
#include "client/cli/local_model.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

// Query rows of one call in a prompt, and tokens that they see.
constexpr uint32_t kContext = 2048;

class BenchKernelsCommand final : public Command {
 public:
  explicit BenchKernelsCommand(config::CommandLine* line) : Command(line) {
    model_.Register(*line, "GGUF, safetensors or PyTorch file, its folder, or \"embedded\"");
    compute_.Register(*line);
    line->Add("Work", "rows", &rows_, "Rows of the products: 1,4,96; from 64 on as in a prompt");
    line->Add("Work", "outliers", &outliers_,
              "Share of groups of 32 activations with an outlier (real models: up to 0.19)");
    line->Add("Work", "stream-mib", &stream_mib_,
              "MiB of weights or KV read before the same come again; 0: what no cache holds");
    line->Add("Work", "seconds", &seconds_, "Seconds of each measurement");
    line->Add("Output", "json", &json_, "A JSON object per line instead of text");
  }

  int Run() override {
    const absl::Status status = Measure();
    return status.ok() ? kExitOk : Fail(status);
  }

 private:
  struct Machine {
    uint32_t threads = 1;
    uint64_t beyond_caches = 0;  // bytes that no cache holds
    std::vector<InstructionPeak> peaks;
    std::unique_ptr<Reader> memory;
  };

  absl::Status Measure() {
    BATON_ASSIGN_OR_RETURN(const std::vector<uint32_t> rows, ParseIdList("rows", rows_));
    if (rows.empty() || *std::min_element(rows.begin(), rows.end()) == 0 ||
        *std::max_element(rows.begin(), rows.end()) > 4096) {
      return absl::InvalidArgumentError("--rows must be numbers from 1 to 4096");
    }
    if (!(outliers_ >= 0 && outliers_ <= 1)) {
      return absl::InvalidArgumentError("--outliers must be 0 to 1");
    }
    if (!(seconds_ > 0)) return absl::InvalidArgumentError("--seconds must be above 0");
    BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
    BATON_ASSIGN_OR_RETURN(const model::LoadOptions options, compute_.Options());
    BATON_ASSIGN_OR_RETURN(checkpoint::ModelWeights weights, checkpoint->Weights());
    BATON_RETURN_IF_ERROR(model::ChooseWeights(options.weights, weights));
    BATON_ASSIGN_OR_RETURN(const model::ComputePlan plan,
                           model::PlanCompute(*checkpoint, weights, options));
    Machine machine;
    const uint32_t usable = model::UsableThreads();
    machine.threads = options.threads == 0 ? usable : std::min(usable, options.threads);
    CacheSizes caches = ReadCacheSizes();
    if (stream_mib_ > 0) caches.l3 = (uint64_t{stream_mib_} << 20) / 8;
    machine.beyond_caches = std::min(8 * caches.l3, uint64_t{1} << 30);
    machine.peaks = MeasureInstructions(machine.threads, 2 * seconds_);
    machine.memory = std::make_unique<Reader>(MemoryLevel::kMemory, machine.threads, caches);
    PrintHead(checkpoint->config().name, plan, machine);
    for (const MatrixWork& matrix : ListMatrices(weights, plan)) {
      for (uint32_t count : rows) BenchMatrix(matrix, plan, count, machine);
    }
    BenchAttention(checkpoint->config(), plan, machine);
    return absl::OkStatus();
  }

  void BenchMatrix(const MatrixWork& matrix, const model::ComputePlan& plan, uint32_t rows,
                   const Machine& machine) const {
    const KernelSpeed speed = MeasureMatrix(matrix, plan, rows, outliers_, machine.threads,
                                            machine.beyond_caches, seconds_);
    Print(absl::StrFormat("%s x%u", matrix.name, matrix.count),
          absl::StrFormat("%ux%u", matrix.outputs, matrix.inputs),
          std::string(matrix.format->name()), rows, speed, machine);
  }

  void BenchAttention(const checkpoint::ModelConfig& config, const model::ComputePlan& plan,
                      const Machine& machine) const {
    const uint32_t group = config.heads / config.kv_heads;
    const uint32_t context = std::min(kContext, config.context);
    const std::string shape = absl::StrFormat("head %u, %u tokens", config.head_dim, context);
    const auto bench = [&](const char* name, uint32_t rows, bool from_memory) {
      const KernelSpeed speed = MeasureAttention(plan, rows, context, from_memory, machine.threads,
                                                 machine.beyond_caches, seconds_);
      Print(name, shape, std::string(plan.attention->name()), rows, speed, machine);
    };
    bench("attention, prompt", kernels::kAttentionRows, false);
    bench("attention, decode", std::min(group, kernels::kAttentionRows), true);
  }

  void PrintHead(const std::string& name, const model::ComputePlan& plan,
                 const Machine& machine) const {
    if (json_) return;
    std::cout << absl::StreamFormat("%s: %s, %u threads; peaks of this run, GOP/s:", name,
                                    std::string(plan.backend->name()), machine.threads);
    for (const InstructionPeak& peak : machine.peaks) {
      std::cout << absl::StreamFormat(" %s %.0f;", peak.instruction, peak.rate.best / 1e9);
    }
    // A quiet machine repeats itself: shares of a disturbed peak say nothing.
    const auto disturbed = [](const InstructionPeak& peak) {
      return peak.rate.median < 0.9 * peak.rate.best;
    };
    if (std::any_of(machine.peaks.begin(), machine.peaks.end(), disturbed)) {
      std::cout << " other work disturbs this machine";
    }
    std::cout << absl::StreamFormat("\n%-22s %-18s %-26s %4s %9s %6s %8s %6s\n", "kernel", "shape",
                                    "format", "rows", "GOP/s", "peak", "GB/s", "read");
  }

  // Shares of the instruction's peak and, of what comes from memory, of the read
  // bandwidth, measured right behind the kernel: it changes within minutes.
  void Print(const std::string& name, const std::string& shape, const std::string& format,
             uint32_t rows, const KernelSpeed& speed, const Machine& machine) const {
    const double rate = speed.operations.best, peak = PeakOf(machine.peaks, format);
    const double bytes = rate * speed.bytes_per_operation;
    double bandwidth = 0;
    if (bytes > 0) bandwidth = machine.memory->Measure(seconds_).best;
    if (json_) {
      const auto tenth = [](double value) { return std::round(value / 1e8) / 10; };
      const auto share = [](double part, double whole) {
        return std::round(1000 * part / whole) / 1000;
      };
      nlohmann::ordered_json json = {{"kernel", name},
                                     {"shape", shape},
                                     {"format", format},
                                     {"rows", rows},
                                     {"gops", tenth(rate)}};
      if (peak > 0) json["share_of_peak"] = share(rate, peak);
      if (bytes > 0) {
        json["gb_per_s"] = tenth(bytes);
        json["read_gb_per_s"] = tenth(bandwidth);
        json["share_of_read"] = share(bytes, bandwidth);
      }
      std::cout << json.dump() << std::endl;
      return;
    }
    std::cout << absl::StreamFormat("%-22s %-18s %-26s %4u %9.1f %5.1f%%", name, shape, format,
                                    rows, rate / 1e9, peak > 0 ? 100 * rate / peak : 0.0);
    if (bytes > 0) {
      std::cout << absl::StreamFormat(" %8.1f %5.1f%%", bytes / 1e9, 100 * bytes / bandwidth);
    }
    std::cout << std::endl;
  }

  ModelFlag model_;
  ComputeFlags compute_;
  std::string rows_ = "1,4,96";
  double outliers_ = 0.09, seconds_ = 0.4;
  uint32_t stream_mib_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeBenchKernelsCommand(config::CommandLine& bench) {
  return std::make_unique<BenchKernelsCommand>(bench.Command(
      "kernels", "Every matrix shape of a model, and its attention, beside the machine's peaks."));
}

}  // namespace baton::cli
