// SPDX-License-Identifier: Apache-2.0
// The public API.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "baton/v1/inference.grpc.pb.h"
#include "router/client_stream.h"
#include "router/dispatcher_thread.h"
#include "router/live_calls.h"
#include "router/router_metrics.h"
#include "router/served_model.h"
#include "router/task_pool.h"

namespace baton::router {

// Calls whose requests carry text come as bytes: gRPC's own parsing would end
// invalid UTF-8 as INTERNAL, and it would parse in gRPC's few threads.
using InferenceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_Chat<v1::Inference::WithRawCallbackMethod_Tokenize<
        v1::Inference::WithRawCallbackMethod_Detokenize<
            v1::Inference::WithCallbackMethod_ListModels<
                v1::Inference::WithCallbackMethod_GetClusterStatus<v1::Inference::Service>>>>>>;

struct InferenceOptions {
  uint64_t max_message_bytes = 4 << 20;
  // For requests that come without one; infinite: none.
  absl::Duration default_deadline = absl::InfiniteDuration();
  StreamLimits stream;
};

class InferenceService final : public InferenceBase {
 public:
  // All must outlive the service's calls.
  struct Parts {
    ModelSlot* model = nullptr;
    DispatcherThread* dispatcher = nullptr;
    TaskPool* pool = nullptr;
    LiveCalls* calls = nullptr;
    RouterMetrics* metrics = nullptr;
  };
  InferenceService(const InferenceOptions& options, const Parts& parts)
      : options_(options), parts_(parts) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Chat(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetClusterStatus(grpc::CallbackServerContext* context,
                                             const v1::GetClusterStatusRequest* request,
                                             v1::GetClusterStatusResponse* response) override;

 private:
  // Parses, validates and tokenizes on the pool, then submits.
  template <typename Request>
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer& bytes);
  template <typename Request>
  absl::StatusOr<Submission> Prepare(const grpc::ByteBuffer& bytes,
                                     const std::string& tenant) const;
  // Answers on the pool: `answer` turns a request into a response.
  template <typename Request, typename Answer>
  grpc::ServerUnaryReactor* StartUnary(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                                       Answer answer);
  absl::StatusOr<std::shared_ptr<const ServedModel>> Model() const;

  const InferenceOptions options_;
  const Parts parts_;
  std::atomic<RequestKey> last_key_{0};
};

}  // namespace baton::router
