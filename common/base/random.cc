// SPDX-License-Identifier: Apache-2.0
#include "common/base/random.h"

#include <sys/random.h>

#include <cstring>
#include <random>

namespace baton {

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) {
    // Only on kernels without the call; the device never runs dry.
    std::random_device device;
    for (char& byte : bytes) byte = static_cast<char>(device());
  }
  return bytes;
}

uint64_t RandomU64() {
  uint64_t value;
  std::memcpy(&value, RandomBytes(sizeof(value)).data(), sizeof(value));
  return value;
}

}  // namespace baton
