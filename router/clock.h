// SPDX-License-Identifier: Apache-2.0
// The router's time: never jumps back, yet comparable with the wall clock.
#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton::router {

// The wall clock at the first call, moved on by the steady clock, so that
// setting the host's clock expires no lease and no deadline.
inline absl::Time SteadyNow() {
  static const absl::Time wall = absl::Now();
  static const auto steady = std::chrono::steady_clock::now();
  return wall + absl::FromChrono(std::chrono::steady_clock::now() - steady);
}

// Deadline of a gRPC call in the router's time; infinite when it has none.
inline absl::Time FromGrpcDeadline(std::chrono::system_clock::time_point deadline) {
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return SteadyNow() + absl::FromChrono(deadline - std::chrono::system_clock::now());
}

}  // namespace baton::router
