// SPDX-License-Identifier: Apache-2.0
// A thread that works on a GPU for a transport.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/api/transfer_table.h"

namespace baton::transport {

// A device as --device names it, by its plugin.
struct TransferDevice {
  const gpu::TransferTable* table;
  int index;
};
// Null: `library` (of dlopen) has no table of this version.
const gpu::TransferTable* TransferTableOf(void* library);
// UNAVAILABLE, for `transport`: "cpu", or the plugin cannot be used.
absl::StatusOr<TransferDevice> FindTransferDevice(const char* transport, const std::string& device);

// Something under way that the thread looks after.
class Polled {
 public:
  virtual ~Polled() = default;
  // Whether anything has moved on.
  virtual bool Poll() = 0;
  // Whether it is to be polled soon again; gone: never again.
  virtual bool busy() const = 0;
  virtual bool gone() const = 0;
};

// Runs tasks, polls what is busy every 20 us to 1 ms, and sleeps when nothing is.
class DeviceThread {
 public:
  using Task = std::function<void()>;

  DeviceThread(const char* name, const gpu::TransferTable* table) : name_(name), table_(table) {}
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Once. UNAVAILABLE: what the device says.
  absl::Status Start(int index);
  // Once after Start: waits until everything polled is gone and the thread has
  // ended. False: it does not end within 10 s, and uses this object for ever.
  bool Stop();

  // Runs `task` on the thread, in order of the calls. Any thread.
  void Post(Task task);
  // Polled from now on, until it is gone. On the thread.
  void Add(std::shared_ptr<Polled> polled) { polled_.push_back(std::move(polled)); }

 private:
  void Run();
  // Waits for a task, or `pause` while something is under way. False: the end.
  bool Wait(std::chrono::microseconds pause, std::vector<Task>& tasks);
  bool PollAll();

  const char* const name_;
  const gpu::TransferTable* const table_;
  std::vector<std::shared_ptr<Polled>> polled_;  // the thread's

  std::mutex mutex_;
  std::condition_variable woken_, has_ended_;
  std::vector<Task> mailbox_;  // guarded by mutex_
  bool stop_ = false;          // guarded by mutex_
  bool ended_ = false;         // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton::transport
