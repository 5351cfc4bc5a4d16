// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_nccl/fake_nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "common/transport/nccl/nccl_abi.h"
#include "tests/testing/fake_nccl/fake_stream.h"

namespace baton::fake_nccl {
namespace {

using transport::NcclConfig;
using transport::NcclResult;
using transport::NcclUniqueId;

constexpr NcclResult kSystemError{2}, kInvalidArgument{4}, kInvalidUsage{5}, kRemoteError{6};
constexpr uint64_t kWindow = 256 << 10;

[[noreturn]] void WrongUse(const char* what) {
  std::fprintf(stderr, "fake NCCL: %s\n", what);
  std::abort();
}

// What both ranks see; zeros at first.
struct Meeting {
  std::array<std::atomic<pid_t>, 2> joined;  // their processes
  // Of the bytes from that rank to the other.
  std::array<std::atomic<uint64_t>, 2> sent, taken;
  std::array<std::array<std::byte, kWindow>, 2> window;
};

struct Faults {
  std::map<std::string, uint64_t> plan;
  std::array<uint64_t, 2> made{};

  bool Has(const std::string& name) const { return plan.contains(name); }
  bool After(const std::string& name, uint64_t count) const {
    const auto it = plan.find(name);
    return it != plan.end() && count > it->second;
  }
};

Faults Parse(const char* text) {
  Faults faults;
  std::stringstream stream(text == nullptr ? "" : text);
  for (std::string item; std::getline(stream, item, ',');) {
    const size_t equals = item.find('=');
    faults.plan[item.substr(0, equals)] =
        equals == std::string::npos ? 1 : std::stoull(item.substr(equals + 1));
  }
  return faults;
}

std::mutex faults_mutex;
Faults& TheFaults() {
  static Faults faults = Parse(getenv("BATON_FAKE_NCCL"));
  return faults;
}

// The faults of the next communicator of that rank.
Faults Draw(int rank) {
  std::lock_guard lock(faults_mutex);
  Faults& faults = TheFaults();
  const uint64_t made = ++faults.made[static_cast<size_t>(rank)];
  const bool other_rank = faults.Has("rank") && faults.plan["rank"] != static_cast<uint64_t>(rank);
  return other_rank || faults.After("pairs", made) ? Faults{} : faults;
}

// One thread at a time, as NCCL wants it of communicators on one device.
class Inside {
 public:
  Inside() {
    if (taken().exchange(true)) WrongUse("two threads at once");
  }
  ~Inside() { taken() = false; }

 private:
  static std::atomic<bool>& taken() {
    static std::atomic<bool> is_taken{false};
    return is_taken;
  }
};

std::string PathOf(const NcclUniqueId& id) {
  std::string path = "/tmp/baton-fake-nccl-";
  for (size_t i = 0; i < 16; ++i) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned char>(id.bytes[i]));
    path += hex.data();
  }
  return path;
}

struct Comm {
  Comm(int my_rank, std::string where)
      : rank(my_rank), path(std::move(where)), faults(Draw(rank)) {}
  ~Comm() {
    if (meeting != nullptr) munmap(meeting, sizeof(Meeting));
    unlink(path.c_str());
  }

  const int rank;
  const std::string path;
  Faults faults;
  Meeting* meeting = nullptr;
  bool up = false, entering = false, stuck = false;
  NcclResult failure = NcclResult::kSuccess;
  uint64_t calls = 0;
  std::set<FakeStream*> streams;
};

std::set<Comm*>& Living() {
  static std::set<Comm*> living;
  return living;
}

Comm* Check(void* comm) {
  Comm* const known = static_cast<Comm*>(comm);
  if (!Living().contains(known)) WrongUse("a communicator that was aborted");
  return known;
}

