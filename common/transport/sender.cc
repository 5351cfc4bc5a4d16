// SPDX-License-Identifier: Apache-2.0
#include "common/transport/sender.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/transport/outgoing_transfer.h"
#include "common/transport/sender_link.h"
#include "common/transport/ticket.h"

namespace baton::transport {

// Shared by the sender and its writers; all but `loop` and `format` belong to
// the loop's thread once it is in use.
struct SenderCore {
  explicit SenderCore(OutgoingFormat how) : format(std::move(how)) { context.format = &format; }

  void Open(const std::shared_ptr<OutgoingTransfer>& transfer,
            const std::vector<Endpoint>& endpoints);
  void Stop();

  std::vector<Support> supports;  // of the transports that may be used
  std::shared_ptr<EventLoop> loop;
  const OutgoingFormat format;
  SenderContext context;
  absl::flat_hash_map<std::string, std::unique_ptr<SenderLink>> links;  // by endpoints
};

namespace {

using TransferPtr = std::shared_ptr<OutgoingTransfer>;

absl::Status Stopped() { return absl::UnavailableError("the KV sender has been stopped"); }

// Ends `transfer`, wherever it stands.
void Abort(const TransferPtr& transfer, const absl::Status& status) {
  if (transfer->ended()) return;
  if (transfer->link != nullptr) {
    transfer->link->Abort(transfer.get(), status);
  } else {
    transfer->End(status);
  }
}

// What follows a call that was taken: go on, or end for its error.
void GoOn(const TransferPtr& transfer, const absl::Status& taken) {
  if (!taken.ok()) return Abort(transfer, taken);
  if (!transfer->ended() && transfer->link != nullptr) transfer->link->Wake(transfer.get());
}

class Writer final : public KvWriter {
 public:
  Writer(std::shared_ptr<SenderCore> core, TransferPtr transfer)
      : core_(std::move(core)), transfer_(std::move(transfer)) {}

  ~Writer() override { Abort(absl::CancelledError("the writer is gone")); }

  void Put(const PutRange& range, PutSources sources, Done done) override {
    const bool posted = core_->loop->Post(
        [transfer = transfer_, range, sources = std::move(sources), done]() mutable {
          GoOn(transfer, transfer->AddPut(range, std::move(sources), std::move(done)));
        });
    if (!posted) done(Stopped());
  }

  void Commit(const CommitState& state, Done done) override {
    const bool posted = core_->loop->Post([transfer = transfer_, state, done]() mutable {
      GoOn(transfer, transfer->AddCommit(state, std::move(done)));
    });
    if (!posted) done(Stopped());
  }

  void Abort(const absl::Status& reason) override {
    core_->loop->Post([transfer = transfer_, message = std::string(reason.message())] {
      transport::Abort(transfer, absl::CancelledError(message));
    });
  }

