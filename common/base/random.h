// SPDX-License-Identifier: Apache-2.0
// Random numbers for what must not be guessed or must not meet by chance:
// tickets, seeds, ids. Not for sampling, which is reproducible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace baton {

// From the kernel. Thread-safe.
std::string RandomBytes(size_t count);
uint64_t RandomU64();

}  // namespace baton
