// SPDX-License-Identifier: Apache-2.0
// Stacks that one OS thread switches between: the threads of an emulated GPU
// block. Known to AddressSanitizer and ThreadSanitizer, so that they see each
// emulated thread as a thread of its own.
#pragma once

#include <cstddef>

namespace baton::simt {

// Runs `entry(argument)` on a stack of its own. Fibers are reused: Start again
// after the entry has come to its end, which must be a switch away for good.
class Fiber final {
 public:
  using Entry = void (*)(void*);
  static constexpr size_t kStackBytes = size_t{256} << 10;

  // The stack of the calling OS thread, to switch away from and back to.
  Fiber();
  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void Start(Entry entry, void* argument);
  // Leaves `from`, which runs, for `to`. Returns when something switches back.
  static void Switch(Fiber& from, Fiber& to);

 private:
  const bool owns_stack_;
  void* stack_ = nullptr;  // its lowest address
  size_t stack_bytes_ = 0;
  void* pointer_ = nullptr;  // saved stack pointer
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* tsan_ = nullptr;
};

}  // namespace baton::simt
