// SPDX-License-Identifier: Apache-2.0
#include "common/model/gpu/device.h"

#include <dlfcn.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/dynamic_library.h"
#include "common/base/status_macros.h"

namespace baton::model::gpu {
namespace {

std::string LibraryName(const std::string& plugin) {
  return plugin == "emulated" ? "libbaton_gpu_emulated.so"
                              : absl::StrCat("libbaton_", plugin, ".so");
}

absl::Status Unavailable(const DeviceName& name, const std::string& reason) {
  return absl::UnavailableError(absl::StrCat("device ", name.plugin, ":", name.index,
                                             " cannot be used (", reason,
                                             "); --device cpu runs on the CPU"));
}

absl::StatusOr<const dev::DeviceTable*> LoadTable(const DeviceName& name) {
  std::string problem;
  void* library = OpenLibrary(LibraryName(name.plugin), &problem);
  if (library == nullptr) return Unavailable(name, problem);
  auto* function = reinterpret_cast<dev::TableFunction*>(dlsym(library, dev::kTableSymbol));
  if (function == nullptr) return Unavailable(name, "its plugin is of another program");
  const dev::DeviceTable* table = function();
  if (table->version != dev::kTableVersion) {
    return Unavailable(name, absl::StrCat("its plugin has version ", table->version, ", not ",
                                          dev::kTableVersion));
  }
  return table;
}

}  // namespace

absl::StatusOr<DeviceName> ParseDevice(const std::string& text) {
  if (text == "cpu") return DeviceName{};
  if (text == "emulated") return DeviceName{false, "emulated", 0};
  absl::string_view rest = text;
  DeviceName name{false, "cuda", 0};
  if (absl::ConsumePrefix(&rest, "cuda")) {
    if (rest.empty()) return name;
    if (absl::ConsumePrefix(&rest, ":") && absl::SimpleAtoi(rest, &name.index) && name.index >= 0) {
      return name;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("device is \"", text, "\"; it must be cpu, cuda or cuda:N"));
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(const DeviceName& name) {
  BATON_ASSIGN_OR_RETURN(const dev::DeviceTable* table, LoadTable(name));
  dev::DeviceFacts facts{};
  if (const char* problem = table->open(name.index, &facts)) return Unavailable(name, problem);
  return std::unique_ptr<Device>(new Device(table, facts));
}

Device::~Device() { table_->drop_stream(stream_); }

absl::StatusOr<Buffer> Device::Allocate(size_t bytes, const std::string& purpose) const {
  const size_t asked = bytes == 0 ? 16 : bytes;
  void* memory = table_->allocate(asked);
  if (memory != nullptr) return Buffer(table_, memory, bytes, false);
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s needs %.1f MiB of GPU memory that are not there: %s had %.1f of %.1f MiB "
                      "free at the start",
                      purpose, static_cast<double>(bytes) / (1 << 20), facts_.name,
                      static_cast<double>(facts_.free_bytes) / (1 << 20),
                      static_cast<double>(facts_.total_bytes) / (1 << 20)));
}

absl::StatusOr<SharedBuffer> Device::AllocateShared(size_t bytes) const {
  dev::SharedMemory memory{};
  if (const char* problem = table_->allocate_shared(bytes, &memory)) {
    return absl::UnavailableError(problem);
  }
  return SharedBuffer(table_, memory);
}

absl::StatusOr<Buffer> Device::AllocateHost(size_t bytes) const {
  void* memory = table_->allocate_host(bytes == 0 ? 16 : bytes);
  if (memory != nullptr) return Buffer(table_, memory, bytes, true);
  return absl::ResourceExhaustedError(
      absl::StrCat("no ", bytes, " bytes of pinned host memory are there"));
}

absl::StatusOr<Buffer> Device::Upload(std::span<const std::byte> bytes,
                                      const std::string& purpose) const {
  BATON_ASSIGN_OR_RETURN(Buffer buffer, Allocate(bytes.size(), purpose));
  if (!bytes.empty()) table_->copy_in(buffer.data(), bytes.data(), bytes.size(), stream_);
  BATON_RETURN_IF_ERROR(Finish());
  return buffer;
}

absl::Status Device::Heard(const char* problem) const {
  if (problem == nullptr) return absl::OkStatus();
  ++failures_;
  return absl::InternalError(absl::StrCat("the GPU failed: ", problem));
}

absl::Status Device::Finish() const { return Heard(table_->finish(stream_)); }

absl::Status Device::Wait(dev::Event event) const { return Heard(table_->wait(event)); }

}  // namespace baton::model::gpu
