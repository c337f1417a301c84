// A flag that may be given several times; each value is read by `parse`, whose error is the flag's.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

template <typename Value>
CLI::Option* AddListFlag(CLI::App& app, const std::string& flag, std::vector<Value>& values,
                         absl::StatusOr<Value> (*parse)(const std::string&), const std::string& help) {
  return app
      .add_option_function<std::vector<std::string>>(
          flag,
          [&values, parse](const std::vector<std::string>& texts) {
            values.clear();
            for (const std::string& text : texts) values.push_back(*parse(text));
          },
          help)
      ->check([parse](const std::string& text) {
        const absl::StatusOr<Value> value = parse(text);
        return value.ok() ? std::string() : std::string(value.status().message());
      })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',');
}

}  // namespace penstock
