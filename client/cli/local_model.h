// SPDX-License-Identifier: Apache-2.0
// Models that a subcommand opens in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/checkpoint/checkpoint.h"
#include "common/config/command_line.h"
#include "common/model/load.h"

namespace baton::cli {

// Which model: MODEL or --model MODEL.
class ModelFlag final {
 public:
  void Register(config::CommandLine& line, const std::string& help);
  bool given() const { return flag_.has_value() || !positional_.empty(); }
  // INVALID_ARGUMENT when no model or several are named; else OpenCheckpoint's errors.
  absl::StatusOr<std::unique_ptr<checkpoint::Checkpoint>> Open() const;

 private:
  std::optional<std::string> flag_;
  std::vector<std::string> positional_;
};

// How it is computed: --precision, --weights, --kv-dtype, --threads, --isa,
// --packed-cache.
class ComputeFlags final {
 public:
  void Register(config::CommandLine& line);
  absl::StatusOr<model::LoadOptions> Options() const;

 private:
  std::string precision_ = "fast", weights_ = "stored", kv_dtype_ = "auto", isa_ = "auto";
  std::string packed_cache_;
  uint32_t threads_ = 0, packed_cache_gib_ = 64;
};

// "exact" or "fast".
absl::StatusOr<model::Precision> ParsePrecision(const std::string& name);

// What the model would see of `text`: its prefix tokens, then the text.
// FAILED_PRECONDITION when the checkpoint has no tokenizer.
absl::StatusOr<std::vector<TokenId>> EncodeText(const checkpoint::Checkpoint& checkpoint,
                                                const std::string& text);

}  // namespace baton::cli
