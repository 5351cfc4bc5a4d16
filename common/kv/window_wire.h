// SPDX-License-Identifier: Apache-2.0
// Windows in messages: of any proto that has the fields window, window_sinks,
// window_stride and window_keep (proto/baton/v1/inference.proto).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/kv/window.h"

namespace baton::kv {

// INVALID_ARGUMENT as of CheckWindow, or for more ranges than there may be.
template <typename Message>
absl::StatusOr<Window> WindowFrom(const Message& message) {
  Window window{.tokens = message.window(),
                .sinks = message.window_sinks(),
                .stride = message.window_stride()};
  if (static_cast<size_t>(message.window_keep_size()) > window.keep.size()) {
    return absl::InvalidArgumentError(absl::StrCat("keep has ", message.window_keep_size(),
                                                   " ranges; the limit is ", window.keep.size()));
  }
  for (int i = 0; i < message.window_keep_size(); ++i) {
    const auto& range = message.window_keep(i);
    if (range.end() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("keep[", i, "] is ", range.begin(), " to 0; it must hold a token"));
    }
    window.keep[static_cast<size_t>(i)] = {range.begin(), range.end()};
  }
  if (absl::Status status = CheckWindow(window); !status.ok()) return status;
  return window;
}

template <typename Message>
void FillWindow(const Window& window, Message* message) {
  message->set_window(window.tokens);
  message->set_window_sinks(window.sinks);
  message->set_window_stride(window.stride);
  for (const TokenRange& range : window.keep) {
    if (range.end == 0) break;
    auto* out = message->add_window_keep();
    out->set_begin(range.begin);
    out->set_end(range.end);
  }
}

}  // namespace baton::kv
