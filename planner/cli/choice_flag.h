// Flags that take one of a few words.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace penstock::cli {

template <typename Enum>
using Names = std::map<std::string, Enum>;

// A flag that takes one of a few words; its help shows `help`, its errors list the words.
template <typename Enum>
CLI::Option* AddChoice(CLI::App& command, const std::string& flag, Enum& value, const Names<Enum>& names,
                       const std::string& help) {
  std::string words;
  for (const auto& [name, choice] : names) words += (words.empty() ? "" : "|") + name;
  return command
      .add_option_function<std::string>(
          flag, [&value, &names](const std::string& name) { value = names.at(name); }, help)
      ->check(CLI::IsMember(names, CLI::ignore_case))
      ->option_text(words);
}

}  // namespace penstock::cli
