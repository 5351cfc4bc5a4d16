// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace baton::checkpoint {

// A Llama in GGUF with random weights of the given GGUF type; v and down of the
// other: F32 (0), Q4_0 (2), Q4_1 (3) or Q8_0 (8).
void WriteRandomLlama(const std::string& path, uint32_t type, uint32_t other_type);

}  // namespace baton::checkpoint
