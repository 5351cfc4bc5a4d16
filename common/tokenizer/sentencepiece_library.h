// SPDX-License-Identifier: Apache-2.0
// The isolated sentencepiece library.
#pragma once

#include "absl/status/statusor.h"
#include "common/tokenizer/sentencepiece_shim/shim.h"

namespace baton::tokenizer {

// Opens libbaton_sentencepiece.so at the first call and keeps it for the life
// of the process. Sought beside the executable's folder (../lib, which is the
// place in a build and in an installation) and then where it was built.
// Thread-safe. FAILED_PRECONDITION when it is not found or does not load.
absl::StatusOr<const BatonSpApi*> SentencePieceLibrary();

}  // namespace baton::tokenizer