  bool prefers_pool() const override { return transfer_->prefers_pool; }
  std::string transport() const override { return transfer_->transport.load(); }
  uint64_t bytes() const override { return transfer_->bytes.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<SenderCore> core_;
  const TransferPtr transfer_;
};

std::string KeyOf(const std::vector<Endpoint>& endpoints) {
  std::string key;
  for (const Endpoint& endpoint : endpoints) {
    absl::StrAppend(&key, endpoint.transport, "=", endpoint.address, "\n");
  }
  return key;
}

absl::StatusOr<OutgoingFormat> FormatOf(const SenderOptions& options, const kv::KvLayout& layout) {
  if (options.wire == layout.type || !options.wire) {
    return OutgoingFormat(layout, layout, std::nullopt);
  }
  BATON_ASSIGN_OR_RETURN(const kv::KvLayout wire, kv::StoredAs(layout, *options.wire));
  BATON_ASSIGN_OR_RETURN(const auto converter, kv::LayerConverter::Create(layout, wire));
  return OutgoingFormat(layout, wire, converter);
}

// Those that may be used, by the sender's preference, else in their order.
std::vector<Endpoint> Usable(const std::vector<Endpoint>& endpoints,
                             const std::vector<std::string>& preference) {
  std::vector<Endpoint> usable;
  for (const std::string& name : preference) {
    std::copy_if(endpoints.begin(), endpoints.end(), std::back_inserter(usable),
                 [&](const Endpoint& endpoint) { return endpoint.transport == name; });
  }
  return usable;
}

}  // namespace

void SenderCore::Open(const TransferPtr& transfer, const std::vector<Endpoint>& endpoints) {
  std::vector<Endpoint> usable = Usable(endpoints, context.options.transports);
  const std::string key = KeyOf(usable);
  std::unique_ptr<SenderLink>& link = links[key];
  if (link != nullptr) return link->Add(transfer);
  link = std::make_unique<SenderLink>(&context, std::move(usable), [this, key](SenderLink*) {
    // It is dying inside its own call.
    loop->Defer([dead = std::shared_ptr<SenderLink>(std::move(links[key]))] {});
    links.erase(key);
  });
  SenderLink* const fresh = link.get();
  fresh->Add(transfer);
  fresh->Start();
}

void SenderCore::Stop() {
  while (!links.empty()) links.begin()->second->Shutdown(Stopped());
}

absl::StatusOr<std::unique_ptr<SocketSender>> SocketSender::Make(const SenderOptions& options,
                                                                 const kv::KvLayout& layout) {
  for (const std::string& name : options.transports) {
    if (FindTransport(name) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("unknown transport \"", name, "\""));
    }
  }
  const auto& names = options.transports;
  if (options.pool == nullptr && std::find(names.begin(), names.end(), "cuda_ipc") != names.end()) {
    return NoPool(options.device);
  }
  BATON_ASSIGN_OR_RETURN(OutgoingFormat format, FormatOf(options, layout));
  const size_t slice = format.wire.LayerBytes();
  if (slice == 0 || slice > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("KV slices of ", slice, " bytes"));
  }
  if (options.ring_bytes < slice) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring_bytes is ", options.ring_bytes, ", one slice has ", slice));
  }
  auto core = std::make_shared<SenderCore>(std::move(format));
  for (const std::string& name : options.transports) {
    BATON_ASSIGN_OR_RETURN(Support support, FindTransport(name)->prepare(options.device));
    core->supports.push_back(std::move(support));
  }
  core->context.options = options;
  core->context.incarnation = RandomU64();
  BATON_ASSIGN_OR_RETURN(core->loop, EventLoop::Make("kv-sender"));
  core->context.loop = core->loop.get();
  return std::unique_ptr<SocketSender>(new SocketSender(std::move(core)));
}

SocketSender::SocketSender(std::shared_ptr<SenderCore> core) : core_(std::move(core)) {}

SocketSender::~SocketSender() {
  core_->loop->Stop([core = core_.get()] { core->Stop(); });
}

std::unique_ptr<KvWriter> SocketSender::Open(const std::vector<Endpoint>& endpoints,
                                             const ReserveRequest& request, absl::Time deadline,
                                             Done granted) {
  auto transfer = std::make_shared<OutgoingTransfer>(request, &core_->format, std::move(granted));
  // Until it is known how they travel.
  const std::vector<Endpoint> usable = Usable(endpoints, core_->context.options.transports);
  transfer->prefers_pool = core_->context.options.pool != nullptr && !usable.empty() &&
                           usable.front().transport == "cuda_ipc";
  core_->loop->Post([core = core_.get(), transfer, endpoints, deadline] {
    if (deadline != absl::InfiniteFuture()) {
      transfer->deadline_timer =
          core->loop->After(deadline - absl::Now(), [transfer = std::weak_ptr(transfer)] {
            if (const TransferPtr late = transfer.lock()) {
              Abort(late, absl::DeadlineExceededError("the hand-off took too long"));
            }
          });
    }
    core->Open(transfer, endpoints);
  });
  return std::make_unique<Writer>(core_, std::move(transfer));
}

void SocketSender::DecorateChannels(Decorate decorate) {
  core_->loop->Post([core = core_.get(), decorate = std::move(decorate)]() mutable {
    core->context.decorate = std::move(decorate);
  });
}

void SocketSender::BreakConnections() {
  core_->loop->Post([core = core_.get()] {
    std::vector<SenderLink*> links;
    for (const auto& [key, link] : core->links) links.push_back(link.get());
    for (SenderLink* link : links) link->Break();
  });
}

absl::StatusOr<std::unique_ptr<KvSender>> MakeSender(const SenderOptions& options,
                                                     const kv::KvLayout& layout) {
  return SocketSender::Make(options, layout);
}

}  // namespace baton::transport
