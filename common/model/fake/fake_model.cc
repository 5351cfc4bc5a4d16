// SPDX-License-Identifier: Apache-2.0
#include "common/model/fake/fake_model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model/fake/fake_queue.h"
#include "common/model/fake/hash_chain.h"

namespace baton::model {
namespace {

using fake::ChainLink;
using fake::ChainStart;
using fake::DigestTerm;
using fake::KvWord;

constexpr float kPaddingLogit = 100;  // above every other: a test of the mask

uint32_t RowsOf(const FakeOptions& options) { return 2 * options.kv_heads; }
uint32_t WordsOf(const FakeOptions& options) {
  return static_cast<uint32_t>(options.head_dim * kv::KvTypeBytes(options.kv_type) /
                               sizeof(uint64_t));
}

// One layer's KV of a position in the blocks of a sequence.
class Cell final {
 public:
  Cell(const FakeOptions& options, const kv::KvArena& arena, const Slice& slice, uint32_t layer,
       uint32_t position)
      : base_(arena.Layer(slice.blocks[position / kv::kBlockTokens], layer)),
        words_(WordsOf(options)),
        slot_(position % kv::kBlockTokens) {}

  uint64_t Read(uint32_t row, uint32_t word) const {
    uint64_t value = 0;
    std::memcpy(&value, At(row, word), sizeof(value));
    return value;
  }
  void Write(uint32_t row, uint32_t word, uint64_t value) {
    std::memcpy(At(row, word), &value, sizeof(value));
  }

 private:
  std::byte* At(uint32_t row, uint32_t word) const {
    const size_t index = (size_t{row} * kv::kBlockTokens + slot_) * words_ + word;
    return base_ + index * sizeof(uint64_t);
  }

  std::byte* base_;
  uint32_t words_;
  uint32_t slot_;
};

uint32_t Usable(const FakeOptions& options) {
  return options.usable_vocabulary == 0 ? options.vocabulary_size : options.usable_vocabulary;
}

kv::KvLayout MakeLayout(const FakeOptions& options) {
  uint64_t digest = options.seed;
  for (uint64_t value : {options.layers, options.kv_heads, options.head_dim,
                         options.vocabulary_size, Usable(options)}) {
    digest = fake::Mix(digest, value);
  }
  kv::KvLayout layout;
  layout.layers = options.layers;
  layout.kv_heads = options.kv_heads;
  layout.head_dim = options.head_dim;
  layout.type = options.kv_type;
  layout.slice_layout = "fake/1";
  layout.model_fingerprint = absl::StrCat("fake-", absl::Hex(digest, absl::kZeroPad16));
  layout.compute_id = "fake/1";
  layout.numerics_id =
      absl::StrCat(layout.compute_id, " ", std::string(kv::KvTypeName(options.kv_type)));
  return layout;
}

ModelInfo MakeInfo(const FakeOptions& options) {
  ModelInfo info;
  info.name = "fake";
  info.architecture = "fake";
  info.vocabulary_size = options.vocabulary_size;
  info.usable_vocabulary = Usable(options);
  info.context_tokens = options.context_tokens;
  info.end_tokens = options.end_tokens;
  info.compute = "none";
  info.windows = options.windows;
  return info;
}

class FakeModel final : public Model {
 public:
  explicit FakeModel(const FakeOptions& options)
      : options_(options), info_(MakeInfo(options)), layout_(MakeLayout(options)) {}

  const ModelInfo& info() const override { return info_; }
  const kv::KvLayout& kv_layout() const override { return layout_; }
  uint32_t max_step_tokens() const override { return options_.max_step_tokens; }
  StepQueue* queue() override { return options_.queues ? &queue_ : nullptr; }

