// Jobs as the planner tells workers of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/worker/program/valid_messages.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

TEST(JobFromProto, FillsInDefaults) {
  const absl::StatusOr<JobConfig> job = JobFromProto(ValidJob());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model.attention_inner, 8);
  EXPECT_EQ(job->training.beta1, 0.8);
  EXPECT_EQ(job->training.beta2, 0.95);
  EXPECT_EQ(job->training.epsilon, 1e-8);
  EXPECT_EQ(job->world_size(), 4u);
}

TEST(JobFromProto, RefusesWhatItCannotRun) {
  const auto error = [](const v1::JobSpec& job) { return std::string(JobFromProto(job).status().message()); };
  v1::JobSpec job = ValidJob();
  job.mutable_mesh()->set_tensor(4);
  EXPECT_THAT(error(job), HasSubstr("mesh.tensor is 4, which does not divide model.heads, 2"));
  job.mutable_model()->set_heads(4);
  job.mutable_model()->set_ffn(18);
  EXPECT_THAT(error(job), HasSubstr("mesh.tensor is 4, which does not divide model.ffn, 18"));
  job = ValidJob();
  job.mutable_mesh()->set_context(6);
  EXPECT_THAT(error(job), HasSubstr("mesh.context is 6, expected a power of two"));
  job.mutable_mesh()->set_context(1024);
  job.mutable_mesh()->set_tensor(64);
  EXPECT_THAT(error(job), HasSubstr("mesh of 2 x 2 stage groups of 65536 ranks is more than 65536 ranks"));
}

TEST(JobFromProto, SumsGradientsInBucketsOfTheSizeThatIsAskedFor) {
  v1::JobSpec job = ValidJob();
  EXPECT_EQ(JobFromProto(job)->gradient_bucket_bytes, 4 << 20);
  job.mutable_planning()->set_gradient_bucket_bytes(12345);
  EXPECT_EQ(JobFromProto(job)->gradient_bucket_bytes, 12345);
  job.mutable_planning()->set_parameter_shares(true);
  EXPECT_THAT(std::string(JobFromProto(job).status().message()),
              HasSubstr("planning.gradient_bucket_bytes is not for planning.parameter_shares"));
  job.mutable_planning()->clear_parameter_shares();
  job.mutable_planning()->set_gradient_bucket_bytes((uint64_t{1} << 40) + 1);
  EXPECT_THAT(std::string(JobFromProto(job).status().message()),
              HasSubstr("planning.gradient_bucket_bytes is 1099511627777, at most 1099511627776"));
}

TEST(JobFromProto, KnowsTheDegreesOfTheMesh) {
  v1::JobSpec spec = ValidJob();
  spec.mutable_mesh()->set_tensor(2);
  spec.mutable_mesh()->set_context(4);
  const absl::StatusOr<JobConfig> job = JobFromProto(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->tensor, 2u);
  EXPECT_EQ(job->context, 4u);
  EXPECT_EQ(job->world_size(), 32u);
  // One key-value head is repeated on two tensor ranks.
  spec.mutable_model()->set_position(v1::POSITION_ROTARY);
  spec.mutable_model()->set_key_value_heads(1);
  EXPECT_TRUE(JobFromProto(spec).ok()) << JobFromProto(spec).status();
}

TEST(JobFromProto, KnowsT5) {
  v1::JobSpec job = ValidJob();
  v1::ModelSpec& model = *job.mutable_model();
  model.set_architecture(v1::ARCHITECTURE_T5);
  model.clear_layers();
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.encoder_layers"));
  model.set_encoder_layers(3);
  model.set_decoder_layers(2);
  model.set_decoder_start_token(5);
  absl::StatusOr<JobConfig> config = JobFromProto(job);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.architecture, Architecture::kT5);
  EXPECT_EQ(config->model.layers, 5);
  EXPECT_EQ(config->model.encoder_layers, 3);
  EXPECT_EQ(config->model.decoder_start_token, 5);
  EXPECT_EQ(config->model.feed_forward, FeedForward::kRelu);
  EXPECT_EQ(config->model.relative_position_buckets, 32);
  EXPECT_EQ(config->model.relative_position_max_distance, 128);
  model.set_feed_forward(v1::FEED_FORWARD_GATED_GELU);
  EXPECT_EQ(JobFromProto(job)->model.feed_forward, FeedForward::kGatedGelu);
  model.set_decoder_start_token(model.vocab());
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.decoder_start_token"));
}

