// SPDX-License-Identifier: Apache-2.0
// `baton chat`: a conversation on the terminal.
#include <unistd.h>

#include <iostream>
#include <string>

#include "client/cli/chat_session.h"
#include "client/cli/command.h"
#include "client/cli/interrupts.h"
#include "client/cli/request_flags.h"
#include "client/cli/result_json.h"
#include "client/cli/router_flags.h"
#include "client/cli/terminal_lines.h"

namespace baton::cli {
namespace {

constexpr std::chrono::seconds kConnectTimeout(10);

class ChatCommand final : public Command {
 public:
  explicit ChatCommand(config::CommandLine* line) : Command(line) {
    line->Add("Conversation", "system", &options_.system,
              "System message; the model's own when empty");
    sampling_.Register(*line);
    router_.Register(*line);
  }

  int Run() override {
    const absl::Status flags = sampling_.Apply(&options_.settings);
    if (!flags.ok()) return UsageError(std::string(flags.message()));
    options_.interactive = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;

    TerminalLines input(STDIN_FILENO);
    std::unique_ptr<Client> client;
    ChatSession session(
        options_,
        [&](const Request& request, const std::function<bool(const TokenEvent&)>& on_tokens,
            const Client::CancelToken& cancel) {
          return client->Generate(request, on_tokens, cancel);
        },
        &input, &std::cout, &std::cerr);
    const Interrupts interrupts([&] { session.Interrupt(); });
    client = router_.Connect();
    const Status ready = client->WaitReady(kConnectTimeout);
    if (!ready.ok()) {
      std::cerr << "baton: " << StatusLine(ready) << "\n";
      return kExitFailed;
    }
    if (options_.interactive) Greet(*client);
    return session.Run() ? kExitOk : kExitFailed;
  }

 private:
  static void Greet(Client& client) {
    const auto [status, models] = client.ListModels();
    if (status.ok() && !models.empty()) std::cerr << "Chat with " << models.front().name << ". ";
    std::cerr << "/help lists the commands, Ctrl-C stops an answer.\n";
  }

  ChatSession::Options options_;
  SamplingFlags sampling_;
  RouterFlags router_;
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand(config::CommandLine& line) {
  return std::make_unique<ChatCommand>(line.Command("chat", "Talk with the model."));
}

}  // namespace baton::cli
