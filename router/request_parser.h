// SPDX-License-Identifier: Apache-2.0
// Bytes from a client to a protobuf message, with errors a caller can act on.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace baton::router {

// Path of the first string field whose bytes are not UTF-8 in a serialized
// message, such as "messages[1].content"; nullopt when there is none.
std::optional<std::string> FindInvalidUtf8(const google::protobuf::Descriptor& type,
                                           std::string_view bytes);

// INVALID_ARGUMENT names the size and its limit, the field with invalid UTF-8,
// or says that the bytes are no message of this type. gRPC's own parsing would
// end all of these as INTERNAL.
absl::Status ParseRequest(const grpc::ByteBuffer& buffer, uint64_t max_bytes,
                          google::protobuf::Message* message);

}  // namespace baton::router
