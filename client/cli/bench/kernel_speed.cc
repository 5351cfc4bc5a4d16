// SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/kernel_speed.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "common/model/aligned_buffer.h"
#include "common/model/packed_matrix.h"
#include "common/model/thread_pool.h"

namespace baton::cli {
namespace {

using kernels::kBlockTokens;
using kernels::kGroup;
using kernels::kPanelOutputs;
using kernels::kSegmentTokens;
using kernels::kTileRows;
using kernels::RowTiles;
using model::AlignedBuffer;

// Operations of one piece of work: a fraction of a slot of MeasureRate at any
// speed that a core has.
constexpr double kPieceOperations = 4e6;

// Copies of one packed matrix, one behind the other.
class Copies final {
 public:
  Copies(const MatrixWork& work, const model::ComputePlan& plan, uint64_t bytes)
      : panel_bytes_(work.format->PanelBytes(work.inputs)),
        panels_(kernels::PanelCount(work.outputs)) {
    const size_t matrix = panel_bytes_ * panels_;
    const size_t count = std::max<uint64_t>(1, bytes / matrix);
    memory_ = AlignedBuffer(matrix * count);
    const model::PackedMatrix packed(*work.example, *plan.backend, plan.precision, memory_.data());
    for (uint32_t p = 0; p < panels_; ++p) {
      packed.PackPanel(*work.example, p, memory_.data() + p * panel_bytes_);
    }
    for (size_t i = 1; i < count; ++i) {
      std::memcpy(memory_.data() + i * matrix, memory_.data(), matrix);
    }
    total_ = panels_ * count;
  }
  size_t panel_bytes() const { return panel_bytes_; }
  size_t total() const { return total_; }  // panels of all copies
  const std::byte* panel(size_t index) const { return memory_.data() + index * panel_bytes_; }

 private:
  size_t panel_bytes_;
  uint32_t panels_;
  size_t total_ = 0;
  AlignedBuffer memory_;
};

// `rows` random rows, packed.
class Activations final {
 public:
  Activations(const kernels::ActivationFormat& format, uint32_t rows, uint32_t inputs,
              double outliers)
      : tiles_(rows), tile_bytes_(format.TileBytes(inputs)), memory_(tile_bytes_ * tiles_.count()) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::bernoulli_distribution outlier(outliers);
    std::vector<float> x(kGroup);
    for (uint32_t t = 0; t < tiles_.count(); ++t) {
      for (uint32_t r = 0; r < tiles_.size(t); ++r) {
        for (uint32_t g = 0; g < format.PaddedInputs(inputs) / kGroup; ++g) {
          for (float& value : x) value = uniform(random);
          if (outlier(random)) x[random() % kGroup] = 10;
          format.PackGroup(x.data(), memory_.data() + t * tile_bytes_, inputs, tiles_.size(t), r,
                           g);
        }
      }
    }
  }
  const RowTiles& tiles() const { return tiles_; }
  const std::byte* tile(uint32_t index) const { return memory_.data() + index * tile_bytes_; }

 private:
  RowTiles tiles_;
  size_t tile_bytes_;
  AlignedBuffer memory_;
};

// Where a thread is in its range of panels.
struct alignas(64) Place {
  size_t at = 0;
};

struct Product {
  const kernels::LinearFormat& format;
  uint32_t inputs;
  const Copies& weights;
  const Activations& rows;
};

// Tiles [begin, end) times one panel; `next` is fetched beside it, in parts.
void MultiplyPanel(const Product& product, size_t panel, size_t next, uint32_t begin,
                   uint32_t end) {
  alignas(64) float out[kTileRows * kPanelOutputs];
  const size_t bytes = product.weights.panel_bytes();
  const size_t share = (bytes / (end - begin) + 63) / 64 * 64;
  for (uint32_t tile = begin; tile < end; ++tile) {
    const size_t skip = std::min(bytes, share * (tile - begin));
    product.format.Multiply(product.weights.panel(panel), product.inputs, product.rows.tile(tile),
                            product.rows.tiles().size(tile), out,
                            product.weights.panel(next) + skip, std::min(share, bytes - skip));
  }
}

// KV of one or more sequences, and the running result of one of them.
struct alignas(64) AttentionThread {
  std::vector<const std::byte*> keys, values;
  size_t at = 0;  // block
  AlignedBuffer memory, out, total;
  std::vector<float> max, sum, total_max, total_sum;
};

void FillKv(const kernels::AttentionFormat& format, uint32_t head_dim, size_t blocks,
            AttentionThread& thread) {
  const size_t slice = kernels::KvSliceBytes(format.element(), head_dim);
  thread.memory = AlignedBuffer(2 * slice * blocks);
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> row(head_dim);
  // One block of random tokens, and copies of it.
  for (uint32_t t = 0; t < kBlockTokens; ++t) {
    for (float& value : row) value = uniform(random);
    format.Append(row.data(), row.data(), head_dim, t, thread.memory.data(),
                  thread.memory.data() + slice);
  }
  for (size_t b = 0; b < blocks; ++b) {
    std::byte* block = thread.memory.data() + 2 * slice * b;
    if (b > 0) std::memcpy(block, thread.memory.data(), 2 * slice);
    thread.keys.push_back(block);
    thread.values.push_back(block + slice);
  }
}

}  // namespace

