// SPDX-License-Identifier: Apache-2.0
#include "client/baton/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <mutex>

#include "baton/v1/inference.grpc.pb.h"
#include "client/channel.h"
#include "client/convert.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;
using Stream = grpc::ClientReader<v1::GenerateResponse>;

// Bound of the calls that compute nothing.
constexpr std::chrono::seconds kUnaryTimeout(30);

Status MakeStatus(StatusCode code, std::string message) {
  Status status;
  status.code = code;
  status.message = std::move(message);
  return status;
}

double MsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

const char* StatusCodeName(StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

// The calls that one token cancels.
struct Client::CancelToken::State {
  std::mutex mutex;
  bool cancelled = false;
  std::vector<grpc::ClientContext*> calls;
};

Client::CancelToken::CancelToken() : state_(std::make_shared<State>()) {}

void Client::CancelToken::Cancel() {
  const std::lock_guard lock(state_->mutex);
  state_->cancelled = true;
  for (grpc::ClientContext* call : state_->calls) call->TryCancel();
}

namespace {

// Ties a call to a token for the call's life.
class CancelScope final {
 public:
  CancelScope(std::shared_ptr<Client::CancelToken::State> state, grpc::ClientContext* call)
      : state_(std::move(state)), call_(call) {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(call_);
    if (state_->cancelled) call_->TryCancel();
  }
  ~CancelScope() {
    const std::lock_guard lock(state_->mutex);
    std::erase(state_->calls, call_);
  }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  std::shared_ptr<Client::CancelToken::State> state_;
  grpc::ClientContext* call_;
};

// Collects the events of one answer.
class Answer final {
 public:
  explicit Answer(const std::function<bool(const TokenEvent&)>& on_tokens)
      : on_tokens_(on_tokens) {}

  // False when the caller wants no more.
  bool Take(const v1::GenerateResponse& response) {
    switch (response.event_case()) {
      case v1::GenerateResponse::kStarted:
        TakeStarted(response.started());
        return true;
      case v1::GenerateResponse::kTokens:
        return TakeTokens(response.tokens());
      case v1::GenerateResponse::kPromptLogprobs:
        client::AppendPromptLogprobs(response.prompt_logprobs(), &result_);
        return true;
      case v1::GenerateResponse::kChoiceFinished:
        if (Choice* choice = ChoiceAt(response.choice_finished().choice())) {
          client::FillChoice(response.choice_finished(), choice);
        }
        return true;
      case v1::GenerateResponse::kFinished:
        client::FillFinished(response.finished(), &result_);
        finished_ = true;
        return true;
      default:  // an event of a newer router
        return true;
    }
  }

  bool finished() const { return finished_; }
  Result& result() { return result_; }
  // Whole or in part, with the first answer on its own, too.
  Result Take() {
    if (!result_.choices.empty()) {
      const Choice& first = result_.choices.front();
      result_.text = first.text;
      result_.token_ids = first.token_ids;
      result_.logprobs = first.logprobs;
      result_.finish_reason = first.finish_reason;
      result_.matched_stop = first.matched_stop;
      result_.matched_token_ids = first.matched_token_ids;
    }
    return std::move(result_);
  }

 private:
  // Null for an index that no router sends.
  Choice* ChoiceAt(uint32_t index) {
    constexpr uint32_t kMost = 1024;
    if (index >= kMost) return nullptr;
    if (index >= result_.choices.size()) result_.choices.resize(index + 1);
    return &result_.choices[index];
  }

  void TakeStarted(const v1::Started& started) {
    result_.request_id = started.request_id();
    result_.model = started.model();
    result_.seed = started.seed();
    result_.prompt_tokens = started.prompt_tokens();
  }

  bool TakeTokens(const v1::Tokens& tokens) {
    const Clock::time_point now = Clock::now();
    const TokenEvent event = client::FromProto(tokens);
    Choice* choice = ChoiceAt(event.choice);
    if (choice == nullptr) return true;
    // Tokens of one message arrived together: the first waited, the others did not.
    for (size_t i = 0; event.choice == 0 && i < event.token_ids.size(); ++i) {
      if (!choice->token_ids.empty() || i > 0) {
        result_.token_gaps_ms.push_back(i == 0 ? MsBetween(last_token_, now) : 0);
      }
      last_token_ = now;
    }
    choice->token_ids.insert(choice->token_ids.end(), event.token_ids.begin(),
                             event.token_ids.end());
    choice->text += event.text;
    choice->logprobs.insert(choice->logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    result_.completion_tokens += static_cast<uint32_t>(event.token_ids.size());
    return !on_tokens_ || on_tokens_(event);
  }

  const std::function<bool(const TokenEvent&)>& on_tokens_;
  Result result_;
  Clock::time_point last_token_;
  bool finished_ = false;
};

}  // namespace

struct Client::Impl {
  std::string router;
  Status setup_error;
  std::shared_ptr<grpc::Channel> channel;  // null when setup_error is set
  std::unique_ptr<v1::Inference::Stub> stub;

  // A failure below the API says where the router was expected.
  Status Translate(const grpc::Status& grpc_status) const {
    Status status = client::FromGrpc(grpc_status);
    if (status.code == StatusCode::kUnavailable && channel->GetState(false) != GRPC_CHANNEL_READY) {
      status.message = "no connection to the router at " + router + ": " + status.message;
    }
    return status;
  }

  // What is known to fail before anything is sent.
  Status Check(const Request& request) const {
    return setup_error.ok() ? client::CheckText(request) : setup_error;
  }

  // Runs a unary call under kUnaryTimeout.
  template <typename Call>
  Status Unary(const Call& call) const {
    if (!setup_error.ok()) return setup_error;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kUnaryTimeout);
    return Translate(call(&context));
  }

  std::unique_ptr<Stream> Open(const Request& request, grpc::ClientContext* context) const {
    if (request.messages.empty()) {
      return stub->Generate(context, client::ToGenerateRequest(request));
    }
    return stub->Chat(context, client::ToChatRequest(request));
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

std::unique_ptr<Client> Client::Connect(const ClientOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->router = options.router;
  impl->channel = client::MakeChannel(options, &impl->setup_error);
  if (impl->channel != nullptr) impl->stub = v1::Inference::NewStub(impl->channel);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Status Client::WaitReady(std::chrono::milliseconds timeout) {
  if (!impl_->setup_error.ok()) return impl_->setup_error;
  const auto deadline = std::chrono::system_clock::now() + timeout;
  if (!impl_->channel->WaitForConnected(deadline)) {
    return MakeStatus(StatusCode::kUnavailable, "no connection to the router at " + impl_->router +
                                                    " within " + std::to_string(timeout.count()) +
                                                    " ms");
  }
  grpc::ClientContext context;
  context.set_deadline(deadline);
  v1::GetClusterStatusResponse response;
  return impl_->Translate(impl_->stub->GetClusterStatus(&context, {}, &response));
}

Result Client::Generate(const Request& request,
                        const std::function<bool(const TokenEvent&)>& on_tokens) {
  return Generate(request, on_tokens, CancelToken());
}

Result Client::Generate(const Request& request,
                        const std::function<bool(const TokenEvent&)>& on_tokens,
                        const CancelToken& cancel) {
  Answer answer(on_tokens);
  answer.result().status = impl_->Check(request);
  if (!answer.result().status.ok()) return answer.Take();
  grpc::ClientContext context;
  if (request.deadline) context.set_deadline(std::chrono::system_clock::now() + *request.deadline);
  const CancelScope scope(cancel.state(), &context);
  const std::unique_ptr<Stream> stream = impl_->Open(request, &context);

  bool stopped_by_caller = false;
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
    if (stopped_by_caller || answer.Take(response)) continue;
    stopped_by_caller = true;
    context.TryCancel();  // then drain what is on its way
  }
  Result result = answer.Take();
  result.status = impl_->Translate(stream->Finish());
  if (stopped_by_caller) {
    result.status = MakeStatus(StatusCode::kCancelled, "cancelled by the caller");
  } else if (result.status.ok() && !answer.finished()) {
    result.status =
        MakeStatus(StatusCode::kInternal, "the router ended the stream without a result");
  }
  if (!result.status.ok()) result.finish_reason.clear();
  return result;
}

std::pair<Status, std::vector<uint32_t>> Client::Tokenize(const Request& request) {
  v1::TokenizeResponse response;
  if (Status bad = impl_->Check(request); !bad.ok())
    return {std::move(bad), std::vector<uint32_t>()};
  Status status = impl_->Unary([&](grpc::ClientContext* context) {
    return impl_->stub->Tokenize(context, client::ToTokenizeRequest(request), &response);
  });
  return {std::move(status),
          std::vector<uint32_t>(response.token_ids().begin(), response.token_ids().end())};
}

std::pair<Status, std::string> Client::Detokenize(const std::vector<uint32_t>& token_ids) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Add(token_ids.begin(), token_ids.end());
  v1::DetokenizeResponse response;
  Status status = impl_->Unary([&](grpc::ClientContext* context) {
    return impl_->stub->Detokenize(context, request, &response);
  });
  return {std::move(status), response.text()};
}

std::pair<Status, std::vector<ModelDescription>> Client::ListModels() {
  v1::ListModelsResponse response;
  Status status = impl_->Unary([&](grpc::ClientContext* context) {
    return impl_->stub->ListModels(context, {}, &response);
  });
  std::vector<ModelDescription> models;
  for (const v1::Model& model : response.models()) models.push_back(client::FromProto(model));
  return {std::move(status), std::move(models)};
}

std::pair<Status, ClusterStatus> Client::GetClusterStatus() {
  v1::GetClusterStatusResponse response;
  Status status = impl_->Unary([&](grpc::ClientContext* context) {
    return impl_->stub->GetClusterStatus(context, {}, &response);
  });
  ClusterStatus cluster;
  for (const v1::WorkerInfo& worker : response.workers()) {
    cluster.workers.push_back(client::FromProto(worker));
  }
  cluster.queued_requests = response.queued_requests();
  cluster.running_requests = response.running_requests();
  cluster.version = response.version();
  return {std::move(status), std::move(cluster)};
}

}  // namespace baton
