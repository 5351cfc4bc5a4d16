// SPDX-License-Identifier: Apache-2.0
// The receiver's end of a connection of nccl.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transport/nccl/nccl_pair.h"
#include "common/transport/nccl/nccl_runtime.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

class NcclSource final : public PutSource {
 public:
  NcclSource(std::shared_ptr<NcclRuntime> runtime, std::shared_ptr<void> place, uint64_t ring_bytes,
             const SourceContext& context);

  absl::StatusOr<const std::byte*> Locate(const baton::v1::Put& put,
                                          uint32_t payload_bytes) const override;
  absl::Status OnPath(const baton::v1::NcclPath& path) override;
  absl::Status OnExpect(const baton::v1::NcclExpect& expect) override;
  bool reports_consumed() const override { return true; }

 private:
  void Begin(const NcclUniqueId& id);
  void OnMoved(uint64_t count);
  // Gives the communicator up and tells the sender why.
  void OnLost(const absl::Status& reason);

  const std::shared_ptr<NcclRuntime> runtime_;  // first: the rest ends on its thread
  const std::shared_ptr<void> place_;
  const std::shared_ptr<NcclHostRing> ring_;
  EventLoop* const loop_;
  const absl::Duration stall_limit_;
  const std::function<void(const baton::v1::HandoffFrame&)> send_;

  uint32_t attempt_ = 0;
  bool up_ = false;                 // line_ is one to take bytes by
  std::unique_ptr<NcclLine> line_;  // the latest
  std::byte* data_ = nullptr;       // of ring_, once it is there
  std::deque<uint64_t> expected_;   // sizes of what has not come: the trial's (0), then puts'
  uint64_t expected_bytes_ = 0;
};

}  // namespace baton::transport
