#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "planner/cli/advise/candidates.h"
#include "planner/cli/advise/report.h"
#include "planner/cli/advise/tournament.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

v1::ModelSpec ModelOf(uint32_t layers) {
  v1::ModelSpec model;
  model.set_layers(layers);
  return model;
}

std::set<std::pair<uint32_t, uint32_t>> MeshesOf(const std::vector<Candidate>& candidates) {
  std::set<std::pair<uint32_t, uint32_t>> meshes;
  for (const Candidate& candidate : candidates) meshes.emplace(candidate.pipeline, candidate.data);
  return meshes;
}

TEST(MakeCandidatesTest, TriesEveryMeshWithinLayersAndSamples) {
  const auto candidates = MakeCandidates(12, ModelOf(6), 5, {v1::POLICY_DYNAMIC});
  ASSERT_TRUE(candidates.ok());
  const std::set<std::pair<uint32_t, uint32_t>> expected = {{3, 4}, {4, 3}, {6, 2}};
  EXPECT_EQ(MeshesOf(*candidates), expected);
}

TEST(MakeCandidatesTest, LeavesOutWhatCannotDiffer) {
  const auto one = MakeCandidates(1, ModelOf(6), 5, {v1::POLICY_DYNAMIC});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->size(), 1u);
  const auto two = MakeCandidates(2, ModelOf(6), 5, {v1::POLICY_DYNAMIC, v1::POLICY_PACKED});
  ASSERT_TRUE(two.ok());
  // One stage: sharded or not. Two stages: split and schedule. Each for both policies.
  EXPECT_EQ(two->size(), 2u * (2 + 4));
}

TEST(MakeCandidatesTest, ANumberOfGpusThatNoMeshHasIsRefused) {
  const auto candidates = MakeCandidates(7, ModelOf(6), 5, {v1::POLICY_DYNAMIC});
  EXPECT_EQ(candidates.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(candidates.status().message()), HasSubstr("--gpus 7"));
}

std::vector<v1::Batch> Batches() {
  return {core::MakeBatch({{10, 20}, {500, 3}, {0, 40}, {7, 7}, {900, 100}, {30, 1}, {2, 60}, {64, 64}}),
          core::MakeBatch({{300, 20}, {50, 3}, {0, 400}, {70, 7}, {90, 100}, {30, 1}, {2, 60}, {64, 640}})};
}

class TournamentTest : public testing::Test {
 protected:
  TournamentResult Run(const TournamentOptions& options) {
    const auto candidates = MakeCandidates(4, job_.model(), 8, {v1::POLICY_DYNAMIC, v1::POLICY_PACKED});
    EXPECT_TRUE(candidates.ok());
    tried_ = candidates->size();
    const auto result = RunTournament(job_, *candidates, Batches(), options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : TournamentResult();
  }

  v1::JobSpec job_ = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  size_t tried_ = 0;
};

TEST_F(TournamentTest, TheFastestComeFirstAndAreTriedOnAllBatches) {
  const TournamentResult result = Run({.finalists = 3});
  ASSERT_EQ(result.finalists.size(), 3u);
  EXPECT_EQ(result.finalists.size() + result.dropped.size() + result.infeasible.size(), tried_);
  for (size_t i = 0; i < result.finalists.size(); ++i) {
    const Trial& trial = result.finalists[i];
    EXPECT_EQ(trial.batches, 2);
    EXPECT_EQ(trial.effort, v1::EFFORT_NORMAL);
    EXPECT_EQ(trial.real_tokens, 1808u + 1837u);
    EXPECT_GE(trial.makespan_ns, trial.lower_bound_ns);
    if (i > 0) {
      EXPECT_GE(result.finalists[i - 1].tokens_per_second(), trial.tokens_per_second());
    }
  }
}

TEST_F(TournamentTest, ManyThreadsGiveTheSameAnswer) {
  const TournamentResult one = Run({.finalists = 5, .threads = 1}),
                         seven = Run({.finalists = 5, .threads = 7});
  EXPECT_EQ(AdviceJson(one, 5, 2), AdviceJson(seven, 5, 2));
}

TEST_F(TournamentTest, ChoicesThatMakeNoDifferenceAreShownOnce) {
  // Memory is plenty: sharding changes nothing.
  const TournamentResult result = Run({.finalists = 50});
  for (const Trial& trial : result.finalists) EXPECT_FALSE(trial.candidate.shard_optimizer_state);
  int sharded = 0;
  for (const Trial& trial : result.dropped) {
    if (!trial.candidate.shard_optimizer_state) continue;
    ++sharded;
    EXPECT_EQ(trial.batches, 0);  // not even planned
  }
  EXPECT_GT(sharded, 0);
}

TEST_F(TournamentTest, WhatDoesNotFitIsListedWithItsReason) {
  // Weights of 120 MB need 480 MB with their state on one rank, 300 MB when it is sharded.
  job_.mutable_planning()->set_memory_limit_bytes(400'000'000);
  for (v1::LayerCost& layer : *job_.mutable_profile()->mutable_layers()) {
    layer.set_parameter_bytes(layer.parameter_bytes() * 10'000);
  }
  job_.mutable_profile()->set_embedding_parameter_bytes(2000 * 10'000);
  const TournamentResult result = Run({.finalists = 4});
  ASSERT_FALSE(result.infeasible.empty());
  for (const Trial& trial : result.infeasible) {
    EXPECT_EQ(trial.candidate.pipeline, 1u);
    EXPECT_FALSE(trial.candidate.shard_optimizer_state);
    EXPECT_THAT(trial.reason, AllOf(HasSubstr("--pp: weights, gradients"), Not(HasSubstr("fits:"))));
  }
  const std::string text = AdviceText(result, 4, 2);
  EXPECT_THAT(text, HasSubstr("\nDo not fit:\n  pp 1, dp 4, not sharded: --pp: weights"));
}

TEST_F(TournamentTest, TheReportHasALineForEachOfTheTopAndTheCommandForTheFirst) {
  const TournamentResult result = Run({.finalists = 5});
  const std::string text = AdviceText(result, 3, 2);
  EXPECT_THAT(text, AllOf(HasSubstr("tokens/s"), HasSubstr("Means over 2 batches"),
                          HasSubstr("penstock plan " + FlagsOf(result.finalists.front().candidate))));
  const auto json = AdviceJson(result, 3, 2);
  ASSERT_EQ(json["advice"].size(), 3u);
  for (const char* field :
       {"pp", "dp", "policy", "schedule", "stage_split", "shard_optimizer_state", "schedule_taken",
        "layers_per_stage", "recompute_share", "makespan_ms", "tokens_per_second",
        "tokens_per_second_per_gpu", "gap", "padding_efficiency", "peak_memory_mb", "flags"}) {
    EXPECT_TRUE(json["advice"][0].contains(field)) << field;
  }
}

TEST_F(TournamentTest, ProgressCountsEveryRoundToItsEnd) {
  std::vector<std::pair<size_t, size_t>> last(4);
  Run({.finalists = 2, .threads = 3, .progress = [&](int round, size_t done, size_t all) {
         EXPECT_LE(done, all);
         last[static_cast<size_t>(round)] = {done, all};
       }});
  EXPECT_GT(last[1].first, 0u);
  for (int round = 1; round <= 3; ++round) EXPECT_EQ(last[round].first, last[round].second);
}

}  // namespace
}  // namespace penstock::cli
