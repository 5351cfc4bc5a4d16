// SPDX-License-Identifier: Apache-2.0
// Requests as clients send them to requests that can be run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "common/base/types.h"
#include "common/kv/window.h"
#include "router/served_model.h"

namespace baton::router {

// Made by the functions below alone: whoever holds one need not check again.
struct ValidatedRequest {
  std::string request_id;
  std::vector<TokenId> prompt;  // 1 to context - max_tokens ids, each in the vocabulary
  // As workers take it: preset and bad_words resolved, every single value set,
  // but logprobs when not asked for.
  v1::SamplingParams sampling;
  uint32_t max_tokens = 1, min_tokens = 0;
  bool ends_at_context = false;  // max_tokens is what the context leaves
  // The model's end tokens among them unless they are ignored.
  std::vector<TokenId> stop_tokens;
  std::vector<std::string> stops;
  std::vector<std::vector<TokenId>> stop_sequences;
  bool include_stop = false;
  bool polish = false;  // TextRules
  std::optional<absl::Duration> time_limit;
  v1::DecodingParams decoding;  // as workers take it
  uint32_t choices = 1;         // answers that are returned
  uint32_t choices_made = 1;    // of which they are the best
  uint32_t width = 1;           // answers or beams that run at once, at most
  bool begins_with_search = false;
  bool hides_logprobs = false;               // of tokens: the router alone wants them
  std::optional<v1::Constraint> constraint;  // compiles
  uint32_t constraint_bytes = 0;             // of the shortest text that matches it
  v1::Path path = v1::PATH_UNSPECIFIED;
  std::string tenant;
  int32_t priority = 0;
  std::string cache_salt;    // at most prefix::kMaxSaltBytes
  bool prefix_cache = true;  // false with a window
  kv::Window window;
  std::optional<uint32_t> draft_tokens;
  // prefix::DigestChain of salt and prompt; empty without prefix caches.
  std::vector<uint64_t> prefix;

  bool picks_best() const { return choices_made > choices; }
  bool searches() const { return width > choices_made || begins_with_search; }
  // The field that `width` is of.
  const char* WidthField() const {
    if (searches()) return decoding.has_beam() ? "decoding.beam.width" : "decoding.phases";
    return picks_best() ? "decoding.best_of" : "decoding.n";
  }
  // Told at the end, best first.
  bool ranked() const { return picks_best() || decoding.has_beam(); }
};

// Errors: INVALID_ARGUMENT with the field, its limit and the value (see
// rpc::BadField); NOT_FOUND: another model's name. Tokenizes, so call it
// outside of gRPC's threads. Cheap checks come before costly ones.
absl::StatusOr<ValidatedRequest> Validate(const v1::GenerateRequest& request,
                                          const ServedModel& model);
absl::StatusOr<ValidatedRequest> Validate(const v1::ChatRequest& request, const ServedModel& model);

// The ids that Generate or Chat would send.
absl::StatusOr<std::vector<TokenId>> ValidateTokenize(const v1::TokenizeRequest& request,
                                                      const ServedModel& model);
// The ids, each known to the tokenizer's model.
absl::StatusOr<std::vector<TokenId>> ValidateDetokenize(const v1::DetokenizeRequest& request,
                                                        const ServedModel& model);

}  // namespace baton::router
