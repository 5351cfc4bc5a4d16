// SPDX-License-Identifier: Apache-2.0
// The model that the router answers for.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "baton/v1/worker.pb.h"
#include "common/base/types.h"
#include "common/chat/prompt_format.h"
#include "common/grammar/caches.h"
#include "common/tokenizer/tokenizer.h"

namespace baton::router {

// Thread-safe: immutable.
struct ServedModel {
  std::string name;
  std::string architecture;
  uint32_t vocabulary = 0;
  uint32_t context = 0;
  std::string fingerprint;
  std::vector<TokenId> end_tokens;
  // Null when the checkpoint has none: ids alone are served then.
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer;
  // Null when the model cannot chat.
  std::unique_ptr<const chat::PromptFormat> format;
  // Of requests' constraints; locks itself.
  const std::unique_ptr<grammar::ProgramCache> constraints =
      std::make_unique<grammar::ProgramCache>();

  std::string format_name() const { return format ? std::string(format->name()) : ""; }
};

struct ModelChoice {
  // Path of a checkpoint, "embedded", or "fake".
  std::string model = "embedded";
  // Empty: the checkpoint's own name.
  std::string name;
  // Empty: detected.
  std::string prompt_format;
};

// Where the served model is looked up. It is known from the start, but for
// "fake", where the first worker that attaches says what it is.
// Thread-safe.
class ModelSlot final {
 public:
  // Opens the checkpoint. Errors name the flag that helps.
  static absl::StatusOr<std::unique_ptr<ModelSlot>> Open(const ModelChoice& choice);
  // `model` null: taken from the first worker; `name` overrides its name then.
  explicit ModelSlot(std::shared_ptr<const ServedModel> model, std::string name = "");

  // Null before the model is known.
  std::shared_ptr<const ServedModel> Get() const;

  // Checks a worker's model against this one, or takes it when none is known.
  // FAILED_PRECONDITION names both fingerprints.
  absl::Status Admit(const v1::Hello& hello);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;
  const std::string name_;
};

}  // namespace baton::router
