// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt/overlap.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace baton::simt {
namespace {

using Word = uint32_t;  // what differs is found and hidden in words

struct Tracker {
  bool on = false;
  std::map<char*, std::vector<char>> memory;  // and what stood there before the kernel
  std::vector<char*> written;                 // words, by the kernel before
  std::vector<Word> hidden;                   // what they hold, while they are
};

Tracker& Tracked() {
  static Tracker tracker;
  return tracker;
}

}  // namespace

void SetOverlap(bool on) {
  Tracked().on = on;
  EndOverlap();
}
bool OverlapIsOn() { return Tracked().on; }

void AddMemory(void* memory, size_t bytes) {
  Tracked().memory[static_cast<char*>(memory)].resize(bytes / sizeof(Word) * sizeof(Word));
}
void DropMemory(void* memory) {
  Tracked().memory.erase(static_cast<char*>(memory));
  EndOverlap();
}
void EndOverlap() { Tracked().written.clear(); }

void BeginWrites() {
  for (auto& [at, before] : Tracked().memory) std::memcpy(before.data(), at, before.size());
}

void EndWrites() {
  Tracker& tracker = Tracked();
  tracker.written.clear();
  for (const auto& [at, before] : tracker.memory) {
    for (size_t i = 0; i < before.size(); i += sizeof(Word)) {
      if (std::memcmp(at + i, &before[i], sizeof(Word)) != 0) tracker.written.push_back(at + i);
    }
  }
}

void HideWritten() {
  Tracker& tracker = Tracked();
  tracker.hidden.resize(tracker.written.size());
  for (size_t i = 0; i < tracker.written.size(); ++i) {
    std::memcpy(&tracker.hidden[i], tracker.written[i], sizeof(Word));
    std::memset(tracker.written[i], 0xff, sizeof(Word));
  }
}

void ShowWritten() {
  Tracker& tracker = Tracked();
  for (size_t i = 0; i < tracker.written.size(); ++i) {
    std::memcpy(tracker.written[i], &tracker.hidden[i], sizeof(Word));
  }
}

}  // namespace baton::simt
