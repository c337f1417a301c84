#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "common/parallel/task_pool.h"
#include "planner/cli/advise/candidates.h"
#include "planner/cli/advise/promising.h"
#include "planner/cli/advise/report.h"
#include "planner/cli/advise/tournament.h"
#include "planner/cli/local_planning.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Its profile knows no tensor degree.
v1::JobSpec JobOf(uint32_t layers) {
  v1::JobSpec job;
  job.mutable_model()->set_layers(layers);
  job.mutable_model()->set_heads(4);
  job.mutable_model()->set_ffn(16);
  job.mutable_profile()->add_layers()->mutable_forward();
  return job;
}

// Pipeline, data and context.
using Degrees = std::tuple<uint32_t, uint32_t, uint32_t>;

std::set<Degrees> MeshesOf(const std::vector<Candidate>& candidates) {
  std::set<Degrees> meshes;
  for (const Candidate& candidate : candidates) {
    meshes.emplace(candidate.pipeline, candidate.data, candidate.context);
  }
  return meshes;
}

TEST(MakeCandidatesTest, TriesEveryMeshWithinLayersAndSamples) {
  const auto candidates = MakeCandidates(JobOf(6), 12, 5, {v1::POLICY_DYNAMIC});
  ASSERT_TRUE(candidates.ok());
  const std::set<Degrees> expected = {{3, 4, 1}, {4, 3, 1}, {6, 2, 1}, {2, 3, 2},
                                      {3, 2, 2}, {6, 1, 2}, {1, 3, 4}, {3, 1, 4}};
  EXPECT_EQ(MeshesOf(*candidates), expected);
}

TEST(MakeCandidatesTest, LeavesOutWhatCannotDiffer) {
  const auto one = MakeCandidates(JobOf(6), 1, 5, {v1::POLICY_DYNAMIC});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->size(), 1u);
  const auto two = MakeCandidates(JobOf(6), 2, 5, {v1::POLICY_DYNAMIC, v1::POLICY_PACKED});
  ASSERT_TRUE(two.ok());
  // One stage with two replicas, or two context ranks: sharded or not. Two stages: split and schedule. Each
  // for both policies.
  EXPECT_EQ(two->size(), 2u * (2 + 2 + 4));
}

TEST(MakeCandidatesTest, TakesTensorDegreesThatProfileAndHeadsAllow) {
  v1::JobSpec job = JobOf(4);
  for (const uint32_t degree : {2, 4, 8}) {
    v1::TensorCost& cost = *job.mutable_profile()->mutable_layers(0)->add_tensor();
    cost.set_degree(degree);
    cost.set_efficiency(1);
  }
  const auto candidates = MakeCandidates(job, 8, 8, {v1::POLICY_DYNAMIC});
  ASSERT_TRUE(candidates.ok());
  std::set<uint32_t> degrees;
  for (const Candidate& candidate : *candidates) degrees.insert(candidate.tensor);
  EXPECT_EQ(degrees, (std::set<uint32_t>{1, 2, 4}));
}

TEST(MakeCandidatesTest, SearchesNothingThatIsGiven) {
  const Given given = {.stage_split = v1::STAGE_SPLIT_EVEN,
                       .schedule = v1::SCHEDULE_READY_FIRST,
                       .shard_optimizer_state = true};
  const auto candidates = MakeCandidates(JobOf(6), 4, 8, {v1::POLICY_DYNAMIC}, given);
  ASSERT_TRUE(candidates.ok());
  for (const Candidate& candidate : *candidates) {
    EXPECT_EQ(candidate.stage_split, v1::STAGE_SPLIT_EVEN);
    EXPECT_EQ(candidate.schedule, v1::SCHEDULE_READY_FIRST);
    EXPECT_EQ(candidate.shard_optimizer_state, candidate.data * candidate.context > 1);
  }
}

TEST(MakeCandidatesTest, DegreesThatAreGivenAreNotSearched) {
  const auto divided = MakeCandidates(JobOf(6), 8, 8, {v1::POLICY_DYNAMIC}, {.context = 4});
  ASSERT_TRUE(divided.ok());
  EXPECT_EQ(MeshesOf(*divided), (std::set<Degrees>{{1, 2, 4}, {2, 1, 4}}));
  const auto staged = MakeCandidates(JobOf(6), 8, 8, {v1::POLICY_DYNAMIC}, {.pipeline = 2, .data = 2});
  ASSERT_TRUE(staged.ok());
  EXPECT_EQ(MeshesOf(*staged), (std::set<Degrees>{{2, 2, 2}}));
}

