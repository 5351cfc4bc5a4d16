// SPDX-License-Identifier: Apache-2.0
#include "common/worker/profile.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"

namespace baton::worker {
namespace {

constexpr int kStepTrack = 1;

double Micros(absl::Time time) { return absl::ToDoubleMicroseconds(time - absl::UnixEpoch()); }
double Millis(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string Name(std::string_view what, std::string_view name, int track) {
  return absl::StrFormat(R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"name":%s}})", what,
                         getpid(), track, Quoted(name));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Profile>> Profile::Create(const std::string& path,
                                                         std::string_view process,
                                                         uint64_t most_events) {
  std::ofstream file(path, std::ios::trunc);
  file << "[\n"
       << Name("process_name", process, 0) << ",\n"
       << Name("thread_name", "steps", kStepTrack);
  file.flush();
  if (!file) return absl::UnavailableError(absl::StrCat("--profile: cannot write ", path));
  return std::unique_ptr<Profile>(new Profile(std::move(file), most_events));
}

Profile::Profile(std::ofstream file, uint64_t most_events)
    : file_(std::move(file)), most_events_(most_events) {}

Profile::~Profile() {
  const absl::MutexLock lock(&mutex_);
  file_ << "\n]\n";
}

void Profile::Write(std::string_view event) {
  if (events_ >= most_events_) return;
  if (++events_ == most_events_) {
    LogWarning("the profile is full; nothing more is written to it", {{"events", most_events_}});
  }
  file_ << ",\n" << event;
}

void Profile::AddStep(const StepWork& step) {
  std::string parts;
  for (size_t i = 0; i < model::kStepParts; ++i) {
    const auto part = static_cast<model::StepPart>(i);
    if (parts_.seconds(part) == 0) continue;
    absl::StrAppendFormat(&parts, R"(,"%s ms":%.4f)", std::string(model::StepPartName(part)),
                          parts_.seconds(part) * 1e3);
  }
  parts_.Reset();
  const absl::MutexLock lock(&mutex_);
  Write(absl::StrFormat(
      R"({"ph":"X","name":"%s","cat":"step","pid":%d,"tid":%d,"ts":%.1f,"dur":%.1f,)"
      R"("args":{"decode rows":%d,"prompt tokens":%d,"prompts":%d%s}})",
      step.prompt_tokens == 0 ? "decode"
      : step.decode_rows == 0 ? "prompt"
                              : "mixed",
      getpid(), kStepTrack, Micros(step.start), absl::ToDoubleMicroseconds(step.end - step.start),
      step.decode_rows, step.prompt_tokens, step.prompts, parts));
}

// An asynchronous span: those of one id are nested in a track of their own.
void Profile::Span(std::string_view category, std::string_view name, const engine::SequenceRef& ref,
                   absl::Time start, absl::Time end, std::string_view args) {
  const std::string head =
      absl::StrFormat(R"("cat":"%s","name":"%s","id":"%d-%d","pid":%d,"tid":0)", category, name,
                      ref.owner, ref.key, getpid());
  Write(absl::StrFormat(R"({"ph":"b",%s,"ts":%.1f,"args":{%s}})", head, Micros(start), args));
  Write(absl::StrFormat(R"({"ph":"e",%s,"ts":%.1f})", head, Micros(end)));
}

void Profile::Add(const engine::StepOutput& output) {
  const absl::Time now = absl::Now();
  const absl::MutexLock lock(&mutex_);
  for (const engine::StartOutput& started : output.started) {
    begun_[started.ref] = {.start = started.start, .prefill_end = absl::InfinitePast()};
  }
  for (const engine::TokenOutput& token : output.tokens) {
    // A sequence that came by hand-off begins with its first step here.
    Begun& begun = begun_.try_emplace(token.ref, Begun{now, absl::InfinitePast()}).first->second;
    if (token.first_step_start) begun.start = *token.first_step_start;
    if (token.prefill_end) begun.prefill_end = *token.prefill_end;
    ++begun.tokens;
  }
  for (const engine::EndOutput& ended : output.ends) {
    const auto found = begun_.find(ended.ref);
    if (found == begun_.end()) continue;
    const Begun& begun = found->second;
    Span("sequence", ended.handed_off ? "prompt" : "sequence", ended.ref, begun.start, now,
         absl::StrFormat(R"("tokens":%d,"status":%s,"preemptions":%d)", begun.tokens,
                         Quoted(absl::StatusCodeToString(ended.status.code())),
                         ended.preemptions.count));
    if (ended.handed_off && begun.prefill_end != absl::InfinitePast()) {
      Span("hand-off", "hand-off after the prompt", ended.ref, begun.prefill_end, now,
           absl::StrFormat(R"("transport":%s,"bytes":%d,"ms":%.2f)", Quoted(ended.transport),
                           ended.handoff_bytes, Millis(now - begun.prefill_end)));
    }
    begun_.erase(found);
  }
}

}  // namespace baton::worker