KernelSpeed MeasureMatrix(const MatrixWork& matrix, const model::ComputePlan& plan, uint32_t rows,
                          double outliers, uint32_t threads, uint64_t beyond_caches,
                          double seconds) {
  const bool prompt = rows >= kPromptRows;
  const Copies weights(matrix, plan, prompt ? 0 : beyond_caches);
  const Activations activations(matrix.format->activation(), rows, matrix.inputs, outliers);
  const Product product{*matrix.format, matrix.inputs, weights, activations};
  const RowTiles& tiles = activations.tiles();
  std::vector<Place> places(threads);
  KernelSpeed speed;
  speed.operations = MeasureRate(threads, seconds, [&](uint32_t thread) {
    const auto panels = prompt
                            ? model::Range{0, static_cast<uint32_t>(weights.total())}
                            : model::Part(static_cast<uint32_t>(weights.total()), thread, threads);
    const auto own =
        prompt ? model::Part(tiles.count(), thread, threads) : model::Range{0, tiles.count()};
    if (own.size() == 0 || panels.size() == 0) return uint64_t{1};  // nothing for this thread
    const uint32_t own_rows = tiles.begin(own.end) - tiles.begin(own.begin);
    const double per_panel = 2.0 * kPanelOutputs * matrix.inputs * own_rows;
    size_t& at = places[thread].at;
    double done = 0;
    for (; done < kPieceOperations; done += per_panel) {
      const size_t next = (at + 1) % panels.size();
      MultiplyPanel(product, panels.begin + at, panels.begin + next, own.begin, own.end);
      at = next;
    }
    return static_cast<uint64_t>(done);
  });
  if (!prompt) {
    speed.bytes_per_operation =
        static_cast<double>(weights.panel_bytes()) / (2.0 * kPanelOutputs * matrix.inputs * rows);
  }
  return speed;
}

KernelSpeed MeasureAttention(const model::ComputePlan& plan, uint32_t rows, uint32_t context,
                             bool from_memory, uint32_t threads, uint64_t beyond_caches,
                             double seconds) {
  const kernels::AttentionFormat& format = *plan.attention;
  const uint32_t head_dim = plan.layout.head_dim;
  const size_t slice = kernels::KvSliceBytes(format.element(), head_dim);
  constexpr uint32_t kSegmentBlocks = kSegmentTokens / kBlockTokens;
  const size_t segments = std::max<size_t>(1, context / kSegmentTokens);
  const size_t sequences =
      from_memory
          ? std::max<size_t>(1, beyond_caches / threads / (2 * slice * segments * kSegmentBlocks))
          : 1;
  std::vector<AttentionThread> state(threads);
  for (AttentionThread& thread : state) {
    FillKv(format, head_dim, sequences * segments * kSegmentBlocks, thread);
    thread.out = AlignedBuffer(sizeof(float) * rows * head_dim);
    thread.total = AlignedBuffer(sizeof(float) * rows * head_dim);
    for (auto* values : {&thread.max, &thread.sum, &thread.total_max, &thread.total_sum}) {
      values->resize(rows);
    }
  }
  AlignedBuffer queries(sizeof(float) * rows * head_dim);
  std::fill_n(queries.floats(), size_t{rows} * head_dim, 0.1f);
  const auto tokens = static_cast<uint32_t>(segments * kSegmentTokens);
  const std::vector<uint32_t> positions(rows, tokens - 1);

  KernelSpeed speed;
  speed.operations = MeasureRate(threads, seconds, [&](uint32_t index) {
    AttentionThread& thread = state[index];
    // A sequence begins: its running result is empty.
    std::fill(thread.total_max.begin(), thread.total_max.end(), kernels::kNoScore);
    std::fill(thread.total_sum.begin(), thread.total_sum.end(), 0.0f);
    std::memset(thread.total.data(), 0, thread.total.size());
    for (uint32_t first = 0; first < tokens; first += kSegmentTokens) {
      kernels::SegmentTask task;
      task.head_dim = head_dim;
      task.rows = rows;
      task.queries = queries.floats();
      task.positions = positions.data();
      task.first_token = first;
      task.blocks = kSegmentBlocks;
      task.keys = &thread.keys[thread.at];
      task.values = &thread.values[thread.at];
      task.max = thread.max.data();
      task.sum = thread.sum.data();
      task.out = thread.out.floats();
      format.Attend(task);
      for (uint32_t r = 0; r < rows; ++r) {
        plan.backend->merge_segment(head_dim, thread.max[r], thread.sum[r],
                                    thread.out.floats() + size_t{r} * head_dim,
                                    &thread.total_max[r], &thread.total_sum[r],
                                    thread.total.floats() + size_t{r} * head_dim);
      }
      thread.at = (thread.at + kSegmentBlocks) % thread.keys.size();
    }
    return uint64_t{4} * rows * head_dim * tokens;
  });
  if (from_memory) {
    speed.bytes_per_operation =
        2.0 * static_cast<double>(slice) / (4.0 * rows * head_dim * kBlockTokens);
  }
  return speed;
}

}  // namespace baton::cli
