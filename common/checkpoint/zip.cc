// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/zip.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::checkpoint {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50, kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
// Fixed parts of the records.
constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint64_t kMostComment = 0xffff;
constexpr uint32_t kIn64 = 0xffffffff;  // the number stands in the zip64 field
constexpr uint16_t kZip64Field = 1, kEncrypted = 1;

struct Directory {
  uint64_t entries = 0, begin = 0, end = 0;
};

struct Entry {
  std::string_view name;
  uint64_t size = 0, begin = 0, data = 0;  // of its data; offset of its local header, its data
};

class ZipReader {
 public:
  explicit ZipReader(const File& file) : bytes_(file.bytes), text_(file.text()) {}

  absl::StatusOr<std::vector<ZipEntry>> Run() {
    BATON_ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
    BATON_ASSIGN_OR_RETURN(std::vector<Entry> entries, ReadDirectory(directory));
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
    std::vector<ZipEntry> result;
    for (size_t i = 0; i < entries.size(); ++i) {
      const uint64_t limit = i + 1 < entries.size() ? entries[i + 1].begin : directory.begin;
      BATON_RETURN_IF_ERROR(FindData(limit, entries[i]));
      result.push_back({entries[i].name, bytes_.subspan(entries[i].data, entries[i].size)});
    }
    return result;
  }

 private:
  static absl::Status Error(std::string_view what) {
    return absl::InvalidArgumentError(std::string(what));
  }
  static absl::Status EntryError(std::string_view name, std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(EntryName(name), ": ", std::string(what)));
  }
  static absl::Status EntryUnsupported(std::string_view name, std::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(EntryName(name), " is ", std::string(what), ", which is not supported"));
  }
  static std::string EntryName(std::string_view name) {
    return absl::StrCat("entry \"", absl::CHexEscape(std::string(name.substr(0, 100))), "\"");
  }

  // True when [at, at + bytes) lies inside the file.
  bool Has(uint64_t at, uint64_t bytes) const {
    return at <= bytes_.size() && bytes <= bytes_.size() - at;
  }
  // A little-endian number. REQUIRES: Has(at, sizeof(T)).
  template <typename T>
  T Number(uint64_t at) const {
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }
  bool HasRecord(uint64_t at, uint64_t bytes, uint32_t magic) const {
    return Has(at, bytes) && Number<uint32_t>(at) == magic;
  }

  absl::StatusOr<uint64_t> FindEnd() const;
  absl::StatusOr<Directory> FindDirectory() const;
  absl::StatusOr<Directory> FindDirectory64(uint64_t locator) const;
  absl::StatusOr<std::vector<Entry>> ReadDirectory(const Directory& directory) const;
  absl::StatusOr<Entry> ReadCentral(uint64_t at) const;
  absl::Status Read64(uint64_t at, uint64_t end, uint64_t& packed, Entry& entry) const;
  absl::Status FindData(uint64_t limit, Entry& entry) const;

  std::span<const std::byte> bytes_;
  std::string_view text_;
};

// The end record is the last of the file, but for a comment of its own.
absl::StatusOr<uint64_t> ZipReader::FindEnd() const {
  if (bytes_.size() < kEndBytes) return Error("shorter than a zip container can be");
  const uint64_t last = bytes_.size() - kEndBytes;
  for (uint64_t comment = 0; comment <= std::min(last, kMostComment); ++comment) {
    const uint64_t at = last - comment;
    if (HasRecord(at, kEndBytes, kEndMagic) && Number<uint16_t>(at + 20) == comment) return at;
  }
  return Error("no end record of a zip container: truncated, or not a zip file");
}

absl::StatusOr<Directory> ZipReader::FindDirectory() const {
  BATON_ASSIGN_OR_RETURN(const uint64_t end, FindEnd());
  if (end >= kLocator64Bytes &&
      HasRecord(end - kLocator64Bytes, kLocator64Bytes, kLocator64Magic)) {
    return FindDirectory64(end - kLocator64Bytes);
  }
  const Directory directory{Number<uint16_t>(end + 10), Number<uint32_t>(end + 16), end};
  const uint64_t size = Number<uint32_t>(end + 12);
  if (Number<uint32_t>(end + 4) != 0 || Number<uint16_t>(end + 8) != directory.entries) {
    return absl::UnimplementedError("a zip container in several parts is not supported");
  }
  if (directory.begin > end || size != end - directory.begin) {
    return Error(absl::StrCat("a directory of ", size, " bytes at ", directory.begin,
                              " does not end at its end record at ", end));
  }
  return directory;
}

absl::StatusOr<Directory> ZipReader::FindDirectory64(uint64_t locator) const {
  const auto end = Number<uint64_t>(locator + 8);
  if (!HasRecord(end, kEnd64Bytes, kEnd64Magic)) {
    return Error(absl::StrCat("no zip64 end record at ", end));
  }
  const Directory directory{Number<uint64_t>(end + 32), Number<uint64_t>(end + 48), end};
  const auto size = Number<uint64_t>(end + 40);
  if (Number<uint64_t>(end + 16) != 0 || Number<uint64_t>(end + 24) != directory.entries ||
      Number<uint32_t>(locator + 4) != 0) {
    return absl::UnimplementedError("a zip container in several parts is not supported");
  }
  if (directory.begin > end || size != end - directory.begin) {
    return Error(absl::StrCat("a directory of ", size, " bytes at ", directory.begin,
                              " does not end at its end record at ", end));
  }
  return directory;
}

