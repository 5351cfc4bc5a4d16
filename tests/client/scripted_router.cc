// SPDX-License-Identifier: Apache-2.0
#include "tests/client/scripted_router.h"

#include <chrono>
#include <utility>

namespace baton::testing {

ScriptedRouter::ScriptedRouter(Script script,
                               const std::shared_ptr<grpc::ServerCredentials>& credentials)
    : script_(std::move(script)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

ScriptedRouter::~ScriptedRouter() { server_->Shutdown(std::chrono::system_clock::now()); }

grpc::Status ScriptedRouter::Generate(grpc::ServerContext* context,
                                      const v1::GenerateRequest* request, Writer* writer) {
  last_generate = *request;
  return script_(context, writer);
}

grpc::Status ScriptedRouter::Chat(grpc::ServerContext* context, const v1::ChatRequest* request,
                                  Writer* writer) {
  last_chat = *request;
  return script_(context, writer);
}

grpc::Status ScriptedRouter::Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request,
                                      v1::TokenizeResponse* response) {
  last_tokenize = *request;
  for (uint32_t id : {5u, 6u, 7u}) response->add_token_ids(id);
  return grpc::Status::OK;
}

grpc::Status ScriptedRouter::Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                                        v1::DetokenizeResponse* response) {
  for (uint32_t id : request->token_ids()) response->mutable_text()->append(std::to_string(id));
  return grpc::Status::OK;
}

grpc::Status ScriptedRouter::ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                                        v1::ListModelsResponse* response) {
  v1::Model* model = response->add_models();
  model->set_name("scripted");
  model->set_architecture("fake");
  model->set_context_tokens(512);
  return grpc::Status::OK;
}

grpc::Status ScriptedRouter::GetClusterStatus(grpc::ServerContext*,
                                              const v1::GetClusterStatusRequest*,
                                              v1::GetClusterStatusResponse* response) {
  response->set_queued_requests(3);
  v1::WorkerInfo* worker = response->add_workers();
  worker->set_worker_id("decode-1");
  worker->set_role(v1::WORKER_ROLE_DECODE);
  worker->set_admin_address(admin_address);
  worker->mutable_load()->set_kv_blocks_total(64);
  worker->mutable_load()->set_kv_blocks_free(60);
  return grpc::Status::OK;
}

v1::GenerateResponse StartedEvent(const std::string& request_id, uint64_t seed) {
  v1::GenerateResponse response;
  response.mutable_started()->set_request_id(request_id);
  response.mutable_started()->set_seed(seed);
  return response;
}

v1::GenerateResponse TokensEvent(uint32_t first_index, const std::vector<uint32_t>& ids,
                                 const std::string& text) {
  v1::GenerateResponse response;
  v1::Tokens* tokens = response.mutable_tokens();
  tokens->set_first_index(first_index);
  tokens->mutable_token_ids()->Add(ids.begin(), ids.end());
  tokens->set_text(text);
  return response;
}

v1::GenerateResponse FinishedEvent(v1::FinishReason reason) {
  v1::GenerateResponse response;
  v1::Finished* finished = response.mutable_finished();
  finished->set_reason(reason);
  finished->mutable_usage()->set_prompt_tokens(4);
  finished->mutable_usage()->set_cached_prompt_tokens(1);
  finished->mutable_usage()->set_completion_tokens(3);
  finished->mutable_timing()->set_transfer(1.5);
  finished->mutable_route()->set_prefill_worker("prefill-1");
  finished->mutable_route()->set_decode_worker("decode-1");
  finished->mutable_route()->set_transport("shm");
  return response;
}

}  // namespace baton::testing
