// SPDX-License-Identifier: Apache-2.0
#include "common/transport/nccl/nccl_transport.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/transport/nccl/nccl_channel.h"
#include "common/transport/nccl/nccl_source.h"
#include "common/transport/ring_channel.h"
#include "common/transport/ring_space.h"
#include "common/transport/tcp/tcp_socket.h"

namespace baton::transport {
namespace {

struct Admission {
  std::shared_ptr<NcclRuntime> runtime;
  std::shared_ptr<void> place;
};

// Within the bound on communicators. UNAVAILABLE, so that the sender takes the next
// of the transports.
absl::StatusOr<Admission> Admit(const std::string& device) {
  Admission admission;
  BATON_ASSIGN_OR_RETURN(admission.runtime, NcclRuntime::Get(device));
  admission.place = admission.runtime->TakePlace();
  if (admission.place != nullptr) return admission;
  return absl::UnavailableError(absl::StrCat("nccl: all ", NcclRuntime::kMaxCommunicators,
                                             " communicators of this process are in use"));
}

absl::StatusOr<OutgoingChannel> MakeNcclChannel(const ChannelContext& context,
                                                baton::v1::HandoffHello& hello) {
  const uint64_t bytes = std::min<uint64_t>(context.options.ring_bytes, kMostReceiverRing);
  BATON_ASSIGN_OR_RETURN(Admission admission, Admit(context.options.device));
  hello.set_ring_bytes(bytes);
  return OutgoingChannel{std::make_unique<NcclChannel>(std::move(admission.runtime),
                                                       std::move(admission.place), bytes, context),
                         UniqueFd()};
}

absl::StatusOr<std::unique_ptr<PutSource>> MakeNcclSource(const SourceContext& context,
                                                          const baton::v1::HandoffHello& hello,
                                                          UniqueFd, baton::v1::HandoffWelcome&) {
  BATON_RETURN_IF_ERROR(CheckRingBytes(hello.ring_bytes(), kMostReceiverRing));
  BATON_ASSIGN_OR_RETURN(Admission admission, Admit(context.options.device));
  return std::make_unique<NcclSource>(std::move(admission.runtime), std::move(admission.place),
                                      hello.ring_bytes(), context);
}

absl::StatusOr<Support> PrepareNccl(const std::string& device) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<NcclRuntime> runtime, NcclRuntime::Get(device));
  return Support(std::move(runtime));
}

}  // namespace

Transport NcclTransport() {
  return {
      "nccl",
      SocketKind::kTcp,
      PrepareNccl,
      DialTcp,
      MakeNcclChannel,
      [](const ReceiverOptions& options) { return options.nccl && !options.tcp_address.empty(); },
      ListenTcp,
      MakeNcclSource};
}

}  // namespace baton::transport
