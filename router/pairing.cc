// SPDX-License-Identifier: Apache-2.0
#include "router/pairing.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/prediction.h"

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
  for (const auto& [transport, wanted_by] :
       {std::pair{std::string("cuda_ipc"), TransportRule::kCudaIpc},
        {"shm", TransportRule::kShm},
        {"ucx", TransportRule::kUcx},
        {"nccl", TransportRule::kNccl},
        {"tcp", TransportRule::kTcp}}) {
    if (rule != TransportRule::kAuto && rule != wanted_by) continue;
    if ((transport == "cuda_ipc" || transport == "shm") && !same_host) continue;
    if (!Supports(prefill.hello, transport)) continue;
    for (const v1::HandoffEndpoint& endpoint : decode.hello.handoff_endpoints()) {
      if (endpoint.transport() == transport) endpoints.push_back(endpoint);
    }
  }
  return endpoints;
}

// What a sequence that runs on a decode worker weighs, in tokens of a prompt
// that would have to travel or to be computed.
constexpr uint64_t kSequenceTokens = 256;

struct Candidate {
  Worker* worker = nullptr;
  uint64_t missing = 0;  // tokens of the prompt that its cache lacks
  // Prompt tokens to compute until this prompt is done, if it runs there.
  uint64_t work() const { return worker->queued_prompt_tokens() + missing; }
};

// Smaller is better. The id makes the choice a function of the state alone.
auto DecodeRank(const Candidate& candidate) {
  const Worker& worker = *candidate.worker;
  const uint64_t used = worker.own_blocks + worker.foreign_blocks;
  const int64_t free =
      static_cast<int64_t>(worker.load.kv_blocks_total()) - static_cast<int64_t>(used);
  return std::make_tuple(worker.sequences() * kSequenceTokens + candidate.missing, -free,
                         std::string_view(worker.id()));
}

auto LocalRank(const Candidate& candidate) {
  return std::make_tuple(candidate.work() + candidate.worker->sequences() * kSequenceTokens,
                         DecodeRank(candidate));
}

// Whether `decode` can go on with KV of `prefill`, and how: the best first. All
// workers of a router have one model_fingerprint.
enum class Match : uint8_t { kEqual, kConverted, kMixed, kNone };

Match MatchOf(const v1::Hello& prefill, const v1::Hello& decode, bool mixed_pairs) {
  if (prefill.numerics_id() == decode.numerics_id()) return Match::kEqual;
  if (prefill.compute_id().empty() || decode.compute_id().empty()) return Match::kNone;
  if (!prefill.kv_convertible() || !decode.kv_convertible()) return Match::kNone;
  if (prefill.compute_id() == decode.compute_id() && prefill.kv_type() != decode.kv_type()) {
    return Match::kConverted;
  }
  const bool same_variant = prefill.model_variant() == decode.model_variant();
  return mixed_pairs && same_variant ? Match::kMixed : Match::kNone;
}

auto SplitRank(Match match, const Candidate& prefill, const Candidate& decode) {
  return std::make_tuple(match, prefill.work(), DecodeRank(decode),
                         std::string_view(prefill.worker->id()));
}

struct Candidates {
  std::vector<Candidate> prefill;
  std::vector<Candidate> decode;  // can go on from a prompt that is handed over
  std::vector<Candidate> whole;   // of those: can compute the prompt, too
  bool any_decode = false, any_prefill = false;
  bool windows_refused = false;  // by workers that are left out for it
  uint32_t most_sequences = 0;   // of those that are left out for having too few
  uint64_t largest_pool = 0;     // in tokens, of a decode worker
};

// Tokens of an answer whose KV is computed: not the last one's.
uint64_t ComputedOutputs(const Need& need) { return std::max<uint64_t>(need.max_tokens, 1) - 1; }

// Blocks of all of a request's answers at their greatest length, as the engine of
// the decode worker counts them.
uint64_t MostBlocks(const Worker& worker, const Need& need, PromptKv prompt) {
  const uint64_t outputs = ComputedOutputs(need);
  const uint64_t all = worker.BlocksForBranches(need.prompt_tokens, outputs, need.width);
  if (!need.window.limited()) return all;
  // A window bounds what an answer holds. A prompt that is computed has blocks for
  // all of it first, and of one that is handed over only what is in sight comes.
  const uint64_t held = need.window.Held(need.prompt_tokens + outputs);
  const uint64_t together = prompt == PromptKv::kComputed ? need.prompt_tokens + 1 : 0;
  const uint64_t each = worker.BlocksFor(std::max(held, together));
  return std::min(all, need.width * each);
}

