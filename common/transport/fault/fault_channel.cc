// SPDX-License-Identifier: Apache-2.0
#include "common/transport/fault/fault_channel.h"

#include <vector>

namespace baton::transport {
namespace {

class FaultChannel final : public PutChannel {
 public:
  FaultChannel(std::shared_ptr<FrameFaults> faults, std::unique_ptr<PutChannel> inner)
      : faults_(std::move(faults)), inner_(std::move(inner)) {}

  size_t frame_bytes() const override { return inner_->frame_bytes(); }
  bool CanSend(size_t bytes) const override { return inner_->CanSend(bytes); }
  absl::Status Consumed(uint64_t bytes) override { return inner_->Consumed(bytes); }
  absl::Status Arrived(const baton::v1::Arrived& arrived) override {
    return inner_->Arrived(arrived);
  }
  absl::Status OnPath(const baton::v1::NcclPath& path) override { return inner_->OnPath(path); }
  absl::Status OnIpcPath(const baton::v1::IpcPath& path) override {
    return inner_->OnIpcPath(path);
  }
  bool takes_pool() const override { return inner_->takes_pool(); }
  bool bounds_opening() const override { return inner_->bounds_opening(); }
  void LosePath() override { inner_->LosePath(); }
  void Welcomed(const baton::v1::HandoffWelcome& welcome, Done ready) override {
    inner_->Welcomed(welcome, std::move(ready));
  }
  void SendBehindPuts(const baton::v1::HandoffFrame& frame, FrameStream* stream) override {
    inner_->SendBehindPuts(frame, stream);
  }

  void Stage(baton::v1::Put& put, Sources sources) override {
    const uint64_t frame = ++faults_->frames;
    faults_->bytes += put.bytes();
    if (frame != faults_->plan.corrupt_frame && frame != faults_->plan.truncate_frame) {
      return inner_->Stage(put, sources);
    }
    // Copied: the caller's bytes stay as they are. One frame is out at a time,
    // so these last until the next.
    altered_.assign(sources.begin(), sources.end());
    if (frame == faults_->plan.corrupt_frame) {
      copy_.assign(sources[0].begin(), sources[0].end());
      copy_[copy_.size() / 2] ^= std::byte{1};
      altered_[0] = copy_;
    } else if (altered_.size() > 1) {
      altered_.pop_back();
    } else {
      altered_[0] = altered_[0].first(altered_[0].size() / 2);
    }
    inner_->Stage(put, altered_);
  }

  // The frame names other bytes than those of its checksum, or too few.
  void StageInPool(baton::v1::Put& put, Sources places) override {
    const uint64_t frame = ++faults_->frames;
    faults_->bytes += put.bytes();
    inner_->StageInPool(put, places);
    if (frame == faults_->plan.corrupt_frame) put.set_pool_offsets(0, put.pool_offsets(0) ^ 16);
    if (frame == faults_->plan.truncate_frame) put.mutable_pool_offsets()->RemoveLast();
  }

  void Send(const baton::v1::HandoffFrame& frame, FrameStream* stream,
            EventLoop::Task sent) override {
    inner_->Send(frame, stream, std::move(sent));
    const uint64_t lost_after = faults_->plan.lose_path_after_bytes;
    if (lost_after != 0 && faults_->bytes >= lost_after) inner_->LosePath();
    const uint64_t limit = faults_->plan.kill_after_bytes;
    if (limit == 0 || faults_->bytes < limit || faults_->broken) return;
    faults_->broken = true;
    faults_->break_connections();
  }

 private:
  const std::shared_ptr<FrameFaults> faults_;
  const std::unique_ptr<PutChannel> inner_;
  std::vector<std::span<const std::byte>> altered_;
  std::vector<std::byte> copy_;
};

}  // namespace

std::unique_ptr<PutChannel> MakeFaultChannel(std::shared_ptr<FrameFaults> faults,
                                             std::unique_ptr<PutChannel> inner) {
  return std::make_unique<FaultChannel>(std::move(faults), std::move(inner));
}

}  // namespace baton::transport
