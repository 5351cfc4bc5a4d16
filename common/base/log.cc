// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>

namespace baton {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::mutex g_process_mutex;
std::string& ProcessName() {
  static std::string* const name = new std::string("baton");
  return *name;
}

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

std::string Timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  const time_t seconds = static_cast<time_t>(micros / 1'000'000);
  tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(text + n, sizeof text - n, ".%06dZ", static_cast<int>(micros % 1'000'000));
  return text;
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }

bool ParseLogLevel(std::string_view name, LogLevel& level) {
  for (uint8_t i = 0; i < 4; ++i) {
    if (name == kLevelNames[i]) {
      level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

void SetLogProcess(std::string_view name) {
  const std::lock_guard lock(g_process_mutex);
  ProcessName() = std::string(name);
}

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  nlohmann::ordered_json line;
  line["time"] = Timestamp();
  line["level"] = kLevelNames[static_cast<size_t>(level)];
  {
    const std::lock_guard lock(g_process_mutex);
    line["process"] = ProcessName();
  }
  line["pid"] = getpid();
  line["message"] = std::string(message);
  for (const LogField& field : fields) {
    std::visit([&](const auto& v) { line[field.name] = v; }, field.value);
  }
  std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  // One write call per line, so that lines of several threads do not mix.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace baton
