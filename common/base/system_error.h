// SPDX-License-Identifier: Apache-2.0
// What the system says of an errno value.
#pragma once

#include <string>

namespace baton {

// Thread-safe, unlike strerror.
std::string ErrnoText(int error);

}  // namespace baton
