// SPDX-License-Identifier: Apache-2.0
// A sender made by hand, frame by frame, that can say anything.
#pragma once

#include <memory>
#include <string>

#include "baton/v1/handoff.pb.h"
#include "common/base/unique_fd.h"
#include "common/kv/layout.h"
#include "common/transport/frame.h"
#include "common/transport/kv_transport.h"
#include "common/transport/shm/ring.h"
#include "tests/common/transport/raw_ucx.h"

namespace baton::transport {

class RawSender {
 public:
  static constexpr size_t kRingBytes = 1 << 20;

  // Connects (blocking); sends nothing.
  explicit RawSender(const Endpoint& endpoint);

  const std::string& transport() const { return endpoint_.transport; }
  int fd() const { return fd_.get(); }
  void Close() { fd_.Reset(); }

  // A hello that a receiver with `layout` welcomes.
  baton::v1::HandoffFrame Hello(const kv::KvLayout& layout, uint64_t incarnation = 1);
  // Sends it, with the ring's descriptor on shm and cuda_ipc.
  void SendHello(const baton::v1::HandoffFrame& hello);
  // Hello and welcome; false when refused.
  bool Greet(const kv::KvLayout& layout, uint64_t incarnation = 1);

  void Send(const baton::v1::HandoffFrame& frame);
  void SendBytes(const std::string& bytes, int pass = -1);
  // The next frame; one without content when the peer closed or said nothing for `patience`.
  baton::v1::HandoffFrame Read(absl::Duration patience = absl::Seconds(5));
  // Skips frames until one of the wanted kind.
  baton::v1::HandoffFrame ReadUntil(baton::v1::HandoffFrame::FrameCase kind);
  // Whether the peer closes the connection within patience.
  bool ReadsEnd();

  // Reserves and returns the grant.
  baton::v1::TicketGranted Reserve(uint64_t transfer, const std::string& key, uint32_t tokens);
  // A Put of `bytes` for a range, right in every field.
  baton::v1::Put MakePut(const baton::v1::TicketGranted& granted, const PutRange& range,
                         const std::string& bytes) const;
  // Sends the bytes the transport's way; fields of `put` go out as they are.
  void SendPut(baton::v1::Put put, const std::string& bytes);
  // On cuda_ipc, what a commit has to wait for.
  void AwaitConsumed();

 private:
  // Bytes travel in memory that goes along with the hello: a ring, or as if a GPU's pool.
  bool OwnMemory() const { return transport() == "shm" || transport() == "cuda_ipc"; }
  void NamePlaces(baton::v1::Put& put) const;

  const Endpoint endpoint_;
  UniqueFd fd_;
  Ring ring_;
  std::unique_ptr<RawUcx> ucx_;
};

}  // namespace baton::transport
