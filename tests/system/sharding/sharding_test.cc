// Where replicas divide the optimizer's state, real processes over Gloo train to the same bits as where each
// holds it whole, hold their part of it alone, and go on from each other's checkpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"
#include "tests/system/sharding/checkpoint_tensors.h"

namespace penstock::testing {
namespace {

constexpr uint64_t kIterations = 4;
constexpr size_t kBatch = 12;

struct Shape {
  std::string name = {};
  uint32_t pipeline = 1;
  uint32_t replicas = 2;
  v1::DataType dtype = v1::DATA_TYPE_FLOAT64;
  bool encoder_decoder = false;
  // Two on each rank, and backward passes in two parts.
  bool virtual_stages = false;
  // Every layer fills a bucket of gradients, which is reduced while the layers below are passed.
  bool wide = false;
};

void SetStages(const Shape& shape, v1::JobSpec& job) {
  v1::PlanningOptions& planning = *job.mutable_planning();
  planning.set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
  for (uint32_t stage = 0; stage < 2 * shape.pipeline; ++stage) {
    planning.add_layers_per_stage(2 / shape.pipeline);
    planning.add_rank_of_stage(stage < shape.pipeline ? stage : 2 * shape.pipeline - 1 - stage);
  }
}

void SetEncoderDecoder(v1::JobSpec& job) {
  v1::ModelSpec& model = *job.mutable_model();
  model.set_architecture(v1::ARCHITECTURE_T5);
  model.set_feed_forward(v1::FEED_FORWARD_RELU);
  model.clear_layers();
  model.set_encoder_layers(2);
  model.set_decoder_layers(2);
  v1::CostProfile& profile = *job.mutable_profile();
  v1::LayerCost encoder = profile.layers(0);
  encoder.set_name("encoder");
  encoder.mutable_forward()->set_source_token_ns(encoder.forward().target_token_ns());
  v1::LayerCost& decoder = *profile.mutable_layers(0);
  decoder.set_name("decoder");
  *profile.add_layers() = encoder;
}

// A divided state makes reductions and steps shorter in a plan, and so other plans: where they take no time
// both have the same, and their bits can be compared.
void LetLinksAndStepsTakeNoTime(v1::CostProfile& profile) {
  constexpr double kFast = 1e18;
  v1::Cluster& cluster = *profile.mutable_cluster();
  cluster.set_intra_node_latency_ns(0);
  cluster.set_inter_node_latency_ns(0);
  cluster.set_intra_node_bytes_per_second(kFast);
  cluster.set_inter_node_bytes_per_second(kFast);
  profile.set_optimizer_ns_per_parameter_byte(0);
}

v1::JobSpec JobOf(const Shape& shape, const std::string& job_id, bool sharded) {
  v1::JobSpec job = TinyJob();
  job.set_job_id(job_id);
  job.mutable_mesh()->set_pipeline(shape.pipeline);
  job.mutable_mesh()->set_data(shape.replicas);
  job.mutable_model()->set_dtype(shape.dtype);
  if (shape.dtype == v1::DATA_TYPE_BFLOAT16) {
    job.mutable_profile()->set_bytes_per_element(2);
    // Gradients and state are four bytes for two of a parameter.
    job.mutable_profile()->set_state_bytes_per_parameter_byte(9);
    job.mutable_profile()->set_sharded_state_bytes_per_parameter_byte(6);
  }
  LetLinksAndStepsTakeNoTime(*job.mutable_profile());
  if (shape.wide) {
    job.mutable_model()->set_hidden(256);
    job.mutable_model()->set_ffn(512);
  }
  if (shape.encoder_decoder) SetEncoderDecoder(job);
  if (shape.virtual_stages) SetStages(shape, job);
  job.mutable_planning()->set_shard_optimizer_state(sharded);
  job.mutable_training()->set_iterations(kIterations);
  job.mutable_training()->set_checkpoint_interval(2);
  return job;
}

class ShardingRuns : public ::testing::Test {
 protected:
  ShardingRuns() {
    WriteTinyDataset(dataset_, samples_);
    cluster_.StartPlanner();
  }

  // Trains from `first` on, from the checkpoints in a folder where there are some, and leaves its own there.
  std::vector<Figures> Train(v1::JobSpec job, const std::string& checkpoints, uint64_t first = 0) {
    job.set_first_iteration(first);
    cluster_.Register(job);
    cluster_.Submit(job.job_id(), {batches_.begin() + static_cast<ptrdiff_t>(first), batches_.end()});
    cluster_.StartWorkers(job, {.dataset = dataset_,
                                .checkpoint_dir = cluster_.folder().Path(checkpoints),
                                .resume = first > 0,
                                .arguments = {"--max-rejoins=0"}});
    cluster_.ExpectAllFinish();
    return cluster_.FiguresOf(job.job_id());
  }

