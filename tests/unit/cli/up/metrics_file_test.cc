#include "planner/cli/up/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;

class MetricsFileTest : public ::testing::Test {
 protected:
  void Write(uint64_t first_iteration, const std::vector<uint64_t>& iterations, double loss) {
    auto file = MetricsFile::Open(path_, first_iteration);
    ASSERT_TRUE(file.ok()) << file.status();
    for (const uint64_t number : iterations) {
      v1::IterationSummary iteration;
      iteration.set_iteration(number);
      iteration.set_loss(loss);
      ASSERT_TRUE(file->Add(iteration).ok());
    }
  }
  std::vector<Json> Lines() const {
    std::vector<Json> lines;
    for (const absl::string_view line : absl::StrSplit(*ReadFile(path_), '\n', absl::SkipEmpty()))
      lines.push_back(Json::parse(line));
    return lines;
  }
  std::vector<uint64_t> Iterations() const {
    std::vector<uint64_t> iterations;
    for (const Json& line : Lines()) iterations.push_back(line["iteration"]);
    return iterations;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.Path("metrics.jsonl");
};

TEST_F(MetricsFileTest, LossesKeepEveryBit) {
  const double loss = 0.1 + std::numeric_limits<double>::epsilon() / 8;
  Write(0, {0}, loss);
  EXPECT_EQ(Lines().front()["loss"].get<double>(), loss);
}

TEST_F(MetricsFileTest, LossesOfRoutersStandBesideTheLossWhereThereAreSome) {
  Write(0, {0}, 2.5);
  EXPECT_FALSE(Lines().front().contains("router_balance_loss"));
  EXPECT_FALSE(Lines().front().contains("dropped_expert_rows"));
  auto file = *MetricsFile::Open(path_, 0);
  v1::IterationSummary iteration;
  iteration.set_loss(2.5);
  iteration.set_router_balance_loss(0.01);
  iteration.set_router_z_loss(0.002);
  iteration.set_routed_expert_rows(80);
  iteration.set_dropped_expert_rows(20);
  ASSERT_TRUE(file.Add(iteration).ok());
  EXPECT_EQ(Lines().front()["loss"], 2.5);
  EXPECT_EQ(Lines().front()["router_balance_loss"], 0.01);
  EXPECT_EQ(Lines().front()["router_z_loss"], 0.002);
  EXPECT_EQ(Lines().front()["dropped_expert_rows"], 0.25);
}

TEST_F(MetricsFileTest, LoadsOfExpertsAreThoseOfTheWorstLayerAndTheMean) {
  Write(0, {0}, 2.5);
  EXPECT_FALSE(Lines().front().contains("fullest_experts"));
  auto file = *MetricsFile::Open(path_, 0);
  v1::IterationSummary iteration;
  for (const double fullest : {1.5, 3.0, 1.5}) {
    v1::ExpertLayerLoad* const load = iteration.add_expert_layers();
    load->set_layer(static_cast<uint32_t>(iteration.expert_layers_size()));
    load->set_fullest_expert(fullest);
  }
  ASSERT_TRUE(file.Add(iteration).ok());
  EXPECT_EQ(Lines().front()["fullest_experts"], Json({{"mean", 2}, {"worst", 3}, {"worst_layer", 2}}));
  EXPECT_FALSE(Lines().front().contains("fullest_expert_ranks")) << "no ranks divide them";
}

TEST_F(MetricsFileTest, PartsHaveNorms) {
  Write(0, {0}, 2.5);
  EXPECT_FALSE(Lines().front().contains("gradient_norms"));
  auto file = *MetricsFile::Open(path_, 0);
  v1::IterationSummary iteration;
  const std::vector<std::pair<v1::ModelPart, double>> norms = {{v1::MODEL_PART_EMBEDDING, 0.1},
                                                               {v1::MODEL_PART_FEED_FORWARD, 0.2}};
  for (const auto& [part, norm] : norms) {
    v1::PartNorm* const added = iteration.add_part_norms();
    added->set_part(part);
    added->set_norm(norm);
  }
  ASSERT_TRUE(file.Add(iteration).ok());
  EXPECT_EQ(Lines().front()["gradient_norms"].dump(), R"({"embedding":0.1,"feed_forward":0.2})");
}

TEST_F(MetricsFileTest, ARunThatGoesOnKeepsWhatItDoesNotDoAgain) {
  Write(0, {0, 1, 2, 3, 4}, 2.5);
  Write(3, {3, 4, 5}, 1.5);
  EXPECT_THAT(Iterations(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(Lines()[3]["loss"], 1.5);
  // Begun anew.
  Write(0, {0}, 3.5);
  EXPECT_THAT(Iterations(), ElementsAre(0));
}

TEST_F(MetricsFileTest, TasksHaveCountsAndTheirValidationALoss) {
  auto file = MetricsFile::Open(path_, 0);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Add({}, {{.task = "flan", .samples = 3, .tokens = 30, .loss_tokens = 20}}).ok());
  ASSERT_TRUE(
      file->AddValidation({.next_iteration = 8, .loss = 2.5, .tasks = {{.task = "flan", .loss = 2.25}}})
          .ok());
  ASSERT_TRUE(file->AddValidation({.next_iteration = 9, .loss = 2.5}).ok());
  EXPECT_EQ(Lines()[0]["tasks"]["flan"]["loss_tokens"], 20);
  EXPECT_EQ(Lines()[1].dump(), R"({"iteration":7,"validation_loss":2.5,"validation_tasks":{"flan":2.25}})");
  EXPECT_EQ(Lines()[2].dump(), R"({"iteration":8,"validation_loss":2.5})");
}

TEST_F(MetricsFileTest, WhatIsNoLineOfOursIsLeftOut) {
  ASSERT_TRUE(WriteFileAtomically(path_, "{\"iteration\":0}\n{\"iteration\":1,\"lo").ok());
  Write(5, {5}, 1);
  EXPECT_THAT(Iterations(), ElementsAre(0, 5));
}

TEST_F(MetricsFileTest, APathThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(std::string(MetricsFile::Open(folder_.Path("none/metrics.jsonl"), 0).status().message()),
              ::testing::HasSubstr("none/metrics.jsonl"));
}

}  // namespace
}  // namespace penstock::cli
