// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace baton::tokenizer {

std::string NormalizeNfc(std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, std::free);
  // Valid text fails for want of memory alone.
  if (size < 0) return std::string(text);
  return {reinterpret_cast<const char*>(composed), static_cast<size_t>(size)};
}

}  // namespace baton::tokenizer
