// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace baton::tokenizer {

// Unicode's normalization form C (UAX 15): canonical composition, so that
// "e" and a combining accent become one "é". REQUIRES: valid UTF-8.
std::string NormalizeNfc(std::string_view text);

}  // namespace baton::tokenizer
