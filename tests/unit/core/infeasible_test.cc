// What a job that does not fit is told: the cause, and changes that are exact. Each change that a message
// names is applied, and then one step less of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <regex>
#include <string>

#include "planner/core/feasibility/smallest_changes.h"
#include "planner/core/planner.h"
#include "tests/support/sanitizers.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMegabyte = 1'000'000;

// Bytes as large as those of real models, so that a step of memory is small.
v1::JobSpec Scaled(v1::JobSpec job, int64_t limit_mb) {
  constexpr double kScale = 10'000;
  job.mutable_model()->set_hidden(1024);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    layer.set_parameter_bytes(layer.parameter_bytes() * kScale);
    for (v1::LayerBytes* bytes :
         {layer.mutable_stored_none(), layer.mutable_stored_full(), layer.mutable_peak()}) {
      bytes->set_source_token_bytes(bytes->source_token_bytes() * kScale);
      bytes->set_target_token_bytes(bytes->target_token_bytes() * kScale);
    }
  }
  job.mutable_profile()->set_embedding_parameter_bytes(2000 * kScale);
  job.mutable_planning()->set_memory_limit_bytes(limit_mb * kMegabyte);
  return job;
}

// The error, of the job or of the batch; OK when it plans.
absl::Status Try(const v1::JobSpec& job, const v1::Batch& batch) {
  const auto planner = Planner::Create(job);
  if (!planner.ok()) return planner.status();
  return batch.samples().empty() ? absl::OkStatus() : (*planner)->MakePlan(batch).status();
}

std::string ErrorOf(const v1::JobSpec& job, const v1::Batch& batch) {
  return std::string(Try(job, batch).message());
}

// The number behind a field of the message.
std::optional<int64_t> NumberAfter(const std::string& message, const std::string& field) {
  std::smatch match;
  if (!std::regex_search(message, match, std::regex(field + " ([0-9]+)"))) return std::nullopt;
  return std::stoll(match[1]);
}

// Applies every change that the message names: it must help, and one step less must not. Returns how many
// changes there were.
int ExpectExactChanges(const v1::JobSpec& job, const v1::Batch& batch) {
  const std::string whole = ErrorOf(job, batch);
  const size_t changes_begin = whole.find("fits: ");
  EXPECT_NE(changes_begin, std::string::npos) << whole;
  if (changes_begin == std::string::npos) return 0;
  const std::string message = whole.substr(changes_begin);
  int changes = 0;
  const auto expect = [&](const char* name, auto change, int64_t value, int64_t less) {
    ++changes;
    for (const int64_t tried : {value, less}) {
      v1::JobSpec changed = job;
      v1::Batch cut = batch;
      change(tried, &changed, &cut);
      const absl::Status status = Try(changed, cut);
      EXPECT_EQ(status.ok(), tried == value) << name << " " << tried << ": " << status << "\n" << whole;
    }
  };
  if (const auto pipeline = NumberAfter(message, "job.mesh.pipeline")) {
    const auto change = [](int64_t value, v1::JobSpec* changed, v1::Batch*) {
      changed->mutable_planning()->clear_layers_per_stage();
      changed->mutable_mesh()->set_pipeline(static_cast<uint32_t>(value));
    };
    // The pipeline that is there may have another split.
    if (*pipeline - 1 > job.mesh().pipeline()) {
      expect("pipeline", change, *pipeline, *pipeline - 1);
    } else {
      v1::JobSpec changed = job;
      change(*pipeline, &changed, nullptr);
      EXPECT_TRUE(Try(changed, batch).ok()) << whole;
      ++changes;
    }
  }
  if (const auto tensor = NumberAfter(message, "job.mesh.tensor")) {
    const auto change = [](int64_t value, v1::JobSpec* changed, v1::Batch*) {
      changed->mutable_mesh()->set_tensor(static_cast<uint32_t>(value));
    };
    expect("tensor", change, *tensor, *tensor / 2);
  }
  if (const auto context = NumberAfter(message, "job.mesh.context")) {
    const auto change = [](int64_t value, v1::JobSpec* changed, v1::Batch*) {
      changed->mutable_mesh()->set_context(static_cast<uint32_t>(value));
    };
    expect("context", change, *context, *context / 2);
  }
  if (const auto length = NumberAfter(message, "a maximum length of")) {
    const auto change = [](int64_t value, v1::JobSpec* changed, v1::Batch* cut) {
      CutToLength(static_cast<uint32_t>(value), changed, cut);
    };
    expect("length", change, *length, *length + 1);
  }
  if (const auto bytes = NumberAfter(message, "job.planning.memory_limit_bytes")) {
    const auto change = [](int64_t value, v1::JobSpec* changed, v1::Batch*) {
      changed->mutable_planning()->set_memory_limit_bytes(value);
    };
    expect("memory", change, *bytes, *bytes - kMegabyte);
  }
  if (const auto size = NumberAfter(message, "job.planning.micro_batch_size")) {
    const auto change = [](int64_t value, v1::JobSpec* changed, v1::Batch*) {
      changed->mutable_planning()->set_micro_batch_size(static_cast<uint32_t>(value));
    };
    expect("micro-batch size", change, *size, *size + 1);
  }
  if (const auto cap = NumberAfter(message, "job.planning.token_cap")) {
    const auto change = [](int64_t value, v1::JobSpec* changed, v1::Batch*) {
      changed->mutable_planning()->set_token_cap(static_cast<uint32_t>(value));
    };
    expect("token cap", change, *cap, *cap + 1);
  }
  const auto expect_helps = [&](const char* field, auto change) {
    if (message.find(field) == std::string::npos) return;
    ++changes;
    v1::JobSpec changed = job;
    change(changed.mutable_planning());
    EXPECT_TRUE(Try(changed, batch).ok()) << whole;
  };
  expect_helps("job.planning.recompute full",
               [](v1::PlanningOptions* planning) { planning->set_recompute(v1::RECOMPUTE_FULL); });
  expect_helps("job.planning.shard_optimizer_state",
               [](v1::PlanningOptions* planning) { planning->set_shard_optimizer_state(true); });
  return changes;
}

