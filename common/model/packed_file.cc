// SPDX-License-Identifier: Apache-2.0
#include "common/model/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace baton::model {
namespace {

constexpr char kMagic[8] = {'B', 'A', 'T', 'O', 'N', 'P', 'K', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;  // of one checksum
// Whole huge pages in the file as in memory: file systems that keep a file in
// huge pages (ext4 does, when it is written in such pieces) then map them as such.
constexpr uint64_t kDataAlignment = uint64_t{2} << 20;

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t head_checksum;  // CRC-32C of header (this field 0), description and checksums
  uint64_t description_bytes;
  uint64_t data_offset;
  uint64_t data_bytes;
  uint64_t reserved[3];
};
static_assert(sizeof(FileHeader) == 64);

uint64_t PieceCount(uint64_t data_bytes) { return (data_bytes + kPieceBytes - 1) / kPieceBytes; }

uint64_t RoundUp(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

uint64_t DataOffset(uint64_t description_bytes, uint64_t data_bytes) {
  return RoundUp(sizeof(FileHeader) + description_bytes + PieceCount(data_bytes) * sizeof(uint32_t),
                 kDataAlignment);
}

absl::Status SystemError(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": ", std::generic_category().message(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

// Everything in front of the data, with its checksum in place.
std::string MakeHead(std::string_view description, uint64_t data_bytes,
                     std::span<const uint32_t> checksums) {
  FileHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.description_bytes = description.size();
  header.data_offset = DataOffset(description.size(), data_bytes);
  header.data_bytes = data_bytes;
  std::string head(reinterpret_cast<const char*>(&header), sizeof header);
  head.append(description);
  head.append(reinterpret_cast<const char*>(checksums.data()), checksums.size_bytes());
  header.head_checksum = Crc32c(std::as_bytes(std::span(head)));
  std::memcpy(head.data(), &header, sizeof header);
  return head;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedFileWriter>> PackedFileWriter::Create(const std::string& path,
                                                                           std::string description,
                                                                           uint64_t data_bytes) {
  const std::string partial = path + ".partial";
  UniqueFd fd(open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) return SystemError(partial, errno);
  return std::unique_ptr<PackedFileWriter>(
      new PackedFileWriter(path, std::move(description), data_bytes, std::move(fd)));
}

PackedFileWriter::PackedFileWriter(std::string path, std::string description, uint64_t data_bytes,
                                   UniqueFd fd)
    : path_(std::move(path)),
      partial_path_(path_ + ".partial"),
      description_(std::move(description)),
      data_bytes_(data_bytes),
      data_offset_(DataOffset(description_.size(), data_bytes)),
      fd_(std::move(fd)) {}

PackedFileWriter::~PackedFileWriter() {
  if (fd_.valid()) unlink(partial_path_.c_str());
}

std::span<std::byte> PackedFileWriter::Room(size_t bytes) {
  if (buffer_.size() < filled_ + bytes) {
    AlignedBuffer larger(std::max<size_t>(filled_ + bytes, 2 * kPieceBytes));
    if (filled_ > 0) std::memcpy(larger.data(), buffer_.data(), filled_);
    buffer_ = std::move(larger);
  }
  room_ = bytes;
  return {buffer_.data() + filled_, bytes};
}

absl::Status PackedFileWriter::Commit() {
  filled_ += room_;
  size_t flushed = 0;
  for (; filled_ - flushed >= kPieceBytes; flushed += kPieceBytes) {
    BATON_RETURN_IF_ERROR(Flush({buffer_.data() + flushed, kPieceBytes}));
  }
  filled_ -= flushed;
  std::memmove(buffer_.data(), buffer_.data() + flushed, filled_);
  return absl::OkStatus();
}

absl::Status PackedFileWriter::Flush(std::span<const std::byte> piece) {
  checksums_.push_back(Crc32c(piece));
  BATON_RETURN_IF_ERROR(Write(piece.data(), piece.size(), data_offset_ + written_));
  written_ += piece.size();
  return absl::OkStatus();
}

absl::Status PackedFileWriter::Write(const void* bytes, size_t count, uint64_t offset) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = pwrite(fd_.get(), from, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return SystemError(partial_path_, done < 0 ? errno : ENOSPC);
    from += done;
    count -= static_cast<size_t>(done);
    offset += static_cast<uint64_t>(done);
  }
  return absl::OkStatus();
}

absl::Status PackedFileWriter::Finish() {
  if (filled_ > 0) BATON_RETURN_IF_ERROR(Flush({buffer_.data(), filled_}));
  if (written_ != data_bytes_) {
    return absl::InternalError(
        absl::StrCat(partial_path_, ": ", written_, " bytes packed, not ", data_bytes_));
  }
  const std::string head = MakeHead(description_, data_bytes_, checksums_);
  BATON_RETURN_IF_ERROR(Write(head.data(), head.size(), 0));
  if (fchmod(fd_.get(), 0444) != 0 || fsync(fd_.get()) != 0) {
    return SystemError(partial_path_, errno);
  }
  if (rename(partial_path_.c_str(), path_.c_str()) != 0) return SystemError(path_, errno);
  fd_.Reset();
  // So that the new name is on the disk too; when not, the next start packs again.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const UniqueFd folder_fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_fd.valid()) fsync(folder_fd.get());
  return absl::OkStatus();
}

namespace {

// Opens one file for reading and checks it from front to back.
class PackedFileReader final {
 public:
  PackedFileReader(const std::string& path, std::string_view description, uint64_t data_bytes)
      : path_(path),
        description_(description),
        data_bytes_(data_bytes),
        data_offset_(DataOffset(description.size(), data_bytes)),
        checksums_(PieceCount(data_bytes)) {}

  absl::StatusOr<std::shared_ptr<const std::byte>> Map(ThreadPool& pool) {
    fd_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd_.valid()) return SystemError(path_, errno);
    BATON_RETURN_IF_ERROR(CheckHead());
    BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const std::byte> data, MapData());
    BATON_RETURN_IF_ERROR(CheckData(data.get(), pool));
    return data;
  }

 private:
  // At a multiple of a huge page, which takes a larger reservation.
  absl::StatusOr<std::shared_ptr<const std::byte>> MapData() const {
    const size_t reserved = data_bytes_ + kDataAlignment;
    void* base =
        mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return SystemError(path_, errno);
    const std::shared_ptr<void> reservation(base,
                                            [reserved](void* begin) { munmap(begin, reserved); });
    const uint64_t skip = RoundUp(reinterpret_cast<uintptr_t>(base), kDataAlignment) -
                          reinterpret_cast<uintptr_t>(base);
    std::byte* begin = static_cast<std::byte*>(base) + skip;
    if (mmap(begin, data_bytes_, PROT_READ, MAP_SHARED | MAP_FIXED, fd_.get(),
             static_cast<off_t>(data_offset_)) == MAP_FAILED) {
      return SystemError(path_, errno);
    }
    madvise(begin, data_bytes_, MADV_HUGEPAGE);  // also reads it in so, where it can
    return std::shared_ptr<const std::byte>(reservation, begin);
  }

  absl::Status Stale() const {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": packed from other weights, or for another build or machine"));
  }
  absl::Status Damaged(std::string_view what) const {
    return absl::DataLossError(absl::StrCat(path_, ": damaged: ", std::string(what)));
  }

  // The description is compared before the checksum, so that another version
  // of it counts as stale; both lead to a new file.
  absl::Status CheckHead() {
    struct stat info = {};
    if (fstat(fd_.get(), &info) != 0) return SystemError(path_, errno);
    if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(path_ + ": no regular file");
    std::string head(
        sizeof(FileHeader) + description_.size() + checksums_.size() * sizeof(uint32_t), '\0');
    if (pread(fd_.get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size())) {
      return Damaged("its header is cut off");
    }
    FileHeader header;
    std::memcpy(&header, head.data(), sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return Damaged("its first bytes");
    if (header.version != kVersion || header.description_bytes != description_.size() ||
        std::string_view(head).substr(sizeof header, description_.size()) != description_) {
      return Stale();
    }
    std::memcpy(checksums_.data(), head.data() + sizeof header + description_.size(),
                checksums_.size() * sizeof(uint32_t));
    if (head != MakeHead(description_, data_bytes_, checksums_)) return Damaged("its header");
    if (static_cast<uint64_t>(info.st_size) != data_offset_ + data_bytes_) {
      return Damaged(
          absl::StrCat("it has ", info.st_size, " bytes, not ", data_offset_ + data_bytes_));
    }
    return absl::OkStatus();
  }

  absl::Status CheckData(const std::byte* data, ThreadPool& pool) const {
    std::atomic<uint64_t> next{0};
    std::atomic<uint64_t> wrong{checksums_.size()};  // a piece that is
    pool.Run([&](uint32_t) {
      for (uint64_t i = next++; i < checksums_.size(); i = next++) {
        const std::byte* begin = data + i * kPieceBytes;
        const size_t bytes = std::min(kPieceBytes, data_bytes_ - i * kPieceBytes);
        // Tells a read error of the disk by its return, where touching the
        // page would end the process; old kernels do not know it.
        const bool readable =
            madvise(const_cast<std::byte*>(begin), bytes, kPopulateRead) == 0 || errno == EINVAL;
        if (!readable || Crc32c({begin, bytes}) != checksums_[i]) wrong = i;
      }
    });
    if (wrong == checksums_.size()) return absl::OkStatus();
    return Damaged(absl::StrCat("the piece at ", data_offset_ + wrong * kPieceBytes));
  }

  static constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, since Linux 5.14

  const std::string& path_;
  const std::string_view description_;
  const uint64_t data_bytes_, data_offset_;
  std::vector<uint32_t> checksums_;
  UniqueFd fd_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const std::byte>> MapPackedFile(const std::string& path,
                                                               std::string_view description,
                                                               uint64_t data_bytes,
                                                               ThreadPool& pool) {
  return PackedFileReader(path, description, data_bytes).Map(pool);
}

}  // namespace baton::model
