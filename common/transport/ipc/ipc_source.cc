// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ipc/ipc_source.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/transport/ticket.h"

namespace baton::transport {
namespace {

// The device's thread may be the last to hear of a receiver that has gone.
void PostTo(const std::weak_ptr<EventLoop>& loop, EventLoop::Task task) {
  if (const std::shared_ptr<EventLoop> there = loop.lock()) there->Post(std::move(task));
}

}  // namespace

IpcSource::IpcSource(std::shared_ptr<IpcRuntime> runtime, UniqueFd pool, size_t pool_bytes,
                     const SourceContext& context)
    : runtime_(std::move(runtime)),
      context_(context),
      pool_bytes_(pool_bytes),
      slice_bytes_(context.layout.LayerBytes()),
      peer_([&] {
        const auto tell = [loop = context.loop->weak_from_this(),
                           self = std::weak_ptr(alive_)](const absl::Status& state) {
          PostTo(loop, [self, state] {
            if (const auto source = self.lock()) (*source)->OnState(state);
          });
        };
        return std::make_shared<IpcPeer>(&runtime_->device(), std::move(pool), pool_bytes,
                                         context.options.stall_limit, IpcPeer::Events{tell, tell});
      }()) {
  runtime_->thread().Post([thread = &runtime_->thread(), peer = peer_] {
    thread->Add(peer);
    peer->Open();
  });
}

IpcSource::~IpcSource() {
  runtime_->thread().Post([peer = peer_] { peer->Close(); });
}

void IpcSource::OnState(const absl::Status& state) {
  if (state.ok()) return SendState(state);
  lost_ = true;
  // The thread may have copies before it that it has not looked at. It answers them
  // before the sender hears of the loss and sends their bytes.
  runtime_->thread().Post(
      [loop = context_.loop->weak_from_this(), self = std::weak_ptr(alive_), state] {
        PostTo(loop, [self, state] {
          if (const auto source = self.lock()) (*source)->SendState(state);
        });
      });
}

void IpcSource::SendState(const absl::Status& state) {
  baton::v1::HandoffFrame frame;
  baton::v1::IpcPath& path = *frame.mutable_ipc_path();
  if (!state.ok()) {
    path.set_lost(std::string(state.message()));
    LogWarning("cuda_ipc is lost", {{"reason", path.lost()}});
  }
  context_.send(frame);
}

absl::StatusOr<const std::byte*> IpcSource::Locate(const baton::v1::Put& put,
                                                   uint32_t payload_bytes) const {
  if (payload_bytes == put.bytes()) return nullptr;
  return absl::InvalidArgumentError(
      absl::StrCat("a put of ", put.bytes(), " bytes with ", payload_bytes, " behind it"));
}

absl::Status IpcSource::PlanPull(const baton::v1::Put& put, const Ticket& ticket,
                                 std::vector<PullRun>& runs) const {
  const uint32_t blocks = put.block_end() - put.block_begin();
  const uint32_t layers = put.layer_end() - put.layer_begin();
  const uint64_t slices = uint64_t{blocks} * layers;
  if (slices > kMostIpcSlices) {
    return absl::InvalidArgumentError(
        absl::StrCat("a put of ", slices, " slices, the limit is ", kMostIpcSlices));
  }
  if (static_cast<uint32_t>(put.pool_offsets_size()) != blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a put of ", blocks, " blocks at ", put.pool_offsets_size(), " places"));
  }
  const size_t bytes = size_t{layers} * slice_bytes_;
  for (uint32_t i = 0; i < blocks; ++i) {
    const uint64_t from = put.pool_offsets(static_cast<int>(i));
    if (bytes > pool_bytes_ || from > pool_bytes_ - bytes || from % kIpcAlignment != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a put of ", bytes, " bytes at ", from, " of a pool of ", pool_bytes_));
    }
    BATON_RETURN_IF_ERROR(AddBlock(put, ticket, put.block_begin() + i, from, runs));
  }
  return absl::OkStatus();
}

absl::Status IpcSource::AddBlock(const baton::v1::Put& put, const Ticket& ticket, uint32_t block,
                                 size_t from, std::vector<PullRun>& runs) const {
  const kv::DevicePool& own = *context_.options.pool;
  const size_t first = runs.size();
  for (uint32_t layer = put.layer_begin(); layer < put.layer_end(); ++layer) {
    // Null: it has landed before, and nothing is written over it.
    std::byte* to = ticket.Target(block, layer);
    if (to != nullptr) {
      const std::optional<size_t> offset = own.OffsetOf({to, slice_bytes_});
      if (!offset) return absl::InternalError("a block was granted that is not of the pool");
      to = own.data + *offset;
    }
    PullRun* const last = runs.size() > first ? &runs.back() : nullptr;
    if (last != nullptr && (last->to == nullptr) == (to == nullptr)) {
      ++last->slices;
    } else {
      runs.push_back({from, to, 1});
    }
    from += slice_bytes_;
  }
  return absl::OkStatus();
}

void IpcSource::Pull(std::vector<PullRun> runs, Pulled done) {
  auto tell = [loop = context_.loop->weak_from_this(), done = std::move(done)](
                  const auto& checksums) { PostTo(loop, [done, checksums] { done(checksums); }); };
  runtime_->thread().Post([peer = peer_, runs = std::move(runs), tell = std::move(tell),
                           bytes = static_cast<uint32_t>(slice_bytes_)]() mutable {
    peer->Add({std::move(runs), bytes, std::move(tell)});
  });
}

}  // namespace baton::transport