v1::Batch ShortAndLong(uint32_t longest) {
  return MakeBatch({{10, 10}, {30, 50}, {longest / 2, longest - longest / 2}, {100, 7}});
}

TEST(InfeasibleTest, ASampleThatIsTooLargeIsNamedWithStageBytesAndChanges) {
  const v1::JobSpec job = Scaled(GptJob(2, 2, v1::POLICY_DYNAMIC), 1000);
  const std::string message = ErrorOf(job, ShortAndLong(1000));
  EXPECT_THAT(message,
              AllOf(HasSubstr("batch.samples[2]: 1000 tokens do not fit on stage 0: needs "),
                    HasSubstr(" bytes, limit 1000000000"), HasSubstr("job.mesh.pipeline 4"),
                    HasSubstr("a maximum length of "), HasSubstr("job.planning.memory_limit_bytes ")));
  EXPECT_THAT(message, Not(HasSubstr("recompute full")));  // auto has tried it
  EXPECT_GE(ExpectExactChanges(job, ShortAndLong(1000)), 3);
}

TEST(InfeasibleTest, ShardingIsNamedWhereItIsEnough) {
  const v1::JobSpec job = Scaled(GptJob(2, 4, v1::POLICY_DYNAMIC), 1000);
  EXPECT_THAT(ErrorOf(job, ShortAndLong(880)), HasSubstr("job.planning.shard_optimizer_state"));
  EXPECT_GE(ExpectExactChanges(job, ShortAndLong(880)), 4);
  const v1::JobSpec alone = Scaled(GptJob(2, 1, v1::POLICY_DYNAMIC), 1000);
  EXPECT_THAT(ErrorOf(alone, ShortAndLong(1000)), Not(HasSubstr("shard_optimizer_state")));
}

v1::JobSpec WithTensorCosts(v1::JobSpec job) {
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    for (const uint32_t degree : {2, 4}) {
      v1::TensorCost& cost = *layer.add_tensor();
      cost.set_degree(degree);
      cost.set_efficiency(0.9);
    }
  }
  return job;
}

