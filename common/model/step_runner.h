// SPDX-License-Identifier: Apache-2.0
// One thread's way through the layers of a step.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/kv/arena.h"
#include "common/model/attention.h"
#include "common/model/model.h"
#include "common/model/packed_model.h"
#include "common/model/step.h"
#include "common/model/step_profile.h"
#include "common/model/thread_pool.h"
#include "common/model/workspace.h"
#include "kernels/api/backend.h"

namespace baton::model {

// What the threads of a step share.
struct StepContext {
  const checkpoint::ModelConfig& config;
  const PackedModel& model;
  const kernels::Backend& backend;
  const Step& step;
  const kv::KvArena& arena;
  std::span<float> logits;
  const LayerDone& layer_done;
  Attention& attention;
  Workspace& work;
  ThreadPool& pool;
  StepProfile* profile = nullptr;  // null: nothing is timed
  // Chunks of tiles of a step by rows (Step::chunks), and per chunk how
  // many passes over the layers have been begun.
  std::vector<std::atomic<uint32_t>> passes;
  // Next attention item, and next merge, of even and odd layers: each is reset
  // while the other is in use.
  std::atomic<uint32_t> next_item[2] = {0, 0};
  std::atomic<uint32_t> next_merge[2] = {0, 0};
};

// Packed weights that are needed soon; null: none.
struct Panel {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// With many rows (Step::by_rows) threads take chunks of tiles and run all
// panels over them, with two barriers per layer: each thread its own chunks
// first, whose rows its caches know, then what others have not begun, so that
// a thread that lost its core for a while does not hold up the rest. With few
// rows, threads split the panels and meet after every matrix. Both ways compute
// each output by the same operations.
class StepRunner final {
 public:
  StepRunner(StepContext& context, uint32_t thread);
  void Run();
  // The part of a step by rows that belongs to layers [begin, end). Between two
  // parts, which together are Run(), the number of threads may change.
  void RunLayers(uint32_t begin, uint32_t end);

 private:
  // Thread 0 tells the profile that `part` ends here.
  void Mark(StepPart part) {
    if (thread_ == 0 && context_.profile != nullptr) context_.profile->Mark(part);
  }
  void Begin();
  void End();
  void ZeroFreshBlocks();
  void RunByPanels();
  // Calls function() with tiles_ as each chunk that this thread takes.
  template <typename Function>
  void ForEachChunk(uint32_t pass, const Function& function);
  // A layer up to its K and V, between those two attention, and what follows.
  void Embed();
  void BeforeAttention(uint32_t layer);
  void AfterAttention(uint32_t layer);
  void Project(const PackedLayer& layer);
  // Of this thread's rows, unless attention does it.
  void AppendKv(uint32_t layer);
  void AppendHeads(uint32_t layer, uint32_t row, uint32_t begin, uint32_t end);
  void RunItem(uint32_t layer, const AttentionItem& item, const AttentionItem* following);
  void Attend(uint32_t layer);
  void AttentionOut(const PackedLayer& layer, const FormatSet& formats);
  void GateAndUp(const PackedLayer& layer, const LayerFormats& formats);
  void Head();

  // Normalizes rows of x (`rows` names them; empty: all in order) into the
  // tiles `part` of `out`.
  void NormAndPack(std::span<const float> weight, const FormatSet& formats,
                   const kernels::RowTiles& tiles, const Range& part,
                   std::span<const uint32_t> rows, PreparedRows& out);
  // Rows that a product's results go to.
  struct RowsOut {
    float* data;
    size_t stride;
  };
  // Brings in the place of a result, while it is being computed.
  void FetchRows(const RowsOut& to, uint32_t tile, uint32_t panel) const;
  // Calls epilogue(tile, panel, result [tile rows, 32]) for this thread's share
  // of a product.
  // `own_copy`: `in` was prepared by each thread for itself. `after`: what this
  // thread multiplies with next; brought in beside the last panel, so that the
  // memory works on through barriers and attention.
  template <typename Epilogue>
  void Multiply(const PackedMatrix& matrix, const PreparedRows& in, bool own_copy,
                const Panel& after, const RowsOut& to, const Epilogue& epilogue);
  void MultiplyInto(const PackedMatrix& matrix, const PreparedRows& in, const Panel& after,
                    float* out);
  void MultiplyAddToX(const PackedMatrix& matrix, const PreparedRows& in, bool own_copy,
                      const Panel& after);
  // This thread's first panel of a matrix that threads share as Panels() says;
  // of what comes after a layer.
  Panel FirstPanel(const PackedMatrix& matrix) const;
  Panel FirstPanelAfter(uint32_t layer) const;

  float* x(uint32_t row) const { return work_.x.floats() + size_t{row} * work_.hidden_width; }
  // This thread's share of the work on single rows; of `tiles_` those that it
  // prepares; panels that it multiplies all of them with.
  Range OwnRows() const;
  Range PreparedTiles() const;
  Range Panels(uint32_t count) const;
  // Where tile `tile` stands in PreparedRows.
  uint32_t Slot(const kernels::RowTiles& tiles, uint32_t tile) const;
  // Waits unless this thread alone reads what it has prepared.
  void WaitForPrepared();
  void WaitUnlessByRows();
  bool OwnCopy(const kernels::RowTiles& tiles) const;

  StepContext& context_;
  const Step& step_;
  Workspace& work_;
  const uint32_t thread_;
  const uint32_t threads_;
  Range tiles_;  // that are multiplied: the chunk, or all
};

}  // namespace baton::model
