// SPDX-License-Identifier: Apache-2.0
// What the dispatcher talks to: clients and workers, behind gRPC or faked.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "baton/v1/worker.pb.h"

namespace baton::router {

// Towards the client of one request. Never blocks.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  virtual void Send(v1::GenerateResponse event, absl::Time now) = 0;
  // Only the first call counts.
  virtual void Finish(const absl::Status& status, absl::Time now) = 0;
  // CANCELLED: the client is gone; RESOURCE_EXHAUSTED: it does not read.
  virtual absl::Status Check(absl::Time now) const = 0;
  // After Finish: true once nothing is left to do; call it now and then.
  virtual bool Reap(absl::Time now) = 0;
};

// Towards one attached worker. Never blocks.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void Send(v1::RouterMessage message, absl::Time now) = 0;
  // Ends the stream with `status`.
  virtual void Close(const absl::Status& status, absl::Time now) = 0;
  // RESOURCE_EXHAUSTED: the worker does not read.
  virtual absl::Status Check(absl::Time now) const = 0;
  // Lets the worker's next message come.
  virtual void ReadNext() = 0;
};

}  // namespace baton::router