TEST(InfeasibleTest, LargerStageGroupsAreNamedForALongSample) {
  const v1::JobSpec job = WithTensorCosts(Scaled(GptJob(2, 1, v1::POLICY_DYNAMIC), 1000));
  EXPECT_THAT(ErrorOf(job, ShortAndLong(1600)),
              AllOf(HasSubstr("job.mesh.tensor 2"), HasSubstr("job.mesh.context 2")));
  EXPECT_GE(ExpectExactChanges(job, ShortAndLong(1600)), 4);
  // Nothing that the profile or the model does not allow.
  const v1::JobSpec unprofiled = Scaled(GptJob(2, 1, v1::POLICY_DYNAMIC), 1000);
  EXPECT_THAT(ErrorOf(unprofiled, ShortAndLong(1600)), Not(HasSubstr("job.mesh.tensor")));
  const v1::JobSpec t5 = Scaled(T5Job(2, 1, v1::POLICY_DYNAMIC), 800);
  EXPECT_THAT(ErrorOf(t5, MakeBatch({{1500, 900}})), Not(HasSubstr("job.mesh.context")));
}

TEST(InfeasibleTest, ShardingIsNamedForContextRanksOfOneReplica) {
  v1::JobSpec job = Scaled(GptJob(1, 1, v1::POLICY_DYNAMIC), 450);
  job.mutable_mesh()->set_context(2);
  EXPECT_THAT(ErrorOf(job, {}), HasSubstr("job.planning.shard_optimizer_state"));
  EXPECT_GE(ExpectExactChanges(job, {}), 3);
}

TEST(InfeasibleTest, RecomputeIsNamedWhereItIsOff) {
  v1::JobSpec job = Scaled(GptJob(2, 1, v1::POLICY_DYNAMIC), 1000);
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_NONE);
  EXPECT_THAT(ErrorOf(job, ShortAndLong(300)), HasSubstr("fits: job.planning.recompute full;"));
  EXPECT_GE(ExpectExactChanges(job, ShortAndLong(300)), 4);
}

TEST(InfeasibleTest, BothSidesOfT5SamplesAreCut) {
  const v1::JobSpec job = Scaled(T5Job(2, 2, v1::POLICY_DYNAMIC), 800);
  EXPECT_GE(ExpectExactChanges(job, MakeBatch({{10, 10}, {1500, 200}, {30, 900}})), 2);
}

TEST(InfeasibleTest, StaticMemoryNamesTheStageAndTheSmallestPipeline) {
  v1::JobSpec job = Scaled(GptJob(1, 2, v1::POLICY_DYNAMIC), 300);
  const std::string message = ErrorOf(job, {});
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("weights, gradients and optimizer state of stage 0 need 480000000 bytes, "
                      "limit 300000000"),
            HasSubstr("job.mesh.pipeline 2"), HasSubstr("job.planning.memory_limit_bytes 481000000")));
  EXPECT_THAT(message, Not(HasSubstr("maximum length")));
  EXPECT_GE(ExpectExactChanges(job, {}), 2);
}

TEST(InfeasibleTest, AGivenSplitMayHaveToGo) {
  v1::JobSpec job = Scaled(GptJob(2, 1, v1::POLICY_DYNAMIC), 250);
  for (const uint32_t layers : {6, 2}) job.mutable_planning()->add_layers_per_stage(layers);
  EXPECT_THAT(ErrorOf(job, {}), HasSubstr("job.mesh.pipeline 2 without job.planning.layers_per_stage"));
  EXPECT_GE(ExpectExactChanges(job, {}), 2);
}

TEST(InfeasibleTest, AMicroBatchOfAGivenSizeIsNamedWithItsStage) {
  v1::JobSpec job = Scaled(GptJob(2, 1, v1::POLICY_PADDING), 1000);
  job.mutable_planning()->set_micro_batch_size(4);
  const std::string message = ErrorOf(job, ShortAndLong(500));
  EXPECT_EQ(Try(job, ShortAndLong(500)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("every sample fits alone, but no plan does: micro-batch of batch.samples[0], [1], "
                      "[2], [3] (shape [4, 0, 500]) does not fit on stage 1: needs "),
            HasSubstr("limit 1000000000"), HasSubstr("job.planning.micro_batch_size ")));
  EXPECT_GE(ExpectExactChanges(job, ShortAndLong(500)), 3);
}

