#include "planner/core/contract/job_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "planner/core/contract/limits.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using Change = std::function<void(v1::JobSpec&)>;
using testing::HasSubstr;
using testing::StartsWith;

std::string Refusal(const Change& change) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  change(job);
  const absl::Status status = CheckJobLimits(job);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(JobLimitsTest, AJobWithinThemIsTaken) {
  EXPECT_EQ(Refusal([](v1::JobSpec&) {}), "");
  EXPECT_EQ(Refusal([](v1::JobSpec& job) {
              job.mutable_model()->set_layers(4096);
              job.mutable_mesh()->set_pipeline(256);
              job.mutable_mesh()->set_data(256);
              job.mutable_training()->set_iterations(kMostIterations);
            }),
            "");
}

TEST(JobLimitsTest, EverySizeOfTheModelIsBounded) {
  using Set = void (v1::ModelSpec::*)(uint32_t);
  const std::pair<const char*, Set> kFields[] = {
      {"layers", &v1::ModelSpec::set_layers},
      {"encoder_layers", &v1::ModelSpec::set_encoder_layers},
      {"decoder_layers", &v1::ModelSpec::set_decoder_layers},
      {"hidden", &v1::ModelSpec::set_hidden},
      {"heads", &v1::ModelSpec::set_heads},
      {"key_value_heads", &v1::ModelSpec::set_key_value_heads},
      {"attention_inner", &v1::ModelSpec::set_attention_inner},
      {"ffn", &v1::ModelSpec::set_ffn},
      {"dense_ffn", &v1::ModelSpec::set_dense_ffn},
      {"vocab", &v1::ModelSpec::set_vocab},
      {"max_sequence_length", &v1::ModelSpec::set_max_sequence_length},
      {"relative_position_buckets", &v1::ModelSpec::set_relative_position_buckets},
      {"relative_position_max_distance", &v1::ModelSpec::set_relative_position_max_distance}};
  for (const auto& [field, set] : kFields) {
    EXPECT_THAT(Refusal([set = set](v1::JobSpec& job) { (job.mutable_model()->*set)(UINT32_MAX); }),
                StartsWith("job.model." + std::string(field) + ": 4294967295; use at most "));
  }
}

TEST(JobLimitsTest, LayersAndRanksAreAddedUpWithoutOverflow) {
  EXPECT_THAT(Refusal([](v1::JobSpec& job) {
                job.mutable_model()->set_encoder_layers(4096);
                job.mutable_model()->set_decoder_layers(1);
              }),
              StartsWith("job.model.encoder_layers and decoder_layers: 4097"));
  EXPECT_THAT(Refusal([](v1::JobSpec& job) {
                job.mutable_mesh()->set_pipeline(1024);
                job.mutable_mesh()->set_data(1U << 22);  // the product is 0 in 32 bits
              }),
              StartsWith("job.mesh.data: 4194304"));
  EXPECT_THAT(Refusal([](v1::JobSpec& job) {
                job.mutable_mesh()->set_pipeline(1024);
                job.mutable_mesh()->set_data(65);
              }),
              StartsWith("job.mesh: 1024 x 65 are 66560 ranks"));
}

TEST(JobLimitsTest, EveryNumberOfTrainingIsANumberInItsRange) {
  const std::pair<const char*, std::function<void(v1::TrainingSpec&, double)>> kFields[] = {
      {"learning_rate.peak", [](auto& training, double x) { training.mutable_learning_rate()->set_peak(x); }},
      {"learning_rate.minimum",
       [](auto& training, double x) { training.mutable_learning_rate()->set_minimum(x); }},
      {"beta1", [](auto& training, double x) { training.set_beta1(x); }},
      {"beta2", [](auto& training, double x) { training.set_beta2(x); }},
      {"epsilon", [](auto& training, double x) { training.set_epsilon(x); }},
      {"weight_decay", [](auto& training, double x) { training.set_weight_decay(x); }},
      {"clip_norm", [](auto& training, double x) { training.set_clip_norm(x); }}};
  for (const auto& [field, set] : kFields) {
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
      EXPECT_THAT(Refusal([set = set, bad](v1::JobSpec& job) { set(*job.mutable_training(), bad); }),
                  StartsWith("job.training." + std::string(field) + ": "))
          << bad;
    }
  }
  EXPECT_THAT(Refusal([](v1::JobSpec& job) { job.mutable_training()->set_beta2(1); }),
              HasSubstr("job.training.beta2: 1; use at least 0 and less than 1"));
}

TEST(JobLimitsTest, IterationsAreBoundedWhereverTheyAreCounted) {
  const std::pair<const char*, std::function<void(v1::JobSpec&, uint64_t)>> kFields[] = {
      {"training.iterations", [](auto& job, uint64_t x) { job.mutable_training()->set_iterations(x); }},
      {"training.checkpoint_interval",
       [](auto& job, uint64_t x) { job.mutable_training()->set_checkpoint_interval(x); }},
      {"training.learning_rate.warmup_iterations",
       [](auto& job, uint64_t x) {
         job.mutable_training()->mutable_learning_rate()->set_warmup_iterations(x);
       }},
      {"training.learning_rate.cooldown_iterations",
       [](v1::JobSpec& job, uint64_t x) {
         job.mutable_training()->mutable_learning_rate()->set_decay(v1::RATE_DECAY_COOLDOWN);
         job.mutable_training()->mutable_learning_rate()->set_cooldown_iterations(x);
       }},
      {"training.learning_rate.decay_iterations",
       [](auto& job, uint64_t x) {
         job.mutable_training()->mutable_learning_rate()->set_decay_iterations(x);
       }},
      {"first_iteration", [](auto& job, uint64_t x) { job.set_first_iteration(x); }}};
  for (const auto& [field, set] : kFields) {
    EXPECT_THAT(Refusal([set = set](v1::JobSpec& job) { set(job, kMostIterations + 1); }),
                StartsWith("job." + std::string(field) + ": "));
  }
}

}  // namespace
}  // namespace penstock::core
