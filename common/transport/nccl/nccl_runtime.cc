// SPDX-License-Identifier: Apache-2.0
#include "common/transport/nccl/nccl_runtime.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/dynamic_library.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/transport/nccl/nccl_pair.h"

namespace baton::transport {
namespace {

// Between two looks at what is under way: the first at once, later ones rarer.
constexpr std::chrono::microseconds kShortestPause{20}, kLongestPause{1000};
// Longer than streams are given to come to their end.
constexpr std::chrono::seconds kLongestEnd{10};

struct TransferDevice {
  const gpu::TransferTable* table;
  int index;
};

const gpu::TransferTable* TableOf(void* library) {
  auto* const function =
      reinterpret_cast<gpu::TransferTableFunction*>(dlsym(library, gpu::kTransferSymbol));
  const gpu::TransferTable* const table = function == nullptr ? nullptr : function();
  return table != nullptr && table->version == gpu::kTransferVersion ? table : nullptr;
}

// A stand-in for NCCL brings memory of its own, for hosts without a GPU; with the
// real one it is the GPU's, by its plugin.
absl::StatusOr<TransferDevice> FindDevice(const std::string& device, void* nccl) {
  if (const gpu::TransferTable* own = TableOf(nccl)) return TransferDevice{own, 0};
  absl::string_view rest = device;
  int index = 0;
  if (!absl::ConsumePrefix(&rest, "cuda") ||
      (!rest.empty() && !(absl::ConsumePrefix(&rest, ":") && absl::SimpleAtoi(rest, &index)))) {
    return absl::UnavailableError(
        absl::StrCat("nccl moves memory of GPUs and needs --device cuda:N, it is ", device));
  }
  std::string problem = "its plugin is of another program";
  void* const plugin = OpenLibrary("libbaton_cuda.so", &problem);
  const gpu::TransferTable* const table = plugin == nullptr ? nullptr : TableOf(plugin);
  if (table == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("nccl cannot use device ", device, " (", problem, ")"));
  }
  return TransferDevice{table, index};
}

}  // namespace

absl::StatusOr<std::shared_ptr<NcclRuntime>> NcclRuntime::Get(const std::string& device) {
  static std::mutex mutex;
  static std::weak_ptr<NcclRuntime> shared;
  std::lock_guard lock(mutex);
  std::shared_ptr<NcclRuntime> runtime = shared.lock();
  if (runtime == nullptr) {
    BATON_ASSIGN_OR_RETURN(runtime, Make(device));
    shared = runtime;
  }
  if (runtime->device_name_ != device) {
    return absl::UnavailableError(absl::StrCat("nccl is in use on device ", runtime->device_name_,
                                               " and cannot be on ", device, " besides"));
  }
  return runtime;
}

absl::StatusOr<std::shared_ptr<NcclRuntime>> NcclRuntime::Make(const std::string& device) {
  BATON_ASSIGN_OR_RETURN(const NcclTable nccl, LoadNccl());
  BATON_ASSIGN_OR_RETURN(const TransferDevice found, FindDevice(device, nccl.library));
  std::shared_ptr<NcclRuntime> runtime(new NcclRuntime(nccl, found.table, device),
                                       [](NcclRuntime* last) {
                                         if (last->Stop()) delete last;
                                       });
  BATON_RETURN_IF_ERROR(runtime->Start(found.index));
  return runtime;
}

absl::Status NcclRuntime::Start(int index) {
  std::promise<const char*> opened;
  Post([this, index, &opened] { opened.set_value(device_->open(index)); });
  thread_ = std::thread([this] { Run(); });
  const char* const problem = opened.get_future().get();
  if (problem == nullptr) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("nccl cannot use device ", device_name_, ": ", problem));
}

bool NcclRuntime::Stop() {
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    woken_.notify_one();
    if (!has_ended_.wait_for(lock, kLongestEnd, [this] { return ended_; })) {
      LogError("nccl does not return from a call; its thread is left behind");
      thread_.detach();
      return false;
    }
  }
  thread_.join();
  return true;
}

void NcclRuntime::Post(Task task) {
  {
    std::lock_guard lock(mutex_);
    mailbox_.push_back(std::move(task));
  }
  woken_.notify_one();
}

std::shared_ptr<void> NcclRuntime::TakePlace() {
  uint32_t taken = places_taken_;
  do {
    if (taken >= kMaxCommunicators) return nullptr;
  } while (!places_taken_.compare_exchange_weak(taken, taken + 1));
  return {this, [this](void*) { --places_taken_; }};
}

bool NcclRuntime::Wait(std::chrono::microseconds pause, std::vector<Task>& tasks) {
  const bool busy =
      std::any_of(pairs_.begin(), pairs_.end(), [](const auto& pair) { return pair->busy(); });
  std::unique_lock lock(mutex_);
  const auto called = [this] { return stop_ || !mailbox_.empty(); };
  if (busy) {
    woken_.wait_for(lock, pause, [this] { return !mailbox_.empty(); });
  } else {
    woken_.wait(lock, called);
  }
  tasks.swap(mailbox_);
  // Pairs end by themselves once their owners are gone, as these are by now.
  return !(stop_ && tasks.empty() && pairs_.empty());
}

bool NcclRuntime::PollPairs() {
  bool moved = false;
  for (const auto& pair : pairs_) moved |= pair->Poll();
  std::erase_if(pairs_, [](const auto& pair) { return pair->gone(); });
  return moved;
}

void NcclRuntime::Run() {
  pthread_setname_np(pthread_self(), "kv-nccl");
  std::chrono::microseconds pause = kShortestPause;
  std::vector<Task> tasks;
  while (Wait(pause, tasks)) {
    const bool told = !tasks.empty();
    for (const Task& task : tasks) task();
    tasks.clear();
    const bool moved = PollPairs();
    pause = told || moved ? kShortestPause : std::min(2 * pause, kLongestPause);
  }
  std::lock_guard lock(mutex_);
  ended_ = true;
  has_ended_.notify_all();
}

}  // namespace baton::transport
