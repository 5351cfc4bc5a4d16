// SPDX-License-Identifier: Apache-2.0
// Speed of every linear and attention format of one thread, beside the peak of
// the instructions it is made of, measured in the same run. Each figure is the
// best of many short windows: other work on the machine slows, never speeds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <set>
#include <string>

#include "tests/kernels/kernel_inputs.h"

namespace baton::kernels {
namespace {

double BestSeconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (const auto end = Clock::now() + std::chrono::milliseconds(250); Clock::now() < end;) {
    const auto start = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

// Twelve instructions that do not wait for each other, into named registers:
// the compiler would keep copies of its own. The sources are zero, since only
// the rate matters.
#define BATON_TWELVE(op, set)                                                          \
  op set "0\n" op set "1\n" op set "2\n" op set "3\n" op set "4\n" op set "5\n" op set \
         "6\n" op set "7\n" op set "8\n" op set "9\n" op set "10\n" op set "11\n"
#define BATON_RUN(count, op, set)                                                                \
  do {                                                                                           \
    asm volatile("vpxor %%xmm15, %%xmm15, %%xmm15" ::: "xmm15");                                 \
    for (int i = 0; i < (count); ++i) {                                                          \
      asm volatile(BATON_TWELVE(op " " set "15, " set "15, ", set)::                             \
                       : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                         "xmm9", "xmm10", "xmm11", "xmm15");                                     \
    }                                                                                            \
  } while (false)

struct Peaks {
  double f32 = 0, bf16 = 0, s8 = 0;  // operations per second
};

// Of the instructions that a backend is made of; those of the widest for the
// backends that have none of their own.
Peaks MeasurePeaks(std::string_view backend) {
  constexpr int kCount = 20000;
  constexpr double kLanes = 12.0 * 2 * kCount;  // operations per 32-bit lane and product in it
  Peaks peaks;
  if (backend == "avx2") {
    peaks.f32 = 8 * kLanes / BestSeconds([] { BATON_RUN(kCount, "vfmadd231ps", "%%ymm"); });
    peaks.bf16 = peaks.f32;  // widened
    peaks.s8 = 32 * kLanes / BestSeconds([] { BATON_RUN(kCount, "vpmaddubsw", "%%ymm"); });
    return peaks;
  }
  if (__builtin_cpu_supports("avx512f") == 0) return peaks;
  peaks.f32 = 16 * kLanes / BestSeconds([] { BATON_RUN(kCount, "vfmadd231ps", "%%zmm"); });
  peaks.bf16 = backend == "avx512vnni" ? peaks.f32 : 2 * peaks.f32;
  if (__builtin_cpu_supports("avx512vnni") != 0) {
    peaks.s8 = 64 * kLanes / BestSeconds([] { BATON_RUN(kCount, "vpdpbusd", "%%zmm"); });
  }
  return peaks;
}

double PeakOf(std::string_view format, const Peaks& peaks) {
  if (format.find("a8") != std::string_view::npos) return peaks.s8;
  return format.find("bf16") != std::string_view::npos ? peaks.bf16 : peaks.f32;
}

void Report(std::string_view name, const std::string& shape, double operations, double seconds,
            double peak) {
  std::printf("%-34s %-28s %8.1f Gop/s %5.1f %%\n", std::string(name).c_str(), shape.c_str(),
              operations / seconds / 1e9, peak > 0 ? 100 * operations / seconds / peak : 0.0);
}

void BenchLinear(const LinearFormat& format, WeightType type, uint32_t outputs, uint32_t inputs,
                 uint32_t rows, const Peaks& peaks) {
  const StoredMatrix matrix = RandomMatrix(type, outputs, inputs, 1);
  const size_t panel_bytes = format.PanelBytes(inputs);
  AlignedBytes panels(panel_bytes * PanelCount(outputs));
  for (uint32_t p = 0; p < PanelCount(outputs); ++p) {
    format.PackPanel(matrix.Panel(p), panels.data() + p * panel_bytes);
  }
  const RowTiles tiles(rows);
  const ActivationFormat& activation = format.activation();
  const size_t tile_bytes = activation.TileBytes(inputs);
  AlignedBytes packed(tile_bytes * tiles.count());
  const uint32_t padded = activation.PaddedInputs(inputs);
  const auto x = RandomFloats(padded, 2);
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t tile = ((row + 1) * tiles.count() - 1) / rows;
    for (uint32_t g = 0; g < padded / kGroup; ++g) {
      activation.PackGroup(&x[g * kGroup], packed.data() + tile * tile_bytes, inputs,
                           tiles.size(tile), row - tiles.begin(tile), g);
    }
  }
  AlignedBytes out(sizeof(float) * kTileRows * kPanelOutputs);
  const double seconds = BestSeconds([&] {
    for (uint32_t p = 0; p < PanelCount(outputs); ++p) {
      for (uint32_t t = 0; t < tiles.count(); ++t) {
        format.Multiply(panels.data() + p * panel_bytes, inputs, packed.data() + t * tile_bytes,
                        tiles.size(t), out.floats(), nullptr, 0);
      }
    }
  });
  Report(format.name(),
         std::to_string(outputs) + "x" + std::to_string(inputs) + " rows " + std::to_string(rows),
         2.0 * outputs * inputs * rows, seconds, PeakOf(format.name(), peaks));
}

void BenchAttention(const AttentionFormat& format, uint32_t head_dim, uint32_t rows,
                    const Peaks& peaks) {
  const size_t slice = KvSliceBytes(format.element(), head_dim);
  constexpr uint32_t kBlocks = kSegmentTokens / kBlockTokens;
  AlignedBytes kv(2 * kBlocks * slice), out(sizeof(float) * rows * head_dim);
  const auto values = RandomFloats(size_t{head_dim} * kAttentionRows, 3);
  std::vector<const std::byte*> keys, value_slices;
  for (uint32_t b = 0; b < kBlocks; ++b) {
    std::byte* k = kv.data() + 2 * b * slice;
    for (uint32_t t = 0; t < kBlockTokens; ++t) {
      format.Append(values.data(), values.data(), head_dim, t, k, k + slice);
    }
    keys.push_back(k);
    value_slices.push_back(k + slice);
  }
  const std::vector<uint32_t> positions(rows, kSegmentTokens);
  std::vector<float> max(rows), sum(rows);
  AlignedBytes queries(sizeof(float) * rows * head_dim);
  std::copy_n(values.data(), size_t{rows} * head_dim, queries.floats());
  SegmentTask task;
  task.head_dim = head_dim;
  task.rows = rows;
  task.queries = queries.floats();
  task.positions = positions.data();
  task.blocks = kBlocks;
  task.keys = keys.data();
  task.values = value_slices.data();
  task.max = max.data();
  task.sum = sum.data();
  task.out = out.floats();
  const double seconds = BestSeconds([&] { format.Attend(task); });
  Report(format.name(), "head size " + std::to_string(head_dim) + " rows " + std::to_string(rows),
         4.0 * rows * head_dim * kSegmentTokens, seconds, PeakOf(format.name(), peaks));
}

bool Wanted(std::string_view format, std::string_view part) {
  return format.find(part) != std::string_view::npos;
}

// Of the formats with `part` in their name.
void BenchBackend(const Backend& backend, std::string_view part, const Peaks& peaks) {
  struct Shape {
    uint32_t outputs, inputs;
  };
  std::set<std::string_view> seen;
  for (Precision precision : {Precision::kExact, Precision::kFast}) {
    for (WeightType type : kAllWeightTypes) {
      const LinearFormat& format = backend.Linear(type, precision);
      if (!seen.insert(format.name()).second || !Wanted(format.name(), part)) continue;
      for (const Shape& shape : {Shape{1536, 576}, Shape{576, 1536}, Shape{512, 4096}}) {
        const uint32_t block = BlockInputs(type);
        const uint32_t inputs = (shape.inputs + block - 1) / block * block;
        for (uint32_t rows : {1u, 4u, 6u, 66u, 252u}) {
          BenchLinear(format, type, shape.outputs, inputs, rows, peaks);
        }
      }
    }
  }
  for (KvElement element : {KvElement::kF32, KvElement::kBf16, KvElement::kInt8}) {
    if (!Wanted(backend.Attention(element).name(), part)) continue;
    for (uint32_t head_dim : {64u, 128u}) {
      for (uint32_t rows : {3u, 8u, 12u}) {
        BenchAttention(backend.Attention(element), head_dim, rows, peaks);
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels

// kernel_bench [backend [part of a format's name]]
int main(int argc, char** argv) {
  using namespace baton::kernels;
  const Backend* backend = FindBackend(argc > 1 ? argv[1] : "auto");
  if (backend == nullptr) {
    std::fprintf(stderr, "no such backend here: %s\n", argv[1]);
    return 1;
  }
  const Peaks peaks = MeasurePeaks(backend->name());
  std::printf("peak of one thread: float32 %.1f, bf16 %.1f, s8 %.1f Gop/s\n", peaks.f32 / 1e9,
              peaks.bf16 / 1e9, peaks.s8 / 1e9);
  BenchBackend(*backend, argc > 2 ? argv[2] : "", peaks);
  return 0;
}
