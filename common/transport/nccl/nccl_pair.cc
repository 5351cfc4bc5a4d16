// SPDX-License-Identifier: Apache-2.0
#include "common/transport/nccl/nccl_pair.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace baton::transport {
namespace {

// So many are in the stream at once: the next copy runs beside a transfer.
constexpr size_t kMostPosted = 8;

absl::Status DeviceError(const char* what, const char* problem) {
  return problem == nullptr
             ? absl::OkStatus()
             : absl::UnavailableError(absl::StrCat("NCCL: the GPU failed (", what, "): ", problem));
}

}  // namespace

NcclHostRing::~NcclHostRing() {
  if (data == nullptr || lost) return;
  runtime->Post([release = runtime->device().release_host, memory = data] { release(memory); });
}

void NcclPair::StartNamed() {
  NcclUniqueId id{};
  const NcclResult made = runtime_.nccl().get_unique_id(&id);
  if (made != NcclResult::kSuccess) {
    moved_at_ = Clock::now();
    Fail(NcclError(runtime_.nccl(), "no id", made));
    return;
  }
  tell_([id](const NcclEvents& events) { events.named(id); });
  Start(id, nullptr);
}

void NcclPair::Start(const NcclUniqueId& id, std::shared_ptr<const NcclPair> before) {
  if (state_ != State::kNew) return;  // closed already
  id_ = id;
  before_ = std::move(before);
  moved_at_ = Clock::now();
  state_ = State::kWaiting;
}

bool NcclPair::Poll() {
  switch (state_) {
    case State::kWaiting:
      if (before_ == nullptr || before_->gone()) return Begin();
      return StalledNow() && Fail(absl::UnavailableError("NCCL: the one before does not end"));
    case State::kJoining:
      return PollJoining();
    case State::kUp:
      return Working() && PollUp();
    case State::kDraining:
      return PollDraining();
    case State::kNew:
    case State::kGone:
      return false;
  }
  return false;
}

bool NcclPair::Begin() {
  before_.reset();
  // A stream of one before may still write there.
  if (plan_.ring->lost) return Fail(absl::UnavailableError("NCCL: the one before did not end"));
  if (const absl::Status got = Allocate(); !got.ok()) return Fail(got);
  NcclConfig config;
  config.blocking = 0;
  config.min_ctas = 1;
  config.max_ctas = 2;
  const NcclResult begun =
      runtime_.nccl().comm_init_rank_config(&comm_, 2, id_, static_cast<int>(plan_.rank), &config);
  if (begun != NcclResult::kSuccess && begun != NcclResult::kInProgress) {
    comm_ = nullptr;  // not one that could be aborted
    return Fail(NcclError(runtime_.nccl(), "no communicator", begun));
  }
  state_ = State::kJoining;
  return true;
}

