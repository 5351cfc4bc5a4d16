// SPDX-License-Identifier: Apache-2.0
// Philox-4x32-10: random bits as a pure function of key and counter (Salmon et
// al., 2011, "Parallel Random Numbers: As Easy as 1, 2, 3").
#pragma once

#include <array>
#include <cstdint>

namespace baton::sampling {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace baton::sampling
