// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/inputs.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "common/base/half_float.h"
#include "common/base/status_macros.h"

namespace baton::gpu_bench {
namespace {

constexpr size_t kPeriod = size_t{1} << 20;

float SmallNumber(std::mt19937& random) {
  return static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
}

// `pattern` over and over.
absl::StatusOr<Buffer> Filled(const Device& device, size_t bytes,
                              const std::vector<std::byte>& pattern) {
  BATON_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(bytes, "a measurement"));
  for (size_t at = 0; at < bytes; at += pattern.size()) {
    device.table().copy_in(buffer.data() + at, pattern.data(), std::min(pattern.size(), bytes - at),
                           device.stream());
  }
  BATON_RETURN_IF_ERROR(device.Finish());
  return buffer;
}

// A record whose codes are random and whose scales are small.
std::vector<std::byte> Record(dev::WeightFormat format, std::mt19937& random) {
  std::vector<std::byte> record(dev::RecordBytes(format));
  const auto put = [&](size_t at, uint16_t bits) {
    std::memcpy(record.data() + at, &bits, sizeof(bits));
  };
  if (format == dev::WeightFormat::kBf16) {
    for (size_t at = 0; at < record.size(); at += 2) put(at, FloatToBf16(SmallNumber(random) / 16));
    return record;
  }
  const size_t codes = format == dev::WeightFormat::kInt8 ? 512 : 256;
  for (size_t at = 0; at < codes; ++at) record[at] = static_cast<std::byte>(random());
  for (size_t at = codes; at < record.size(); at += 2) put(at, FloatToHalf(0.004f));
  return record;
}

}  // namespace

absl::StatusOr<Buffer> Floats(const Device& device, size_t count) {
  std::mt19937 random(1);
  std::vector<std::byte> pattern(kPeriod);
  for (size_t at = 0; at < kPeriod; at += sizeof(float)) {
    const float value = SmallNumber(random);
    std::memcpy(pattern.data() + at, &value, sizeof(value));
  }
  return Filled(device, count * sizeof(float), pattern);
}

absl::StatusOr<Buffer> Bf16s(const Device& device, size_t count) {
  std::mt19937 random(2);
  std::vector<std::byte> pattern(kPeriod);
  for (size_t at = 0; at < kPeriod; at += sizeof(uint16_t)) {
    const uint16_t bits = FloatToBf16(SmallNumber(random));
    std::memcpy(pattern.data() + at, &bits, sizeof(bits));
  }
  return Filled(device, count * sizeof(uint16_t), pattern);
}

absl::StatusOr<Buffer> PackedWeights(const Device& device, dev::WeightFormat format,
                                     uint32_t outputs, uint32_t inputs) {
  std::mt19937 random(3);
  std::vector<std::byte> pattern;
  while (pattern.size() < kPeriod) {
    const std::vector<std::byte> record = Record(format, random);
    pattern.insert(pattern.end(), record.begin(), record.end());
  }
  return Filled(device, dev::WeightBytes(format, outputs, inputs), pattern);
}

absl::StatusOr<Buffer> Words(const Device& device, std::span<const uint32_t> words) {
  return device.Upload(std::as_bytes(words), "indices");
}

}  // namespace baton::gpu_bench
