// SPDX-License-Identifier: Apache-2.0
// UTF-8 as the Unicode Standard, table 3-7, defines it.
#pragma once

#include <cstddef>
#include <string_view>

namespace baton::client {

// Bytes at the start of `text` that are well-formed: text.size() when all are.
size_t ValidUtf8Prefix(std::string_view text);

}  // namespace baton::client