uint64_t BlocksToStart(const Worker& worker, const Need& need, PromptKv prompt) {
  const uint64_t unseen =
      prompt == PromptKv::kHandedOver ? need.window.UnseenBefore(need.prompt_tokens) : 0;
  return worker.BlocksForBranches(need.prompt_tokens - unseen,
                                  std::min<uint64_t>(ComputedOutputs(need), 1), need.width);
}

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
    if ((need.window.limited() && !worker->hello.windows()) ||
        (need.window.sparse() && !worker->hello.sparse_windows())) {
      found.windows_refused = true;
      continue;
    }
    if (!worker->CanEverHold(decode ? MostBlocks(*worker, need, PromptKv::kHandedOver)
                                    : worker->BlocksFor(need.prompt_tokens))) {
      continue;
    }
    const uint32_t places = worker->hello.max_sequences();
    if (decode && places > 0 && need.width > places) {
      found.most_sequences = std::max(found.most_sequences, places);
      continue;
    }
    // The last token is always computed.
    const uint64_t cached = std::min(worker->CachedTokens(need.prefix), need.prompt_tokens - 1);
    const Candidate candidate{worker, need.prompt_tokens - cached};
    (decode ? found.decode : found.prefill).push_back(candidate);
    if (decode && worker->CanEverHold(MostBlocks(*worker, need, PromptKv::kComputed))) {
      found.whole.push_back(candidate);
    }
  }
  return found;
}

// The best pair with room; kBusy when pairs exist and none has room, kMissing
// with the reason when there is no pair at all.
Pairing ChooseSplit(const Candidates& found, const Need& need) {
  Pairing best;
  Match best_match = Match::kNone;
  Candidate best_prefill, best_decode;
  best.detail = !found.any_prefill ? "no prefill worker is attached"
                : found.prefill.empty() && found.windows_refused
                    ? "no prefill worker takes sequences with such a window"
                : found.prefill.empty() ? "no prefill worker's KV pool can hold the prompt"
                                        : "no prefill worker can hand over to a decode worker: "
                                          "kernels, precision or transports differ"
                                          " (--mixed-pairs on allows other kernels and precision)";
  for (const Candidate& prefill : found.prefill) {
    for (const Candidate& decode : found.decode) {
      const Match match = MatchOf(prefill.worker->hello, decode.worker->hello, need.mixed_pairs);
      if (match == Match::kNone) continue;
      auto endpoints = Reachable(*prefill.worker, *decode.worker, need.transport);
      if (endpoints.empty()) continue;
      if (best.outcome == Pairing::Outcome::kMissing) best.outcome = Pairing::Outcome::kBusy;
      const uint64_t blocks = BlocksToStart(*decode.worker, need, PromptKv::kHandedOver);
      if (!decode.worker->HasRoomFor(blocks, need.width)) continue;
      if (best.prefill != nullptr &&
          SplitRank(best_match, best_prefill, best_decode) <= SplitRank(match, prefill, decode)) {
        continue;
      }
      best.outcome = Pairing::Outcome::kRun;
      best.prefill = prefill.worker;
      best.decode = decode.worker;
      best.foreign_kv = match != Match::kEqual;
      best.compute_tokens = prefill.missing;
      best.endpoints = std::move(endpoints);
      best_match = match;
      best_prefill = prefill;
      best_decode = decode;
    }
  }
  return best;
}

Pairing ChooseLocal(const Candidates& found, const Need& need) {
  Pairing best;
  Candidate chosen;
  best.outcome = Pairing::Outcome::kBusy;
  for (const Candidate& decode : found.whole) {
    const uint64_t blocks = BlocksToStart(*decode.worker, need, PromptKv::kComputed);
    if (!decode.worker->HasRoomFor(blocks, need.width)) continue;
    if (best.decode != nullptr && LocalRank(chosen) <= LocalRank(decode)) continue;
    best.outcome = Pairing::Outcome::kRun;
    best.decode = decode.worker;
    best.compute_tokens = decode.missing;
    chosen = decode;
  }
  return best;
}