bool Join(Comm* comm) {
  const int fd = open(comm->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  void* const memory =
      ftruncate(fd, sizeof(Meeting)) == 0
          ? mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
          : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return false;
  comm->meeting = static_cast<Meeting*>(memory);
  comm->meeting->joined[static_cast<size_t>(comm->rank)] = getpid();
  return true;
}

// One send or receive, a window's room at a time. True when it is complete.
bool Step(Comm* comm, bool sends, std::byte* memory, size_t size, size_t& done) {
  const size_t from = static_cast<size_t>(sends ? comm->rank : 1 - comm->rank);
  Meeting& meeting = *comm->meeting;
  std::atomic<uint64_t>& mine = sends ? meeting.sent[from] : meeting.taken[from];
  const std::atomic<uint64_t>& theirs = sends ? meeting.taken[from] : meeting.sent[from];
  while (done < size) {
    const uint64_t at = mine, other = theirs;
    const uint64_t ready = sends ? kWindow - (at - other) : other - at;
    const uint64_t begin = at % kWindow;
    const size_t part = std::min({ready, kWindow - begin, uint64_t{size - done}});
    if (part == 0) return false;
    std::byte* const window = meeting.window[from].data() + begin;
    std::memcpy(sends ? window : memory + done, sends ? memory + done : window, part);
    done += part;
    mine = at + part;
  }
  return true;
}

std::atomic<uint64_t> moves{0};

NcclResult Queue(void* handle, void* stream, bool sends, void* memory, size_t size, int type,
                 int peer) {
  const Inside inside;
  Comm* const comm = Check(handle);
  if (!comm->up || comm->entering || comm->stuck) WrongUse("a call while one is in progress");
  if (type != transport::kNcclInt8 || peer != 1 - comm->rank) return kInvalidArgument;
  ++comm->calls;
  if (comm->faults.After("refuse-after", comm->calls)) return kSystemError;
  if (comm->faults.After("block-after", comm->calls)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(comm->faults.plan["block-ms"]));
  }
  comm->entering = true;
  comm->stuck = comm->faults.After("stuck-after", comm->calls);
  if (comm->faults.After("error-after", comm->calls)) comm->failure = kRemoteError;
  const bool hangs = comm->faults.After("hang-after", comm->calls);
  FakeStream* const queue = static_cast<FakeStream*>(stream);
  comm->streams.insert(queue);
  queue->Add([comm, sends, memory, size, hangs, done = size_t{0}]() mutable {
    if (hangs || comm->stuck || comm->failure != NcclResult::kSuccess) return false;
    const bool complete = Step(comm, sends, static_cast<std::byte*>(memory), size, done);
    moves += complete ? 1 : 0;
    return complete;
  });
  return NcclResult::kInProgress;
}

NcclResult State(Comm* comm) {
  if (comm->failure != NcclResult::kSuccess) return comm->failure;
  if (comm->stuck || comm->meeting == nullptr) return NcclResult::kInProgress;
  if (!comm->up) {
    if (comm->meeting->joined[0] == 0 || comm->meeting->joined[1] == 0) {
      return NcclResult::kInProgress;
    }
    unlink(comm->path.c_str());
    comm->up = true;
    peer_is_elsewhere = comm->meeting->joined[0] != comm->meeting->joined[1];
  }
  // Every call is seen in progress once.
  return std::exchange(comm->entering, false) ? NcclResult::kInProgress : NcclResult::kSuccess;
}

}  // namespace
}  // namespace baton::fake_nccl

using namespace baton::fake_nccl;  // NOLINT(google-build-using-namespace): for what follows

extern "C" {

NcclResult ncclGetVersion(int* version) {
  *version = 22809;
  return NcclResult::kSuccess;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  const Inside inside;
  std::random_device random;
  for (char& byte : id->bytes) byte = static_cast<char>(random());
  return NcclResult::kSuccess;
}

NcclResult ncclCommInitRankConfig(void** handle, int ranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  const Inside inside;
  if (config == nullptr || config->size != sizeof(NcclConfig) || config->magic != 0xcafebeef ||
      config->blocking != 0 || ranks != 2 || rank < 0 || rank > 1) {
    return kInvalidArgument;
  }
  auto comm = std::make_unique<Comm>(rank, PathOf(id));
  if (comm->faults.Has("init-fails")) return kInvalidUsage;
  if (!comm->faults.Has("init-hangs") && !Join(comm.get())) return kSystemError;
  Living().insert(comm.get());
  *handle = comm.release();
  return NcclResult::kInProgress;
}

NcclResult ncclCommGetAsyncError(void* comm, NcclResult* error) {
  const Inside inside;
  *error = State(Check(comm));
  return NcclResult::kSuccess;
}

NcclResult ncclCommAbort(void* handle) {
  const Inside inside;
  Comm* const comm = Check(handle);
  for (FakeStream* const stream : comm->streams) stream->Drop();
  Living().erase(comm);
  delete comm;
  return NcclResult::kSuccess;
}

NcclResult ncclSend(const void* from, size_t count, int type, int peer, void* comm, void* stream) {
  return Queue(comm, stream, true, const_cast<void*>(from), count, type, peer);
}

NcclResult ncclRecv(void* into, size_t count, int type, int peer, void* comm, void* stream) {
  return Queue(comm, stream, false, into, count, type, peer);
}

const char* ncclGetErrorString(NcclResult result) {
  static constexpr std::array<const char*, 8> kNames = {
      "no error",
      "unhandled cuda error",
      "unhandled system error",
      "internal error",
      "invalid argument",
      "invalid usage",
      "remote process exited or there was a network error",
      "in progress"};
  const auto index = static_cast<size_t>(result);
  return index < kNames.size() ? kNames[index] : nullptr;
}

void fake_nccl_set_faults(const char* plan) {
  std::lock_guard lock(faults_mutex);
  TheFaults() = Parse(plan);
}

uint64_t fake_nccl_moves() { return moves; }

}  // extern "C"