TEST(InfeasibleTest, ATokenCapThatIsTooLargeIsNamed) {
  v1::JobSpec job = Scaled(GptJob(2, 1, v1::POLICY_TOKEN_BUDGET), 1000);
  job.mutable_planning()->set_token_cap(2000);
  const v1::Batch batch = MakeBatch({{400, 100}, {300, 200}, {250, 250}, {100, 400}, {500, 10}, {20, 20}});
  EXPECT_THAT(ErrorOf(job, batch), HasSubstr("job.planning.token_cap "));
  EXPECT_GE(ExpectExactChanges(job, batch), 3);
}

TEST(InfeasibleTest, ValidationNamesChangesToo) {
  const auto planner = Planner::Create(Scaled(GptJob(2, 1, v1::POLICY_DYNAMIC), 1000));
  ASSERT_TRUE(planner.ok());
  EXPECT_THAT(std::string((*planner)->ValidateBatch(ShortAndLong(1000)).message()),
              AllOf(HasSubstr("batch.samples[2]"), HasSubstr("job.mesh.pipeline 4")));
}

TEST(InfeasibleTest, TheCauseAloneCanBeAskedFor) {
  const v1::JobSpec job = Scaled(GptJob(2, 1, v1::POLICY_DYNAMIC), 1000);
  const auto planner = Planner::Create(job, Planner::Explain::kCauseAlone);
  ASSERT_TRUE(planner.ok());
  EXPECT_THAT(std::string((*planner)->MakePlan(ShortAndLong(2000)).status().message()),
              AllOf(HasSubstr("limit 1000000000"), Not(HasSubstr("fits:"))));
}

// splitmix64, so that every machine tries the same jobs.
uint64_t Next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

TEST(InfeasibleTest, ChangesOfRandomJobsAreExact) {
  uint64_t state = 4;
  const auto below = [&](uint64_t limit) { return Next(&state) % limit; };
  constexpr v1::Policy kPolicies[] = {v1::POLICY_PADDING, v1::POLICY_PACKED, v1::POLICY_TOKEN_BUDGET,
                                      v1::POLICY_DYNAMIC};
  constexpr v1::Recompute kRecompute[] = {v1::RECOMPUTE_AUTO, v1::RECOMPUTE_NONE, v1::RECOMPUTE_FULL};
  int infeasible = 0;
  for (int i = 0; i < Cases(60); ++i) {
    const auto pipeline = static_cast<uint32_t>(1 + below(4)), data = static_cast<uint32_t>(1 + below(3));
    const v1::Policy policy = kPolicies[below(4)];
    v1::JobSpec job = Scaled(below(2) == 0 ? GptJob(pipeline, data, policy) : T5Job(pipeline, data, policy),
                             static_cast<int64_t>(200 + below(1500)));
    job.mutable_planning()->set_recompute(kRecompute[below(3)]);
    job.mutable_planning()->set_effort(v1::EFFORT_FAST);
    if (below(2) == 0) {
      job.mutable_planning()->set_micro_batch_size(static_cast<uint32_t>(1 + below(6)));
      job.mutable_planning()->set_token_cap(static_cast<uint32_t>(200 + below(1500)));
    }
    std::vector<std::pair<uint32_t, uint32_t>> lengths;
    for (int sample = 0; sample < 8; ++sample) lengths.emplace_back(1 + below(700), 1 + below(500));
    const v1::Batch batch = MakeBatch(lengths);
    if (Try(job, batch).ok()) continue;
    ++infeasible;
    SCOPED_TRACE(testing::Message() << "job " << i);
    EXPECT_GE(ExpectExactChanges(job, Planner::Create(job).ok() ? batch : v1::Batch()), 1);
  }
  EXPECT_GT(infeasible, Cases(15));
}

}  // namespace
}  // namespace penstock::core
