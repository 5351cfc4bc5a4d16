// SPDX-License-Identifier: Apache-2.0
// Between the client's plain types and the protos.
#pragma once

#include <grpcpp/support/status.h>

#include "baton/v1/inference.pb.h"
#include "client/baton/client.h"

namespace baton::client {

// INVALID_ARGUMENT naming the first text that is not UTF-8: proto strings
// cannot carry it, and the router could not say which field it was.
Status CheckText(const Request& request);

v1::GenerateRequest ToGenerateRequest(const Request& request);
v1::ChatRequest ToChatRequest(const Request& request);
v1::TokenizeRequest ToTokenizeRequest(const Request& request);

// Field and retry delay come from google.rpc.BadRequest and RetryInfo in the details.
Status FromGrpc(const grpc::Status& status);

TokenEvent FromProto(const v1::Tokens& tokens);
void AppendPromptLogprobs(const v1::PromptLogprobs& scored, Result* result);
void FillChoice(const v1::ChoiceFinished& finished, Choice* choice);
// What is the request's; the end of choice 0 goes to its Choice.
void FillFinished(const v1::Finished& finished, Result* result);
WorkerStatus FromProto(const v1::WorkerInfo& worker);
ModelDescription FromProto(const v1::Model& model);

}  // namespace baton::client
