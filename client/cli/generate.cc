// SPDX-License-Identifier: Apache-2.0
// `baton generate`: one answer, or a file of them.
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include "client/cli/batch.h"
#include "client/cli/command.h"
#include "client/cli/id_list.h"
#include "client/cli/interrupts.h"
#include "client/cli/request_flags.h"
#include "client/cli/result_json.h"
#include "client/cli/router_flags.h"

namespace baton::cli {
namespace {

constexpr uint32_t kMostConcurrent = 1024;

class GenerateCommand final : public Command {
 public:
  explicit GenerateCommand(config::CommandLine* line) : Command(line) {
    input_.Register(*line, /*with_ids=*/true);
    line->Add("Input", "input", &input_file_,
              "File of requests, one JSON object per line, keys named as the flags with "
              "underscores, or \"messages\"; - reads standard input");
    line->Add("Input", "concurrency", &concurrency_, "Requests of --input that run at once");
    sampling_.Register(*line);
    line->Add("Output", "json", &json_, "One JSON object instead of text");
    line->Add("Output", "quiet", &quiet_, "No line on standard error about where the time went");
    router_.Register(*line);
  }

  int Run() override {
    Request request;
    const absl::Status flags = sampling_.Apply(&request);
    if (!flags.ok()) return UsageError(std::string(flags.message()));
    if (input_file_) return RunFile(std::move(request));
    const absl::Status input = input_.Apply(&request);
    if (!input.ok()) return UsageError(std::string(input.message()));
    if (!input_.given()) {
      return UsageError("nothing to do: give --prompt, --prompt-ids, --chat or --input");
    }
    return RunOne(request);
  }

 private:
  int RunFile(Request defaults) {
    if (input_.given()) return UsageError("--input and a prompt exclude each other");
    if (concurrency_ == 0 || concurrency_ > kMostConcurrent) {
      return UsageError("--concurrency must be 1 to 1024, got " + std::to_string(concurrency_));
    }
    std::ifstream file;
    if (*input_file_ != "-") {
      file.open(*input_file_, std::ios::binary);
      if (!file) return UsageError("--input: cannot read " + *input_file_);
    }
    std::unique_ptr<Client> client;
    Batch batch(
        std::move(defaults),
        [&](const Request& request, const Client::CancelToken& cancel) {
          return client->Generate(request, {}, cancel);
        },
        *input_file_ == "-" ? &std::cin : &file, &std::cout);
    std::atomic<int> presses{0};
    const Interrupts interrupts([&] {
      batch.Cancel();
      if (++presses > 1) _exit(kExitFailed);  // the input may block for ever
    });
    client = router_.Connect();
    return batch.Run(concurrency_) == 0 ? kExitOk : kExitFailed;
  }

  int RunOne(const Request& request) {
    Client::CancelToken cancel;
    const Interrupts interrupts([&] { cancel.Cancel(); });
    const std::unique_ptr<Client> client = router_.Connect();
    const Result result = client->Generate(
        request,
        [&](const TokenEvent& event) {
          // Several answers would run into each other.
          if (!json_ && request.n.value_or(1) == 1) std::cout << event.text << std::flush;
          return true;
        },
        cancel);
    if (json_) {
      std::cout << ResultToJson(result) << std::endl;
    } else {
      FinishText(result);
    }
    return result.status.ok() ? kExitOk : kExitFailed;
  }

  static void PrintChoices(const Result& result) {
    for (size_t i = 0; i < result.choices.size(); ++i) {
      const Choice& choice = result.choices[i];
      std::cout << "--- " << i << " (" << choice.finish_reason;
      if (choice.score) std::cout << ", score " << *choice.score;
      std::cout << ")\n" << (choice.text.empty() ? JoinIds(choice.token_ids) : choice.text) << '\n';
    }
  }

  static void CloseLine(const Result& result) {
    // A model without a tokenizer answers in ids alone.
    if (result.text.empty() && !result.token_ids.empty()) std::cout << JoinIds(result.token_ids);
    const bool open_line =
        !result.text.empty() ? result.text.back() != '\n' : !result.token_ids.empty();
    if (open_line) std::cout << '\n';
  }

  void FinishText(const Result& result) const {
    if (result.choices.size() > 1) {
      PrintChoices(result);
    } else {
      CloseLine(result);
    }
    std::cout << std::flush;
    if (!result.status.ok()) {
      std::cerr << "baton: " << StatusLine(result.status) << std::endl;
    } else if (!quiet_) {
      std::cerr << TimingSummary(result) << std::endl;
    }
  }

  InputFlags input_;
  SamplingFlags sampling_;
  RouterFlags router_;
  std::optional<std::string> input_file_;
  uint32_t concurrency_ = 1;
  bool json_ = false;
  bool quiet_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand(config::CommandLine& line) {
  return std::make_unique<GenerateCommand>(
      line.Command("generate", "Generate an answer, or many from a file."));
}

}  // namespace baton::cli
