// SPDX-License-Identifier: Apache-2.0
#include "common/transport/shm/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system_error.h"
#include "common/transport/ring_space.h"

namespace baton::transport {
namespace {

constexpr uint64_t kMaxRingBytes = uint64_t{1} << 30;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status NoMemory(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot make the shared-memory ring: ", what, ": ", ErrnoText(errno)));
}

absl::StatusOr<Mapping> Map(int fd, size_t bytes, int protection) {
  void* const data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return NoMemory("mmap");
  return Mapping(static_cast<std::byte*>(data), bytes);
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<Ring> Ring::Make(size_t bytes) {
  UniqueFd fd(memfd_create("baton-kv-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return NoMemory("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return NoMemory("ftruncate");
  // Allocated now: a page that cannot be had later would be a SIGBUS.
  if (fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return NoMemory("fallocate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory("sealing");
  BATON_ASSIGN_OR_RETURN(Mapping mapping, Map(fd.get(), bytes, PROT_READ | PROT_WRITE));
  return Ring(std::move(fd), std::move(mapping));
}

absl::StatusOr<Mapping> MapRing(UniqueFd fd, uint64_t bytes) {
  BATON_RETURN_IF_ERROR(CheckRingBytes(bytes, kMaxRingBytes));
  struct stat status {};
  if (!fd.valid() || fstat(fd.get(), &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != bytes) {
    return absl::InvalidArgumentError("the ring's descriptor is missing or has another size");
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  // Without the seal the peer could shrink the ring and kill us with SIGBUS.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("the ring is not sealed against shrinking");
  }
  return Map(fd.get(), bytes, PROT_READ);
}

}  // namespace baton::transport
