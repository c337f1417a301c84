// Jobs whose parameters live in shares, and whose iterations run on another strategy each, against one rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/runtime/mesh_training.h"
#include "worker/device/device.h"
#include "worker/memory/tensor_memory.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/trainer.h"

namespace penstock::worker {
namespace {

constexpr double kStrategiesTolerance = 1e-11;

struct StrategiesCase {
  std::string model;
  std::vector<MeshOf> meshes;
  // Of shares; empty: all alike.
  std::vector<uint32_t> weights = {};

  JobConfig job() const {
    JobConfig job = JobOfStrategies(ModelOf(model), meshes);
    job.share_weights = weights;
    return job;
  }
  uint32_t ranks() const { return meshes.front().ranks(); }
};

class StrategiesTest : public ::testing::TestWithParam<StrategiesCase> {
 protected:
  const Reference& reference() const { return ReferenceOf(GetParam().model); }
  Figures TrainByTurns(uint64_t first, uint64_t end, const std::string& from, const std::string& folder) {
    return Train(GetParam().job(), GetParam().meshes, first, end, from, folder);
  }
  TemporaryFolder folder_;
};

TEST_P(StrategiesTest, TrainByTurnsAsOneRankDoes) {
  const std::string checkpoint = folder_.Path("checkpoints");
  const Figures figures = TrainByTurns(0, 4, "", checkpoint);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(figures.losses[i], reference().figures.losses[i], kStrategiesTolerance) << "iteration " << i;
    EXPECT_NEAR(figures.norms[i], reference().figures.norms[i], kStrategiesTolerance) << "iteration " << i;
  }
  ExpectEqual(figures.parts, reference().figures.parts, kStrategiesTolerance);
  ExpectEqual(TensorsOf(checkpoint, 4, GetParam().ranks(), &reference().tensors), reference().tensors,
              kStrategiesTolerance);
}

TEST_P(StrategiesTest, ThatAJobGetsWhileItTrainsAreJoinedAtTheirFirstProgram) {
  const std::string checkpoint = folder_.Path("checkpoints");
  const std::string known = folder_.Path("known");
  const JobConfig job = WithAddedStrategies(GetParam().job());
  const Figures figures = Train(job, GetParam().meshes, 0, 4, "", checkpoint);
  const Figures expected = TrainByTurns(0, 4, "", known);
  EXPECT_EQ(figures.losses, expected.losses);
  EXPECT_EQ(figures.norms, expected.norms);
  ExpectEqual(TensorsOf(checkpoint, 4, GetParam().ranks(), &reference().tensors),
              TensorsOf(known, 4, GetParam().ranks(), &reference().tensors), 0);
}

// From stages to shares, and from shares to stages.
TEST_P(StrategiesTest, GoOnFromACheckpointOfAJobWithoutSharesAndBack) {
  const std::string checkpoint = folder_.Path("checkpoints");
  TrainByTurns(2, 3, reference().checkpoint, checkpoint);
  Train(ModelOf(GetParam().model), {}, 3, 4, checkpoint, checkpoint);
  ExpectEqual(TensorsOf(checkpoint, 4, 1, &reference().tensors), reference().tensors, kStrategiesTolerance);
}

TEST_P(StrategiesTest, GoOnFromTheirOwnCheckpointAsIfTheyHadNotStopped) {
  const std::string whole = folder_.Path("whole");
  const std::string halves = folder_.Path("halves");
  TrainByTurns(0, 4, "", whole);
  TrainByTurns(0, 3, "", halves);
  TrainByTurns(3, 4, halves, halves);
  ExpectEqual(TensorsOf(halves, 4, GetParam().ranks(), &reference().tensors),
              TensorsOf(whole, 4, GetParam().ranks(), &reference().tensors), 0);
}

std::vector<StrategiesCase> StrategiesCases() {
  return {
      {"Gpt2", {{}}},
      {"Gpt2", {{.replicas = 2}, {.stages = 2}}},
      {"Gpt2", {{.replicas = 2}, {.contexts = 2}, {.tensors = 2}}},
      {"Gpt2", {{.replicas = 3}}},
      {"Llama", {{.tensors = 4}, {.stages = 2, .tensors = 2}}},
      {"Llama", {{.replicas = 2, .contexts = 2}, {.contexts = 2, .tensors = 2}, {.contexts = 4}}},
      {"Llama", {{.replicas = 4, .stages = 2}, {.stages = 2, .tensors = 4}}},
      {"Gpt2", {{.stages = 2, .beside = {{.replicas = 2}}}, {.replicas = 2, .stages = 2}}},
      {"Llama", {{.tensors = 2, .beside = {{.replicas = 2}}}, {.replicas = 2, .beside = {{.contexts = 2}}}}},
      {"Llama",
       {{.contexts = 2, .tensors = 2, .beside = {{.stages = 2}, {.replicas = 2}}},
        {.stages = 2, .tensors = 4},
        {.stages = 2, .contexts = 2, .beside = {{.tensors = 4}}}}},
      {"T5", {{.stages = 2}, {.tensors = 2}}},
      {"T5", {{.stages = 2, .beside = {{}}}, {.replicas = 3}}},
      {"T5", {{.replicas = 2, .stages = 2}, {.replicas = 2, .tensors = 2}}},
      {"Experts", {{.contexts = 2, .experts = 2}, {.tensors = 2}, {.replicas = 2}}},
      {"Experts", {{.replicas = 2, .contexts = 2, .experts = 2}, {.contexts = 4, .experts = 4}}},
      {"Experts",
       {{.contexts = 2, .experts = 2, .beside = {{.stages = 2}}},
        {.contexts = 2, .tensors = 2, .experts = 4}}},
      {"Experts", {{.contexts = 2, .tensors = 2, .experts = 4}, {.stages = 2, .tensors = 2, .experts = 2}}},
      {"Gpt2", {{.replicas = 2}, {.stages = 2}}, {0, 1}},
      {"Llama", {{.replicas = 2, .contexts = 2}, {.stages = 2, .tensors = 2}, {.contexts = 4}}, {3, 1, 0, 2}},
      {"Llama",
       {{.tensors = 2, .beside = {{.replicas = 2}}}, {.replicas = 2, .beside = {{.contexts = 2}}}},
       {0, 1048576, 1, 7}},
      {"T5", {{.replicas = 2, .stages = 2}, {.replicas = 2, .tensors = 2}}, {3, 1, 0, 2}},
      {"Experts", {{.contexts = 2, .experts = 2, .beside = {{.stages = 2}}}}, {3, 1, 0, 2}},
  };
}

std::string NameOf(const StrategiesCase& test) {
  std::string name = test.model;
  for (const MeshOf& mesh : test.meshes) name += NameOf(mesh);
  if (!test.weights.empty()) name += absl::StrCat("Weights", absl::StrJoin(test.weights, "_"));
  return name;
}

// Masters, where parameters are bfloat16, are of the share.
TEST(SharesTest, OfOneRankTrainToTheBitsOfItsStages) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const TemporaryFolder folder;
    ModelConfig model = ModelOf("Llama");
    model.dtype = type;
    JobConfig stages = JobOf(model, {});
    JobConfig shares = JobOfStrategies(model, {{}});
    // The norm is summed in another order.
    stages.training.clip_norm = shares.training.clip_norm = 0;
    Train(stages, {{}}, 0, 3, "", folder.Path("stages"));
    Train(shares, {{}}, 0, 3, "", folder.Path("shares"));
    const std::map<std::string, at::Tensor> expected = TensorsOf(folder.Path("stages"), 3, 1, nullptr);
    ExpectEqual(TensorsOf(folder.Path("shares"), 3, 1, &expected), expected, 0);
  }
}

