// SPDX-License-Identifier: Apache-2.0
// The one KvReceiver: listeners, sessions, and the way back from landing ids.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/transport/event_loop.h"
#include "common/transport/frame.h"
#include "common/transport/kv_transport.h"
#include "common/transport/put_channel.h"
#include "common/transport/receiver_session.h"
#include "common/transport/tcp/tcp_socket.h"

namespace baton::transport {
namespace {

// Out of descriptors: the listener rests this long instead of spinning.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

class SocketReceiver final : public KvReceiver, private SessionHost {
 public:
  SocketReceiver(const ReceiverOptions& options, const kv::KvLayout& layout, KvLanding* landing,
                 std::shared_ptr<EventLoop> loop)
      : options_(options),
        layout_(layout),
        landing_(landing),
        incarnation_(RandomU64()),
        loop_(std::move(loop)) {}

  ~SocketReceiver() override {
    loop_->Stop([this] { StopOnLoop(); });
  }

  absl::Status Listen() {
    if (options_.ucx && FindTransport("ucx") == nullptr) {
      return absl::InvalidArgumentError("ucx is not built in");
    }
    if (options_.cuda_ipc && options_.pool == nullptr) return NoPool(options_.device);
    for (const Transport& transport : Transports()) {
      if (!transport.listens(options_)) continue;
      BATON_ASSIGN_OR_RETURN(Support support, transport.prepare(options_.device));
      supports_.push_back(std::move(support));
      BATON_RETURN_IF_ERROR(Listen(transport));
    }
    if (listening_.empty()) {
      return absl::InvalidArgumentError("neither socket_dir nor tcp_address is set");
    }
    loop_->Post([this] {
      for (const auto& listening : listening_) WatchListener(listening.get());
    });
    return absl::OkStatus();
  }

  std::vector<Endpoint> endpoints() const override { return endpoints_; }

  void Revoke(uint64_t landing_id, const absl::Status& reason) override {
    loop_->Post([this, landing_id, reason] {
      const auto it = tickets_.find(landing_id);
      if (it == tickets_.end()) return;
      const auto [session, transfer] = it->second;
      if (ReceiverSession* found = FindSession(session)) found->Revoke(transfer, reason);
    });
  }

 private:
  struct Listening {
    explicit Listening(Listener l) : listener(std::move(l)) {}
    Listener listener;
    std::vector<const Transport*> transports;  // of one kind of socket, best first
    uint64_t watch = 0;
  };

  // Opens the transport's socket, unless another of its kind has.
  absl::Status Listen(const Transport& transport) {
    auto it = std::find_if(listening_.begin(), listening_.end(), [&](const auto& listening) {
      return listening->transports.front()->socket == transport.socket;
    });
    if (it == listening_.end()) {
      BATON_ASSIGN_OR_RETURN(Listener listener, transport.listen(options_));
      it = listening_.insert(it, std::make_unique<Listening>(std::move(listener)));
    }
    (*it)->transports.push_back(&transport);
    endpoints_.push_back({transport.name, (*it)->listener.endpoint.address});
    return absl::OkStatus();
  }

  void WatchListener(Listening* listening) {
    listening->watch = loop_->Watch(listening->listener.socket.get(), EPOLLIN,
                                    [this, listening](uint32_t) { Accept(listening); });
  }

  void Accept(Listening* listening) {
    const int fd =
        accept4(listening->listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      LogError("kv receiver cannot accept: out of descriptors or memory");
      loop_->Unwatch(listening->watch);
      loop_->After(kAcceptPause, [this, listening] { WatchListener(listening); });
      return;
    }
    UniqueFd socket(fd);
    if (listening->transports.front()->socket == SocketKind::kTcp) SetTcpOptions(fd);
    const uint64_t id = ++last_session_;
    auto session = std::make_unique<ReceiverSession>(static_cast<SessionHost*>(this), id,
                                                     listening->transports, std::move(socket));
    ReceiverSession* const raw = session.get();
    sessions_[id] = std::move(session);
    if (sessions_.size() > options_.max_connections) {
      raw->Shutdown(absl::ResourceExhaustedError(
                        absl::StrCat("max_connections (", options_.max_connections, ") are open")),
                    true);
    }
  }

  void StopOnLoop() {
    for (const auto& listening : listening_) loop_->Unwatch(listening->watch);
    const absl::Status reason = absl::UnavailableError("the KV receiver has been stopped");
    while (!sessions_.empty()) sessions_.begin()->second->Shutdown(reason, true);
  }

