// SPDX-License-Identifier: Apache-2.0
#include "common/transport/nccl/nccl_table.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "common/base/dynamic_library.h"

namespace baton::transport {
namespace {

// The first version whose ncclConfig_t is ours.
constexpr int kOldestNccl = 22800;

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool FindAll(NcclTable& table) {
  void* const from = table.library;
  return Find(from, "ncclGetVersion", table.get_version) &&
         Find(from, "ncclGetUniqueId", table.get_unique_id) &&
         Find(from, "ncclCommInitRankConfig", table.comm_init_rank_config) &&
         Find(from, "ncclCommGetAsyncError", table.comm_get_async_error) &&
         Find(from, "ncclCommAbort", table.comm_abort) && Find(from, "ncclSend", table.send) &&
         Find(from, "ncclRecv", table.recv) &&
         Find(from, "ncclGetErrorString", table.get_error_string);
}

}  // namespace

absl::StatusOr<NcclTable> LoadNccl() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets any.
  const char* const chosen = getenv("BATON_NCCL_LIBRARY");
  const std::string name = chosen == nullptr || *chosen == '\0' ? "libnccl.so.2" : chosen;
  const auto unusable = [&](const std::string& reason) {
    return absl::UnavailableError(absl::StrCat(
        "nccl cannot be used (", reason,
        "); BATON_NCCL_LIBRARY names its library, without --transport nccl none is needed"));
  };
  std::string problem;
  NcclTable table{};
  table.library = OpenLibrary(name, &problem);
  if (table.library == nullptr) return unusable(problem);
  if (!FindAll(table)) return unusable(absl::StrCat(name, " lacks functions of NCCL"));
  int version = 0;
  if (table.get_version(&version) != NcclResult::kSuccess || version < kOldestNccl) {
    return unusable(absl::StrCat(name, " has version ", version, ", needed is ", kOldestNccl));
  }
  return table;
}

absl::Status NcclError(const NcclTable& nccl, const std::string& what, NcclResult result) {
  const char* const text = nccl.get_error_string(result);
  return absl::UnavailableError(
      absl::StrCat("NCCL: ", what, ": ", text == nullptr ? "unknown error" : text));
}

}  // namespace baton::transport
