// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"

namespace baton::checkpoint {
namespace {

absl::Status FileError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": ", std::generic_category().message(error));
  return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(message)
                                             : absl::InvalidArgumentError(message);
}

class DiskFolder final : public Folder {
 public:
  explicit DiskFolder(const std::string& path) : path_(path), name_(path) {}

  std::string_view name() const override { return name_; }

  bool Has(std::string_view file) const override {
    std::error_code error;
    return std::filesystem::exists(path_ / file, error);
  }

  absl::StatusOr<File> Open(std::string_view file) const override {
    // An index names its shards; it must not reach other folders.
    if (file.empty() || file == "." || file == ".." ||
        file.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ": \"", std::string(file), "\" is no plain file name"));
    }
    return MapFile((path_ / file).string());
  }

 private:
  const std::filesystem::path path_;
  const std::string name_;
};

}  // namespace

absl::StatusOr<File> MapFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return FileError(path, errno);
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return FileError(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  File file{.name = path, .bytes = {}, .mapping = nullptr};
  file.modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return file;
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return FileError(path, errno);
  file.mapping = std::shared_ptr<const void>(
      address, [size](const void* begin) { munmap(const_cast<void*>(begin), size); });
  file.bytes = {static_cast<const std::byte*>(address), size};
  return file;
}

std::unique_ptr<Folder> OpenDiskFolder(const std::string& path) {
  return std::make_unique<DiskFolder>(path);
}

}  // namespace baton::checkpoint
