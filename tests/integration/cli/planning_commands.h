// `penstock plan`, `compare` and `verify` as a user runs them, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/integration/cli/penstock_process.h"

namespace penstock {

using Json = nlohmann::json;

inline Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << text;
  return json;
}

class PlanningCommands : public testing::Test {
 protected:
  Ended Plan(const std::vector<std::string>& more) {
    return penstock_.Run(penstock_.PlanningCommand("plan", more));
  }
  Ended Compare(const std::vector<std::string>& more) {
    return penstock_.Run(penstock_.PlanningCommand("compare", more));
  }
  std::string Path(const std::string& name) { return penstock_.folder().Path(name); }

  // Exit code 2, nothing on stdout, and an error that names what is wrong and where help is.
  void ExpectWrongRequest(const Ended& ended, const std::string& message) {
    EXPECT_EQ(ended.code, 2) << ended.errors;
    EXPECT_THAT(ended.output, testing::IsEmpty());
    EXPECT_THAT(ended.errors, testing::AllOf(testing::HasSubstr(message), testing::HasSubstr("--help")));
  }

  Penstock penstock_;
};

// Of a row of `plan --json` and `compare --json`.
inline constexpr const char* kRowFields[] = {"policy",
                                             "expert_rows",
                                             "batch",
                                             "samples",
                                             "micro_batches",
                                             "planning_ms",
                                             "makespan_ms",
                                             "last_backward_ms",
                                             "gap",
                                             "padding_efficiency",
                                             "bubble",
                                             "bubble_by_cause",
                                             "peak_memory_mb",
                                             "spans",
                                             "schedule",
                                             "layers_per_stage",
                                             "strategy",
                                             "mesh",
                                             "share_weights",
                                             "lower_bound_ms",
                                             "feasible",
                                             "reason"};

}  // namespace penstock
