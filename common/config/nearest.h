// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the known name nearest to a mistyped one.
#pragma once

#include <string>
#include <vector>

namespace baton::config {

// The candidate with the smallest edit distance (Levenshtein, 1966) to `name`;
// empty when none is within a third of the name's length (at least 2).
std::string Nearest(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace baton::config
