// SPDX-License-Identifier: Apache-2.0
// Formats of strings in schemas.
#pragma once

#include <optional>
#include <string_view>

namespace baton::grammar {

// A regular expression, anchored, all of whose texts have the format; of the
// format's texts it takes the usual ones. Nothing for an unknown format.
std::optional<std::string_view> FormatPattern(std::string_view format);

}  // namespace baton::grammar
