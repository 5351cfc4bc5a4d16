// SPDX-License-Identifier: Apache-2.0
#include "router/inference_service.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/status.h"
#include "router/clock.h"
#include "router/request_parser.h"
#include "router/validation.h"

namespace baton::router {
namespace {

absl::Status PoolFull() {
  return rpc::Retry(absl::StatusCode::kResourceExhausted,
                    "too many requests wait for the tokenizer", absl::Seconds(1));
}

// Of a request that names none itself. Metadata of a call are printable ASCII.
std::string TenantOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find("baton-tenant");
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

absl::StatusOr<v1::TokenizeResponse> AnswerTokenize(const v1::TokenizeRequest& request,
                                                    const ServedModel& model) {
  BATON_ASSIGN_OR_RETURN(const auto ids, ValidateTokenize(request, model));
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(ids.begin(), ids.end());
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> AnswerDetokenize(const v1::DetokenizeRequest& request,
                                                        const ServedModel& model) {
  BATON_ASSIGN_OR_RETURN(const auto ids, ValidateDetokenize(request, model));
  v1::DetokenizeResponse response;
  response.set_text(tokenizer::Decode(*model.tokenizer, ids));
  return response;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ServedModel>> InferenceService::Model() const {
  auto model = parts_.model->Get();
  if (model != nullptr) return model;
  return rpc::Retry(absl::StatusCode::kUnavailable,
                    "the model is not known before the first worker attaches", absl::Seconds(1));
}

template <typename Request>
absl::StatusOr<Submission> InferenceService::Prepare(const grpc::ByteBuffer& bytes,
                                                     const std::string& tenant) const {
  Submission submission;
  BATON_ASSIGN_OR_RETURN(submission.model, Model());
  Request request;
  BATON_RETURN_IF_ERROR(ParseRequest(bytes, options_.max_message_bytes, &request));
  if (request.tenant().empty()) request.set_tenant(tenant);
  BATON_ASSIGN_OR_RETURN(submission.request, Validate(request, *submission.model));
  return submission;
}

template <typename Request>
grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Start(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes) {
  const RequestKey key = ++last_key_;
  const absl::Time arrival = SteadyNow();
  absl::Time deadline = FromGrpcDeadline(context->deadline());
  if (deadline == absl::InfiniteFuture()) deadline = arrival + options_.default_deadline;
  auto* dispatcher = parts_.dispatcher;
  auto* call = new ClientStream(context, options_.stream, parts_.calls, [dispatcher, key] {
    dispatcher->Post([key](Dispatcher& core, absl::Time now) { core.Cancel(key, now); });
  });
  const std::shared_ptr<ResponseStream> out = call->response();
  const std::string tenant = TenantOf(*context);
  const bool posted = parts_.pool->TryPost([=, this] {
    absl::StatusOr<Submission> submission =
        deadline <= SteadyNow() ? absl::DeadlineExceededError("the deadline has passed already")
                                : Prepare<Request>(bytes, tenant);
    if (!submission.ok()) {
      parts_.metrics->RequestEnded(submission.status().code());
      return out->Finish(submission.status(), SteadyNow());
    }
    submission->key = key;
    submission->out = out;
    submission->arrival = arrival;
    submission->deadline = deadline;
    dispatcher->Post(
        [submission = std::make_shared<Submission>(*std::move(submission))](
            Dispatcher& core, absl::Time now) { core.Submit(std::move(*submission), now); });
  });
  if (!posted) {
    parts_.metrics->RequestEnded(absl::StatusCode::kResourceExhausted);
    out->Finish(PoolFull(), arrival);
  }
  return call;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return Start<v1::GenerateRequest>(context, *request);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Chat(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return Start<v1::ChatRequest>(context, *request);
}

template <typename Request, typename Answer>
grpc::ServerUnaryReactor* InferenceService::StartUnary(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer& bytes,
                                                       grpc::ByteBuffer* response, Answer answer) {
  grpc::ServerUnaryReactor* call = context->DefaultReactor();
  const bool posted = parts_.pool->TryPost([=, this] {
    const auto run = [&]() -> absl::Status {
      BATON_ASSIGN_OR_RETURN(const auto model, Model());
      Request request;
      BATON_RETURN_IF_ERROR(ParseRequest(bytes, options_.max_message_bytes, &request));
      BATON_ASSIGN_OR_RETURN(const auto message, answer(request, *model));
      const grpc::Slice slice(message.SerializeAsString());
      *response = grpc::ByteBuffer(&slice, 1);
      return absl::OkStatus();
    };
    call->Finish(rpc::ToGrpc(run()));
  });
  if (!posted) call->Finish(rpc::ToGrpc(PoolFull()));
  return call;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return StartUnary<v1::TokenizeRequest>(context, *request, response, AnswerTokenize);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return StartUnary<v1::DetokenizeRequest>(context, *request, response, AnswerDetokenize);
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const v1::ListModelsRequest*,
                                                       v1::ListModelsResponse* response) {
  if (const auto served = parts_.model->Get()) {
    v1::Model* model = response->add_models();
    model->set_name(served->name);
    model->set_architecture(served->architecture);
    model->set_vocabulary_size(served->vocabulary);
    model->set_context_tokens(served->context);
    model->set_prompt_format(served->format_name());
    model->set_has_tokenizer(served->tokenizer != nullptr);
  }
  grpc::ServerUnaryReactor* call = context->DefaultReactor();
  call->Finish(grpc::Status::OK);
  return call;
}

grpc::ServerUnaryReactor* InferenceService::GetClusterStatus(
    grpc::CallbackServerContext* context, const v1::GetClusterStatusRequest*,
    v1::GetClusterStatusResponse* response) {
  grpc::ServerUnaryReactor* call = context->DefaultReactor();
  parts_.dispatcher->Post([call, response](Dispatcher& core, absl::Time) {
    core.FillStatus(response);
    response->set_version(kVersion);
    call->Finish(grpc::Status::OK);
  });
  return call;
}

}  // namespace baton::router
