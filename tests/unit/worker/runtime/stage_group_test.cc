// Whole iterations of meshes with stage groups, their ranks as threads over Gloo, against one rank: losses,
// norm, parameters, optimizer state and checkpoints, which go from any mesh to any other.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/runtime/mesh_training.h"
#include "worker/model/transformer_stage.h"

namespace penstock::worker {
namespace {

struct Case {
  std::string model;
  MeshOf mesh;
};

class StageGroupTest : public ::testing::TestWithParam<Case> {
 protected:
  ModelConfig model() const { return ModelOf(GetParam().model); }
  const Reference& reference() const { return ReferenceOf(GetParam().model); }
  TemporaryFolder folder_;
};

constexpr double kTolerance = 1e-11;

TEST_P(StageGroupTest, TrainsAsOneRankDoes) {
  const Figures figures = Train(model(), GetParam().mesh, 0, 4, "", folder_.Path("checkpoints"));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(figures.losses[i], reference().figures.losses[i], kTolerance) << "iteration " << i;
    EXPECT_NEAR(figures.norms[i], reference().figures.norms[i], kTolerance) << "iteration " << i;
  }
  ExpectEqual(figures.parts, reference().figures.parts, kTolerance);
  ExpectEqual(TensorsOf(folder_.Path("checkpoints"), 4, GetParam().mesh.ranks(), &reference().tensors),
              reference().tensors, kTolerance);
}

TEST_P(StageGroupTest, GoesOnFromACheckpointOfOneRankAndBack) {
  const std::string checkpoint = folder_.Path("checkpoints");
  Train(model(), GetParam().mesh, 2, 3, reference().checkpoint, checkpoint);
  Train(model(), {}, 3, 4, checkpoint, checkpoint);
  ExpectEqual(TensorsOf(checkpoint, 4, 1, &reference().tensors), reference().tensors, kTolerance);
}

TEST(GradientBucketsTest, OfAStageHaveTheSizeThatIsAskedFor) {
  const auto buckets = [](int64_t bytes) {
    const StageRange both = {.first_layer = 0, .layers = 2, .first = true, .last = true};
    const auto stage = *MakeTransformerStage(ModelOf("Gpt2"), both, /*seed=*/1, at::kCPU, SoleRank(), bytes);
    return stage->flat_parameters().buckets;
  };
  EXPECT_EQ(buckets(kBucketBytes), 1U) << "a small stage";
  EXPECT_EQ(buckets(1), 3U) << "what lies below the layers, and both of them";
}

// Every layer is summed by itself, and every layer's state is divided by itself.
TEST(GradientBucketsTest, OfAnySizeTrainTheSame) {
  for (const char* name : {"Llama", "T5"}) {
    const Reference& reference = ReferenceOf(name);
    for (const bool zero : {false, true}) {
      const TemporaryFolder folder;
      const MeshOf mesh = {.replicas = 2, .zero = zero, .bucket_bytes = 1};
      const Figures figures = Train(ModelOf(name), mesh, 0, 4, "", folder.path());
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(figures.losses[i], reference.figures.losses[i], kTolerance) << "iteration " << i;
        EXPECT_NEAR(figures.norms[i], reference.figures.norms[i], kTolerance) << "iteration " << i;
      }
      ExpectEqual(TensorsOf(folder.path(), 4, mesh.ranks(), &reference.tensors), reference.tensors,
                  kTolerance);
    }
  }
}

TEST(GradientBucketsTest, ACheckpointOfOneSizeGoesOnWithAnother) {
  const Reference& reference = ReferenceOf("Llama");
  const TemporaryFolder folder;
  MeshOf mesh = {.replicas = 2, .stages = 2, .zero = true, .bucket_bytes = 1};
  Train(ModelOf("Llama"), mesh, 2, 3, reference.checkpoint, folder.path());
  mesh.bucket_bytes = int64_t{1} << 40;
  Train(ModelOf("Llama"), mesh, 3, 4, folder.path(), folder.path());
  ExpectEqual(TensorsOf(folder.path(), 4, mesh.ranks(), &reference.tensors), reference.tensors, kTolerance);
}

