// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/block_store.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace baton::model::gpu {
namespace {

constexpr int kNanByte = 0xff;

}  // namespace

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Create(const kv::KvArena& arena,
                                                               const Device& device) {
  const size_t block_bytes = arena.layout().BlockBytes();
  BATON_ASSIGN_OR_RETURN(Buffer pool, device.Allocate(block_bytes * arena.blocks(),
                                                      absl::StrCat("a KV pool of ", arena.blocks(),
                                                                   " blocks (--kv-memory)")));
  BATON_ASSIGN_OR_RETURN(Buffer indices, device.Allocate(2 * sizeof(uint32_t), "an index"));
  return std::unique_ptr<BlockStore>(
      new BlockStore(device, arena, std::move(pool), std::move(indices)));
}

void BlockStore::BeforeStep(const kv::KvArena& arena, std::span<const kv::BlockId> read,
                            std::span<const kv::BlockId> written) {
  for (const kv::BlockId block : read) {
    Valid& valid = valid_[static_cast<size_t>(block)];
    if (valid != Valid::kHost) continue;
    pins_.Pin(block);
    device_.table().copy_in(data() + static_cast<size_t>(block) * block_bytes_,
                            arena.Layer(block, 0), block_bytes_, device_.stream());
    valid = Valid::kBoth;
  }
  for (const kv::BlockId block : written) valid_[static_cast<size_t>(block)] = Valid::kDevice;
}

void BlockStore::BeforeHostReads(const kv::KvArena& arena, std::span<const kv::BlockId> blocks) {
  device_.table().bind_thread();
  bool any = false;
  for (const kv::BlockId block : blocks) {
    Valid& valid = valid_[static_cast<size_t>(block)];
    if (valid != Valid::kDevice) continue;
    pins_.Pin(block);
    device_.table().copy_out(arena.Layer(block, 0),
                             data() + static_cast<size_t>(block) * block_bytes_, block_bytes_,
                             device_.stream());
    valid = Valid::kBoth;
    any = true;
  }
  if (!any) return;
  const absl::Status status = device_.Finish();
  if (status.ok()) return;
  LogError("KV blocks could not be read from the GPU", {{"reason", status.ToString()}});
  for (const kv::BlockId block : blocks) {
    std::memset(arena.Layer(block, 0), kNanByte, block_bytes_);
    valid_[static_cast<size_t>(block)] = Valid::kHost;
  }
}

void BlockStore::AfterHostWrites(std::span<const kv::BlockId> blocks) {
  for (const kv::BlockId block : blocks) valid_[static_cast<size_t>(block)] = Valid::kHost;
}

void BlockStore::Copy(const kv::KvArena& arena, kv::BlockId from, kv::BlockId to) {
  if (valid_[static_cast<size_t>(from)] == Valid::kHost) {
    std::memcpy(arena.Layer(to, 0), arena.Layer(from, 0), block_bytes_);
    valid_[static_cast<size_t>(to)] = Valid::kHost;
    return;
  }
  device_.table().bind_thread();
  const std::array<uint32_t, 2> index = {static_cast<uint32_t>(from), static_cast<uint32_t>(to)};
  device_.table().copy_in(indices_.data(), index.data(), sizeof(index), device_.stream());
  device_.table().copy_blocks({data(), data(), indices_.as<uint32_t>(), indices_.as<uint32_t>() + 1,
                               block_bytes_, 0, block_bytes_, 0, block_bytes_, 1},
                              device_.stream());
  valid_[static_cast<size_t>(to)] = Valid::kDevice;
  if (const absl::Status status = device_.Finish(); !status.ok()) {
    LogError("a KV block could not be copied on the GPU", {{"reason", status.ToString()}});
  }
}

}  // namespace baton::model::gpu
