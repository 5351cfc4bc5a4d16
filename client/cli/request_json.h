// SPDX-License-Identifier: Apache-2.0
// Requests written as JSON: lines of `generate --input`, files of `--chat`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/baton/client.h"

namespace baton::cli {

// Sets what `line`, a JSON object, says over the values in `request`. Keys are
// the flags' names with underscores (prompt_ids, max_tokens ...) and
// "messages". An input (prompt, prompt_ids, messages) replaces that of `request`.
// INVALID_ARGUMENT names the key; an unknown one comes with the nearest known.
absl::Status ApplyRequestJson(std::string_view line, Request* request);

// The turns of a file's text: an array of {"role", "content"}, or an object
// whose "messages" is one.
absl::StatusOr<std::vector<ChatTurn>> ParseConversation(std::string_view text);

// A JSON list of phases: keys of sampling, and beams, length_penalty,
// early_stopping, max_tokens, until_token_ids.
absl::StatusOr<std::vector<Phase>> ParsePhases(std::string_view text);

// "auto", "split" or "local".
absl::StatusOr<Path> ParsePath(std::string_view name);

// A duration of the command line and of JSON lines ("500ms", "2s"), above zero.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view name,
                                                        std::string_view text);

}  // namespace baton::cli
