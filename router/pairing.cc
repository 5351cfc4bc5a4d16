// SPDX-License-Identifier: Apache-2.0
#include "router/pairing.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::router {
namespace {

bool Supports(const v1::Hello& hello, const std::string& transport) {
  return std::find(hello.transports().begin(), hello.transports().end(), transport) !=
         hello.transports().end();
}

// Endpoints of `decode` that `prefill` can send to, best first.
std::vector<v1::HandoffEndpoint> Reachable(const Worker& prefill, const Worker& decode,
                                           TransportRule rule) {
  std::vector<v1::HandoffEndpoint> endpoints;
  const bool same_host =
      !prefill.hello.host_id().empty() && prefill.hello.host_id() == decode.hello.host_id();
  for (const std::string& transport : {std::string("shm"), std::string("tcp")}) {
    if (rule == TransportRule::kShm && transport != "shm") continue;
    if (rule == TransportRule::kTcp && transport != "tcp") continue;
    if (transport == "shm" && !same_host) continue;
    if (!Supports(prefill.hello, transport)) continue;
    for (const v1::HandoffEndpoint& endpoint : decode.hello.handoff_endpoints()) {
      if (endpoint.transport() == transport) endpoints.push_back(endpoint);
    }
  }
  return endpoints;
}

// Smaller is better. The id makes the choice a function of the state alone.
auto DecodeRank(const Worker& worker) {
  const uint64_t used = worker.own_blocks + worker.foreign_blocks;
  const int64_t free =
      static_cast<int64_t>(worker.load.kv_blocks_total()) - static_cast<int64_t>(used);
  return std::make_tuple(worker.sequences(), -free, std::string_view(worker.id()));
}

// Whether `decode` can go on with KV of `prefill`, and how.
enum class Match : uint8_t { kNone, kEqual, kConverted };

Match MatchOf(const v1::Hello& prefill, const v1::Hello& decode) {
  if (prefill.numerics_id() == decode.numerics_id()) return Match::kEqual;
  const bool converted =
      !prefill.compute_id().empty() && prefill.compute_id() == decode.compute_id() &&
      prefill.kv_type() != decode.kv_type() && prefill.kv_convertible() && decode.kv_convertible();
  return converted ? Match::kConverted : Match::kNone;
}

struct Candidates {
  std::vector<Worker*> prefill, decode;
  bool any_decode = false, any_prefill = false;
  uint64_t largest_pool = 0;  // in tokens, of a decode worker
};

Candidates Sort(const std::vector<Worker*>& workers, const Need& need) {
  Candidates found;
  for (Worker* worker : workers) {
    if (worker->draining) continue;
    const bool decode = worker->role() == v1::WORKER_ROLE_DECODE;
    (decode ? found.any_decode : found.any_prefill) = true;
    if (decode) {
      const uint64_t pool =
          static_cast<uint64_t>(worker->load.kv_blocks_total()) * worker->load.kv_block_tokens();
      found.largest_pool = std::max(found.largest_pool, pool);
    }
    const uint64_t tokens = need.prompt_tokens + (decode ? need.max_tokens : 0);
    if (worker->CanEverHold(tokens)) (decode ? found.decode : found.prefill).push_back(worker);
  }
  return found;
}

// The best pair with room; kBusy when pairs exist and none has room, kMissing
// with the reason when there is no pair at all.
Pairing ChooseSplit(const Candidates& found, const Need& need) {
  Pairing best;
  best.detail = !found.any_prefill      ? "no prefill worker is attached"
                : found.prefill.empty() ? "no prefill worker's KV pool can hold the prompt"
                                        : "no prefill worker can hand over to a decode worker: "
                                          "kernels, precision or transports differ";
  for (Worker* prefill : found.prefill) {
    for (Worker* decode : found.decode) {
      const Match match = MatchOf(prefill->hello, decode->hello);
      if (match == Match::kNone) continue;
      auto endpoints = Reachable(*prefill, *decode, need.transport);
      if (endpoints.empty()) continue;
      if (best.outcome == Pairing::Outcome::kMissing) best.outcome = Pairing::Outcome::kBusy;
      if (!decode->HasRoomFor(need.prompt_tokens + need.max_tokens)) continue;
      const auto rank = [](const Worker& p, const Worker& d) {
        return std::make_tuple(MatchOf(p.hello, d.hello), p.queued_prompt_tokens(), DecodeRank(d),
                               std::string_view(p.id()));
      };
      if (best.prefill != nullptr && rank(*best.prefill, *best.decode) <= rank(*prefill, *decode)) {
        continue;
      }
      best.outcome = Pairing::Outcome::kRun;
      best.prefill = prefill;
      best.decode = decode;
      best.endpoints = std::move(endpoints);
    }
  }
  return best;
}

Pairing ChooseLocal(const Candidates& found, const Need& need) {
  Pairing best;
  best.outcome = Pairing::Outcome::kBusy;
  for (Worker* decode : found.decode) {
    if (!decode->HasRoomFor(need.prompt_tokens + need.max_tokens)) continue;
    if (best.decode != nullptr && DecodeRank(*best.decode) <= DecodeRank(*decode)) continue;
    best.outcome = Pairing::Outcome::kRun;
    best.decode = decode;
  }
  return best;
}

std::string FallbackReason(const Candidates& found) {
  if (!found.any_prefill) return "no_prefill_worker";
  return found.prefill.empty() ? "prompt_exceeds_prefill_pool" : "incompatible_pair";
}

}  // namespace

Pairing ChoosePair(const std::vector<Worker*>& workers, const Need& need) {
  const Candidates found = Sort(workers, need);
  Pairing none;
  if (!found.any_decode) {
    none.detail = "no decode worker is attached";
    return none;
  }
  if (found.decode.empty()) {
    none.outcome = Pairing::Outcome::kImpossible;
    none.detail = absl::StrCat("is ", need.max_tokens, ", which with the prompt's ",
                               need.prompt_tokens, " tokens exceeds the ", found.largest_pool,
                               " tokens of the largest KV pool of a decode worker");
    return none;
  }
  if (need.path != v1::PATH_LOCAL) {
    Pairing split = ChooseSplit(found, need);
    if (need.path == v1::PATH_SPLIT || split.outcome != Pairing::Outcome::kMissing) return split;
  }
  Pairing local = ChooseLocal(found, need);
  if (need.path != v1::PATH_LOCAL) local.fallback = FallbackReason(found);
  return local;
}

}  // namespace baton::router
