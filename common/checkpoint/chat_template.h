// SPDX-License-Identifier: Apache-2.0
// Which prompt format a checkpoint's chat template asks for.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"

namespace baton::checkpoint {

// Templates are programs (Jinja); none is run. The format is told by the
// markers that the template writes, and ChatML's default system message is
// taken from it. INVALID_ARGUMENT, with the names there are, when the markers
// belong to no format.
absl::StatusOr<Checkpoint::ChatFormat> RecognizeChatTemplate(std::string_view chat_template,
                                                             std::string_view source);

}  // namespace baton::checkpoint
