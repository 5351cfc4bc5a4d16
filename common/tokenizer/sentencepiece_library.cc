// SPDX-License-Identifier: Apache-2.0
#include "common/tokenizer/sentencepiece_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton::tokenizer {
namespace {

absl::StatusOr<const BatonSpApi*> OpenLibrary() {
  std::error_code error;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string tried;
  for (const std::filesystem::path& path :
       {executable.parent_path() / "../lib/libbaton_sentencepiece.so",
        std::filesystem::path(BATON_SENTENCEPIECE_BUILD_PATH)}) {
    // A namespace of its own: RTLD_LOCAL alone would still bind the library's
    // protobuf symbols to libprotobuf's. The handle stays open on purpose.
    void* handle = dlmopen(LM_ID_NEWLM, path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps it per thread.
      absl::StrAppend(&tried, tried.empty() ? "" : "; ", dlerror());
      continue;
    }
    const void* api = dlsym(handle, BATON_SP_API_SYMBOL);
    if (api != nullptr) return static_cast<const BatonSpApi*>(api);
    absl::StrAppend(&tried, path.string(), " is of another version");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the sentencepiece library cannot be loaded (is libsentencepiece0 installed?): ", tried));
}

}  // namespace

absl::StatusOr<const BatonSpApi*> SentencePieceLibrary() {
  static const auto* const library = new absl::StatusOr<const BatonSpApi*>(OpenLibrary());
  return *library;
}

}  // namespace baton::tokenizer
