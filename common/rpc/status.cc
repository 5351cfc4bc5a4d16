// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>

#include "absl/strings/cord.h"
#include "common/base/utf8.h"

namespace baton::rpc {
namespace {

// Payload of an absl::Status: one serialized google.rpc detail, keyed by its
// type URL, as google.protobuf.Any names it.
constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";
constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr size_t kMaxMessageBytes = 4096;

std::string Trimmed(absl::string_view message) {
  return ReplaceInvalidUtf8(
      std::string_view(message.data(), message.size()).substr(0, kMaxMessageBytes));
}

template <typename Detail>
std::optional<Detail> PayloadOf(const absl::Status& status, const char* url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  Detail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

}  // namespace

absl::Status BadField(std::string_view field, std::string_view problem) {
  google::rpc::BadRequest detail;
  auto* violation = detail.add_field_violations();
  violation->set_field(ReplaceInvalidUtf8(field));
  violation->set_description(ReplaceInvalidUtf8(problem.substr(0, kMaxMessageBytes)));
  absl::Status status = absl::InvalidArgumentError(
      std::string(field) + ": " + std::string(problem.substr(0, kMaxMessageBytes)));
  status.SetPayload(kBadRequestUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

absl::Status Retry(absl::StatusCode code, std::string_view message, absl::Duration after) {
  google::rpc::RetryInfo detail;
  const timespec delay = absl::ToTimespec(after);
  detail.mutable_retry_delay()->set_seconds(delay.tv_sec);
  detail.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay.tv_nsec));
  absl::Status status(code, absl::string_view(message.data(), message.size()));
  status.SetPayload(kRetryInfoUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.raw_code());
  const std::string message = Trimmed(status.message());
  google::rpc::Status rich;
  rich.set_code(status.raw_code());
  rich.set_message(message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    auto* any = rich.add_details();
    any->set_type_url(std::string(url.data(), url.size()));
    any->set_value(std::string(payload));
  });
  if (rich.details().empty()) return {code, message};
  return {code, message, rich.SerializeAsString()};
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status rich;
  if (!status.error_details().empty() && rich.ParseFromString(status.error_details())) {
    for (const auto& any : rich.details()) {
      result.SetPayload(any.type_url(), absl::Cord(any.value()));
    }
  }
  return result;
}

std::optional<std::string> FieldOf(const absl::Status& status) {
  const auto detail = PayloadOf<google::rpc::BadRequest>(status, kBadRequestUrl);
  if (!detail || detail->field_violations().empty()) return std::nullopt;
  return detail->field_violations(0).field();
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto detail = PayloadOf<google::rpc::RetryInfo>(status, kRetryInfoUrl);
  if (!detail) return std::nullopt;
  return absl::Seconds(detail->retry_delay().seconds()) +
         absl::Nanoseconds(detail->retry_delay().nanos());
}

}  // namespace baton::rpc
