// SPDX-License-Identifier: Apache-2.0
// Flags and configuration files of every binary, over CLI11.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace baton::config {

// A binary's flags, in named groups. `--config FILE` reads the same names from
// a file ("name = value" lines, [command] sections for subcommands); flags on
// the command line win. Unknown names are refused with the nearest known one.
//
//   CommandLine line("baton-router", "Front door of a Baton cluster.");
//   line.Add("Network", "listen", &options.listen, "Address of the gRPC API");
//   if (std::optional<int> code = line.Parse(argc, argv)) return *code;
class CommandLine final {
 public:
  CommandLine(std::string program, std::string summary);
  ~CommandLine();

  // A subcommand ("generate"); at most one is chosen.
  CommandLine* Command(const std::string& name, const std::string& summary);
  // True when this subcommand was chosen.
  bool chosen() const;

  // `name` without dashes and with dashes inside: "max-tokens". The value
  // before Parse is the default that --help shows.
  void Add(const std::string& group, const std::string& name, std::string* value,
           const std::string& help);
  void Add(const std::string& group, const std::string& name, uint32_t* value,
           const std::string& help);
  void Add(const std::string& group, const std::string& name, int32_t* value,
           const std::string& help);
  void Add(const std::string& group, const std::string& name, uint64_t* value,
           const std::string& help);
  void Add(const std::string& group, const std::string& name, double* value,
           const std::string& help);
  // A switch: --name turns it on, --no-name off.
  void Add(const std::string& group, const std::string& name, bool* value, const std::string& help);
  // "500ms", "2s", "1m".
  void Add(const std::string& group, const std::string& name, absl::Duration* value,
           const std::string& help);
  // May be given several times; a comma does not split.
  void Add(const std::string& group, const std::string& name, std::vector<std::string>* value,
           const std::string& help);
  // Optional values keep nullopt unless given.
  void Add(const std::string& group, const std::string& name, std::optional<uint32_t>* value,
           const std::string& help);
  void Add(const std::string& group, const std::string& name, std::optional<uint64_t>* value,
           const std::string& help);
  void Add(const std::string& group, const std::string& name, std::optional<double>* value,
           const std::string& help);
  void Add(const std::string& group, const std::string& name, std::optional<std::string>* value,
           const std::string& help);
  // One of `choices`.
  void AddChoice(const std::string& group, const std::string& name, std::string* value,
                 const std::vector<std::string>& choices, const std::string& help);
  // Arguments without a name, all of the rest.
  void AddPositional(const std::string& name, std::vector<std::string>* value,
                     const std::string& help);

  // Handles --help and --version. Returns the process's exit code when it
  // should end now (0, or 2 with a sentence on standard error).
  std::optional<int> Parse(int argc, char** argv);

 private:
  struct Impl;
  explicit CommandLine(CLI::App* app);
  template <typename T>
  void AddValue(const std::string& group, const std::string& name, T* value,
                const std::string& help);
  template <typename T>
  void AddOptional(const std::string& group, const std::string& name, std::optional<T>* value,
                   const std::string& help);
  static std::string ConfigProblem(const CLI::App& app, const std::string& what);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::config