  absl::Status Forward(std::span<const Slice> slices, const kv::KvArena& arena,
                       std::span<float> logits, const LayerDone& layer_done) override {
    TakeTime(slices);
    for (const Slice& slice : slices) {
      for (TokenId token : slice.tokens) {
        if (token == options_.fail_token) return absl::InternalError("the fake device failed");
      }
    }
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      for (const Slice& slice : slices) WriteKv(slice, arena, layer);
      if (layer_done) layer_done(layer);
    }
    for (const Slice& slice : slices) logits = WriteLogits(slice, arena, logits);
    return absl::OkStatus();
  }

 private:
  void TakeTime(std::span<const Slice> slices) const {
    absl::Duration delay = options_.delay_per_step;
    for (const Slice& slice : slices) {
      delay += options_.delay_per_token * static_cast<int64_t>(slice.tokens.size());
    }
    if (delay > absl::ZeroDuration()) absl::SleepFor(delay);
  }

  void WriteKv(const Slice& slice, const kv::KvArena& arena, uint32_t layer) const {
    uint32_t position = slice.first_position;
    uint64_t link = position == 0 ? ChainStart(options_.seed, layer)
                                  : Cell(options_, arena, slice, layer, position - 1).Read(0, 0);
    for (TokenId token : slice.tokens) {
      link = ChainLink(link, token, position);
      Cell cell(options_, arena, slice, layer, position++);
      for (uint32_t row = 0; row < RowsOf(options_); ++row) {
        for (uint32_t word = 0; word < WordsOf(options_); ++word) {
          cell.Write(row, word, KvWord(link, row, word));
        }
      }
    }
  }

  // Digest of all KV of positions [begin, end), read from the blocks.
  uint64_t Digest(const Slice& slice, const kv::KvArena& arena, uint32_t begin,
                  uint32_t end) const {
    const uint32_t rows = RowsOf(options_), words = WordsOf(options_);
    uint64_t digest = 0;
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      for (uint32_t position = begin; position < end; ++position) {
        const Cell cell(options_, arena, slice, layer, position);
        for (uint32_t row = 0; row < rows; ++row) {
          for (uint32_t word = 0; word < words; ++word) {
            digest += DigestTerm(cell.Read(row, word), layer, position, row, word);
          }
        }
      }
    }
    return digest;
  }

  // The same of what the position before `end` sees.
  uint64_t DigestSeen(const Slice& slice, const kv::KvArena& arena, uint32_t end) const {
    uint64_t digest = 0;
    for (uint32_t begin = 0; begin < end; begin += kv::kBlockTokens) {
      if (!slice.window.SeesBlock(end - 1, begin / kv::kBlockTokens)) continue;
      digest += Digest(slice, arena, begin, std::min(end, begin + kv::kBlockTokens));
    }
    return digest;
  }

  // Fills the slice's rows; returns what is left of `logits`.
  std::span<float> WriteLogits(const Slice& slice, const kv::KvArena& arena,
                               std::span<float> logits) const {
    if (slice.logit_rows == LogitRows::kNone) return logits;
    const size_t count = slice.tokens.size();
    const size_t first = slice.logit_rows == LogitRows::kLast ? count - 1 : 0;
    uint64_t digest = 0;
    uint32_t digested = 0;
    for (size_t i = first; i < count; ++i) {
      const uint32_t end = slice.first_position + static_cast<uint32_t>(i) + 1;
      if (slice.window.limited()) {
        digest = DigestSeen(slice, arena, end);
      } else {
        digest += Digest(slice, arena, digested, end);
        digested = end;
      }
      WriteRow(slice.tokens[i], digest, logits.first(options_.vocabulary_size));
      logits = logits.subspan(options_.vocabulary_size);
    }
    return logits;
  }

  void WriteRow(TokenId input, uint64_t digest, std::span<float> row) const {
    const uint32_t usable = Usable(options_);
    for (TokenId token = 0; token < row.size(); ++token) {
      row[token] = token < usable ? fake::Logit(digest, token) : kPaddingLogit;
    }
    if (!options_.script.empty()) row[options_.script[input]] = kPaddingLogit / 2;
    if (input == options_.nan_token) row[0] = std::numeric_limits<float>::quiet_NaN();
  }

