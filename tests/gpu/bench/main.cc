// SPDX-License-Identifier: Apache-2.0
// gpu_bench [tiny-]kernels DEVICE OUT, or gpu_bench [tiny-][library-]model DEVICE OUT
// FILE: figures of a GPU, one JSON object per line. tests/gpu/measure.py calls it.
#include <cstdio>
#include <string>
#include <utility>

#include "tests/gpu/bench/kernel_bench.h"
#include "tests/gpu/bench/model_bench.h"

namespace baton::gpu_bench {
namespace {

constexpr int kFailed = 1, kUsage = 2;

int Problem(const absl::Status& status) {
  std::fprintf(stderr, "gpu_bench: %s\n", status.ToString().c_str());
  return kFailed;
}

int RunKernels(bool tiny, const model::gpu::DeviceName& name, Records& records) {
  const auto device = model::gpu::Device::Open(name);
  if (!device.ok()) return Problem(device.status());
  (*device)->table().bind_thread();
  const model::gpu::dev::DeviceFacts& facts = (*device)->facts();
  records.Write({{"kind", "device"},
                 {"name", facts.name},
                 {"architecture", facts.architecture},
                 {"total_bytes", facts.total_bytes}});
  TimerOptions timer;
  if (tiny) timer = {.runs_of_graph = 1, .least_seconds = 0, .rounds = 1};
  KernelBench bench(**device, tiny ? TinyShapes() : ChatGlm2Shapes(), timer, records);
  return bench.Run() ? 0 : kFailed;
}

int RunModel(const std::string& what, model::gpu::DeviceName name, const std::string& path,
             Records& records) {
  ModelBenchOptions options{path, std::move(name), {128, 512, 2048}, {1, 2, 4, 8, 16, 32, 64}};
  if (what.starts_with("tiny-")) {
    options.prompts = {40};
    options.batches = {1, 3};
    options.context = 20;
    options.steps = 2;
  }
  if (what.ends_with("library-model")) {  // decoding is the same
    options.deterministic = false;
    options.batches.clear();
  }
  const absl::Status status = BenchModel(options, records);
  return status.ok() ? 0 : Problem(status);
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const bool kernels = what.ends_with("kernels"), model = what.ends_with("model");
  if (argc != (model ? 5 : 4) || !(kernels || model)) {
    std::fputs(
        "usage: gpu_bench [tiny-]kernels DEVICE OUT | [tiny-][library-]model DEVICE OUT FILE\n",
        stderr);
    return kUsage;
  }
  const auto name = model::gpu::ParseDevice(argv[2]);
  if (!name.ok()) return Problem(name.status());
  Records records(argv[3]);
  if (!records.ok()) return Problem(absl::NotFoundError(std::string("cannot write ") + argv[3]));
  return kernels ? RunKernels(what.starts_with("tiny-"), *name, records)
                 : RunModel(what, *name, argv[4], records);
}

}  // namespace
}  // namespace baton::gpu_bench

int main(int argc, char** argv) { return baton::gpu_bench::Main(argc, argv); }
