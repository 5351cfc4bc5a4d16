// SPDX-License-Identifier: Apache-2.0
#include "common/config/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace baton::config {
namespace {

struct Options {
  std::string listen = "127.0.0.1:8500";
  uint32_t max_queue = 100;
  double ratio = 0.5;
  bool reflection = true;
  absl::Duration drain = absl::Seconds(30);
  std::vector<std::string> router;
  std::optional<double> temperature;
  std::string path = "auto";
};

struct Outcome {
  std::optional<int> code;
  std::string out, err;
  Options options;
};

Outcome ParseArguments(std::vector<std::string> arguments) {
  Outcome outcome;
  CommandLine line("baton-test", "A test.");
  Options& options = outcome.options;
  line.Add("Network", "listen", &options.listen, "Address");
  line.Add("Limits", "max-queue", &options.max_queue, "Queue");
  line.Add("Limits", "ratio", &options.ratio, "Ratio");
  line.Add("Network", "reflection", &options.reflection, "Reflection");
  line.Add("Limits", "drain-timeout", &options.drain, "Drain");
  line.Add("Network", "router", &options.router, "Routers");
  line.Add("Sampling", "temperature", &options.temperature, "Temperature");
  line.AddChoice("Sampling", "path", &options.path, {"auto", "split", "local"}, "Path");
  arguments.insert(arguments.begin(), "baton-test");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  outcome.code = line.Parse(static_cast<int>(argv.size()), argv.data());
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(CommandLine, ReadsEveryKindOfValue) {
  const Outcome got =
      ParseArguments({"--listen=0.0.0.0:1", "--max-queue", "7", "--ratio", "0.25",
                      "--no-reflection", "--drain-timeout", "1m30s", "--router", "a:1", "--router",
                      "b:2,c:3", "--temperature", "0.8", "--path", "local"});
  ASSERT_FALSE(got.code.has_value()) << got.err;
  EXPECT_EQ(got.options.listen, "0.0.0.0:1");
  EXPECT_EQ(got.options.max_queue, 7u);
  EXPECT_EQ(got.options.ratio, 0.25);
  EXPECT_FALSE(got.options.reflection);
  EXPECT_EQ(got.options.drain, absl::Seconds(90));
  EXPECT_EQ(got.options.router, (std::vector<std::string>{"a:1", "b:2,c:3"}));
  EXPECT_EQ(got.options.temperature, 0.8);
  EXPECT_EQ(got.options.path, "local");
}

TEST(CommandLine, RefusesAnUnknownFlagWithASuggestion) {
  const Outcome got = ParseArguments({"--max-que", "7"});
  EXPECT_EQ(got.code, 2);
  EXPECT_NE(got.err.find("unknown flag --max-que; did you mean --max-queue?"), std::string::npos)
      << got.err;
}

TEST(CommandLine, NamesFlagAndValueOfABadValue) {
  EXPECT_NE(ParseArguments({"--max-queue", "many"}).err.find("max-queue"), std::string::npos);
  EXPECT_NE(ParseArguments({"--max-queue", "-3"}).err.find("max-queue"), std::string::npos);
  const Outcome duration = ParseArguments({"--drain-timeout", "soon"});
  EXPECT_EQ(duration.code, 2);
  EXPECT_NE(duration.err.find("'soon' is not a duration"), std::string::npos) << duration.err;
  const Outcome choice = ParseArguments({"--path", "remote"});
  EXPECT_EQ(choice.code, 2);
  EXPECT_NE(choice.err.find("'remote' is none of auto|split|local"), std::string::npos)
      << choice.err;
}

TEST(CommandLine, PrintsGroupedHelpWithDefaultsAndAVersion) {
  const Outcome help = ParseArguments({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Network:"), std::string::npos) << help.out;
  EXPECT_NE(help.out.find("127.0.0.1:8500"), std::string::npos);
  const Outcome version = ParseArguments({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_NE(version.out.find('.'), std::string::npos);
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_("/tmp/baton_config_test_" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(CommandLine, ReadsAFileWithTheSameNamesAndLetsFlagsWin) {
  const ConfigFile file("listen = \"10.0.0.1:9\"\nmax-queue = 5\nrouter = [\"x:1\", \"y:2\"]\n");
  const Outcome got = ParseArguments({"--config", file.path(), "--max-queue", "6"});
  ASSERT_FALSE(got.code.has_value()) << got.err;
  EXPECT_EQ(got.options.listen, "10.0.0.1:9");
  EXPECT_EQ(got.options.max_queue, 6u);
  EXPECT_EQ(got.options.router, (std::vector<std::string>{"x:1", "y:2"}));
}

TEST(CommandLine, RefusesAnUnknownNameInAFileWithASuggestion) {
  const ConfigFile file("max-quue = 5\n");
  const Outcome got = ParseArguments({"--config", file.path()});
  EXPECT_EQ(got.code, 2);
  EXPECT_NE(got.err.find("did you mean 'max-queue'?"), std::string::npos) << got.err;
}

TEST(CommandLine, SaysWhichFileIsMissing) {
  const Outcome got = ParseArguments({"--config", "/nonexistent/baton.conf"});
  EXPECT_EQ(got.code, 2);
  EXPECT_NE(got.err.find("/nonexistent/baton.conf"), std::string::npos) << got.err;
}

TEST(CommandLine, ChoosesOneCommandAndSuggestsNearOnes) {
  CommandLine line("baton", "Tool.");
  std::string prompt;
  CommandLine* generate = line.Command("generate", "Generate");
  generate->Add("Input", "prompt", &prompt, "Prompt");
  CommandLine* status = line.Command("status", "Status");
  std::vector<std::string> arguments = {"baton", "generate", "--prompt", "hi"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ASSERT_FALSE(line.Parse(4, argv.data()).has_value());
  EXPECT_TRUE(generate->chosen());
  EXPECT_FALSE(status->chosen());
  EXPECT_EQ(prompt, "hi");
}

TEST(CommandLine, RefusesAMistypedCommand) {
  CommandLine line("baton", "Tool.");
  line.Command("generate", "Generate");
  std::vector<std::string> arguments = {"baton", "genrate"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(line.Parse(2, argv.data()), 2);
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(err.find("did you mean 'generate'?"), std::string::npos) << err;
}

}  // namespace
}  // namespace baton::config