// Checkpoints know parameters by their names, and no shares.
TEST(SharesTest, OfOtherWeightsGoOnFromEachOthersCheckpoints) {
  const Reference& reference = ReferenceOf("Llama");
  const std::vector<MeshOf> meshes = {{.replicas = 4}, {.stages = 2, .tensors = 2}};
  const TemporaryFolder folder;
  const std::vector<std::vector<uint32_t>> weights = {{}, {3, 1, 0, 2}, {}, {0, 0, 1, 5}};
  for (uint64_t number = 0; number < weights.size(); ++number) {
    JobConfig job = JobOfStrategies(ModelOf("Llama"), meshes);
    job.share_weights = weights[number];
    Train(job, meshes, number, number + 1, number == 0 ? "" : folder.path(), folder.path());
  }
  ExpectEqual(TensorsOf(folder.path(), 4, 4, &reference.tensors), reference.tensors, kStrategiesTolerance);
}

TEST(SharesTest, StagesOfOneStrategyAreInMemoryAtATime) {
  CountCpuTensors();
  const std::vector<MeshOf> meshes = {{}, {}};
  const JobConfig job = JobOfStrategies(ModelOf("Gpt2"), meshes);
  RunJob(job, [&](uint32_t rank, Communicator& communicator) {
    const std::unique_ptr<Device> device = *MakeTorchDevice("cpu", &TrainingSamples());
    const Registration self = {.rank = rank, .epoch = 1, .job = job};
    Trainer trainer({.registration = &self, .device = device.get(), .communicator = &communicator});
    std::vector<int64_t> bytes;
    for (uint64_t number = 0; number < 3; ++number) {
      ASSERT_TRUE(trainer.Run(ProgramOf(job, meshes, number, rank)).ok());
      bytes.push_back(TensorBytes(at::kCPU));
    }
    EXPECT_GT(bytes[0], 0);
    EXPECT_EQ(bytes[1], bytes[0]);
    EXPECT_EQ(bytes[2], bytes[0]);
  });
}

