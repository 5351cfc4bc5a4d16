// SPDX-License-Identifier: Apache-2.0
#include "common/model/packed_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/model/packed_file.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char kSuffix[] = ".packed", kPartialSuffix[] = ".packed.partial";
constexpr size_t kMostLabelBytes = 80;
// flock has no deadline of its own.
constexpr auto kLockRetry = std::chrono::milliseconds(20);

// FNV-1a; only spreads names, the description itself is compared.
uint64_t Digest(std::string_view text) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return digest;
}

std::string FileName(const std::string& label, const std::string& description) {
  std::string name = label.substr(0, kMostLabelBytes);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    if (!plain) c = '_';
  }
  if (name.starts_with('.')) name[0] = '_';
  return absl::StrFormat("%s-%016x%s", name, Digest(description), kSuffix);
}

std::string LockPath(const std::string& path) { return path + ".lock"; }

// Held until the descriptor is closed, also by the end of the process.
absl::StatusOr<UniqueFd> Lock(const std::string& path, std::chrono::milliseconds patience) {
  UniqueFd fd(open(LockPath(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(LockPath(path), ": ", std::generic_category().message(errno)));
  }
  const Clock::time_point deadline = Clock::now() + patience;
  for (bool logged = false; flock(fd.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return absl::FailedPreconditionError(
          absl::StrCat(LockPath(path), ": ", std::generic_category().message(errno)));
    }
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) {
      return absl::DeadlineExceededError(
          absl::StrCat(path, ": another process has been packing it for ",
                       std::chrono::duration_cast<std::chrono::seconds>(patience).count(), " s"));
    }
    if (!logged) LogInfo("another process packs these weights: waiting", {{"path", path}});
    logged = true;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, kLockRetry));
  }
  return fd;
}

struct CacheFile {
  std::string path;
  uint64_t bytes;
  fs::file_time_type used;
};

// Half files of processes that are gone.
void RemoveAbandoned(const std::string& partial) {
  const std::string path =
      partial.substr(0, partial.size() - (sizeof kPartialSuffix - sizeof kSuffix));
  if (Lock(path, {}).ok()) unlink(partial.c_str());
}

// Makes room for `bytes` more; `own` is the file that is about to be written.
void Sweep(const PackedCacheOptions& options, const std::string& own, uint64_t bytes) {
  std::vector<CacheFile> files;
  uint64_t total = bytes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(options.folder, error)) {
    const std::string path = entry.path().string();
    if (path == own || path == own + ".partial" || !entry.is_regular_file(error)) continue;
    if (path.ends_with(kPartialSuffix)) RemoveAbandoned(path);
    if (!path.ends_with(kSuffix)) continue;
    files.push_back({path, entry.file_size(error), entry.last_write_time(error)});
    total += files.back().bytes;
  }
  std::sort(files.begin(), files.end(),
            [](const CacheFile& a, const CacheFile& b) { return a.used < b.used; });
  for (const CacheFile& file : files) {
    if (total <= options.limit_bytes) return;
    if (unlink(file.path.c_str()) != 0) continue;
    total -= file.bytes;
    LogInfo("packed weights removed to stay within the cache's limit",
            {{"path", file.path}, {"mib", file.bytes >> 20}});
  }
}

// The time of the last change serves as that of the last use.
void NoteUse(const std::string& path) { utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

// Empty when it is not set.
std::string Environment(const char* name) {
  const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets any
  return value == nullptr ? "" : value;
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(folder, ": ", error.message()));
}

}  // namespace

std::string PackedCacheFolder(const std::string& setting) {
  if (setting == "off") return "";
  if (!setting.empty()) return setting;
  if (const std::string cache = Environment("BATON_CACHE_DIR"); !cache.empty()) {
    return absl::StrCat(cache, "/packed");
  }
  if (const std::string home = Environment("HOME"); !home.empty()) {
    return absl::StrCat(home, "/.cache/baton/packed");
  }
  return "";
}

absl::StatusOr<CachedWeights> MapOrPack(const PackedCacheOptions& options, const std::string& label,
                                        const std::string& description, uint64_t data_bytes,
                                        ThreadPool& pool,
                                        absl::FunctionRef<absl::Status(PackSink&)> pack) {
  const std::string path = (fs::path(options.folder) / FileName(label, description)).string();
  const auto map = [&]() -> absl::StatusOr<CachedWeights> {
    BATON_ASSIGN_OR_RETURN(auto data, MapPackedFile(path, description, data_bytes, pool));
    NoteUse(path);
    return CachedWeights{.data = std::move(data)};
  };
  if (auto mapped = map(); mapped.ok()) return mapped;

  if (data_bytes > options.limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the weights take ", data_bytes >> 20,
                                                     " MiB, the cache may take ",
                                                     options.limit_bytes >> 20, " MiB"));
  }
  BATON_RETURN_IF_ERROR(MakeFolder(options.folder));
  BATON_ASSIGN_OR_RETURN(const UniqueFd lock, Lock(path, options.lock_patience));
  auto mapped = map();  // another process may have packed meanwhile
  if (mapped.ok()) return mapped;
  if (!absl::IsNotFound(mapped.status())) {
    LogWarning("packed weights are made anew",
               {{"reason", std::string(mapped.status().message())}});
  }
  Sweep(options, path, data_bytes);
  BATON_ASSIGN_OR_RETURN(const auto writer,
                         PackedFileWriter::Create(path, description, data_bytes));
  BATON_RETURN_IF_ERROR(pack(*writer));
  BATON_RETURN_IF_ERROR(writer->Finish());
  BATON_ASSIGN_OR_RETURN(CachedWeights weights, map());
  weights.packed_now = true;
  return weights;
}

}  // namespace baton::model
