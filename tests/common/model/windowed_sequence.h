// SPDX-License-Identifier: Apache-2.0
// What the tests of windows share.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "common/kv/window.h"
#include "tests/common/model/model_runner.h"

namespace baton::model {

// A sequence in a fixed set of blocks of a runner's arena.
class WindowedSequence final {
 public:
  // Of at most so many positions; that counts with a stride.
  WindowedSequence(ModelRunner& runner, const kv::Window& window, uint32_t chunk,
                   uint32_t positions)
      : runner_(runner),
        window_(window),
        table_(
            window,
            runner
                .NewSequence(static_cast<uint32_t>(kv::BlocksForWindow(window, chunk, positions)) *
                             kv::kBlockTokens)
                .blocks) {}

  // Logits of every token.
  std::vector<float> Feed(std::span<const TokenId> tokens) {
    const auto end = length_ + static_cast<uint32_t>(tokens.size());
    const absl::Status covered = table_.Extend(length_, end);
    EXPECT_TRUE(covered.ok()) << covered;
    const Slice slice{.tokens = tokens,
                      .first_position = length_,
                      .blocks = table_.table(),
                      .logit_rows = LogitRows::kAll,
                      .window = window_};
    std::vector<float> logits(tokens.size() * runner_.vocabulary());
    const absl::Status status =
        runner_.model().Forward({&slice, 1}, runner_.arena(), logits, nullptr);
    EXPECT_TRUE(status.ok()) << status;
    length_ = end;
    return logits;
  }

 private:
  ModelRunner& runner_;
  const kv::Window window_;
  kv::RollingTable table_;
  uint32_t length_ = 0;
};

// For positions beyond what the model was trained for.
inline LoadOptions LongContext(const std::string& isa, Precision precision, kv::KvType type,
                               uint32_t threads = 1) {
  LoadOptions options = Options(isa, precision, threads);
  options.kv_type = type;
  options.context_tokens = 32'768;
  return options;
}

}  // namespace baton::model
