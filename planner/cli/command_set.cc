#include "planner/cli/command_set.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/version/version.h"
#include "planner/cli/printable_text.h"

namespace penstock::cli {
namespace {

// "penstock dataset import".
std::string FullName(const CLI::App* command) {
  const CLI::App* parent = command->get_parent();
  return parent == nullptr ? command->get_name() : absl::StrCat(FullName(parent), " ", command->get_name());
}

// The command that the words of the command line got to, for the hint below an error.
const CLI::App* Deepest(const CLI::App& app) {
  const auto named = app.get_subcommands();
  return named.empty() ? &app : Deepest(*named.back());
}

// CLI11 says only that a command is missing when the word given is none.
std::string DescribeError(const CLI::App& command, const std::string& message) {
  const std::vector<std::string> unknown = command.remaining();
  const bool takes_commands = !command.get_subcommands(nullptr).empty();
  if (!takes_commands || unknown.empty()) return message;
  return absl::StrCat("there is no command or flag '", unknown.front(), "'");
}

int PrintError(const CLI::App& command, absl::string_view message, ExitCode code) {
  std::cerr << FullName(&command) << ": " << PrintableText(message) << "\n";
  if (code == kWrongRequest) std::cerr << "`" << FullName(&command) << " --help` shows what it takes.\n";
  return code;
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kSuccess;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kWrongRequest;
    default:
      return kWorkFailed;
  }
}

CommandSet::CommandSet()
    : app_(std::make_unique<CLI::App>(
          "Plans and runs the training of large Transformers on samples of very different lengths.",
          "penstock")) {
  app_->require_subcommand(1);
  app_->set_version_flag("--version", VersionOf("penstock"));
  app_->footer("Exit status: 0 done, 1 the work failed, 2 the request is wrong.");
}

CommandSet::~CommandSet() = default;

CLI::App* CommandSet::Add(const CommandText& text, CLI::App* parent) {
  CLI::App* command = (parent == nullptr ? app_.get() : parent)->add_subcommand(text.name, text.purpose);
  if (!text.examples.empty())
    command->footer(absl::StrCat("Examples:\n  ", absl::StrReplaceAll(text.examples, {{"\n", "\n  "}})));
  return command;
}

void CommandSet::OnRun(CLI::App* command, std::function<absl::Status()> run) {
  command->callback([this, command, run = std::move(run)] {
    selected_ = command;
    run_ = run;
  });
}

// The one place that meets CLI11's exceptions.
int CommandSet::Run(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& help) {
    app_->exit(help);
    return kSuccess;
  } catch (const CLI::ParseError& error) {
    return PrintError(*Deepest(*app_), DescribeError(*Deepest(*app_), error.what()), kWrongRequest);
  }
  const absl::Status status = run_();
  if (status.ok()) return kSuccess;
  return PrintError(*selected_, std::string(status.message()), ExitCodeOf(status));
}

}  // namespace penstock::cli
