// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, RFC 3720 appendix B.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

// Continues `crc` (0 at the start) over `bytes`. Uses SSE4.2 where the CPU has
// it; the result is the same everywhere.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace baton
