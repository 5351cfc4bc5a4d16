// SPDX-License-Identifier: Apache-2.0
// Speed of the avx512 kernels beside the peaks of the machine, measured in the
// same run: `avx512_bench [--check] [rows|attention|products|stream]...`. --check
// fails below the floors. One core unless a line says otherwise. Other
// processes disturb the streams beyond the caches more than the rest.
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/kernels/avx512/backend_under_test.h"
#include "tests/kernels/avx512/peaks.h"
#include "tests/kernels/avx512/stored_weights.h"

namespace baton::kernels {
namespace {

using testing::AlignedArray;
using testing::BestSeconds;

struct Peaks {
  double int8, bf16;
};

// How far ahead of a decode step's panel its prefetch runs.
constexpr size_t kStreamAhead = 3200;

int failures = 0;

void Print(const char* what, double rate, const char* unit, double peak, double floor = 0) {
  const double share = 100 * rate / peak;
  std::printf("%-44s %8.1f %s  %5.1f %%", what, rate / 1e9, unit, share);
  if (floor > 0) std::printf("  (floor %.0f %%)", floor);
  std::printf("\n");
  std::fflush(stdout);
  if (floor > 0 && share < floor) ++failures;
}

struct Matrix {
  Matrix(const LinearFormat& f, WeightType type, uint32_t panel_count, uint32_t width)
      : format(f),
        inputs(width),
        panels(panel_count),
        panel_bytes(f.PanelBytes(width)),
        data(panel_bytes * panel_count) {
    const auto stored = testing::RandomWeights(type, kPanelOutputs, inputs, 1);
    format.PackPanel(stored.rows(), data.data());
    for (uint32_t p = 1; p < panels; ++p) {
      std::memcpy(data.data() + p * panel_bytes, data.data(), panel_bytes);
    }
  }
  const LinearFormat& format;
  uint32_t inputs, panels;
  size_t panel_bytes;
  AlignedArray<std::byte> data;
};

// Share of groups with an outlier: what SmolLM2's activations have.
double outlier_share = 0.09;

// Tiles of `rows` random rows.
struct Batch {
  Batch(const ActivationFormat& format, uint32_t rows, uint32_t inputs)
      : tiles(rows), tile_bytes(format.TileBytes(inputs)), data(tile_bytes * tiles.count()) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::bernoulli_distribution has_outlier(outlier_share);
    std::vector<float> x(kGroup);
    for (uint32_t t = 0; t < tiles.count(); ++t) {
      for (uint32_t r = 0; r < tiles.size(t); ++r) {
        for (uint32_t g = 0; g < format.PaddedInputs(inputs) / kGroup; ++g) {
          for (float& value : x) value = uniform(random);
          if (has_outlier(random)) x[random() % kGroup] = 10;
          format.PackGroup(x.data(), data.data() + t * tile_bytes, inputs, tiles.size(t), r, g);
        }
      }
    }
  }
  RowTiles tiles;
  size_t tile_bytes;
  AlignedArray<std::byte> data;
};

// As in a prompt: panels outside, tiles inside, each tile fetching its share
// of the next panel. As in decode with one tile: the stream some way ahead.
void MultiplyAll(Matrix& m, Batch& batch, uint32_t first_panel, uint32_t last_panel, float* out) {
  const uint32_t count = batch.tiles.count();
  const size_t share = (m.panel_bytes / count + 63) / 64 * 64;
  for (uint32_t p = first_panel; p < last_panel; ++p) {
    const std::byte* panel = m.data.data() + p * m.panel_bytes;
    for (uint32_t t = 0; t < count; ++t) {
      const std::byte* next = count == 1 ? panel + kStreamAhead : panel + m.panel_bytes + t * share;
      m.format.Multiply(panel, m.inputs, batch.data.data() + t * batch.tile_bytes,
                        batch.tiles.size(t), out, next, count == 1 ? m.panel_bytes : share);
    }
  }
}

struct Type {
  WeightType type;
  const char* name;
  double floor;  // percent of peak at 64 rows and more
};
constexpr Type kTypes[] = {
    {WeightType::kQ4_1, "W4 affine", 66}, {WeightType::kQ4_0, "W4 symmetric", 66},
    {WeightType::kQ4K, "Q4_K", 62},       {WeightType::kQ6K, "Q6_K", 50},
    {WeightType::kQ5K, "Q5_K", 55},       {WeightType::kQ8_0, "W8", 70},
    {WeightType::kQ5_1, "W8 affine", 66}, {WeightType::kBf16, "bf16", 85}};

// `inputs` rounded up to whole blocks.
uint32_t Whole(WeightType type, uint32_t inputs) {
  const uint32_t block = testing::BlockInputs(type);
  return (inputs + block - 1) / block * block;
}

void BenchProducts(const Backend& backend, const Peaks& peaks) {
  AlignedArray<float> out(kTileRows * kPanelOutputs);
  for (const Type& type : kTypes) {
    const LinearFormat& format = backend.Linear(type.type, Precision::kFast);
    const double peak = type.type == WeightType::kBf16 ? peaks.bf16 : peaks.int8;
    for (uint32_t size : {576, 1536, 4096}) {
      const uint32_t inputs = Whole(type.type, size);
      Matrix m(format, type.type, 8, inputs);
      for (uint32_t rows : {1, 2, 3, 4, 5, 6, 96}) {
        Batch batch(format.activation(), rows, inputs);
        const double seconds = BestSeconds([&] { MultiplyAll(m, batch, 0, m.panels, out.data()); });
        const double operations = 2.0 * rows * m.panels * kPanelOutputs * inputs;
        const std::string what = std::string(type.name) + " K=" + std::to_string(inputs) +
                                 " rows=" + std::to_string(rows);
        Print(what.c_str(), operations / seconds, "GOP/s", peak, rows == 96 ? type.floor : 0);
      }
    }
  }
}

// Decode beyond the caches.
void BenchStream(const Backend& backend) {
  constexpr size_t kBytes = size_t{384} << 20;
  constexpr uint32_t kPiece = 16;  // panels
  for (int threads : {1, 2}) {
    for (const Type& type : kTypes) {
      const LinearFormat& format = backend.Linear(type.type, Precision::kFast);
      const uint32_t inputs = Whole(type.type, 576);
      Matrix m(format, type.type, static_cast<uint32_t>(kBytes / format.PanelBytes(inputs)),
               inputs);
      for (uint32_t rows : {1, 4}) {
        Batch batch(format.activation(), rows, inputs);
        const uint32_t share = m.panels / static_cast<uint32_t>(threads) / kPiece * kPiece;
        std::vector<uint32_t> at(static_cast<size_t>(threads) * 16);  // a cache line each
        const double rate = testing::BestStream(threads, [&](int t) {
          alignas(64) float out[kTileRows * kPanelOutputs];
          uint32_t& panel = at[static_cast<size_t>(t) * 16];
          const uint32_t first = static_cast<uint32_t>(t) * share + panel;
          MultiplyAll(m, batch, first, first + kPiece, out);
          panel = (panel + kPiece) % share;
          return kPiece * m.panel_bytes;
        });
        const std::string what = std::string(type.name) + " stream rows=" + std::to_string(rows) +
                                 " threads=" + std::to_string(threads);
        Print(what.c_str(), rate, "GB/s ",
              testing::ReadBandwidth(m.data.data(), kBytes / 2, threads));
      }
    }
  }
}

void BenchAttention(const Backend& backend, const Peaks& peaks, uint32_t rows, uint32_t head_dim,
                    const char* what, double floor) {
  constexpr uint32_t kTokens = 2048;
  const AttentionFormat& format = backend.Attention(KvElement::kBf16);
  const size_t slice = size_t{kBlockTokens} * head_dim * 2;
  AlignedArray<std::byte> kv(kTokens / kBlockTokens * 2 * slice);
  std::vector<float> row(head_dim);
  std::vector<const std::byte*> keys, values;
  for (uint32_t t = 0; t < kTokens; ++t) {
    for (uint32_t d = 0; d < head_dim; ++d)
      row[d] = static_cast<float>((t * 7 + d * 3) % 17) / 9 - 1;
    std::byte* block = kv.data() + t / kBlockTokens * 2 * slice;
    format.Append(row.data(), row.data(), head_dim, t % kBlockTokens, block, block + slice);
    if (t % kBlockTokens == 0) {
      keys.push_back(block);
      values.push_back(block + slice);
    }
  }
  const std::vector<float> queries(rows * head_dim, 0.1f);
  const std::vector<uint32_t> positions(rows, kTokens - 1);
  AlignedArray<float> out(rows * head_dim), total(rows * head_dim);
  std::vector<float> max(rows), sum(rows), total_max(rows), total_sum(rows);
  const double seconds = BestSeconds([&] {
    for (uint32_t first = 0; first < kTokens; first += kSegmentTokens) {
      format.Attend({.head_dim = head_dim,
                     .rows = rows,
                     .queries = queries.data(),
                     .positions = positions.data(),
                     .first_token = first,
                     .blocks = 8,
                     .keys = &keys[first / kBlockTokens],
                     .values = &values[first / kBlockTokens],
                     .max = max.data(),
                     .sum = sum.data(),
                     .out = out.data()});
      for (uint32_t r = 0; r < rows; ++r) {
        backend.merge_segment(head_dim, max[r], sum[r], &out[r * head_dim], &total_max[r],
                              &total_sum[r], &total[r * head_dim]);
      }
    }
  });
  Print(what, 4.0 * rows * head_dim * kTokens / seconds, "GFLOP/s", peaks.bf16, floor);
}

void BenchRows(const Backend& backend) {
  std::vector<float> x(1536, 0.5f), w(1536, 1.5f), out(1536);
  AlignedArray<std::byte> tile(
      backend.Linear(WeightType::kQ4_1, Precision::kFast).activation().TileBytes(1536));
  const ActivationFormat& s8 = backend.Linear(WeightType::kQ4_1, Precision::kFast).activation();
  const double norm = BestSeconds([&] {
    for (int i = 0; i < 100; ++i) backend.rms_norm(x, w, 1e-5f, out);
  });
  const double swiglu = BestSeconds([&] {
    for (int i = 0; i < 100; ++i) backend.swiglu(x, w, out);
  });
  const double quantize = BestSeconds([&] {
    for (int i = 0; i < 100; ++i) {
      for (uint32_t g = 0; g < 48; ++g) s8.PackGroup(&x[g * 32], tile.data(), 1536, 6, 2, g);
    }
  });
  std::vector<float> rows(6 * x.size(), 0.5f);
  const double together = BestSeconds([&] {
    for (int i = 0; i < 100; ++i) s8.PackGroups(rows.data(), x.size(), tile.data(), 1536, 6, 0, 48);
  });
  std::printf("six rows at once: quantize %.0f ns per row\n", together / 6 * 1e7);
  std::printf("per row of 1536: norm %.0f ns, swiglu %.0f ns, quantize %.0f ns\n", norm * 1e7,
              swiglu * 1e7, quantize * 1e7);
}

void BenchAllAttention(const Backend& backend, const Peaks& peaks) {
  BenchAttention(backend, peaks, 12, 64, "attention 12 rows x 64 (SmolLM2 prompt)", 55);
  BenchAttention(backend, peaks, 3, 64, "attention 3 rows x 64 (SmolLM2 decode)", 0);
  BenchAttention(backend, peaks, 12, 128, "attention 12 rows x 128 (ChatGLM2 prompt)", 65);
  BenchAttention(backend, peaks, 8, 128, "attention 8 rows x 128 (ChatGLM2 decode)", 65);
  BenchAttention(backend, peaks, 1, 128, "attention 1 row x 128 (Llama 2 decode)", 0);
}

int Main(const std::set<std::string>& arguments) {
  const Backend* backend = testing::BackendUnderTest();
  if (backend == nullptr) {
    std::printf("this CPU lacks AVX-512 with VNNI\n");
    return 0;
  }
  const bool check = arguments.contains("--check");
  const bool all = arguments.size() == (check ? 1 : 0);
  const auto asked = [&](const char* part) { return all || arguments.contains(part); };
  const Peaks peaks{testing::PeakInt8(), testing::PeakBf16()};
  std::printf("peak of one core: vpdpbusd %.0f GOP/s, vdpbf16ps %.0f GFLOP/s\n", peaks.int8 / 1e9,
              peaks.bf16 / 1e9);
  if (asked("rows")) BenchRows(*backend);
  if (asked("attention")) BenchAllAttention(*backend, peaks);
  if (asked("products")) BenchProducts(*backend, peaks);
  if (asked("stream")) BenchStream(*backend);
  return check && failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace baton::kernels

int main(int argc, char** argv) { return baton::kernels::Main({argv + 1, argv + argc}); }
