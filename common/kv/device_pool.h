// SPDX-License-Identifier: Apache-2.0
// An arena's blocks in a GPU's memory, which other processes can map.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

namespace baton::kv {

// Laid out as the arena, byte for byte, whose addresses so name places in it too.
// Thread safety: immutable. Belongs to the model that made it.
struct DevicePool {
  std::byte* data = nullptr;        // on the device
  const std::byte* host = nullptr;  // the arena
  size_t size = 0;                  // of both
  size_t mapped_bytes = 0;          // what others map: `size`, rounded up
  int fd = -1;                      // what names the memory to other processes

  // How far into the pool the place is that an address of the arena names; none:
  // it is not of the arena.
  std::optional<size_t> OffsetOf(std::span<const std::byte> place) const {
    if (std::less<>()(place.data(), host)) return std::nullopt;
    const auto offset = static_cast<size_t>(place.data() - host);
    if (offset > size || place.size() > size - offset) return std::nullopt;
    return offset;
  }
};

}  // namespace baton::kv
