// SPDX-License-Identifier: Apache-2.0
// The policy that picks workers for a request.
#pragma once

#include <string>
#include <vector>

#include "baton/v1/types.pb.h"
#include "router/worker_directory.h"

namespace baton::router {

// Transports that may be offered for hand-offs.
enum class TransportRule : uint8_t { kAuto, kShm, kTcp };

struct Need {
  uint64_t prompt_tokens = 0;
  uint64_t max_tokens = 0;
  v1::Path path = v1::PATH_UNSPECIFIED;
  TransportRule transport = TransportRule::kAuto;
};

struct Pairing {
  enum class Outcome : uint8_t {
    kRun,         // on `decode`, with `prefill` when it is set
    kBusy,        // the workers there are have no room now
    kMissing,     // a role is missing; `detail` says which
    kImpossible,  // no worker's whole KV pool is enough; `detail` has the numbers
  };
  Outcome outcome = Outcome::kMissing;
  Worker* prefill = nullptr;
  Worker* decode = nullptr;
  // Of `decode`, best first: those that `prefill` can reach.
  std::vector<v1::HandoffEndpoint> endpoints;
  // Why an unspecified path runs locally; empty when it does not.
  std::string fallback;
  std::string detail;
};

// Both workers of a split request are chosen together: the prefill worker by
// fewest prompt tokens before this one, the decode worker by fewest sequences,
// then most free blocks. Pairs need a transport in common and equal
// numerics_id, or KV that can be converted: equal compute_id, and convertible
// KV of two types. The former come first. A pure function of its arguments.
Pairing ChoosePair(const std::vector<Worker*>& workers, const Need& need);

}  // namespace baton::router
