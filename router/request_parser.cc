// SPDX-License-Identifier: Apache-2.0
#include "router/request_parser.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/rpc/status.h"

namespace baton::router {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

std::string FieldPath(const std::string& prefix, const FieldDescriptor& field, int index) {
  std::string path = absl::StrCat(prefix, prefix.empty() ? "" : ".", field.name());
  if (field.is_repeated()) absl::StrAppend(&path, "[", index, "]");
  return path;
}

// Depth is that of the message types, which do not recurse.
std::optional<std::string> Search(const Descriptor& type, std::string_view bytes,
                                  const std::string& prefix) {
  CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  std::map<int, int> seen;  // values so far by field number
  while (const uint32_t tag = input.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool nested = field != nullptr && (field->type() == FieldDescriptor::TYPE_STRING ||
                                             field->type() == FieldDescriptor::TYPE_MESSAGE);
    if (!nested ||
        WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&input, tag)) return std::nullopt;
      continue;
    }
    uint32_t length = 0;
    if (!input.ReadVarint32(&length)) return std::nullopt;
    const size_t begin = static_cast<size_t>(input.CurrentPosition());
    if (length > bytes.size() - begin) return std::nullopt;
    const std::string_view value = bytes.substr(begin, length);
    input.Skip(static_cast<int>(length));
    const std::string path = FieldPath(prefix, *field, seen[field->number()]++);
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (!IsValidUtf8(value)) return path;
    } else if (auto inner = Search(*field->message_type(), value, path)) {
      return inner;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> FindInvalidUtf8(const Descriptor& type, std::string_view bytes) {
  return Search(type, bytes, "");
}

absl::Status ParseRequest(const grpc::ByteBuffer& buffer, uint64_t max_bytes,
                          google::protobuf::Message* message) {
  if (buffer.Length() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request has ", buffer.Length(), " bytes; the limit is ", max_bytes));
  }
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) {
    return absl::InvalidArgumentError("the request could not be read");
  }
  if (message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return absl::OkStatus();
  }
  const std::string_view bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
  if (const auto field = FindInvalidUtf8(*message->GetDescriptor(), bytes)) {
    return rpc::BadField(*field, "is not valid UTF-8");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the request is not a valid message of type ", message->GetTypeName()));
}

}  // namespace baton::router