  const ReceiverOptions& options() const override { return options_; }
  const kv::KvLayout& layout() const override { return layout_; }
  KvLanding& landing() override { return *landing_; }
  EventLoop& loop() override { return *loop_; }
  uint64_t incarnation() const override { return incarnation_; }

  ReceiverSession* FindSession(uint64_t session) override {
    const auto it = sessions_.find(session);
    return it == sessions_.end() ? nullptr : it->second.get();
  }

  uint64_t NewEpoch(const ReceiverSession& session) override {
    std::vector<ReceiverSession*> older;
    for (const auto& [id, other] : sessions_) {
      if (id != session.id() && other->sender_id() == session.sender_id() &&
          other->sender_incarnation() != session.sender_incarnation()) {
        older.push_back(other.get());
      }
    }
    for (ReceiverSession* other : older) {
      other->Shutdown(absl::UnavailableError("the KV sender has been restarted"), true);
    }
    return ++last_epoch_;
  }

  bool TakeTicketPlace() override {
    if (tickets_taken_ >= options_.max_open_tickets) return false;
    ++tickets_taken_;
    return true;
  }
  void GiveTicketPlace() override { --tickets_taken_; }

  void AskLanding(uint64_t session, uint64_t transfer, const ReserveRequest& request) override {
    // May be called after the receiver is gone, but never after the landing.
    landing_->Reserve(request, [this, loop = loop_, landing = landing_, session,
                                transfer](absl::StatusOr<Grant> grant) {
      const bool posted = loop->Post([this, landing, session, transfer, grant]() mutable {
        if (ReceiverSession* found = FindSession(session)) {
          found->OnReserved(transfer, std::move(grant));
        } else if (grant.ok()) {
          landing->Aborted(grant->landing_id,
                           absl::UnavailableError("the KV sender went before the grant"));
        }
      });
      if (!posted && grant.ok()) {
        landing->Aborted(grant->landing_id,
                         absl::UnavailableError("the KV receiver has been stopped"));
      }
    });
  }

  void TicketOpened(uint64_t landing_id, uint64_t session, uint64_t transfer) override {
    tickets_[landing_id] = {session, transfer};
  }
  void TicketClosed(uint64_t landing_id) override { tickets_.erase(landing_id); }

  void AskCommitted(uint64_t session, uint64_t transfer, uint64_t landing_id,
                    const CommitState& state, const std::vector<bool>& in_pool) override {
    landing_->Committed(landing_id, state, in_pool,
                        [this, loop = loop_, session, transfer](const absl::Status& accepted) {
                          loop->Post([this, session, transfer, accepted] {
                            if (ReceiverSession* found = FindSession(session)) {
                              found->OnAccepted(transfer, accepted);
                            }
                          });
                        });
  }

  void SessionEnded(ReceiverSession* session) override {
    const auto it = sessions_.find(session->id());
    // It is ending inside its own call.
    loop_->Defer([dead = std::shared_ptr<ReceiverSession>(std::move(it->second))] {});
    sessions_.erase(it);
  }

  const ReceiverOptions options_;
  const kv::KvLayout layout_;
  KvLanding* const landing_;
  const uint64_t incarnation_;
  std::vector<Support> supports_;  // of the transports that listen
  std::vector<Endpoint> endpoints_;
  std::vector<std::unique_ptr<Listening>> listening_;
  // All below belong to the loop's thread.
  absl::flat_hash_map<uint64_t, std::unique_ptr<ReceiverSession>> sessions_;
  absl::flat_hash_map<uint64_t, std::pair<uint64_t, uint64_t>> tickets_;  // by landing id
  uint64_t last_session_ = 0, last_epoch_ = 0;
  uint32_t tickets_taken_ = 0;
  // Last: its thread ends before the rest goes.
  const std::shared_ptr<EventLoop> loop_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvReceiver>> MakeReceiver(const ReceiverOptions& options,
                                                         const kv::KvLayout& layout,
                                                         KvLanding* landing) {
  if (layout.LayerBytes() == 0) return absl::InvalidArgumentError("a KV layout of no bytes");
  BATON_ASSIGN_OR_RETURN(auto loop, EventLoop::Make("kv-receiver"));
  auto receiver = std::make_unique<SocketReceiver>(options, layout, landing, std::move(loop));
  BATON_RETURN_IF_ERROR(receiver->Listen());
  return receiver;
}

}  // namespace baton::transport
