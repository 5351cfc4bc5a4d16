// SPDX-License-Identifier: Apache-2.0
// Addresses as flags and messages spell them.
#pragma once

#include <optional>
#include <string>

namespace baton {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
};

// Cuts HOST:PORT at its last colon; nothing else is checked, either part may be
// empty. Absent without a colon.
std::optional<HostPort> SplitHostPort(const std::string& text);

}  // namespace baton