TEST(JobFromProto, LeavesThePartsOfAModelToItsArchitecture) {
  const ModelConfig model = JobFromProto(ValidJob())->model;
  EXPECT_FALSE(model.position.has_value());
  EXPECT_FALSE(model.norm.has_value());
  EXPECT_FALSE(model.attention_biases.has_value());
  EXPECT_FALSE(model.feed_forward_biases.has_value());
  EXPECT_EQ(model.norm_epsilon, 0);
  EXPECT_EQ(model.key_value_heads, 0);
  EXPECT_FALSE(model.tied_head);
}

TEST(JobFromProto, KnowsTheParts) {
  v1::JobSpec job = ValidJob();
  v1::ModelSpec& spec = *job.mutable_model();
  spec.set_position(v1::POSITION_ROTARY);
  spec.mutable_rotary()->set_theta(500000);
  spec.mutable_rotary()->set_scaling(v1::ROTARY_SCALING_LLAMA3);
  spec.mutable_rotary()->set_factor(8);
  spec.mutable_rotary()->set_low_frequency_factor(1);
  spec.mutable_rotary()->set_high_frequency_factor(4);
  spec.mutable_rotary()->set_original_max_sequence_length(8192);
  spec.set_norm(v1::NORM_RMS);
  spec.set_norm_epsilon(1e-5);
  spec.set_key_value_heads(1);
  spec.set_attention_biases(v1::BIASES_QUERY_KEY_VALUE);
  spec.set_feed_forward_biases(v1::BIASES_NONE);
  spec.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
  spec.set_tied_head(true);
  const absl::StatusOr<JobConfig> config = JobFromProto(job);
  ASSERT_TRUE(config.ok()) << config.status();
  const ModelConfig& model = config->model;
  EXPECT_EQ(model.position, Position::kRotary);
  EXPECT_EQ(model.rotary.theta, 500000);
  EXPECT_EQ(model.rotary.scaling, RotaryScaling::kLlama3);
  EXPECT_EQ(model.rotary.factor, 8);
  EXPECT_EQ(model.rotary.low_frequency_factor, 1);
  EXPECT_EQ(model.rotary.high_frequency_factor, 4);
  EXPECT_EQ(model.rotary.original_max_sequence_length, 8192);
  EXPECT_EQ(model.norm, Norm::kRms);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.key_value_heads, 1);
  EXPECT_EQ(model.attention_biases, Biases::kQueryKeyValue);
  EXPECT_EQ(model.feed_forward_biases, Biases::kNone);
  EXPECT_EQ(model.feed_forward, FeedForward::kGatedSilu);
  EXPECT_TRUE(model.tied_head);
  spec.mutable_rotary()->set_scaling(static_cast<v1::RotaryScaling>(9));
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.rotary.scaling"));
}

TEST(JobFromProto, KnowsWhatStandsBesideExperts) {
  const absl::StatusOr<JobConfig> config = JobFromProto(JobOfExperts());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.shared_expert_ffn, 12);
  EXPECT_TRUE(config->model.gated_shared_expert);
  EXPECT_EQ(config->model.query_key_value_clip, 8);
  EXPECT_EQ(config->model.router_balance_loss, 0.01);
  EXPECT_EQ(config->model.router_z_loss, 0.001);
  EXPECT_EQ(config->model.expert_capacity_factor, 1.25);
}

TEST(JobFromProto, CountsLayersWithoutExpertsFromZero) {
  v1::JobSpec job = JobOfExperts();
  job.mutable_model()->add_dense_layers(1);
  job.mutable_model()->set_dense_ffn(20);
  const absl::StatusOr<JobConfig> config = JobFromProto(job);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.dense_layers, std::vector<int64_t>{0});
  EXPECT_EQ(config->model.dense_ffn, 20);
}

TEST(JobFromProto, NamesTheFieldThatIsWrong) {
  v1::JobSpec job = ValidJob();
  job.mutable_model()->set_heads(3);
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.heads"));
  job = ValidJob();
  job.mutable_mesh()->set_data(0);
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("mesh.data"));
}

}  // namespace
}  // namespace penstock::worker
