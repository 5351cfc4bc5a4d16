// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ipc/ipc_transport.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/transport/ipc/ipc_channel.h"
#include "common/transport/ipc/ipc_runtime.h"
#include "common/transport/ipc/ipc_source.h"
#include "common/transport/shm/unix_socket.h"

namespace baton::transport {
namespace {

// UNAVAILABLE, so that the sender takes the next of the transports.
absl::Status CheckBlocks(const kv::KvLayout& layout, bool converts) {
  if (converts) {
    return absl::UnavailableError(
        "cuda_ipc copies blocks as they stand, and both ends store KV in different types");
  }
  if (layout.LayerBytes() % kIpcAlignment != 0) {
    return absl::UnavailableError(absl::StrCat("cuda_ipc copies slices of a multiple of ",
                                               kIpcAlignment, " bytes, they have ",
                                               layout.LayerBytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<OutgoingChannel> MakeIpcChannel(const ChannelContext& context,
                                               baton::v1::HandoffHello& hello) {
  BATON_RETURN_IF_ERROR(CheckBlocks(context.wire, context.converts));
  UniqueFd pass(dup(context.options.pool->fd));
  if (!pass.valid()) return absl::ResourceExhaustedError("no descriptor for the KV pool");
  hello.set_ring_bytes(context.options.pool->mapped_bytes);
  return OutgoingChannel{std::make_unique<IpcChannel>(context), std::move(pass)};
}

absl::StatusOr<std::unique_ptr<PutSource>> MakeIpcSource(const SourceContext& context,
                                                         const baton::v1::HandoffHello& hello,
                                                         UniqueFd passed,
                                                         baton::v1::HandoffWelcome&) {
  BATON_RETURN_IF_ERROR(CheckBlocks(context.layout, context.converts));
  if (!passed.valid() || hello.ring_bytes() == 0) {
    return absl::InvalidArgumentError("a hello of cuda_ipc without the sender's memory");
  }
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<IpcRuntime> runtime,
                         IpcRuntime::Get(context.options.device));
  return std::make_unique<IpcSource>(std::move(runtime), std::move(passed), hello.ring_bytes(),
                                     context);
}

absl::StatusOr<Support> PrepareIpc(const std::string& device) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<IpcRuntime> runtime, IpcRuntime::Get(device));
  return Support(std::move(runtime));
}

}  // namespace

absl::Status NoPool(const std::string& device) {
  return absl::UnavailableError(absl::StrCat(
      "cuda_ipc needs KV blocks in memory of a GPU that other processes can map; device ", device,
      " has none"));
}

Transport IpcTransport() {
  return {"cuda_ipc",
          SocketKind::kUnix,
          PrepareIpc,
          DialUnix,
          MakeIpcChannel,
          [](const ReceiverOptions& options) {
            return options.cuda_ipc && !options.socket_dir.empty();
          },
          ListenUnix,
          MakeIpcSource};
}

}  // namespace baton::transport
