// SPDX-License-Identifier: Apache-2.0
// The policy that picks workers for a request.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "baton/v1/types.pb.h"
#include "common/kv/window.h"
#include "router/worker_directory.h"

namespace baton::router {

// Transports that may be offered for hand-offs.
enum class TransportRule : uint8_t { kAuto, kCudaIpc, kShm, kUcx, kNccl, kTcp };

struct Need {
  uint64_t prompt_tokens = 0;
  uint64_t max_tokens = 0;
  v1::Path path = v1::PATH_UNSPECIFIED;
  TransportRule transport = TransportRule::kAuto;
  // prefix::DigestChain of the prompt, for workers that have some of it.
  std::span<const uint64_t> prefix = {};
  // A prompt of which a step would hold up a decode worker's streams for longer
  // than this is not computed there by choice; 0: none is.
  absl::Duration local_stall = absl::ZeroDuration();
  absl::Duration handoff = absl::ZeroDuration();  // what one takes, lately
  // With a limit: on workers that allow it.
  kv::Window window = {};
  // Answers or beams that run at once, and the field that asks for them.
  uint32_t width = 1;
  std::string_view width_field = "decoding.n";
  // Of a search nothing is heard before its end.
  bool search = false;
  bool mixed_pairs = false;  // workers of other kernels may be paired
};

// How a decode worker comes by the prompt's KV.
enum class PromptKv : uint8_t { kComputed, kHandedOver };

// Blocks of a decode worker that count against its credit from the beginning: of
// a search all that it may ever take, of others the prompt and a token of each;
// with a window, of a prompt that is handed over what is in sight behind it.
uint64_t BlocksToCount(const Worker& worker, const Need& need, PromptKv prompt);

struct Pairing {
  enum class Outcome : uint8_t {
    kRun,         // on `decode`, with `prefill` when it is set
    kBusy,        // the workers there are have no room now
    kMissing,     // a role is missing; `detail` says which
    kImpossible,  // no worker will ever take it, because of `field`; `detail` has the numbers
  };
  Outcome outcome = Outcome::kMissing;
  Worker* prefill = nullptr;
  Worker* decode = nullptr;
  // Of `decode`, best first: those that `prefill` can reach.
  std::vector<v1::HandoffEndpoint> endpoints;
  // The KV that `prefill` hands over is of another type or of other kernels than
  // `decode`'s own.
  bool foreign_kv = false;
  // Prompt tokens that are expected to be computed, on `prefill` or else on
  // `decode`: those that its cache lacks.
  uint64_t compute_tokens = 0;
  // Why an unspecified path runs locally; empty when it does not.
  std::string fallback;
  std::string reason;                               // of v1::Route
  absl::Duration predicted_split, predicted_local;  // zero: not weighed
  std::string detail;
  std::string_view field;
};

// Both workers of a split request are chosen together. Pairs need a transport in
// common and, the first that there are coming first,
//  1. equal numerics_id;
//  2. equal compute_id, and convertible KV of two types;
//  3. with mixed_pairs, convertible KV of one model_variant.
//  - Prefill worker: fewest prompt tokens to compute until this prompt is done,
//    those queued before it and those of it that the worker's cache lacks.
//  - Decode worker: fewest tokens of the prompt that it lacks, where each
//    sequence that runs there weighs as much as 256 tokens; then most free blocks.
//  - An unspecified path is local where a prediction from measured step costs
//    says that this is faster (see prediction.h), and the decode worker has at
//    least half of the prompt, so that a conversation stays where its last answer
//    was made, or no step of the prompt takes longer than local_stall.
// A pure function of its arguments.
Pairing ChoosePair(const std::vector<Worker*>& workers, const Need& need);

}  // namespace baton::router
