// SPDX-License-Identifier: Apache-2.0
// C++ client of a Baton router. Needs nothing but the standard library to
// include; link baton::client.
//
//   auto client = baton::Client::Connect({.router = "127.0.0.1:8500"});
//   baton::Request request;
//   request.prompt = "Once upon a time";
//   baton::Result result = client->Generate(request, [](const baton::TokenEvent& event) {
//     std::cout << event.text << std::flush;
//     return true;  // false cancels
//   });
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace baton {

// gRPC's status codes, by number and meaning.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};
const char* StatusCodeName(StatusCode code);  // "INVALID_ARGUMENT"

struct Status {
  StatusCode code = StatusCode::kOk;
  std::string message;
  std::string field;                                     // the request's field at fault, if any
  std::optional<std::chrono::milliseconds> retry_after;  // when the server says so
  bool ok() const { return code == StatusCode::kOk; }
};

enum class Path { kAuto, kSplit, kLocal };

struct ChatTurn {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// How tokens are drawn. Unset fields take the server's defaults, or the request's.
struct Sampling {
  std::optional<float> temperature;
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
  std::optional<uint64_t> seed;
  std::optional<float> repetition_penalty;
  std::optional<float> min_p, typical_p, presence_penalty, frequency_penalty;
  std::vector<std::pair<uint32_t, float>> logit_bias;
  std::vector<std::string> bad_words;
  std::vector<std::vector<uint32_t>> bad_token_sequences;
};

struct Beam {
  uint32_t width = 0;
  std::optional<float> length_penalty;
  std::string early_stopping;  // "heuristic", "always", "never"; empty: the first
};

// A part of an answer with a strategy of its own; sampling that is not set is the request's.
struct Phase : Sampling {
  std::optional<Beam> beam;
  uint32_t max_tokens = 0;  // 0: not by length
  std::vector<uint32_t> until_token_ids;
};

// What the text of an answer must be; exactly one of these is set.
struct Constraint {
  std::string json;  // "object" or "value": any JSON text
  std::optional<std::string> json_schema, regex;
  std::vector<std::string> choices;
};

// Unset fields take the server's defaults (proto/baton/v1/types.proto). Exactly
// one of prompt, prompt_ids and messages is used: messages if not empty, else
// prompt_ids if set, else prompt.
struct Request : Sampling {
  std::string model;
  std::string prompt;
  std::optional<std::vector<uint32_t>> prompt_ids;
  std::vector<ChatTurn> messages;

  std::optional<uint32_t> logprobs, prompt_logprobs;
  std::string preset;  // "greedy", "chatglm2", "llama2"; empty for none

  std::optional<uint32_t> n, best_of;
  std::optional<Beam> beam;
  std::vector<Phase> phases;

  std::optional<uint32_t> max_tokens, min_tokens;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  std::vector<std::vector<uint32_t>> stop_sequences;
  bool ignore_eos = false;
  bool include_stop = false;
  std::optional<std::chrono::milliseconds> time_limit;
  std::optional<Constraint> constraint;

  Path path = Path::kAuto;
  std::string request_id;
  std::string tenant;        // on whose account; may be empty
  int32_t priority = 0;      // -4 to 4; greater goes first
  std::string cache_salt;    // shares cached prompts with this salt alone
  bool prefix_cache = true;  // false: without prefix caches
  // Attention to the latest tokens and the first ones alone; multiples of 32, 0: to all.
  uint32_t window = 0, window_sinks = 0;
  // With a window: of every so many tokens the last 32 stay in sight, and these
  // ranges [first, second) do; multiples of 32.
  uint32_t window_stride = 0;
  std::vector<std::pair<uint32_t, uint32_t>> window_keep;
  // Most tokens that are guessed and checked in one step; absent: the worker decides.
  std::optional<uint32_t> draft_tokens;
  std::optional<std::chrono::milliseconds> deadline;
};

struct TokenLogprobs {
  float logprob = 0;
  std::vector<std::pair<uint32_t, float>> top;
  // What the token and those of `top` stand for; maybe a part of a character.
  std::string bytes = {};
  std::vector<std::string> top_bytes = {};
};

// Some new tokens of an answer and the text they complete.
struct TokenEvent {
  uint32_t choice = 0;
  uint32_t first_index = 0;
  std::vector<uint32_t> token_ids;
  std::string text;
  std::vector<TokenLogprobs> logprobs;
};

// One of a request's answers.
struct Choice {
  std::string text;
  std::vector<uint32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::string finish_reason;  // as in Result
  std::string matched_stop;
  std::vector<uint32_t> matched_token_ids;
  std::optional<double> score;  // what they were ranked by, of best_of or beams
};

struct Result {
  Status status;
  std::string request_id;
  std::string model;
  uint64_t seed = 0;
  // All answers, the first of which is repeated below.
  std::vector<Choice> choices;
  std::string text;
  std::vector<uint32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt's tokens from the second on
  // "stop", "length", "stop_text", "stop_sequence", "context", "time"; empty on failure.
  std::string finish_reason;
  std::string matched_stop;
  std::vector<uint32_t> matched_token_ids;
  uint32_t prompt_tokens = 0, cached_prompt_tokens = 0;
  uint32_t completion_tokens = 0;  // of all answers that were sampled
  struct Timing {                  // milliseconds
    double queue = 0, prefill = 0, transfer = 0, first_token = 0, decode = 0, total = 0;
  } timing;
  // Milliseconds between tokens of the first answer as they reached this client;
  // [tokens - 1].
  std::vector<double> token_gaps_ms;
  std::string prefill_worker, decode_worker, transport;
  uint64_t handoff_bytes = 0;          // of KV
  uint32_t handoff_cached_tokens = 0;  // of the prompt, whose KV the decode worker had
  bool foreign_kv = false;             // the workers differ in KV type or kernels
  // Why this path was taken, and the milliseconds to the second token that the
  // router predicted for each; 0 when it did not (proto/baton/v1/inference.proto).
  std::string path_reason;
  double predicted_split = 0, predicted_local = 0;
  // What it cost that others were served meanwhile.
  struct Scheduling {
    uint32_t preemptions = 0, recomputed_tokens = 0;
    uint64_t swapped_bytes = 0;
    double preempted = 0;  // milliseconds
  } scheduling;
  // Tokens that were guessed and checked, and those of them that were right.
  struct Speculation {
    uint32_t steps = 0, drafted_tokens = 0, accepted_tokens = 0;
  } speculation;
};

struct WorkerStatus {
  std::string id, role, model, compute;
  std::string admin_address;  // where it answers `baton status --kv-dump`
  bool draining = false;
  uint32_t pid = 0, threads = 0;
  uint32_t waiting_sequences = 0, running_sequences = 0;
  uint64_t queued_prompt_tokens = 0;
  uint32_t kv_blocks_total = 0, kv_blocks_free = 0, kv_block_tokens = 0;
  uint32_t kv_blocks_requests = 0, kv_blocks_transfers = 0, kv_blocks_prefix_cache = 0;
  uint32_t kv_blocks_reclaimable = 0;
  uint64_t prefix_lookup_tokens = 0, prefix_hit_tokens = 0, prefix_evictions = 0;
  uint64_t kv_bytes_total = 0, resident_bytes = 0;
  // Since the worker's start.
  uint64_t steps = 0, prompt_tokens = 0, tokens = 0;
  uint64_t preemptions = 0, recomputed_tokens = 0, swapped_bytes = 0;
  uint64_t drafted_tokens = 0, accepted_tokens = 0;
  uint64_t swap_bytes_used = 0, swap_bytes_total = 0;
  uint64_t handoff_bytes = 0;  // of KV that it has handed over
  // Bytes of its GPU: of the device, whoever uses it, and what this worker holds
  // there. Zeros on a CPU.
  struct DeviceMemory {
    uint64_t total = 0, free = 0, weights = 0, kv_pool = 0, step_buffers = 0;
  } device_memory;
};

struct ClusterStatus {
  std::vector<WorkerStatus> workers;
  uint32_t queued_requests = 0, running_requests = 0;
  std::string version;
};

struct ModelDescription {
  std::string name, architecture, prompt_format;
  uint32_t vocabulary_size = 0, context_tokens = 0;
  bool has_tokenizer = false;
};

struct ClientOptions {
  std::string router = "127.0.0.1:8500";
  // PEM files; a CA turns TLS on, certificate and key identify the client.
  std::string tls_ca, tls_cert, tls_key;
};

// Thread-safe; calls of several threads share one connection.
class Client final {
 public:
  // Never fails at once: an unreachable router shows in the first call.
  static std::unique_ptr<Client> Connect(const ClientOptions& options);
  ~Client();

  // Waits until the router answers, at most `timeout`.
  Status WaitReady(std::chrono::milliseconds timeout);

  // Blocks until the answer is whole, failed, or cancelled: `on_tokens` (may
  // be empty) hears each event in order on this thread and cancels by
  // returning false; Cancel() of a token does so from any thread.
  Result Generate(const Request& request,
                  const std::function<bool(const TokenEvent&)>& on_tokens = {});

  // Cancels one Generate from another thread.
  class CancelToken {
   public:
    CancelToken();
    void Cancel();
    struct State;
    const std::shared_ptr<State>& state() const { return state_; }

   private:
    std::shared_ptr<State> state_;
  };
  Result Generate(const Request& request, const std::function<bool(const TokenEvent&)>& on_tokens,
                  const CancelToken& cancel);

  std::pair<Status, std::vector<uint32_t>> Tokenize(const Request& request);
  std::pair<Status, std::string> Detokenize(const std::vector<uint32_t>& token_ids);
  std::pair<Status, std::vector<ModelDescription>> ListModels();
  std::pair<Status, ClusterStatus> GetClusterStatus();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
