// SPDX-License-Identifier: Apache-2.0
// A variable of the environment for one test. Not while other threads read it.
#pragma once

#include <stdlib.h>

#include <optional>
#include <string>

namespace baton {

class EnvironmentSetting {
 public:
  EnvironmentSetting(const char* name, const char* value) : name_(name) {
    const char* const before = getenv(name);
    if (before != nullptr) before_ = before;
    setenv(name, value, 1);
  }
  ~EnvironmentSetting() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  EnvironmentSetting(const EnvironmentSetting&) = delete;
  EnvironmentSetting& operator=(const EnvironmentSetting&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace baton
