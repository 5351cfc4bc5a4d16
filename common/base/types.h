// SPDX-License-Identifier: Apache-2.0
// Names for the integers that must not be mixed up.
#pragma once

#include <cstdint>

namespace baton {

// Index into a model's vocabulary.
using TokenId = uint32_t;

}  // namespace baton
