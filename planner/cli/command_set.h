// The command line of `penstock`: commands, their help, how they end.
//
// A command is one file with one function that adds it (commands.h) and one line in main.cc:
//
//   void AddJobsCommand(CommandSet& commands) {
//     auto flags = std::make_shared<JobsFlags>();
//     CLI::App* command = commands.Add({.name = "jobs", .purpose = "Lists the jobs of a planner",
//                                       .examples = "penstock jobs --planner localhost:7070"});
//     command->add_option("--planner", flags->planner, "Address of the planner")->required();
//     commands.OnRun(command, [flags] { return RunJobs(*flags); });
//   }
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace penstock::cli {

// The habits of the field (DESIGN section 9).
enum ExitCode : int { kSuccess = 0, kWorkFailed = 1, kWrongRequest = 2 };

// INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, OUT_OF_RANGE and UNIMPLEMENTED say that the request is wrong,
// every other error that the work failed.
ExitCode ExitCodeOf(const absl::Status& status);

struct CommandText {
  std::string name = {};
  // One line.
  std::string purpose = {};
  // Shown below --help, one command line each.
  std::string examples = {};
};

class CommandSet {
 public:
  CommandSet();
  ~CommandSet();

  // Adds a command; with a parent ("dataset") a command of that command.
  CLI::App* Add(const CommandText& text, CLI::App* parent = nullptr);

  // What the command does. Called once, after its flags were read. An error is printed on stderr with the
  // command's name.
  void OnRun(CLI::App* command, std::function<absl::Status()> run);

  // Reads the command line, runs the command and returns the exit code. --help and --version end with 0.
  int Run(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
  // The command that was named; its flags are read when Run calls this.
  const CLI::App* selected_ = nullptr;
  std::function<absl::Status()> run_;
};

}  // namespace penstock::cli
