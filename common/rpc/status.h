// SPDX-License-Identifier: Apache-2.0
// absl::Status inside, grpc::Status with google.rpc details on the wire: one
// place that maps them.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton::rpc {

// INVALID_ARGUMENT about one field; becomes google.rpc.BadRequest on the wire.
// `field` as in the proto, such as "sampling.top_p"; `problem` says limit and value.
absl::Status BadField(std::string_view field, std::string_view problem);

// RESOURCE_EXHAUSTED or UNAVAILABLE with google.rpc.RetryInfo.
absl::Status Retry(absl::StatusCode code, std::string_view message, absl::Duration after);

// Details (set by the two above) are serialized as google.rpc.Status; messages
// are cut to 4 KiB, since trailers share the metadata limit, and invalid UTF-8
// in them is replaced.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// The field and retry delay carried by a status, where present.
std::optional<std::string> FieldOf(const absl::Status& status);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

}  // namespace baton::rpc
