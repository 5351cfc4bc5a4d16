// SPDX-License-Identifier: Apache-2.0
// Answers written as JSON, and the line that says where the time went.
#pragma once

#include <string>

#include "client/baton/client.h"

namespace baton::cli {

// One object on one line, without a line break: token_ids, text,
// finish_reason, usage, timing_ms, itl_ms, path and, when asked for, logprobs;
// of several answers, or ranked ones, also choices, a list, best first;
// of a failed request {"error": {code, message, field?, retry_after_ms?}}.
std::string ResultToJson(const Result& result);
std::string ErrorToJson(const Status& status);

// "prompt 23 tokens, answer 8 tokens (stop) in 153 ms: queue 0.2 + ...".
std::string TimingSummary(const Result& result);
// "INVALID_ARGUMENT: top_p ... (field sampling.top_p)".
std::string StatusLine(const Status& status);

}  // namespace baton::cli
