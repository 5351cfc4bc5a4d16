// SPDX-License-Identifier: Apache-2.0
// What a worker tells its operators (proto/baton/v1/admin.proto).
#pragma once

#include <memory>
#include <string>

#include "baton/v1/admin.grpc.pb.h"
#include "common/engine/engine.h"

namespace baton::worker {

v1::KvDump DumpMessage(const engine::KvDump& dump);

// Thread-safe.
class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(std::string worker_id, std::string role);

  // Answers for `engine` from now on, until StopWatching(), after which nothing of
  // this object touches it. Calls that it has not answered by its end are ended
  // with UNAVAILABLE.
  void Watch(engine::Engine* engine);
  void StopWatching();

  grpc::ServerUnaryReactor* GetKvDump(grpc::CallbackServerContext* context,
                                      const v1::GetKvDumpRequest* request,
                                      v1::KvDump* response) override;

 private:
  struct Watched;

  const std::string worker_id_, role_;
  // Shared with calls, which may end after this object.
  const std::shared_ptr<Watched> watched_;
};

}  // namespace baton::worker
