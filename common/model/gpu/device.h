// SPDX-License-Identifier: Apache-2.0
// A GPU, through the plugin that knows it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/api/device_table.h"

namespace baton::model::gpu {

namespace dev = ::baton::gpu;

// Which device a worker is to use: what --device says.
struct DeviceName {
  bool cpu = true;
  std::string plugin;  // "cuda", "emulated"
  int index = 0;
};
// "cpu", "cuda", "cuda:N", "emulated". INVALID_ARGUMENT for anything else.
absl::StatusOr<DeviceName> ParseDevice(const std::string& text);

// Memory of a device, freed with the object; or pinned memory of the host.
class Buffer final {
 public:
  Buffer() = default;
  Buffer(const dev::DeviceTable* table, void* data, size_t bytes, bool host)
      : table_(table), data_(data), bytes_(bytes), host_(host) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(host_, other.host_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) (host_ ? table_->release_host : table_->release)(data_);
  }

  size_t bytes() const { return bytes_; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  const dev::DeviceTable* table_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool host_ = false;
};

// Memory of a device that other processes can map, freed with the object.
class SharedBuffer final {
 public:
  SharedBuffer() = default;
  SharedBuffer(const dev::DeviceTable* table, const dev::SharedMemory& memory)
      : table_(table), memory_(memory) {}
  SharedBuffer(SharedBuffer&& other) noexcept { *this = std::move(other); }
  SharedBuffer& operator=(SharedBuffer&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;
  ~SharedBuffer() {
    if (table_ != nullptr) table_->release_shared(memory_);
  }

  bool valid() const { return table_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(memory_.data); }
  size_t bytes() const { return memory_.bytes; }
  int fd() const { return memory_.fd; }

 private:
  const dev::DeviceTable* table_ = nullptr;
  dev::SharedMemory memory_ = {nullptr, 0, -1};
};

// An open device with its one stream. Thread safety: one thread at a time.
class Device final {
 public:
  // UNAVAILABLE, in one sentence that names --device cpu, when the plugin or
  // the device is not there.
  static absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceName& name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const dev::DeviceTable& table() const { return *table_; }
  const dev::DeviceFacts& facts() const { return facts_; }
  dev::Stream stream() const { return stream_; }

  // RESOURCE_EXHAUSTED names what it was for and how much there is.
  absl::StatusOr<Buffer> Allocate(size_t bytes, const std::string& purpose) const;
  // UNAVAILABLE: the device cannot share memory, or has not so much.
  absl::StatusOr<SharedBuffer> AllocateShared(size_t bytes) const;
  absl::StatusOr<Buffer> AllocateHost(size_t bytes) const;
  // Memory that holds `bytes` when it returns.
  absl::StatusOr<Buffer> Upload(std::span<const std::byte> bytes, const std::string& purpose) const;
  // INTERNAL when something that was started has failed.
  absl::Status Finish() const;
  // The same of what stands before the event in the stream.
  absl::Status Wait(dev::Event event) const;
  // How often the two have said so: who waits for one thing may hear of another.
  uint64_t failures() const { return failures_; }

 private:
  Device(const dev::DeviceTable* table, const dev::DeviceFacts& facts)
      : table_(table), facts_(facts), stream_(table->make_stream()) {}

  const dev::DeviceTable* const table_;
  absl::Status Heard(const char* problem) const;

  const dev::DeviceFacts facts_;
  const dev::Stream stream_;
  mutable uint64_t failures_ = 0;
};

}  // namespace baton::model::gpu
