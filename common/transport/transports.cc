// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/log.h"
#include "common/transport/ipc/ipc_transport.h"
#include "common/transport/nccl/nccl_transport.h"
#include "common/transport/put_channel.h"
#include "common/transport/shm/shm_transport.h"
#include "common/transport/tcp/tcp_transport.h"
#ifdef BATON_HAS_UCX
#include "common/transport/ucx/ucx_transport.h"
#endif

namespace baton::transport {
namespace {

// Where the kernel shows InfiniBand and RoCE devices.
bool HasRdmaDevice() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

}  // namespace

std::span<const Transport> Transports() {
  static const std::vector<Transport> kTransports = {IpcTransport(), ShmTransport(),
#ifdef BATON_HAS_UCX
                                                     UcxTransport(),
#endif
                                                     NcclTransport(), TcpTransport()};
  return kTransports;
}

const Transport* FindTransport(const std::string& name) {
  for (const Transport& transport : Transports()) {
    if (name == transport.name) return &transport;
  }
  return nullptr;
}

std::vector<std::string> TransportNames() {
  std::vector<std::string> names;
  for (const Transport& transport : Transports()) names.emplace_back(transport.name);
  return names;
}

std::vector<std::string> DefaultTransports(const std::string& device) {
  std::vector<std::string> names = TransportNames();
  if (!HasRdmaDevice()) std::erase(names, "ucx");
  if (device == "cpu") std::erase(names, "cuda_ipc");
  if (!device.starts_with("cuda")) {
    std::erase(names, "nccl");
  } else if (const auto nccl = FindTransport("nccl")->prepare(device); !nccl.ok()) {
    LogWarning("nccl is not offered", {{"reason", std::string(nccl.status().message())}});
    std::erase(names, "nccl");
  }
  return names;
}

}  // namespace baton::transport