absl::StatusOr<std::vector<Entry>> ZipReader::ReadDirectory(const Directory& directory) const {
  const uint64_t room = directory.end - directory.begin;
  if (directory.entries > room / kCentralBytes) {
    return Error(absl::StrCat(directory.entries, " entries in a directory of ", room, " bytes"));
  }
  std::vector<Entry> entries;
  std::unordered_set<std::string_view> names;
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    BATON_ASSIGN_OR_RETURN(entries.emplace_back(), ReadCentral(at));
    const Entry& entry = entries.back();
    if (!names.insert(entry.name).second) return EntryError(entry.name, "it stands twice");
    at += kCentralBytes + Number<uint16_t>(at + 28) + Number<uint16_t>(at + 30) +
          Number<uint16_t>(at + 32);
    if (at > directory.end) return EntryError(entry.name, "it reaches beyond the directory");
  }
  if (at != directory.end) {
    return Error(absl::StrCat("the directory's ", directory.entries, " entries end at ", at,
                              ", not at ", directory.end));
  }
  return entries;
}

absl::StatusOr<Entry> ZipReader::ReadCentral(uint64_t at) const {
  if (!HasRecord(at, kCentralBytes, kCentralMagic)) {
    return Error(absl::StrCat("no entry of the directory at ", at));
  }
  const uint64_t name_bytes = Number<uint16_t>(at + 28), extra_bytes = Number<uint16_t>(at + 30);
  if (!Has(at + kCentralBytes, name_bytes + extra_bytes)) {
    return Error(absl::StrCat("the entry of the directory at ", at, " reaches beyond the file"));
  }
  Entry entry;
  entry.name = text_.substr(at + kCentralBytes, name_bytes);
  if ((Number<uint16_t>(at + 8) & kEncrypted) != 0) {
    return EntryUnsupported(entry.name, "encrypted");
  }
  if (const auto method = Number<uint16_t>(at + 10); method != 0) {
    return EntryUnsupported(entry.name, absl::StrCat("compressed (method ", method, ")"));
  }
  uint64_t packed = Number<uint32_t>(at + 20);
  entry.size = Number<uint32_t>(at + 24);
  entry.begin = Number<uint32_t>(at + 42);
  const uint64_t extra = at + kCentralBytes + name_bytes;
  BATON_RETURN_IF_ERROR(Read64(extra, extra + extra_bytes, packed, entry));
  if (packed != entry.size) {
    return EntryError(entry.name, absl::StrCat(packed, " stored bytes of ", entry.size));
  }
  return entry;
}

// Extra fields are (id u16, bytes u16, content); the zip64 one has the numbers
// that did not fit, in this order.
absl::Status ZipReader::Read64(uint64_t at, uint64_t end, uint64_t& packed, Entry& entry) const {
  for (uint64_t bytes = 0; at < end; at += 4 + bytes) {
    if (end - at < 4) return EntryError(entry.name, "a cut extra field");
    bytes = Number<uint16_t>(at + 2);
    if (bytes > end - at - 4) return EntryError(entry.name, "a cut extra field");
    if (Number<uint16_t>(at) != kZip64Field) continue;
    uint64_t from = at + 4;
    for (uint64_t* number : {&entry.size, &packed, &entry.begin}) {
      if (*number != kIn64) continue;
      if (at + 4 + bytes - from < 8) return EntryError(entry.name, "a short zip64 field");
      *number = Number<uint64_t>(from);
      from += 8;
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

// `limit` is where the next entry or the directory begins. The local header's
// own sizes may be zeros (a descriptor then follows the data) and do not count.
absl::Status ZipReader::FindData(uint64_t limit, Entry& entry) const {
  if (!HasRecord(entry.begin, kLocalBytes, kLocalMagic)) {
    return EntryError(entry.name, absl::StrCat("no local header at ", entry.begin));
  }
  const uint64_t name_bytes = Number<uint16_t>(entry.begin + 26);
  const uint64_t name_at = entry.begin + kLocalBytes;
  if (!Has(name_at, name_bytes) || text_.substr(name_at, name_bytes) != entry.name ||
      Number<uint16_t>(entry.begin + 8) != 0) {
    return EntryError(entry.name, "its local header says otherwise than the directory");
  }
  entry.data = name_at + name_bytes + Number<uint16_t>(entry.begin + 28);
  if (entry.data > limit || entry.size > limit - entry.data) {
    return EntryError(entry.name,
                      absl::StrCat("its ", entry.size, " bytes at ", entry.data, " reach beyond ",
                                   limit, ", where the next part of the file begins"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ZipEntry>> ReadStoredZip(const File& file) {
  auto entries = ZipReader(file).Run();
  if (entries.ok()) return entries;
  return absl::Status(entries.status().code(),
                      absl::StrCat(file.name, ": ", std::string(entries.status().message())));
}

}  // namespace baton::checkpoint
