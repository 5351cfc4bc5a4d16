// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/test_data.h"

#include <cstdlib>
#include <filesystem>

namespace baton::testing {
namespace {

std::string IfExists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) ? path.string() : std::string();
}

std::string Env(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string() : value;
}

std::string CachedModel(const char* file) {
  std::string cache = Env("BATON_CACHE_DIR");
  if (cache.empty()) cache = Env("HOME") + "/.cache/baton";
  return IfExists(std::filesystem::path(cache) / "models" / file);
}

}  // namespace

std::string TestData(const std::string& relative) {
  const std::string moved = Env("BATON_TEST_DATA");
  return (moved.empty() ? std::string(BATON_SOURCE_DIR) + "/tests/data" : moved) + "/" + relative;
}

std::string SharedData(const std::string& relative) {
  const std::string root = Env("BATON_SHARED_DIR");
  const std::filesystem::path base = root.empty()
                                         ? std::filesystem::path(BATON_SOURCE_DIR) / ".." / "shared"
                                         : std::filesystem::path(root);
  return IfExists(base / "data" / relative);
}

std::string DemoModel() { return CachedModel("SmolLM2-135M-Instruct.Q4_1.gguf"); }

std::string QwenModel() { return CachedModel("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf"); }

std::string TestDevice() {
  const char* device = getenv("BATON_TEST_DEVICE");
  return device == nullptr ? "emulated" : device;
}

}  // namespace baton::testing