// Two ranks as replicas and as tensor ranks.
class TwoStrategiesTest : public ::testing::Test {
 protected:
  // Two iterations on a trainer of each rank; how the last one ended.
  std::vector<absl::StatusOr<IterationResult>> RunTwo(const JobConfig& job,
                                                      const std::function<void(TrainerParts&)>& set,
                                                      const std::function<void(Program&)>& change,
                                                      const std::function<void(uint32_t, Trainer&)>& look) {
    std::vector<absl::StatusOr<IterationResult>> ends(2, absl::UnknownError("it did not run"));
    RunJob(job, [&](uint32_t rank, Communicator& communicator) {
      const std::unique_ptr<Device> device = *MakeTorchDevice("cpu", &TrainingSamples());
      const Registration self = {.rank = rank, .epoch = 1, .job = job};
      TrainerParts parts = {.registration = &self, .device = device.get(), .communicator = &communicator};
      set(parts);
      Trainer trainer(parts);
      for (uint64_t number = 0; number < 2; ++number) {
        const auto program = std::make_shared<Program>(ProgramOf(job, meshes_, number, rank));
        change(*program);
        trainer.Prepare(program);
        ends[rank] = trainer.Run(*program);
      }
      look(rank, trainer);
    });
    return ends;
  }

  void WritePartOf(uint32_t rank, const Trainer& trainer) {
    const absl::StatusOr<PartWriter> part = trainer.Part(/*training_goes_on=*/false);
    ASSERT_TRUE(part.ok()) << part.status();
    const auto written = WritePart(folder_.path(), rank, *part, ManifestOf(job_, 2), RealFolderChanges());
    EXPECT_TRUE(written.ok()) << written.status();
  }

  std::map<std::string, at::Tensor> Written() {
    const absl::Status complete =
        CompleteCheckpoint(folder_.path(), 2, kKeptCheckpoints, RealFolderChanges());
    EXPECT_TRUE(complete.ok()) << complete;
    return TensorsOf(folder_.path(), 2, 2, &reference_.tensors);
  }

  const Reference& reference_ = ReferenceOf("Llama");
  const std::vector<MeshOf> meshes_ = {{.replicas = 2}, {.tensors = 2}};
  const JobConfig job_ = JobOfStrategies(ModelOf("Llama"), meshes_);
  const TemporaryFolder folder_;
};

// Of the model's file parameters are read, and no moments.
TEST_F(TwoStrategiesTest, BeginWithTheParametersOfAModelAndKeepThemWithNothingToLearn) {
  RunTwo(
      job_, [&](TrainerParts& parts) { parts.init_from = CheckpointPath(reference_.checkpoint, 2); },
      [](Program& program) { program.loss_tokens = 0; },
      [&](uint32_t rank, Trainer& trainer) { WritePartOf(rank, trainer); });
  std::map<std::string, at::Tensor> expected = TensorsOf(reference_.checkpoint, 2, 1, &reference_.tensors);
  for (auto& [name, tensor] : expected) {
    if (name.starts_with("optimizer.")) tensor.zero_();
  }
  ExpectEqual(Written(), expected, 0);
}

TEST_F(TwoStrategiesTest, ShowTheGradientsOfAllRanks) {
  const std::string alone = folder_.Path("alone");
  const std::string shares = folder_.Path("shares");
  const JobConfig sole = JobOf(job_.model, {});
  RunJob(sole, [&](uint32_t, Communicator& communicator) {
    const std::unique_ptr<Device> device = *MakeTorchDevice("cpu", &TrainingSamples());
    const Registration self = {.rank = 0, .epoch = 1, .job = sole};
    Trainer trainer({.registration = &self,
                     .device = device.get(),
                     .communicator = &communicator,
                     .gradients_dir = alone});
    for (uint64_t number = 0; number < 2; ++number)
      ASSERT_TRUE(trainer.Run(ProgramOf(sole, {{}}, number, 0)).ok());
  });
  RunTwo(
      job_, [&](TrainerParts& parts) { parts.gradients_dir = shares; }, [](Program&) {},
      [](uint32_t, Trainer&) {});
  for (const uint64_t number : {0, 1}) {
    const std::map<std::string, at::Tensor> expected = TensorsOf(alone, number, 1, nullptr);
    EXPECT_FALSE(expected.empty());
    ExpectEqual(TensorsOf(shares, number, 2, &expected), expected, kStrategiesTolerance);
  }
}

TEST_F(TwoStrategiesTest, SayWhereANumberThatIsNotFiniteBegan) {
  JobConfig job = job_;
  job.training.learning_rate.peak = 1e300;
  const auto ends = RunTwo(
      job, [](TrainerParts&) {}, [](Program&) {}, [](uint32_t, Trainer&) {});
  for (const absl::StatusOr<IterationResult>& end : ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kOutOfRange) << end.status();
    EXPECT_EQ(end.status().message(), ends.front().status().message());
    EXPECT_NE(end.status().message().find("micro-batch"), absl::string_view::npos) << end.status();
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, StrategiesTest, testing::ValuesIn(StrategiesCases()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace penstock::worker
