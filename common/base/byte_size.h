// SPDX-License-Identifier: Apache-2.0
// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// "8GiB", "512 MiB", "1.5gib", "2GB" (powers of 1000), "1073741824" (bytes).
// INVALID_ARGUMENT quotes the text.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

}  // namespace baton
