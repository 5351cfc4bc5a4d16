// SPDX-License-Identifier: Apache-2.0
// The bytes of a sender made by hand, by UCX.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "baton/v1/handoff.pb.h"

namespace baton::transport {

// Of no use in a build without UCX, where nobody has the ring to make it from.
class RawUcx {
 public:
  // Connects to the receiver whose welcome had `ring`.
  RawUcx(const baton::v1::UcxRing& ring, size_t bytes);
  ~RawUcx();

  // Returns once `bytes` stand at the ring's beginning, or the peer is lost.
  void Put(const std::string& bytes);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::transport
