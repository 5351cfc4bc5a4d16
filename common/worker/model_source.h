// SPDX-License-Identifier: Apache-2.0
// From --model and its companions to a loaded model.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/grammar/token_trie.h"
#include "common/model/model.h"
#include "common/model/step_profile.h"
#include "common/worker/options.h"

namespace baton::worker {

// Loads the checkpoint, or makes the fake model. Errors name the flag or the
// file that is wrong. `profile` (may be null) hears where the time of steps goes.
absl::StatusOr<std::unique_ptr<model::Model>> MakeModel(const Options& options,
                                                        model::StepProfile* profile = nullptr);

// The model's tokens, for constraints. Reads the checkpoint again. FAILED_PRECONDITION
// when it has no tokenizer.
absl::StatusOr<std::shared_ptr<const grammar::TokenTrie>> LoadVocabulary(const Options& options);

}  // namespace baton::worker
