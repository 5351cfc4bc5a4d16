// SPDX-License-Identifier: Apache-2.0
#include "common/config/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/version.h"
#include "common/config/nearest.h"

namespace baton::config {
namespace {

// Every long name of `app`, without dashes.
std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

std::string SubcommandList(const CLI::App& app) {
  std::string list;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!list.empty()) list += ", ";
    list += command->get_name();
  }
  return list;
}

// A sentence about an argument that no option takes.
std::string UnknownArgument(const CLI::App& app, const std::string& argument) {
  if (argument.rfind("--", 0) != 0) {
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
    std::string text = "'" + argument + "' is not expected here";
    const std::string near = Nearest(argument, commands);
    if (!near.empty()) return text + "; did you mean '" + near + "'?";
    if (!commands.empty()) text += "; commands are " + SubcommandList(app);
    return text;
  }
  const std::string name = argument.substr(2, argument.find('=') - 2);
  std::string text = "unknown flag --" + name;
  const std::string near = Nearest(name, OptionNames(app));
  if (!near.empty()) text += "; did you mean --" + near + "?";
  return text;
}

// The application whose arguments were being read: the chosen subcommand.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : Innermost(*chosen.front());
}

}  // namespace

struct CommandLine::Impl {
  CLI::App* app = nullptr;
  std::unique_ptr<CLI::App> owned;  // the root only
  std::vector<std::unique_ptr<CommandLine>> commands;
};

CommandLine::CommandLine(std::string program, std::string summary)
    : impl_(std::make_unique<Impl>()) {
  impl_->owned = std::make_unique<CLI::App>(std::move(summary), std::move(program));
  impl_->app = impl_->owned.get();
  impl_->app->set_help_flag("-h,--help", "Print this help and exit");
  impl_->app->set_version_flag("--version", std::string(kVersion));
  impl_->app->set_config("--config", "", "File with the same names: 'name = value' lines");
  impl_->app->allow_config_extras(CLI::config_extras_mode::error);
  impl_->app->get_formatter()->column_width(34);
}

CommandLine::CommandLine(CLI::App* app) : impl_(std::make_unique<Impl>()) { impl_->app = app; }

CommandLine::~CommandLine() = default;

CommandLine* CommandLine::Command(const std::string& name, const std::string& summary) {
  CLI::App* app = impl_->app->add_subcommand(name, summary);
  app->set_help_flag("-h,--help", "Print this help and exit");
  impl_->commands.push_back(std::unique_ptr<CommandLine>(new CommandLine(app)));
  return impl_->commands.back().get();
}

bool CommandLine::chosen() const { return impl_->app->parsed(); }

template <typename T>
void CommandLine::AddValue(const std::string& group, const std::string& name, T* value,
                           const std::string& help) {
  impl_->app->add_option("--" + name, *value, help)->group(group)->capture_default_str();
}

void CommandLine::Add(const std::string& group, const std::string& name, std::string* value,
                      const std::string& help) {
  AddValue(group, name, value, help);
}
void CommandLine::Add(const std::string& group, const std::string& name, uint32_t* value,
                      const std::string& help) {
  AddValue(group, name, value, help);
}
void CommandLine::Add(const std::string& group, const std::string& name, int32_t* value,
                      const std::string& help) {
  AddValue(group, name, value, help);
}
void CommandLine::Add(const std::string& group, const std::string& name, uint64_t* value,
                      const std::string& help) {
  AddValue(group, name, value, help);
}
void CommandLine::Add(const std::string& group, const std::string& name, double* value,
                      const std::string& help) {
  AddValue(group, name, value, help);
}

void CommandLine::Add(const std::string& group, const std::string& name, bool* value,
                      const std::string& help) {
  impl_->app->add_flag("--" + name + ",!--no-" + name, *value, help)
      ->group(group)
      ->capture_default_str();
}

void CommandLine::Add(const std::string& group, const std::string& name, absl::Duration* value,
                      const std::string& help) {
  impl_->app
      ->add_option_function<std::string>(
          "--" + name,
          [value, name](const std::string& text) {
            absl::Duration parsed;
            if (!absl::ParseDuration(text, &parsed) || parsed < absl::ZeroDuration()) {
              throw CLI::ValidationError("--" + name, "'" + text +
                                                          "' is not a duration such as 500ms, 2s "
                                                          "or 1m");
            }
            *value = parsed;
          },
          help)
      ->group(group)
      ->type_name("DURATION")
      ->default_str(absl::FormatDuration(*value));
}

void CommandLine::Add(const std::string& group, const std::string& name,
                      std::vector<std::string>* value, const std::string& help) {
  impl_->app->add_option("--" + name, *value, help)
      ->group(group)
      ->type_size(1)
      ->expected(-1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

template <typename T>
void CommandLine::AddOptional(const std::string& group, const std::string& name,
                              std::optional<T>* value, const std::string& help) {
  impl_->app
      ->add_option_function<T>(
          "--" + name, [value](const T& parsed) { *value = parsed; }, help)
      ->group(group);
}

void CommandLine::Add(const std::string& group, const std::string& name,
                      std::optional<uint32_t>* value, const std::string& help) {
  AddOptional(group, name, value, help);
}
void CommandLine::Add(const std::string& group, const std::string& name,
                      std::optional<uint64_t>* value, const std::string& help) {
  AddOptional(group, name, value, help);
}
void CommandLine::Add(const std::string& group, const std::string& name,
                      std::optional<double>* value, const std::string& help) {
  AddOptional(group, name, value, help);
}
void CommandLine::Add(const std::string& group, const std::string& name,
                      std::optional<std::string>* value, const std::string& help) {
  AddOptional(group, name, value, help);
}

void CommandLine::AddChoice(const std::string& group, const std::string& name, std::string* value,
                            const std::vector<std::string>& choices, const std::string& help) {
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "" : "|") + choice;
  impl_->app->add_option("--" + name, *value, help)
      ->group(group)
      ->type_name(list)
      ->capture_default_str()
      ->check([choices, list, name](const std::string& text) -> std::string {
        if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
        return "--" + name + ": '" + text + "' is none of " + list;
      });
}

void CommandLine::AddPositional(const std::string& name, std::vector<std::string>* value,
                                const std::string& help) {
  impl_->app->add_option(name, *value, help);
}

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  CLI::App& app = *impl_->app;
  const bool has_commands = !app.get_subcommands({}).empty();
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
    if (!has_commands || !app.get_subcommands().empty()) return std::nullopt;
    std::cerr << app.get_name() << ": a command is needed: " << SubcommandList(app)
              << ". See --help.\n";
  } catch (const CLI::ExtrasError&) {
    const CLI::App& inner = Innermost(app);
    const std::vector<std::string> extras = app.remaining(true);
    std::cerr << app.get_name() << ": "
              << UnknownArgument(inner, extras.empty() ? std::string() : extras.front())
              << " (--help lists all)\n";
  } catch (const CLI::ConfigError& error) {
    std::cerr << app.get_name() << ": configuration file: " << ConfigProblem(app, error.what())
              << "\n";
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    std::cerr << app.get_name() << ": " << error.what() << ". See --help.\n";
  }
  return 2;
}

std::string CommandLine::ConfigProblem(const CLI::App& app, const std::string& what) {
  // CLI11 says "INI was not able to parse NAME".
  const size_t space = what.find_last_of(' ');
  const std::string name = space == std::string::npos ? what : what.substr(space + 1);
  std::string text = "unknown name '" + name + "'";
  const std::string near = Nearest(name, OptionNames(app));
  if (!near.empty()) text += "; did you mean '" + near + "'?";
  return text;
}

}  // namespace baton::config
