// SPDX-License-Identifier: Apache-2.0
// UCX in this process, as all connections share it.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton::transport {

// UCX's words for `what` having failed. UNAVAILABLE but for want of memory,
// which is RESOURCE_EXHAUSTED.
absl::Status UcxError(const char* what, ucs_status_t status);

// The devices, opened. Settings are UCX's own (UCX_TLS, UCX_NET_DEVICES, …) but
// for two that a peer's death is noticed by. Thread-safe.
class UcxContext {
 public:
  // Made for the first who asks, gone with the last. UNAVAILABLE: UCX finds
  // nothing that it could use, or UCX_* says so.
  static absl::StatusOr<std::shared_ptr<UcxContext>> Get();
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h handle() const { return handle_; }

 private:
  explicit UcxContext(ucp_context_h handle) : handle_(handle) {}
  static absl::StatusOr<std::shared_ptr<UcxContext>> Make();

  const ucp_context_h handle_;
};

// Memory of UCX's own allocator, registered with every device once: what is
// allocated elsewhere UCX copies piece by piece through messages of its own,
// where it has no RDMA (measured: a tenth of the speed and less).
class UcxMemory {
 public:
  // RESOURCE_EXHAUSTED: no memory, or the limit on locked memory.
  static absl::StatusOr<UcxMemory> Make(std::shared_ptr<UcxContext> context, size_t bytes);
  UcxMemory(UcxMemory&& other) noexcept;
  UcxMemory& operator=(UcxMemory&&) = delete;
  // Nobody can write there any more: the key is void from here on.
  ~UcxMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  ucp_mem_h handle() const { return handle_; }
  // What a peer needs to write there.
  absl::StatusOr<std::string> Key() const;

 private:
  UcxMemory(std::shared_ptr<UcxContext> context, ucp_mem_h handle)
      : context_(std::move(context)), handle_(handle) {}

  std::shared_ptr<UcxContext> context_;
  ucp_mem_h handle_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace baton::transport