  CheckpointTensors Checkpoint(const std::string& checkpoints, uint64_t iteration, const Shape& shape) const {
    return ReadCheckpoint(cluster_.folder().Path(absl::StrCat(checkpoints, "/iteration-", iteration)),
                          shape.pipeline * shape.replicas);
  }

  const std::vector<TinySample> samples_ = TinySamples(36);
  const std::vector<v1::Batch> batches_ = TinyBatches(samples_, kBatch, kIterations);
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
};

class ShardingTest : public ShardingRuns, public ::testing::WithParamInterface<Shape> {};

TEST_P(ShardingTest, TrainsToTheSameBitsAsAWholeState) {
  const Shape& shape = GetParam();
  const std::vector<Figures> whole = Train(JobOf(shape, "whole", false), "whole");
  const std::vector<Figures> sharded = Train(JobOf(shape, "sharded", true), "sharded");
  ASSERT_EQ(whole.size(), kIterations) << cluster_.AllWorkerLogs();
  EXPECT_EQ(sharded, whole);
  for (const uint64_t iteration : {uint64_t{2}, kIterations}) {
    const CheckpointTensors expected = Checkpoint("whole", iteration, shape);
    const CheckpointTensors found = Checkpoint("sharded", iteration, shape);
    EXPECT_EQ(found.tensors.size(), expected.tensors.size());
    for (const auto& [name, bytes] : expected.tensors) {
      ASSERT_TRUE(found.tensors.contains(name)) << name;
      EXPECT_TRUE(found.tensors.at(name) == bytes) << name << " after iteration " << iteration;
    }
    // A whole state is written once, by all replicas together.
    std::vector<uint64_t> whole_bytes(shape.pipeline);
    for (const auto& [rank, bytes] : expected.state_bytes) whole_bytes[rank % shape.pipeline] += bytes;
    for (const auto& [rank, found_bytes] : found.state_bytes) {
      const auto bytes = static_cast<double>(whole_bytes[rank % shape.pipeline]);
      // What is left over of each span, and alignment, may fall to one of them.
      EXPECT_NEAR(static_cast<double>(found_bytes), bytes / shape.replicas, 0.03 * bytes) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ShardingTest,
    ::testing::Values(Shape{.name = "Gpt", .pipeline = 2}, Shape{.name = "GptOnFourReplicas", .replicas = 4},
                      Shape{.name = "GptWithVirtualStages", .pipeline = 2, .virtual_stages = true},
                      Shape{.name = "GptOfBFloat16", .replicas = 3, .dtype = v1::DATA_TYPE_BFLOAT16},
                      Shape{.name = "GptOfSeveralBuckets", .wide = true},
                      Shape{.name = "GptOfSeveralBucketsAndVirtualStages",
                            .pipeline = 2,
                            .virtual_stages = true,
                            .wide = true},
                      Shape{.name = "T5WithSharedTables", .pipeline = 2, .encoder_decoder = true}),
    [](const auto& info) { return info.param.name; });

using ShardedResumeTest = ShardingRuns;

// On another number of replicas and with the state divided or not: from any to any.
TEST_F(ShardedResumeTest, GoesOnFromCheckpointsOfOtherDivisions) {
  const Shape four = {.replicas = 4};
  const Shape two = {.pipeline = 2, .replicas = 2};
  const Shape three = {.replicas = 3};
  const std::vector<Figures> expected = Train(JobOf(four, "whole", false), "whole");
  ASSERT_EQ(expected.size(), kIterations) << cluster_.AllWorkerLogs();
  // Each goes on from a copy of a checkpoint after iteration 2.
  const auto expect_resumed = [&](const Shape& shape, bool sharded, const std::string& from) {
    const std::string name =
        absl::StrCat(shape.pipeline, "x", shape.replicas, sharded ? "sharded" : "", from);
    std::filesystem::create_directories(cluster_.folder().Path(name));
    std::filesystem::copy(cluster_.folder().Path(from + "/iteration-2"),
                          cluster_.folder().Path(name + "/iteration-2"),
                          std::filesystem::copy_options::recursive);
    const std::vector<Figures> resumed = Train(JobOf(shape, name, sharded), name, 2);
    ASSERT_EQ(resumed.size(), kIterations - 2) << cluster_.AllWorkerLogs();
    for (size_t i = 0; i < resumed.size(); ++i) {
      EXPECT_NEAR(resumed[i].loss, expected[i + 2].loss, 1e-12) << name;
      EXPECT_NEAR(resumed[i].norm, expected[i + 2].norm, 1e-11) << name;
    }
  };
  expect_resumed(four, true, "whole");
  Train(JobOf(four, "sharded", true), "sharded");
  expect_resumed(three, true, "sharded");
  expect_resumed(two, false, "sharded");
  expect_resumed(two, true, "sharded");
}

}  // namespace
}  // namespace penstock::testing