TEST(MakeCandidatesTest, GivenDegreesThatCannotBeAreRefusedByName) {
  const auto refused = [](const Given& given) {
    return std::string(MakeCandidates(JobOf(6), 8, 8, {v1::POLICY_DYNAMIC}, given).status().message());
  };
  EXPECT_THAT(refused({.tensor = 3}), HasSubstr("job.mesh.tensor: 3 tensor ranks"));
  EXPECT_THAT(refused({.context = 6}), HasSubstr("job.mesh.context: 6 is no power of two"));
  EXPECT_THAT(refused({.pipeline = 3, .context = 2}), HasSubstr("--gpus 8 with --pp 3 --cp 2: "));
}

TEST(MakeCandidatesTest, ANumberOfGpusThatNoMeshHasIsRefused) {
  const auto candidates = MakeCandidates(JobOf(6), 7, 5, {v1::POLICY_DYNAMIC});
  EXPECT_EQ(candidates.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(candidates.status().message()), HasSubstr("--gpus 7"));
}

std::vector<v1::Batch> Batches() {
  return {core::MakeBatch({{10, 20}, {500, 3}, {0, 40}, {7, 7}, {900, 100}, {30, 1}, {2, 60}, {64, 64}}),
          core::MakeBatch({{300, 20}, {50, 3}, {0, 400}, {70, 7}, {90, 100}, {30, 1}, {2, 60}, {64, 640}})};
}

// One sample as long as all the others together.
v1::Batch LongSampleBatch() {
  std::vector<std::pair<uint32_t, uint32_t>> lengths = {{0, 2048}};
  for (uint32_t i = 0; i < 31; ++i) lengths.emplace_back(0, 33 + i * 2);
  return core::MakeBatch(lengths);
}

TEST(FindPromisingTest, KeepsTheMeshOfTheFastestWayAndLeavesMostOut) {
  const v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  const v1::Batch batch = LongSampleBatch();
  const auto candidates = MakeCandidates(job, 16, 32, {v1::POLICY_DYNAMIC});
  ASSERT_TRUE(candidates.ok());
  TaskPool pool(1);
  const auto promising = FindPromising(job, *candidates, batch, &pool);
  ASSERT_TRUE(promising.ok()) << promising.status();
  EXPECT_EQ(promising->kept.size() + promising->left_out.size(), candidates->size());
  EXPECT_GT(promising->left_out.size(), candidates->size() / 2);
  const auto fastest = [&](const std::vector<Candidate>& ways) {
    int64_t best = std::numeric_limits<int64_t>::max();
    for (const Candidate& way : ways) {
      const auto planner =
          core::Planner::Create(MakeJob(job, way, v1::EFFORT_FAST), core::Planner::Explain::kCauseAlone);
      EXPECT_TRUE(planner.ok()) << planner.status();
      const absl::StatusOr<v1::Plan> plan = PlanAndCheck(**planner, batch);
      EXPECT_TRUE(plan.ok()) << plan.status();
      best = std::min(best, plan->predicted().makespan_ns());
    }
    return best;
  };
  EXPECT_LT(fastest(promising->kept), fastest(promising->left_out));
}

TEST(RunTournamentTest, WaysOfEveryMeshOfManyAreCounted) {
  const v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  const auto candidates = MakeCandidates(job, 16, 32, {v1::POLICY_DYNAMIC});
  ASSERT_TRUE(candidates.ok());
  const auto result =
      RunTournament(job, *candidates, {LongSampleBatch(), LongSampleBatch()}, {.finalists = 3});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->finalists.size(), 3u);
  EXPECT_EQ(result->finalists.size() + result->dropped.size() + result->infeasible.size(),
            candidates->size());
  for (const Trial& trial : result->finalists) {
    EXPECT_EQ(trial.batches, 2);
    EXPECT_EQ(trial.effort, v1::EFFORT_NORMAL);
    EXPECT_FALSE(trial.stages.has_value()) << "the last round chooses for each";
  }
}

class TournamentTest : public testing::Test {
 protected:
  TournamentResult Run(const TournamentOptions& options) {
    const auto candidates = MakeCandidates(job_, 4, 8, {v1::POLICY_DYNAMIC, v1::POLICY_PACKED});
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