  const FakeOptions options_;
  const ModelInfo info_;
  const kv::KvLayout layout_;
  FakeQueue queue_{*this};
};

absl::Status Invalid(const char* field, uint64_t value, const char* rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("fake model: ", field, " is ", value, "; it must be ", rule));
}

absl::Status CheckOptions(const FakeOptions& options) {
  if (options.layers == 0) return Invalid("layers", 0, "at least 1");
  if (options.kv_heads == 0) return Invalid("kv_heads", 0, "at least 1");
  if (options.head_dim == 0 || options.head_dim % 16 != 0) {
    return Invalid("head_dim", options.head_dim, "a multiple of 16");
  }
  if (options.vocabulary_size == 0) return Invalid("vocabulary_size", 0, "at least 1");
  if (options.usable_vocabulary > options.vocabulary_size) {
    return Invalid("usable_vocabulary", options.usable_vocabulary, "at most vocabulary_size");
  }
  if (!options.script.empty() && options.script.size() != options.vocabulary_size) {
    return Invalid("the length of script", options.script.size(), "vocabulary_size");
  }
  for (TokenId token : options.script) {
    if (token >= Usable(options)) return Invalid("a token of script", token, "usable");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeFakeModel(const FakeOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return std::make_unique<FakeModel>(options);
}

namespace {

// What a sequence's blocks would hold: a digest of each.
class ChainOfBlocks final {
 public:
  explicit ChainOfBlocks(const FakeOptions& options) : options_(options) {
    for (uint32_t layer = 0; layer < options.layers; ++layer) {
      links_.push_back(ChainStart(options.seed, layer));
    }
  }

  void Feed(TokenId token) {
    if (position_ % kv::kBlockTokens == 0) blocks_.push_back(0);
    uint64_t& digest = blocks_.back();
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      links_[layer] = ChainLink(links_[layer], token, position_);
      for (uint32_t row = 0; row < RowsOf(options_); ++row) {
        for (uint32_t word = 0; word < WordsOf(options_); ++word) {
          digest += DigestTerm(KvWord(links_[layer], row, word), layer, position_, row, word);
        }
      }
    }
    ++position_;
  }

  // Of all that the latest position sees.
  uint64_t Digest(const kv::Window& window) const {
    uint64_t digest = 0;
    for (uint32_t block = 0; block < blocks_.size(); ++block) {
      if (window.SeesBlock(position_ - 1, block)) digest += blocks_[block];
    }
    return digest;
  }

 private:
  const FakeOptions& options_;
  std::vector<uint64_t> links_, blocks_;
  uint32_t position_ = 0;
};

}  // namespace

std::vector<TokenId> FakeReference(const FakeOptions& options, std::span<const TokenId> prompt,
                                   uint32_t count, const kv::Window& window) {
  ChainOfBlocks chain(options);
  for (TokenId token : prompt) chain.Feed(token);
  std::vector<TokenId> output;
  while (output.size() < count) {
    const uint64_t digest = chain.Digest(window);
    TokenId best = 0;
    for (TokenId token = 1; token < Usable(options); ++token) {
      if (fake::Logit(digest, token) > fake::Logit(digest, best)) best = token;
    }
    output.push_back(best);
    chain.Feed(best);
  }
  return output;
}

std::vector<float> FakeLogits(const FakeOptions& options, std::span<const TokenId> tokens,
                              const kv::Window& window) {
  ChainOfBlocks chain(options);
  for (TokenId token : tokens) chain.Feed(token);
  const uint64_t digest = chain.Digest(window);
  std::vector<float> row(options.vocabulary_size, kPaddingLogit);
  for (TokenId token = 0; token < Usable(options); ++token) row[token] = fake::Logit(digest, token);
  return row;
}

}  // namespace baton::model
