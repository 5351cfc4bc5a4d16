// SPDX-License-Identifier: Apache-2.0
// `baton tokenize`: text or a conversation to token ids.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/command.h"
#include "client/cli/id_list.h"
#include "client/cli/local_model.h"
#include "client/cli/request_flags.h"
#include "client/cli/result_json.h"
#include "client/cli/router_flags.h"
#include "client/cli/table.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Tokens {
  std::vector<uint32_t> ids;
  std::vector<std::string> pieces;  // valid UTF-8; [ids], or empty when not wanted
};

absl::StatusOr<std::vector<TokenId>> RenderChat(const checkpoint::Checkpoint& checkpoint,
                                                const std::vector<ChatTurn>& turns,
                                                const tokenizer::Tokenizer& tokenizer) {
  BATON_ASSIGN_OR_RETURN(const auto detected, checkpoint.DetectChatFormat());
  BATON_ASSIGN_OR_RETURN(const auto format,
                         chat::MakePromptFormat(detected.name, detected.options));
  std::vector<chat::Message> messages;
  for (const ChatTurn& turn : turns) {
    BATON_ASSIGN_OR_RETURN(const chat::ChatRole role, chat::ParseChatRole(turn.role));
    messages.push_back({role, turn.content});
  }
  return format->Render(messages, tokenizer);
}

class TokenizeCommand final : public Command {
 public:
  explicit TokenizeCommand(config::CommandLine* line) : Command(line) {
    input_.Register(*line, /*with_ids=*/false);
    model_.Register(*line, "Tokenizes in this process with this checkpoint instead of the router");
    line->Add("Output", "pieces", &pieces_, "One line per token: id and what it stands for");
    line->Add("Output", "json", &json_, "One JSON object instead of text");
    router_.Register(*line);
  }

  int Run() override {
    Request request;
    const absl::Status input = input_.Apply(&request);
    if (!input.ok()) return UsageError(std::string(input.message()));
    if (!input_.given()) return UsageError("nothing to do: give --prompt or --chat");
    const absl::StatusOr<Tokens> tokens =
        model_.given() ? InProcess(request) : ThroughRouter(request);
    if (!tokens.ok()) return Fail(tokens.status());
    Print(*tokens);
    return kExitOk;
  }

 private:
  absl::StatusOr<Tokens> InProcess(const Request& request) const {
    BATON_ASSIGN_OR_RETURN(const auto checkpoint, model_.Open());
    BATON_ASSIGN_OR_RETURN(const auto tokenizer, checkpoint->LoadTokenizer());
    if (tokenizer == nullptr) return absl::FailedPreconditionError("the model has no tokenizer");
    Tokens tokens;
    if (request.messages.empty()) {
      BATON_ASSIGN_OR_RETURN(tokens.ids, EncodeText(*checkpoint, request.prompt));
    } else {
      BATON_ASSIGN_OR_RETURN(tokens.ids, RenderChat(*checkpoint, request.messages, *tokenizer));
    }
    for (uint32_t id : tokens.ids) {
      if (pieces_) tokens.pieces.push_back(ReplaceInvalidUtf8(tokenizer->TokenBytes(id)));
    }
    return tokens;
  }

  absl::StatusOr<Tokens> ThroughRouter(const Request& request) const {
    const std::unique_ptr<Client> client = router_.Connect();
    auto [status, ids] = client->Tokenize(request);
    if (!status.ok()) return absl::UnknownError(StatusLine(status));
    Tokens tokens;
    tokens.ids = std::move(ids);
    for (uint32_t id : tokens.ids) {
      if (!pieces_) break;
      auto [piece_status, piece] = client->Detokenize({id});
      if (!piece_status.ok()) return absl::UnknownError(StatusLine(piece_status));
      tokens.pieces.push_back(std::move(piece));
    }
    return tokens;
  }

  void Print(const Tokens& tokens) const {
    if (json_) {
      OrderedJson json = {{"count", tokens.ids.size()}, {"token_ids", tokens.ids}};
      if (pieces_) json["pieces"] = tokens.pieces;
      std::cout << json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
    } else if (pieces_) {
      std::vector<std::vector<std::string>> rows;
      for (size_t i = 0; i < tokens.ids.size(); ++i) {
        // As a JSON string: blanks and control characters show.
        rows.push_back({absl::StrCat(i), absl::StrCat(tokens.ids[i]),
                        OrderedJson(tokens.pieces[i])
                            .dump(-1, ' ', false, OrderedJson::error_handler_t::replace)});
      }
      std::cout << FormatTable({"POSITION", "ID", "PIECE"}, rows) << std::flush;
    } else {
      std::cout << JoinIds(tokens.ids) << std::endl;
    }
  }

  InputFlags input_;
  ModelFlag model_;
  RouterFlags router_;
  bool pieces_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand(config::CommandLine& line) {
  return std::make_unique<TokenizeCommand>(
      line.Command("tokenize", "Turn text or a conversation into token ids."));
}

}  // namespace baton::cli
