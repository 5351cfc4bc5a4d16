// SPDX-License-Identifier: Apache-2.0
// The flags that make a Request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/baton/client.h"
#include "client/cli/constraint_flags.h"
#include "common/config/command_line.h"

namespace baton::cli {

// --prompt, --prompt-ids, --chat: at most one of them.
class InputFlags final {
 public:
  void Register(config::CommandLine& line, bool with_ids);
  bool given() const { return prompt_ || prompt_ids_ || chat_; }
  // INVALID_ARGUMENT when several are given or one cannot be read.
  absl::Status Apply(Request* request) const;

 private:
  std::optional<std::string> prompt_, prompt_ids_, chat_;
};

// How tokens are chosen, when the answer ends, and which way it takes.
class SamplingFlags final {
 public:
  void Register(config::CommandLine& line);
  absl::Status Apply(Request* request) const;

 private:
  void RegisterSampling(config::CommandLine& line);
  void RegisterDecoding(config::CommandLine& line);
  absl::Status ApplyDecoding(Request* request) const;
  absl::Status ApplyStops(Request* request) const;

  std::string model_, path_ = "auto", tenant_, cache_salt_;
  int32_t priority_ = 0;
  bool no_prefix_cache_ = false;
  uint32_t window_ = 0, window_sinks_ = 0, window_stride_ = 0;
  std::vector<std::string> window_keep_;
  std::optional<double> temperature_, top_p_, repetition_penalty_;
  std::optional<double> min_p_, typical_p_, presence_penalty_, frequency_penalty_;
  std::optional<uint32_t> top_k_, logprobs_, prompt_logprobs_, max_tokens_, min_tokens_;
  std::optional<uint32_t> draft_tokens_;
  std::optional<uint64_t> seed_;
  std::optional<uint32_t> n_, best_of_, beams_;
  std::optional<double> length_penalty_;
  std::string early_stopping_, phases_;
  std::vector<std::string> stop_, stop_sequences_, bad_words_, bad_token_ids_;
  std::string stop_token_ids_, logit_bias_, preset_;
  bool ignore_eos_ = false, include_stop_ = false;
  ConstraintFlags constraint_;
  std::optional<std::string> deadline_, time_limit_;
};

}  // namespace baton::cli
