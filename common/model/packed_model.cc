// SPDX-License-Identifier: Apache-2.0
#include "common/model/packed_model.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/convert_rows.h"

namespace baton::model {
namespace {

using checkpoint::Checkpoint;
using checkpoint::LayerWeights;
using checkpoint::LinearView;
using checkpoint::ModelWeights;
using checkpoint::TensorView;
using Clock = std::chrono::steady_clock;

constexpr auto kProgressInterval = std::chrono::seconds(2);

// The matrices of a layer as stored and as packed, in one order.
struct MatrixPair {
  const char* name;
  LinearView LayerWeights::*stored;
  PackedMatrix PackedLayer::*packed;
};
constexpr MatrixPair kMatrices[] = {
    {"q", &LayerWeights::q, &PackedLayer::q},
    {"k", &LayerWeights::k, &PackedLayer::k},
    {"v", &LayerWeights::v, &PackedLayer::v},
    {"attention_out", &LayerWeights::attention_out, &PackedLayer::attention_out},
    {"gate", &LayerWeights::gate, &PackedLayer::gate},
    {"up", &LayerWeights::up, &PackedLayer::up},
    {"down", &LayerWeights::down, &PackedLayer::down}};

std::vector<float> AllValues(const TensorView& tensor) {
  uint64_t count = 1;
  for (uint64_t size : tensor.shape) count *= size;
  return Values(tensor, 0, count);
}

uint64_t EmbeddingBytes(const TensorView& embedding) {
  return (embedding.data.size() + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// Calls visit(name, view) for every matrix in the order in which they lie
// behind the embedding.
template <typename Visit>
void ForEachMatrix(const ModelWeights& weights, const Visit& visit) {
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    for (const MatrixPair& matrix : kMatrices) {
      visit(absl::StrCat("layer ", i, " ", matrix.name), weights.layers[i].*matrix.stored);
    }
  }
  visit(std::string("head"), weights.head);
}

// What the packed bytes depend on, and where each part of them lies: equal
// text, equal bytes.
std::string Describe(const Checkpoint& checkpoint, const ModelWeights& weights,
                     const kernels::Backend& backend, kernels::Precision precision) {
  std::string text =
      absl::StrCat("Packed weights of Baton\nmodel ", checkpoint.Fingerprint(), "\nfiles ",
                   checkpoint.SourceStamp(), "\nbackend ", std::string(backend.name()),
                   precision == kernels::Precision::kExact ? " exact" : " fast", "\n");
  uint64_t offset = EmbeddingBytes(*weights.embedding);
  absl::StrAppend(&text, "0 embedding ", weights.embedding->type_name, " ", offset, "\n");
  ForEachMatrix(weights, [&](const std::string& name, const LinearView& view) {
    const uint64_t bytes = PackedMatrix::PackedBytes(view, backend, precision);
    const auto& format = backend.Linear(ToWeightType(PackedType(view)), precision);
    const std::string conversion = ConversionName(view);
    absl::StrAppend(&text, offset, " ", name, " ", view.rows, "x", view.tensor->shape[1], " ",
                    conversion, conversion.empty() ? "" : " ", std::string(format.name()), " ",
                    bytes, "\n");
    offset += bytes;
  });
  return text;
}

// Packs one tensor after another into a sink, each by all threads.
class Packer {
 public:
  Packer(const Checkpoint& checkpoint, const kernels::Backend& backend,
         kernels::Precision precision, uint64_t all_bytes, ThreadPool& pool, PackSink& sink)
      : checkpoint_(checkpoint),
        backend_(backend),
        precision_(precision),
        all_bytes_(all_bytes),
        pool_(pool),
        sink_(sink) {}

  absl::Status Run(const ModelWeights& weights) {
    BATON_RETURN_IF_ERROR(Copy(*weights.embedding));
    absl::Status status;
    ForEachMatrix(weights, [&](const std::string&, const LinearView& view) {
      if (status.ok()) status = Pack(view);
    });
    return status;
  }

 private:
  absl::Status Copy(const TensorView& tensor) {
    const uint64_t bytes = EmbeddingBytes(tensor);
    for (uint64_t at = 0; at < bytes; at += kPackPieceBytes) {
      const std::span<std::byte> room = sink_.Room(std::min<uint64_t>(kPackPieceBytes, bytes - at));
      const auto part = tensor.data.subspan(at, std::min(room.size(), tensor.data.size() - at));
      std::copy(part.begin(), part.end(), room.begin());
      std::fill(room.begin() + static_cast<ptrdiff_t>(part.size()), room.end(), std::byte{0});
      BATON_RETURN_IF_ERROR(Commit(room.size()));
    }
    checkpoint_.ReleasePages(tensor);
    return absl::OkStatus();
  }

  absl::Status Pack(const LinearView& view) {
    const PackedMatrix matrix(view, backend_, precision_, nullptr);
    const auto fitting = static_cast<uint32_t>(
        std::max<size_t>(1, kPackPieceBytes / std::max<size_t>(1, matrix.panel_bytes())));
    for (uint32_t first = 0; first < matrix.panels(); first += fitting) {
      const uint32_t end = std::min(matrix.panels(), first + fitting);
      const std::span<std::byte> room = sink_.Room((end - first) * matrix.panel_bytes());
      std::atomic<uint32_t> next{first};
      pool_.Run([&](uint32_t) {
        for (uint32_t p = next++; p < end; p = next++) {
          matrix.PackPanel(view, p, room.data() + (p - first) * matrix.panel_bytes());
        }
      });
      BATON_RETURN_IF_ERROR(Commit(room.size()));
    }
    checkpoint_.ReleasePages(*view.tensor);
    return absl::OkStatus();
  }

  absl::Status Commit(uint64_t bytes) {
    BATON_RETURN_IF_ERROR(sink_.Commit());
    done_bytes_ += bytes;
    const Clock::time_point now = Clock::now();
    if (now - logged_ < kProgressInterval) return absl::OkStatus();
    logged_ = now;
    LogInfo("packing weights", {{"mib_done", done_bytes_ >> 20}, {"mib_all", all_bytes_ >> 20}});
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const kernels::Backend& backend_;
  const kernels::Precision precision_;
  const uint64_t all_bytes_;
  ThreadPool& pool_;
  PackSink& sink_;
  uint64_t done_bytes_ = 0;
  Clock::time_point logged_ = Clock::now();
};

// Points all parts of a model at its packed bytes.
void Bind(const ModelWeights& weights, const kernels::Backend& backend,
          kernels::Precision precision, PackedModel& model) {
  const std::byte* at = model.memory.get();
  const auto bind = [&](const LinearView& view) {
    PackedMatrix matrix(view, backend, precision, at);
    at += matrix.panel_bytes() * matrix.panels();
    return matrix;
  };
  model.embedding = Embedding(*weights.embedding, {at, weights.embedding->data.size()});
  at += EmbeddingBytes(*weights.embedding);
  for (const LayerWeights& stored : weights.layers) {
    PackedLayer& layer = model.layers.emplace_back();
    layer.attention_norm = AllValues(*stored.attention_norm);
    layer.ffn_norm = AllValues(*stored.ffn_norm);
    for (const MatrixPair& matrix : kMatrices) {
      layer.*matrix.packed = bind(stored.*matrix.stored);
    }
  }
  model.final_norm = AllValues(*weights.final_norm);
  model.head = bind(weights.head);
}

void LogSource(const PackedModel& model, Clock::time_point begin) {
  if (model.source == WeightSource::kMemory) return;
  const bool found = model.source == WeightSource::kFoundFile;
  LogInfo(found ? "packed weights mapped" : "weights packed and mapped",
          {{"mib", model.bytes >> 20},
           {"ms",
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count()}});
}

}  // namespace

Embedding::Embedding(const TensorView& tensor, std::span<const std::byte> data) : view_(tensor) {
  view_.data = data;
}

void Embedding::Row(TokenId token, std::span<float> out) const {
  checkpoint::DequantizeRange(view_, uint64_t{token} * out.size(), out);
}

uint64_t PackedModelBytes(const ModelWeights& weights, const kernels::Backend& backend,
                          kernels::Precision precision) {
  uint64_t bytes = EmbeddingBytes(*weights.embedding);
  ForEachMatrix(weights, [&](const std::string&, const LinearView& view) {
    bytes += PackedMatrix::PackedBytes(view, backend, precision);
  });
  return bytes;
}

PackedModel PackModel(const Checkpoint& checkpoint, const ModelWeights& weights,
                      const kernels::Backend& backend, kernels::Precision precision,
                      const PackedCacheOptions& cache, ThreadPool& pool) {
  const Clock::time_point begin = Clock::now();
  PackedModel model;
  model.bytes = PackedModelBytes(weights, backend, precision);
  const auto pack = [&](PackSink& sink) {
    return Packer(checkpoint, backend, precision, model.bytes, pool, sink).Run(weights);
  };
  if (!cache.folder.empty() && model.bytes >= cache.least_bytes) {
    auto cached =
        MapOrPack(cache, absl::StrCat(checkpoint.config().name, "-", std::string(backend.name())),
                  Describe(checkpoint, weights, backend, precision), model.bytes, pool, pack);
    if (cached.ok()) {
      model.memory = std::move(cached->data);
      model.source = cached->packed_now ? WeightSource::kNewFile : WeightSource::kFoundFile;
    } else {
      LogWarning("the packed cache cannot be used: weights are packed into memory",
                 {{"reason", std::string(cached.status().message())}});
    }
  }
  if (model.memory == nullptr) {
    MemorySink sink(model.bytes);
    pack(sink).IgnoreError();  // memory takes everything
    model.memory = sink.memory();
  }
  Bind(weights, backend, precision, model);
  LogSource(model, begin);
  return model;
}

}  // namespace baton::model
