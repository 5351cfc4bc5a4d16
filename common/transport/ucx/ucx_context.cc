// SPDX-License-Identifier: Apache-2.0
#include "common/transport/ucx/ucx_context.h"

#include <signal.h>
#include <stdlib.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace baton::transport {
namespace {

// UCX writes to standard output; its words belong into our log.
ucs_log_func_rc_t TakeLog(const char*, unsigned, const char*, ucs_log_level_t level,
                          const ucs_log_component_config_t*, const char* message, va_list ap) {
  std::array<char, 512> text{};
  std::vsnprintf(text.data(), text.size(), message, ap);
  // A peer's death is an error to UCX and an event to us, told elsewhere.
  Log(level <= UCS_LOG_LEVEL_FATAL ? LogLevel::kError : LogLevel::kDebug, "ucx",
      {{"message", std::string(text.data())}});
  return UCS_LOG_FUNC_RC_STOP;
}

// UCX takes fatal signals over when it is loaded, whether it is used or not. A
// crash of ours is to look as it does in a build without UCX.
const bool kSignalsAreOurs = [] {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
    ucs_debug_disable_signal(signal);
  }
  ucs_log_push_handler(TakeLog);
  return true;
}();

}  // namespace

absl::Status UcxError(const char* what, ucs_status_t status) {
  const std::string message = absl::StrCat("UCX: ", what, ": ", ucs_status_string(status));
  return status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE
             ? absl::ResourceExhaustedError(message)
             : absl::UnavailableError(message);
}

absl::StatusOr<std::shared_ptr<UcxContext>> UcxContext::Get() {
  static std::mutex mutex;
  static std::weak_ptr<UcxContext> shared;
  std::lock_guard lock(mutex);
  if (std::shared_ptr<UcxContext> context = shared.lock()) return context;
  absl::StatusOr<std::shared_ptr<UcxContext>> context = Make();
  if (context.ok()) shared = *context;
  return context;
}

absl::StatusOr<std::shared_ptr<UcxContext>> UcxContext::Make() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return UcxError("its settings cannot be read", status);
  // Without the first, shared memory counts as something on which a peer's death
  // goes unnoticed, and UCX quietly uses TCP over loopback instead.
  // Nothing here sets variables: NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (getenv("UCX_MM_ERROR_HANDLING") == nullptr) {
    ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (getenv("UCX_KEEPALIVE_INTERVAL") == nullptr) {
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", "1s");
  }
  // The way of choosing protocols that is 1.13's default, and tells what it has
  // chosen (UcxPeer::ReadLanes); later versions have another.
  ucp_config_modify(config, "PROTO_ENABLE", "n");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_context_h handle = nullptr;
  status = ucp_init(&params, config, &handle);
  ucp_config_release(config);
  if (status != UCS_OK) return UcxError("it cannot be started", status);
  return std::shared_ptr<UcxContext>(new UcxContext(handle));
}

UcxContext::~UcxContext() { ucp_cleanup(handle_); }

absl::StatusOr<UcxMemory> UcxMemory::Make(std::shared_ptr<UcxContext> context, size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h handle = nullptr;
  ucs_status_t status = ucp_mem_map(context->handle(), &params, &handle);
  if (status != UCS_OK) return UcxError("no memory for the ring", status);
  UcxMemory memory(std::move(context), handle);
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  status = ucp_mem_query(handle, &attributes);
  if (status != UCS_OK) return UcxError("no address of the ring", status);
  memory.data_ = static_cast<std::byte*>(attributes.address);
  memory.size_ = bytes;  // what it gives may be more
  return memory;
}

UcxMemory::UcxMemory(UcxMemory&& other) noexcept
    : context_(std::move(other.context_)),
      handle_(std::exchange(other.handle_, nullptr)),
      data_(other.data_),
      size_(other.size_) {}

UcxMemory::~UcxMemory() {
  if (handle_ != nullptr) ucp_mem_unmap(context_->handle(), handle_);
}

absl::StatusOr<std::string> UcxMemory::Key() const {
  void* packed = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_rkey_pack(context_->handle(), handle_, &packed, &bytes);
  if (status != UCS_OK) return UcxError("no key of the ring", status);
  std::string key(static_cast<const char*>(packed), bytes);
  ucp_rkey_buffer_release(packed);
  return key;
}

}  // namespace baton::transport
