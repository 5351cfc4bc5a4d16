// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ipc/ipc_channel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/transport/frame.h"

namespace baton::transport {

IpcChannel::IpcChannel(const ChannelContext& context)
    : context_(context),
      slice_bytes_(context.wire.LayerBytes()),
      frame_bytes_(std::min(
          {context.options.ring_bytes, size_t{kMaxPayloadBytes}, kMostIpcSlices * slice_bytes_})) {}

void IpcChannel::Welcomed(const baton::v1::HandoffWelcome& /*welcome*/, Done ready) {
  ready_ = std::move(ready);  // the receiver says whether it can map the pool
}

bool IpcChannel::CanSend(size_t bytes) const {
  return under_way_.empty() || bytes_under_way_ + bytes <= context_.options.ring_bytes;
}

void IpcChannel::Stage(baton::v1::Put& /*put*/, Sources sources) { staged_ = sources; }

// The layers of a block stand one behind the other, in the arena as in the pool.
void IpcChannel::StageInPool(baton::v1::Put& put, Sources places) {
  const size_t layers = put.layer_end() - put.layer_begin();
  for (size_t i = 0; i < places.size(); i += layers) {
    // The receiver refuses what is not of the pool.
    put.add_pool_offsets(context_.options.pool->OffsetOf(places[i]).value_or(UINT64_MAX));
  }
}

void IpcChannel::Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
                      EventLoop::Task sent) {
  const baton::v1::Put& put = frame.put();
  if (put.pool_offsets().empty()) {
    return stream->SendWithPayload(frame, std::exchange(staged_, {}), std::move(sent));
  }
  stream->Send(frame);
  bytes_under_way_ += put.bytes();
  under_way_.push_back({put.transfer(), put.bytes(), std::move(sent)});
}

absl::Status IpcChannel::Consumed(uint64_t bytes) {
  while (bytes > 0) {
    if (under_way_.empty() || under_way_.front().bytes > bytes) {
      return absl::InvalidArgumentError("the receiver says it consumed what it was not sent");
    }
    bytes -= under_way_.front().bytes;
    bytes_under_way_ -= under_way_.front().bytes;
    context_.loop->Defer(std::move(under_way_.front().sent));
    under_way_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status IpcChannel::OnIpcPath(const baton::v1::IpcPath& path) {
  if (ready_) {
    const absl::Status mapped =
        path.lost().empty()
            ? absl::OkStatus()
            : absl::UnavailableError(absl::StrCat("the receiver cannot copy: ", path.lost()));
    context_.loop->Defer([ready = std::exchange(ready_, nullptr), mapped] { ready(mapped); });
    return absl::OkStatus();
  }
  if (lost_ || path.lost().empty()) return absl::InvalidArgumentError("a path that is known");
  LogWarning("cuda_ipc is lost, kv goes on over its socket", {{"reason", path.lost()}});
  lost_ = true;
  bytes_under_way_ = 0;
  for (const UnderWay& put : std::exchange(under_way_, {})) context_.again(put.transfer);
  return absl::OkStatus();
}

}  // namespace baton::transport