TEST_P(StageGroupTest, TheNormHasTheSameBitsWhereTheStateIsDivided) {
  MeshOf mesh = GetParam().mesh;
  if (!mesh.zero) GTEST_SKIP() << "other meshes show it";
  mesh.zero = false;
  const Figures whole = Train(model(), mesh, 0, 2, "", folder_.Path("whole"));
  mesh.zero = true;
  const Figures divided = Train(model(), mesh, 0, 2, "", folder_.Path("divided"));
  EXPECT_EQ(whole.norms, divided.norms);
  ExpectEqual(TensorsOf(folder_.Path("divided"), 2, mesh.ranks(), &reference().tensors),
              TensorsOf(folder_.Path("whole"), 2, mesh.ranks(), &reference().tensors), 0);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* model : {"Gpt2", "Llama"}) {
    for (const MeshOf& mesh :
         std::vector<MeshOf>{{.contexts = 2},
                             {.contexts = 4, .zero = true},
                             {.stages = 2, .contexts = 2},
                             {.replicas = 2, .contexts = 2, .zero = true},
                             {.replicas = 2, .stages = 2, .contexts = 2, .zero = true}}) {
      cases.push_back({model, mesh});
    }
  }
  for (const char* model : {"Gpt2", "Llama", "T5"}) {
    for (const MeshOf& mesh : std::vector<MeshOf>{{.tensors = 2},
                                                  {.tensors = 4},
                                                  {.stages = 2, .tensors = 4},
                                                  {.replicas = 3, .tensors = 2, .zero = true},
                                                  {.replicas = 2, .stages = 2, .tensors = 2, .zero = true}}) {
      cases.push_back({model, mesh});
    }
  }
  for (const char* model : {"Gpt2", "Llama"}) {
    cases.push_back({model, {.contexts = 2, .tensors = 2}});
    cases.push_back({model, {.stages = 2, .contexts = 2, .tensors = 2, .zero = true}});
  }
  for (const MeshOf& mesh : std::vector<MeshOf>{{.stages = 2},
                                                {.contexts = 2},
                                                {.tensors = 4},
                                                {.replicas = 2, .stages = 2, .tensors = 2, .zero = true},
                                                {.stages = 2, .contexts = 2, .tensors = 2, .zero = true}}) {
    cases.push_back({"AdaptedLlama", mesh});
  }
  for (const MeshOf& mesh : std::vector<MeshOf>{
           {.contexts = 2, .experts = 2, .in_parts = true},
           {.contexts = 4, .experts = 4, .in_parts = true},
           {.stages = 2, .contexts = 2, .experts = 2, .in_parts = true},
           {.replicas = 2, .stages = 2, .contexts = 4, .experts = 2, .zero = true, .in_parts = true}}) {
    cases.push_back({"Experts", mesh});
  }
  cases.push_back({"AdaptedT5", {.stages = 2, .tensors = 2}});
  cases.push_back({"AdaptedT5", {.replicas = 2, .stages = 2, .zero = true}});
  return cases;
}

TEST(CheckpointsOfStageGroupsTest, GoFromAnyMeshToAnyOther) {
  for (const char* name : {"Gpt2", "Llama"}) {
    const Reference& reference = ReferenceOf(name);
    const TemporaryFolder folder;
    std::string from = reference.checkpoint;
    MeshOf last;
    uint64_t number = 2;
    for (const MeshOf& mesh : std::vector<MeshOf>{{.contexts = 2, .tensors = 2, .zero = true},
                                                  {.replicas = 3, .stages = 2, .tensors = 2, .zero = true}}) {
      Train(ModelOf(name), mesh, number, number + 1, from, folder.path());
      from = folder.path();
      last = mesh;
      ++number;
    }
    ExpectEqual(TensorsOf(folder.path(), 4, last.ranks(), &reference.tensors), reference.tensors, kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, StageGroupTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.model + NameOf(info.param.mesh); });

}  // namespace
}  // namespace penstock::worker
