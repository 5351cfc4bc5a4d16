// SPDX-License-Identifier: Apache-2.0
// The receiver's end of cuda_ipc: copies out of the sender's pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/v1/handoff.pb.h"
#include "common/base/unique_fd.h"
#include "common/transport/ipc/ipc_peer.h"
#include "common/transport/ipc/ipc_runtime.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

class IpcSource final : public PutSource {
 public:
  // REQUIRES: context.options.pool.
  IpcSource(std::shared_ptr<IpcRuntime> runtime, UniqueFd pool, size_t pool_bytes,
            const SourceContext& context);
  ~IpcSource() override;

  // Of puts that carry their bytes.
  absl::StatusOr<const std::byte*> Locate(const baton::v1::Put& put,
                                          uint32_t payload_bytes) const override;
  bool Pulls(const baton::v1::Put& put, uint32_t payload_bytes) const override {
    return payload_bytes == 0 && put.bytes() > 0;
  }
  bool lost_path() const override { return lost_; }
  absl::Status PlanPull(const baton::v1::Put& put, const Ticket& ticket,
                        std::vector<PullRun>& runs) const override;
  void Pull(std::vector<PullRun> runs, Pulled done) override;
  bool reports_consumed() const override { return false; }

 private:
  // What the thread says of the way.
  void OnState(const absl::Status& state);
  void SendState(const absl::Status& state);
  // Where on the device the block's bytes stand that a ticket gives out.
  absl::Status AddBlock(const baton::v1::Put& put, const Ticket& ticket, uint32_t block,
                        size_t from, std::vector<PullRun>& runs) const;

  const std::shared_ptr<IpcRuntime> runtime_;
  const SourceContext context_;
  const size_t pool_bytes_, slice_bytes_;
  // For what the thread posts when this is gone.
  const std::shared_ptr<IpcSource*> alive_ = std::make_shared<IpcSource*>(this);
  const std::shared_ptr<IpcPeer> peer_;  // the thread's
  bool lost_ = false;
};

}  // namespace baton::transport
