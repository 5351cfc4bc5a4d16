// SPDX-License-Identifier: Apache-2.0
#include "common/base/host_port.h"

namespace baton {

std::optional<HostPort> SplitHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  HostPort parts{text.substr(0, colon), text.substr(colon + 1)};
  std::string& host = parts.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return parts;
}

}  // namespace baton
