// SPDX-License-Identifier: Apache-2.0
// The one KvSender: links by receiver, and the writers that feed them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/transport/event_loop.h"
#include "common/transport/kv_transport.h"
#include "common/transport/put_channel.h"

namespace baton::transport {

struct SenderCore;

class SocketSender final : public KvSender {
 public:
  static absl::StatusOr<std::unique_ptr<SocketSender>> Make(const SenderOptions& options,
                                                            const kv::KvLayout& layout);
  // Calls in flight end with UNAVAILABLE. Writers may outlive the sender. Not
  // to be called from a callback.
  ~SocketSender() override;

  std::unique_ptr<KvWriter> Open(const std::vector<Endpoint>& endpoints,
                                 const ReserveRequest& request, absl::Time deadline,
                                 Done granted) override;

  // Puts `decorate` around the channel of every connection made from now on.
  using Decorate = std::function<std::unique_ptr<PutChannel>(std::unique_ptr<PutChannel>)>;
  void DecorateChannels(Decorate decorate);
  // Cuts all connections as if the network had. Any thread.
  void BreakConnections();

 private:
  explicit SocketSender(std::shared_ptr<SenderCore> core);

  const std::shared_ptr<SenderCore> core_;
};

}  // namespace baton::transport