absl::Status NcclPair::Allocate() {
  const gpu::TransferTable& device = runtime_.device();
  NcclHostRing& ring = *plan_.ring;
  if (ring.data == nullptr) ring.data = static_cast<std::byte*>(device.allocate_host(ring.bytes));
  device_ = static_cast<std::byte*>(device.allocate(ring.bytes));
  stream_ = device.make_stream();
  last_ = device.make_event();
  if (ring.data == nullptr || device_ == nullptr || stream_ == nullptr || last_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("NCCL: no ", ring.bytes, " bytes on the GPU and as many pinned ones"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> NcclPair::Settled() {
  NcclResult state = NcclResult::kSuccess;
  const NcclResult asked = runtime_.nccl().comm_get_async_error(comm_, &state);
  const NcclResult result = asked == NcclResult::kSuccess ? state : asked;
  if (result == NcclResult::kInProgress) return false;
  if (result == NcclResult::kSuccess) return true;
  return NcclError(runtime_.nccl(), "the communicator failed", result);
}

bool NcclPair::StalledNow() const {
  return Clock::now() - moved_at_ > absl::ToChronoNanoseconds(plan_.stall_limit);
}

bool NcclPair::PollJoining() {
  const absl::StatusOr<bool> joined = Settled();
  if (!joined.ok()) return Fail(joined.status());
  if (!*joined) {
    return StalledNow() &&
           Fail(absl::UnavailableError(absl::StrCat("NCCL: the other side did not join within ",
                                                    absl::FormatDuration(plan_.stall_limit))));
  }
  state_ = State::kUp;
  moved_at_ = Clock::now();
  waiting_.push_front({0, std::min(kNcclTrialBytes, plan_.ring->bytes), /*trial=*/true});
  tell_([ring = plan_.ring->data](const NcclEvents& events) { events.up(ring); });
  return true;
}

bool NcclPair::PollUp() {
  const absl::StatusOr<bool> settled = Settled();
  if (!settled.ok()) return Fail(settled.status());
  bool moved = false;
  if (*settled) {
    absl::Status going = entering_ ? Follow() : absl::OkStatus();
    if (going.ok() && !waiting_.empty() && posted_.size() < kMostPosted) {
      if (posted_.empty()) moved_at_ = Clock::now();  // it had nothing to do
      const Bytes next = waiting_.front();
      waiting_.pop_front();
      going = Post(next);
      moved = true;
    }
    if (!going.ok()) return Fail(going);
  }
  const absl::StatusOr<uint64_t> reached = TakeReached();
  if (!reached.ok()) return Fail(reached.status());
  if (*reached > 0) {
    moved_at_ = Clock::now();
    tell_([count = *reached](const NcclEvents& events) { events.moved(count); });
  } else if (StalledNow()) {
    return Fail(absl::UnavailableError(
        absl::StrCat("NCCL: nothing has moved for ", absl::FormatDuration(plan_.stall_limit))));
  }
  return moved || *reached > 0;
}

absl::Status NcclPair::Post(const Bytes& bytes) {
  const NcclTable& nccl = runtime_.nccl();
  std::byte* const memory = device_ + bytes.offset;
  const bool sends = plan_.rank == NcclRank::kSender;
  if (sends && !bytes.trial) {
    BATON_RETURN_IF_ERROR(DeviceError(
        "copy",
        runtime_.device().copy_in(memory, plan_.ring->data + bytes.offset, bytes.size, stream_)));
  }
  const int peer =
      sends ? static_cast<int>(NcclRank::kReceiver) : static_cast<int>(NcclRank::kSender);
  const NcclResult begun = sends ? nccl.send(memory, bytes.size, kNcclInt8, peer, comm_, stream_)
                                 : nccl.recv(memory, bytes.size, kNcclInt8, peer, comm_, stream_);
  if (begun != NcclResult::kSuccess && begun != NcclResult::kInProgress) {
    return NcclError(nccl, sends ? "send" : "receive", begun);
  }
  entering_ = true;
  entered_ = bytes;
  return absl::OkStatus();
}

absl::Status NcclPair::Follow() {
  entering_ = false;
  if (plan_.rank == NcclRank::kReceiver && !entered_.trial) {
    BATON_RETURN_IF_ERROR(DeviceError(
        "copy", runtime_.device().copy_out(plan_.ring->data + entered_.offset,
                                           device_ + entered_.offset, entered_.size, stream_)));
  }
  const gpu::Event event = TakeEvent();
  if (event == nullptr) return absl::UnavailableError("NCCL: the GPU has no event left");
  posted_.push_back(event);
  return DeviceError("event", runtime_.device().record(event, stream_));
}

gpu::Event NcclPair::TakeEvent() {
  if (spare_.empty()) return runtime_.device().make_event();
  const gpu::Event event = spare_.back();
  spare_.pop_back();
  return event;
}

absl::StatusOr<uint64_t> NcclPair::TakeReached() {
  uint64_t count = 0;
  while (!posted_.empty()) {
    bool yes = false;
    BATON_RETURN_IF_ERROR(DeviceError("event", runtime_.device().reached(posted_.front(), &yes)));
    if (!yes) break;
    spare_.push_back(posted_.front());
    posted_.pop_front();
    ++count;
  }
  return count;
}

bool NcclPair::Fail(const absl::Status& reason) {
  Abort();
  tell_([reason](const NcclEvents& events) { events.lost(reason); });
  return true;
}

// NCCL's own way to end in order needs the other side; this one does not.
void NcclPair::Abort() {
  if (state_ == State::kDraining || state_ == State::kGone) return;
  if (comm_ != nullptr) runtime_.nccl().comm_abort(std::exchange(comm_, nullptr));
  waiting_.clear();
  state_ = State::kDraining;
  moved_at_ = Clock::now();
  before_.reset();
  if (stream_ == nullptr || last_ == nullptr) return Release(true);
  if (const char* problem = runtime_.device().record(last_, stream_)) {
    LogWarning("nccl: the gpu's stream failed", {{"reason", std::string(problem)}});
    Release(false);
  }
}

bool NcclPair::PollDraining() {
  bool yes = false;
  const char* const problem = runtime_.device().reached(last_, &yes);
  if (problem == nullptr && !yes && !StalledNow()) return false;
  Release(problem == nullptr && yes);
  return true;
}

// A stream that does not come to its end keeps its memory: freeing it would wait.
void NcclPair::Release(bool clean) {
  const gpu::TransferTable& device = runtime_.device();
  clean_ = clean;
  if (!clean) {
    LogError("nccl: a stream does not end; its memory is left to it");
    plan_.ring->lost = true;
  } else {
    posted_.insert(posted_.end(), spare_.begin(), spare_.end());
    if (last_ != nullptr) posted_.push_back(last_);
    for (const gpu::Event event : posted_) device.drop_event(event);
    if (stream_ != nullptr) device.drop_stream(stream_);
    if (device_ != nullptr) device.release(device_);
  }
  posted_.clear();
  spare_.clear();
  state_ = State::kGone;
  plan_.place.reset();
  if (closing_) tell_([clean](const NcclEvents& events) { events.closed(clean); });
}

void NcclPair::Close() {
  if (std::exchange(closing_, true)) return;
  if (state_ == State::kGone) {
    return tell_([clean = clean_](const NcclEvents& events) { events.closed(clean); });
  }
  Abort();
}

NcclLine::NcclLine(std::shared_ptr<NcclRuntime> runtime, EventLoop* loop, NcclPair::Plan plan,
                   NcclEvents events)
    : runtime_(std::move(runtime)),
      mail_(std::make_shared<Mail>()),
      pair_(std::make_shared<NcclPair>(runtime_.get(), std::move(plan),
                                       [mail = mail_](std::function<void(const NcclEvents&)> what) {
                                         std::lock_guard lock(mail->mutex);
                                         if (mail->loop == nullptr) return;
                                         mail->loop->Post([mail, what = std::move(what)] {
                                           if (mail->open) what(mail->events);
                                         });
                                       })) {
  mail_->loop = loop;
  mail_->events = std::move(events);
  runtime_->Post([runtime = runtime_.get(), pair = pair_] { runtime->Add(pair); });
}

NcclLine::~NcclLine() {
  {
    std::lock_guard lock(mail_->mutex);
    mail_->loop = nullptr;
  }
  mail_->open = false;
  Close();
}

void NcclLine::StartNamed() {
  runtime_->Post([pair = pair_] { pair->StartNamed(); });
}

void NcclLine::Start(const NcclUniqueId& id, const NcclLine* before) {
  runtime_->Post([pair = pair_, id, before = before == nullptr ? nullptr : before->pair_] {
    pair->Start(id, before);
  });
}

void NcclLine::Move(size_t offset, size_t bytes) {
  runtime_->Post([pair = pair_, offset, bytes] { pair->Move(offset, bytes); });
}

void NcclLine::Close() {
  runtime_->Post([pair = pair_] { pair->Close(); });
}

}  // namespace baton::transport
