#include "planner/cli/recorded_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"

namespace penstock::cli {

FlagValues GivenFlags(const CLI::App& command) {
  FlagValues given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) given[option->get_name()] = option->results();
  }
  return given;
}

absl::Status GiveFlags(const FlagValues& values, CLI::App& command) {
  for (const auto& [name, results] : values) {
    CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr) return absl::InvalidArgumentError(absl::StrCat("there is no flag ", name));
    if (option->count() > 0) continue;
    // CLI11 reports by exceptions; they end here.
    try {
      option->add_result(results);
      option->run_callback();
    } catch (const CLI::Error& error) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", error.what()));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock::cli
