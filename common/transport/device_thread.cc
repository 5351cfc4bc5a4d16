// SPDX-License-Identifier: Apache-2.0
#include "common/transport/device_thread.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/dynamic_library.h"
#include "common/base/log.h"

namespace baton::transport {
namespace {

// Between two looks at what is under way: the first at once, later ones rarer.
constexpr std::chrono::microseconds kShortestPause{20}, kLongestPause{1000};
// Longer than streams are given to come to their end.
constexpr std::chrono::seconds kLongestEnd{10};

}  // namespace

const gpu::TransferTable* TransferTableOf(void* library) {
  auto* const function =
      reinterpret_cast<gpu::TransferTableFunction*>(dlsym(library, gpu::kTransferSymbol));
  const gpu::TransferTable* const table = function == nullptr ? nullptr : function();
  return table != nullptr && table->version == gpu::kTransferVersion ? table : nullptr;
}

absl::StatusOr<TransferDevice> FindTransferDevice(const char* transport,
                                                  const std::string& device) {
  const bool emulated = device == "emulated";
  absl::string_view rest = device;
  int index = 0;
  if (!emulated &&
      (!absl::ConsumePrefix(&rest, "cuda") ||
       (!rest.empty() && !(absl::ConsumePrefix(&rest, ":") && absl::SimpleAtoi(rest, &index))))) {
    return absl::UnavailableError(
        absl::StrCat(transport, " moves memory of GPUs and needs --device cuda:N, it is ", device));
  }
  std::string problem = "its plugin is of another program";
  void* const plugin =
      OpenLibrary(emulated ? "libbaton_gpu_emulated.so" : "libbaton_cuda.so", &problem);
  const gpu::TransferTable* const table = plugin == nullptr ? nullptr : TransferTableOf(plugin);
  if (table != nullptr) return TransferDevice{table, index};
  return absl::UnavailableError(
      absl::StrCat(transport, " cannot use device ", device, " (", problem, ")"));
}

absl::Status DeviceThread::Start(int index) {
  std::promise<const char*> opened;
  Post([this, index, &opened] { opened.set_value(table_->open(index)); });
  thread_ = std::thread([this] { Run(); });
  const char* const problem = opened.get_future().get();
  return problem == nullptr ? absl::OkStatus() : absl::UnavailableError(problem);
}

bool DeviceThread::Stop() {
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    woken_.notify_one();
    if (!has_ended_.wait_for(lock, kLongestEnd, [this] { return ended_; })) {
      LogError("a GPU's thread does not end; it is left behind", {{"thread", name_}});
      thread_.detach();
      return false;
    }
  }
  thread_.join();
  return true;
}

void DeviceThread::Post(Task task) {
  {
    std::lock_guard lock(mutex_);
    mailbox_.push_back(std::move(task));
  }
  woken_.notify_one();
}

bool DeviceThread::Wait(std::chrono::microseconds pause, std::vector<Task>& tasks) {
  const bool busy =
      std::any_of(polled_.begin(), polled_.end(), [](const auto& one) { return one->busy(); });
  std::unique_lock lock(mutex_);
  const auto called = [this] { return stop_ || !mailbox_.empty(); };
  if (busy) {
    woken_.wait_for(lock, pause, [this] { return !mailbox_.empty(); });
  } else {
    woken_.wait(lock, called);
  }
  tasks.swap(mailbox_);
  // What is polled ends by itself once its owners are gone, as these are by now.
  return !(stop_ && tasks.empty() && polled_.empty());
}

bool DeviceThread::PollAll() {
  bool moved = false;
  for (const auto& one : polled_) moved |= one->Poll();
  std::erase_if(polled_, [](const auto& one) { return one->gone(); });
  return moved;
}

void DeviceThread::Run() {
  pthread_setname_np(pthread_self(), name_);
  std::chrono::microseconds pause = kShortestPause;
  std::vector<Task> tasks;
  while (Wait(pause, tasks)) {
    const bool told = !tasks.empty();
    for (const Task& task : tasks) task();
    tasks.clear();
    const bool moved = PollAll();
    pause = told || moved ? kShortestPause : std::min(2 * pause, kLongestPause);
  }
  std::lock_guard lock(mutex_);
  ended_ = true;
  has_ended_.notify_all();
}

}  // namespace baton::transport
