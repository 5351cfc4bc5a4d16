// SPDX-License-Identifier: Apache-2.0
// Structured logs: one JSON object per line on standard error.
//
//   LogInfo("worker attached", {{"worker_id", id}, {"kv_blocks", blocks}});
//
// Never pass prompt or answer text. Thread-safe; a line is written whole.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace baton {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

using LogValue = std::variant<int64_t, double, bool, std::string>;

// A field's value. Anything integral, floating, or convertible to string.
struct LogField {
  template <typename T>
  LogField(std::string_view field_name, const T& field_value)
      : name(field_name), value(Convert(field_value)) {}

  std::string name;
  LogValue value;

 private:
  template <typename T>
  static LogValue Convert(const T& v) {
    if constexpr (std::is_same_v<T, bool>) {
      return v;
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      return static_cast<int64_t>(v);
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(v);
    } else {
      return std::string(std::string_view(v));
    }
  }
};

// Lines below `level` are dropped. Default: kInfo.
void SetLogLevel(LogLevel level);

// "debug", "info", "warning" or "error"; false when `name` is none of them.
bool ParseLogLevel(std::string_view name, LogLevel& level);

// The process's name in every line, such as "baton-router".
void SetLogProcess(std::string_view name);

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

inline void LogDebug(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(std::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

}  // namespace baton
