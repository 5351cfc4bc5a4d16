// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/block_store.h"

#include <algorithm>
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
  std::unique_ptr<BlockStore> store(new BlockStore(device, arena));
  BATON_RETURN_IF_ERROR(store->Allocate(arena));
  return store;
}

absl::Status BlockStore::Allocate(const kv::KvArena& arena) {
  const size_t bytes = block_bytes_ * arena.blocks();
  absl::StatusOr<SharedBuffer> shared = device_.AllocateShared(bytes);
  if (shared.ok()) {
    shared_ = *std::move(shared);
    exported_ = {.data = shared_.data(),
                 .host = arena.Layer(kv::BlockId{0}, 0),
                 .size = bytes,
                 .mapped_bytes = shared_.bytes(),
                 .fd = shared_.fd()};
  } else {
    LogInfo("the KV pool is private to this process",
            {{"reason", std::string(shared.status().message())}});
    BATON_ASSIGN_OR_RETURN(private_,
                           device_.Allocate(bytes, absl::StrCat("a KV pool of ", arena.blocks(),
                                                                " blocks (--kv-memory)")));
  }
  BATON_ASSIGN_OR_RETURN(indices_, device_.Allocate(2 * sizeof(uint32_t), "an index"));
  BATON_ASSIGN_OR_RETURN(checksums_,
                         device_.AllocateHost(dev::ChecksumTask::kMostRuns * arena.layout().layers *
                                              sizeof(uint32_t)));
  return absl::OkStatus();
}

void BlockStore::CopyIn(std::byte* to, const std::byte* from, size_t bytes) {
  device_.table().copy_in(to, from, bytes, device_.stream());
  from_arena_ += bytes;
}

void BlockStore::MakeValidOnDevice(const kv::KvArena& arena, std::span<const kv::BlockId> blocks) {
  for (const kv::BlockId block : blocks) {
    Valid& valid = valid_[static_cast<size_t>(block)];
    if (valid != Valid::kHost) continue;
    pins_.Pin(block);
    CopyIn(Place(block), arena.Layer(block, 0), block_bytes_);
    valid = Valid::kBoth;
  }
}

void BlockStore::BeforeStep(const kv::KvArena& arena, std::span<const kv::BlockId> read,
                            std::span<const kv::BlockId> written) {
  MakeValidOnDevice(arena, read);
  for (const kv::BlockId block : written) valid_[static_cast<size_t>(block)] = Valid::kDevice;
}

absl::Status BlockStore::BeforePeerReads(const kv::KvArena& arena,
                                         std::span<const kv::BlockId> blocks,
                                         std::vector<uint32_t>& checksums) {
  device_.table().bind_thread();
  MakeValidOnDevice(arena, blocks);
  checksums.clear();
  dev::ChecksumTask task{};
  task.out = checksums_.as<uint32_t>();
  task.slices = arena.layout().layers;
  task.slice_bytes = static_cast<uint32_t>(arena.layout().LayerBytes());
  for (size_t first = 0; first < blocks.size(); first += task.count) {
    task.count = static_cast<uint32_t>(
        std::min<size_t>(dev::ChecksumTask::kMostRuns, blocks.size() - first));
    for (uint32_t i = 0; i < task.count; ++i) task.runs[i] = Place(blocks[first + i]);
    device_.table().checksums(task, device_.stream());
    BATON_RETURN_IF_ERROR(device_.Finish());
    checksums.insert(checksums.end(), task.out, task.out + size_t{task.count} * task.slices);
  }
  return absl::OkStatus();
}

void BlockStore::AfterLanding(const kv::KvArena& arena, std::span<const kv::BlockId> blocks,
                              const std::vector<bool>& in_pool) {
  device_.table().bind_thread();
  const kv::KvLayout& layout = arena.layout();
  bool copied = false;
  size_t slice = 0;
  for (const kv::BlockId block : blocks) {
    for (uint32_t layer = 0; layer < layout.layers; ++layer, ++slice) {
      if (in_pool[slice]) continue;
      pins_.Pin(block);
      CopyIn(Place(block) + layer * layout.LayerBytes(), arena.Layer(block, layer),
             layout.LayerBytes());
      copied = true;
    }
    valid_[static_cast<size_t>(block)] = Valid::kDevice;
  }
  // Slices of the arena are somebody else's once the block is valid on the device.
  if (!copied) return;
  if (const absl::Status status = device_.Finish(); !status.ok()) {
    LogError("KV that has landed could not be copied to the GPU", {{"reason", status.ToString()}});
  }
}

void BlockStore::BeforeHostReads(const kv::KvArena& arena, std::span<const kv::BlockId> blocks) {
  device_.table().bind_thread();
  bool any = false;
  for (const kv::BlockId block : blocks) {
    Valid& valid = valid_[static_cast<size_t>(block)];
    if (valid != Valid::kDevice) continue;
    pins_.Pin(block);
    device_.table().copy_out(arena.Layer(block, 0), Place(block), block_bytes_, device_.stream());
    to_arena_ += block_bytes_;
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
