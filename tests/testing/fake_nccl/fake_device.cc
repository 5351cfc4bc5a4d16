// SPDX-License-Identifier: Apache-2.0
// The fake GPU: memory of the host, full of nonsense at first.
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/api/transfer_table.h"
#include "tests/testing/fake_nccl/fake_stream.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
extern "C" {  // of its runtime
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}
#define FAKE_NCCL_TSAN 1
#endif
#endif

namespace baton::fake_nccl {

bool peer_is_elsewhere = false;

namespace {

struct FakeEvent {
  FakeStream* stream = nullptr;
  bool reached = false;
};

const char* OpenFake(int index) {
  return index == 0 ? nullptr : "there is no device of that number";
}

void* AllocateFake(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory != nullptr) std::memset(memory, 0xa5, bytes);
  return memory;
}

gpu::Stream MakeFakeStream() { return new FakeStream; }
void DropFakeStream(gpu::Stream stream) { delete static_cast<FakeStream*>(stream); }
gpu::Event MakeFakeEvent() { return new FakeEvent; }
void DropFakeEvent(gpu::Event event) { delete static_cast<FakeEvent*>(event); }

// That a sender's bytes may be overwritten is known from the receiver, once it has
// used them. TSan sees no such thing where the receiver is another process.
void Copy(void* to, const void* from, size_t bytes) {
#ifdef FAKE_NCCL_TSAN
  if (peer_is_elsewhere) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
#endif
  std::memcpy(to, from, bytes);
#ifdef FAKE_NCCL_TSAN
  if (peer_is_elsewhere) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

const char* CopyFake(void* to, const void* from, size_t bytes, gpu::Stream stream) {
  FakeStream* const queue = static_cast<FakeStream*>(stream);
  queue->Add([to, from, bytes] {
    Copy(to, from, bytes);
    return true;
  });
  queue->Progress();
  return nullptr;
}

const char* RecordFake(gpu::Event event, gpu::Stream stream) {
  FakeEvent* const mark = static_cast<FakeEvent*>(event);
  mark->stream = static_cast<FakeStream*>(stream);
  mark->reached = false;
  mark->stream->Add([mark] { return mark->reached = true; });
  return nullptr;
}

const char* ReachedFake(gpu::Event event, bool* yes) {
  FakeEvent* const mark = static_cast<FakeEvent*>(event);
  if (!mark->reached) mark->stream->Progress();
  *yes = mark->reached;
  return nullptr;
}

constexpr gpu::TransferTable kFakeTable = {gpu::kTransferVersion,
                                           OpenFake,
                                           AllocateFake,
                                           std::free,
                                           AllocateFake,
                                           std::free,
                                           MakeFakeStream,
                                           DropFakeStream,
                                           MakeFakeEvent,
                                           DropFakeEvent,
                                           CopyFake,
                                           CopyFake,
                                           RecordFake,
                                           ReachedFake,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr};

}  // namespace
}  // namespace baton::fake_nccl

extern "C" const baton::gpu::TransferTable* baton_gpu_transfer_table() {
  return &baton::fake_nccl::kFakeTable;
}
