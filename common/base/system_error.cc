// SPDX-License-Identifier: Apache-2.0
#include "common/base/system_error.h"

#include <system_error>

namespace baton {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

}  // namespace baton
