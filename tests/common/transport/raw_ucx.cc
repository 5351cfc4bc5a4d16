// SPDX-License-Identifier: Apache-2.0
#include "tests/common/transport/raw_ucx.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>

#ifdef BATON_HAS_UCX
#include "common/transport/event_loop.h"
#include "common/transport/ucx/ucx_peer.h"
#endif

namespace baton::transport {

#ifdef BATON_HAS_UCX

struct RawUcx::Impl {
  explicit Impl(size_t bytes) : memory(UcxMemory::Make(UcxContext::Get().value(), bytes).value()) {}

  UcxMemory memory;
  const std::shared_ptr<EventLoop> loop = EventLoop::Make("raw-ucx").value();
  uint64_t ring = 0;
  std::unique_ptr<UcxPeer> peer;  // the loop's
};

RawUcx::RawUcx(const baton::v1::UcxRing& ring, size_t bytes)
    : impl_(std::make_unique<Impl>(bytes)) {
  impl_->ring = ring.address();
  std::promise<absl::Status> connected;
  impl_->loop->Post([impl = impl_.get(), &ring, &connected] {
    impl->peer = UcxPeer::Make(UcxContext::Get().value(), impl->loop.get(), absl::Seconds(5),
                               [](const absl::Status&) {})
                     .value();
    connected.set_value(impl->peer->Connect(ring.worker_address(), ring.key()));
  });
  EXPECT_EQ(connected.get_future().get(), absl::OkStatus());
}

RawUcx::~RawUcx() {
  impl_->loop->Stop([impl = impl_.get()] { impl->peer.reset(); });
}

void RawUcx::Put(const std::string& bytes) {
  const auto arrived = std::make_shared<std::promise<void>>();
  impl_->loop->Post([impl = impl_.get(), bytes, arrived] {
    std::memcpy(impl->memory.data(), bytes.data(), bytes.size());
    impl->peer->Put(impl->memory, 0, bytes.size(), impl->ring, [arrived] { arrived->set_value(); });
  });
  arrived->get_future().wait_for(std::chrono::seconds(5));
}

#else

struct RawUcx::Impl {};
RawUcx::RawUcx(const baton::v1::UcxRing&, size_t) : impl_(std::make_unique<Impl>()) {}
RawUcx::~RawUcx() = default;
void RawUcx::Put(const std::string&) {}

#endif

}  // namespace baton::transport
