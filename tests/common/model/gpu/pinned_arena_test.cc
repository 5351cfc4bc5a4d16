// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/pinned_arena.h"

#include <gtest/gtest.h>

#include <map>

namespace baton::model::gpu {
namespace {

// Pins up to a limit, and knows what is pinned.
std::map<void*, size_t> pinned;
size_t pin_limit = 0;

dev::DeviceTable PinningTable() {
  dev::DeviceTable table{};
  table.pin = [](void* memory, size_t bytes) {
    size_t sum = bytes;
    for (const auto& piece : pinned) sum += piece.second;
    return sum <= pin_limit && pinned.emplace(memory, bytes).second;
  };
  table.unpin = [](void* memory) { EXPECT_EQ(pinned.erase(memory), 1u); };
  return table;
}

kv::KvArena Arena(uint32_t blocks) {
  kv::KvLayout layout;  // of 1.5 MiB blocks: some lie in two pieces
  layout.layers = 12;
  layout.kv_heads = 8;
  layout.head_dim = 128;
  return *kv::KvArena::Create(layout, blocks);
}

TEST(PinnedArena, PinsThePiecesOfBlocksThatMove) {
  const kv::KvArena arena = Arena(50);  // 75 MiB
  const dev::DeviceTable table = PinningTable();
  pin_limit = size_t{1} << 30;
  {
    PinnedArena pins(arena, table);
    EXPECT_TRUE(pinned.empty());
    pins.Pin(kv::BlockId{3});
    pins.Pin(kv::BlockId{4});
    EXPECT_EQ(pins.pinned_bytes(), PinnedArena::kPieceBytes);
    pins.Pin(kv::BlockId{21});  // over the border at 32 MiB
    EXPECT_EQ(pins.pinned_bytes(), 2 * PinnedArena::kPieceBytes);
    pins.Pin(kv::BlockId{49});
    EXPECT_EQ(pins.pinned_bytes(), 50 * arena.layout().BlockBytes()) << "the last piece is short";
    pins.Unpin(kv::BlockId{22}, 5);
    EXPECT_EQ(pinned.size(), 2u);
    pins.Pin(kv::BlockId{25});
    EXPECT_EQ(pinned.size(), 3u);
  }
  EXPECT_TRUE(pinned.empty());
}

TEST(PinnedArena, GoesOnWithoutWhereTheDriverPinsNoMore) {
  const kv::KvArena arena = Arena(50);
  const dev::DeviceTable table = PinningTable();
  pin_limit = PinnedArena::kPieceBytes;
  PinnedArena pins(arena, table);
  pins.Pin(kv::BlockId{0});
  pins.Pin(kv::BlockId{49});
  pins.Pin(kv::BlockId{30});
  EXPECT_EQ(pins.pinned_bytes(), PinnedArena::kPieceBytes);
  pins.Unpin(kv::BlockId{0}, 10);
  pins.Pin(kv::BlockId{30});
  EXPECT_EQ(pins.pinned_bytes(), PinnedArena::kPieceBytes);
}

}  // namespace
}  // namespace baton::model::gpu
