// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/simt/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BATON_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define BATON_ASAN 1
#endif

#ifdef BATON_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
// This file itself is compiled without TSan (CMakeLists.txt).
#ifdef BATON_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Saves the registers that a call keeps, and the stack pointer to *save; goes
// on at `to`, where they were saved before.
extern "C" void baton_simt_switch(void** save, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.globl baton_simt_switch
.hidden baton_simt_switch
.type baton_simt_switch,@function
baton_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size baton_simt_switch,.-baton_simt_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl baton_simt_switch
.hidden baton_simt_switch
.type baton_simt_switch,%function
baton_simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size baton_simt_switch,.-baton_simt_switch
)");
#else
#error "the emulator switches stacks on x86-64 and AArch64 only"
#endif

namespace baton::simt {
namespace {

// What a fiber that was just started is to run.
thread_local Fiber::Entry next_entry = nullptr;
thread_local void* next_argument = nullptr;

[[noreturn]] void FirstFrame() {
#ifdef BATON_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  next_entry(next_argument);
  std::fputs("simt: a fiber ran past its end\n", stderr);
  std::abort();
}

}  // namespace

Fiber::Fiber() : owns_stack_(false) {
#ifdef BATON_ASAN
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack_, &stack_bytes_);
  pthread_attr_destroy(&attributes);
#endif
#ifdef BATON_TSAN
  tsan_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes) : owns_stack_(true), stack_bytes_(stack_bytes) {
  stack_ = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) {
    std::fputs("simt: no memory for a stack\n", stderr);
    std::abort();
  }
#ifdef BATON_TSAN
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (!owns_stack_) return;
#ifdef BATON_TSAN
  __tsan_destroy_fiber(tsan_);
#endif
  munmap(stack_, stack_bytes_);
}

void Fiber::Start(Entry entry, void* argument) {
  next_entry = entry;
  next_argument = argument;
  auto** top = reinterpret_cast<void**>(static_cast<char*>(stack_) + stack_bytes_);
#if defined(__x86_64__)
  // The return address stands where the stack is aligned as after a call.
  top -= 2;
  *top = reinterpret_cast<void*>(&FirstFrame);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
#else
  top -= 20;
  for (int i = 0; i < 20; ++i) top[i] = nullptr;
  top[11] = reinterpret_cast<void*>(&FirstFrame);  // the link register
#endif
  pointer_ = top;
}

__attribute__((noinline)) void Fiber::Switch(Fiber& from, Fiber& to) {
#ifdef BATON_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
#ifdef BATON_TSAN
  // Order comes from barriers alone, not from the switch.
  __tsan_switch_to_fiber(to.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
  baton_simt_switch(&from.pointer_, to.pointer_);
#ifdef BATON_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace baton::simt
