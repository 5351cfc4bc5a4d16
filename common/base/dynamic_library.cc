// SPDX-License-Identifier: Apache-2.0
#include "common/base/dynamic_library.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <system_error>

namespace baton {

void* OpenLibrary(const std::string& name, std::string* problem) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::array<std::filesystem::path, 3> candidates = {program / name, program / ".." / "lib" / name,
                                                     name};
  for (const auto& candidate : candidates) {
    if (candidate != name && !std::filesystem::exists(candidate, error)) continue;
    if (void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps it per thread.
    const char* text = dlerror();
    *problem = text == nullptr ? "" : text;
  }
  return nullptr;
}

}  // namespace baton
