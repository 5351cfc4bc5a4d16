// SPDX-License-Identifier: Apache-2.0
// A router whose answers a test writes down.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "baton/v1/inference.grpc.pb.h"

namespace baton::testing {

// The script runs on a thread of the server, once per call.
class ScriptedRouter final : public v1::Inference::Service {
 public:
  using Writer = grpc::ServerWriter<v1::GenerateResponse>;
  using Script = std::function<grpc::Status(grpc::ServerContext*, Writer*)>;

  explicit ScriptedRouter(Script script,
                          const std::shared_ptr<grpc::ServerCredentials>& credentials =
                              grpc::InsecureServerCredentials());
  ~ScriptedRouter() override;

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // What the last call brought.
  v1::GenerateRequest last_generate;
  v1::ChatRequest last_chat;
  v1::TokenizeRequest last_tokenize;
  // Of its one worker.
  std::string admin_address;

 private:
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        Writer* writer) override;
  grpc::Status Chat(grpc::ServerContext* context, const v1::ChatRequest* request,
                    Writer* writer) override;
  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override;
  grpc::Status Detokenize(grpc::ServerContext* context, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override;
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::Status GetClusterStatus(grpc::ServerContext* context,
                                const v1::GetClusterStatusRequest* request,
                                v1::GetClusterStatusResponse* response) override;

  Script script_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

v1::GenerateResponse StartedEvent(const std::string& request_id, uint64_t seed);
v1::GenerateResponse TokensEvent(uint32_t first_index, const std::vector<uint32_t>& ids,
                                 const std::string& text);
v1::GenerateResponse FinishedEvent(v1::FinishReason reason);

}  // namespace baton::testing