// Whether the decode worker of `local` is done with the prompt earlier than the
// prefill worker of `split`, for it has most of it: without measurements.
bool IsMostlyCached(const Pairing& local, const Pairing& split, const Need& need) {
  return local.compute_tokens * 2 <= need.prompt_tokens &&
         local.decode->queued_prompt_tokens() + local.compute_tokens <
             split.prefill->queued_prompt_tokens() + split.compute_tokens;
}

// Of two ways: the faster one, unless it would hold up the streams of the
// decode worker.
Pairing Faster(Pairing split, Pairing local, const Need& need) {
  split.reason = "unknown_costs";
  const bool both =
      split.outcome == Pairing::Outcome::kRun && local.outcome == Pairing::Outcome::kRun;
  if (!both) return split;
  const bool mostly_cached = IsMostlyCached(local, split, need);
  local.reason = local.fallback = "mostly_cached";
  const auto prediction = Predict({.prefill = split.prefill,
                                   .prefill_tokens = split.compute_tokens,
                                   .decode = local.decode,
                                   .local_tokens = local.compute_tokens,
                                   .prompt_tokens = need.prompt_tokens,
                                   .handoff = need.handoff});
  if (!prediction) return mostly_cached ? local : split;
  // A conversation stays where its KV is: moving it would cost more later.
  const bool go_local = prediction->local < prediction->split &&
                        (mostly_cached || prediction->stall < need.local_stall);
  Pairing& faster = go_local ? local : split;
  if (!go_local || !mostly_cached) {
    faster.reason = "predicted";
    faster.fallback.clear();
  }
  faster.predicted_split = prediction->split;
  faster.predicted_local = prediction->local;
  return std::move(faster);
}

std::string FallbackReason(const Candidates& found) {
  if (!found.any_prefill) return "no_prefill_worker";
  if (found.prefill.empty() && found.windows_refused) return "incompatible_pair";
  return found.prefill.empty() ? "prompt_exceeds_prefill_pool" : "incompatible_pair";
}

}  // namespace

uint64_t BlocksToCount(const Worker& worker, const Need& need, PromptKv prompt) {
  return need.search ? MostBlocks(worker, need, prompt) : BlocksToStart(worker, need, prompt);
}

Pairing ChoosePair(const std::vector<Worker*>& workers, const Need& need) {
  const Candidates found = Sort(workers, need);
  Pairing none;
  if (!found.any_decode) {
    none.detail = "no decode worker is attached";
    return none;
  }
  if (const bool split = need.path == v1::PATH_SPLIT && found.any_prefill;
      found.windows_refused && (found.decode.empty() || (split && found.prefill.empty()))) {
    none.outcome = Pairing::Outcome::kImpossible;
    none.field = "window";
    none.detail = absl::StrCat("is ", need.window.tokens, "; no ",
                               found.decode.empty() ? "decode" : "prefill",
                               " worker here takes sequences with a window",
                               need.window.sparse() ? " that has a stride or ranges to keep" : "");
    return none;
  }
  if (found.decode.empty() && found.most_sequences > 0) {
    none.outcome = Pairing::Outcome::kImpossible;
    none.field = need.width_field;
    none.detail = absl::StrCat("is ", need.width, "; no decode worker here runs more than ",
                               found.most_sequences, " sequences at once");
    return none;
  }
  if ((need.path == v1::PATH_LOCAL ? found.whole : found.decode).empty()) {
    none.outcome = Pairing::Outcome::kImpossible;
    none.field = "stop.max_tokens";
    none.detail = absl::StrCat(
        "is ", need.max_tokens, need.width > 1 ? absl::StrCat(", ", need.width, " times") : "",
        ", which with the prompt's ", need.prompt_tokens, " tokens exceeds the ",
        found.largest_pool, " tokens of the largest KV pool of a decode worker");
    return none;
  }
  if (need.path != v1::PATH_UNSPECIFIED) {
    Pairing asked =
        need.path == v1::PATH_SPLIT ? ChooseSplit(found, need) : ChooseLocal(found, need);
    asked.reason = "requested";
    return asked;
  }
  Pairing split = ChooseSplit(found, need);
  // A prompt that no decode worker could hold may still be handed over, with a window.
  if (found.whole.empty()) {
    split.reason = "prompt_exceeds_decode_pool";
    return split;
  }
  Pairing local = ChooseLocal(found, need);
  if (split.outcome == Pairing::Outcome::kMissing) {
    local.reason = local.fallback = FallbackReason(found);
    return local;
  }
  return Faster(std::move(split), std::move(local), need);
}

}  // namespace baton::router
