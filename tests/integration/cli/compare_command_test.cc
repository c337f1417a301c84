// `penstock compare` as a user runs it, beside `plan`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/integration/cli/planning_commands.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(PlanningCommands, AnyNumberOfThreadsMakesTheSamePlan) {
  Json rows;
  for (const char* threads : {"1", "2", "7"}) {
    const Ended ended = Compare({"--pp", "2", "--policies", "dynamic", "--json", "--threads", threads});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    Json row = Parse(ended.output)[0];
    row.erase("planning_ms");
    rows.push_back(row);
  }
  EXPECT_EQ(rows[1], rows[0]);
  EXPECT_EQ(rows[2], rows[0]);
  ExpectWrongRequest(Plan({"--threads", "0"}), "--threads");
}

TEST_F(PlanningCommands, CompareShowsWhatRanksWaitForInTheirGroups) {
  const Ended ended = Compare({"--cp", "2", "--effort", "fast"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("of it in groups"));
  EXPECT_THAT(Compare({"--effort", "fast"}).output, testing::Not(HasSubstr("of it in groups")));
}

TEST_F(PlanningCommands, PlanAndCompareDivideTheLayersAlike) {
  // Their lengths are unlike those that are assumed where none are handed over.
  const std::string examples = PENSTOCK_EXAMPLES;
  const std::vector<std::string> request = {"--profile", examples + "/gpt_7b.json",
                                            "--lengths", examples + "/lengths.csv",
                                            "--rows",    "0:16",
                                            "--pp",      "4",
                                            "--effort",  "fast",
                                            "--json"};
  std::vector<std::string> compare = {"compare", "--policies", "dynamic"};
  std::vector<std::string> plan = {"plan"};
  compare.insert(compare.end(), request.begin(), request.end());
  plan.insert(plan.end(), request.begin(), request.end());
  const Ended compared = penstock_.Run(compare);
  const Ended planned = penstock_.Run(plan);
  ASSERT_EQ(compared.code + planned.code, 0) << compared.errors << planned.errors;
  Json rows[] = {Parse(compared.output)[0], Parse(planned.output)};
  for (Json& row : rows) row.erase("planning_ms");
  EXPECT_EQ(rows[0], rows[1]);
}

TEST_F(PlanningCommands, CompareShowsMeansOfEachPolicy) {
  const Ended ended = Compare({"--pp", "2", "--policies", "padding,packed,dynamic", "--batches", "4"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("padding"), HasSubstr("packed"), HasSubstr("dynamic"), HasSubstr("4/4")));
}

TEST_F(PlanningCommands, ComparePrintsARowForEachPolicyAndBatch) {
  const Ended ended = Compare({"--policies", "padding,dynamic", "--batches", "2", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  const Json rows = Parse(ended.output);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["policy"], "padding");
  EXPECT_EQ(rows[1]["batch"], 1);
  EXPECT_EQ(rows[2]["policy"], "dynamic");
  for (const Json& row : rows)
    for (const char* field : kRowFields) EXPECT_TRUE(row.contains(field)) << field;
}

TEST_F(PlanningCommands, ComparePlansEveryPolicyThatThereIs) {
  const Ended ended =
      Compare({"--policies", "padding,concatenated,packed,token_budget,dynamic", "--batches", "1", "--json"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  const Json rows = Parse(ended.output);
  ASSERT_EQ(rows.size(), 5);
  for (const Json& row : rows) EXPECT_EQ(row["feasible"], true) << row;
  EXPECT_EQ(rows[1]["policy"], "concatenated");
  EXPECT_LT(rows[1]["padding_efficiency"], 1.0);
}

TEST_F(PlanningCommands, CompareSaysWhyABatchHasNoPlan) {
  const Ended ended =
      Compare({"--policies", "dynamic", "--recompute", "none", "--memory-mb", "4.5", "--json"});
  EXPECT_EQ(ended.code, 1) << ended.output;
  const Json rows = Parse(ended.output);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["feasible"], false);
  EXPECT_TRUE(rows[0]["makespan_ms"].is_null());
  EXPECT_FALSE(rows[0]["reason"].get<std::string>().empty());
}

}  // namespace
}  // namespace penstock
