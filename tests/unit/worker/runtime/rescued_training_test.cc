// What the ranks of a mesh that are left write, when any one of them is lost: the checkpoint has every
// tensor, with the bits of one that all ranks have written, and training goes on from it on any mesh.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/checkpoint/rescue.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/runtime/mesh_training.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/device/device.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/holder_rings.h"
#include "worker/runtime/trainer.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kEpoch = 1;
constexpr double kTolerance = 1e-11;

struct RescuedCase {
  std::string model;
  MeshOf mesh;
};

// The whole tensors of a checkpoint, whoever has which part of them, and however often.
std::map<std::string, at::Tensor> WholeTensors(const Checkpoint& checkpoint,
                                               const std::map<std::string, at::Tensor>& like) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : like) {
    tensors[name] = at::zeros_like(tensor);
    std::vector<MissingPiece> missing =
        PiecesToRead({{WholeSlice(name, tensor.sizes().vec()), 0, tensors[name]}});
    for (uint32_t rank = 0; rank < checkpoint.manifest.ranks; ++rank) {
      const auto file = TensorFile::Open(PartPath(checkpoint.path, rank));
      const absl::Status read = file.ok() ? ReadPieces(*file, missing) : file.status();
      EXPECT_TRUE(read.ok()) << read;
    }
    EXPECT_TRUE(missing.empty()) << name;
  }
  return tensors;
}

class RescuedTrainingTest : public ::testing::TestWithParam<RescuedCase> {
 protected:
  // Two iterations on all ranks; then each writes an ordinary part, and its part of a rescue as if rank
  // `lost` of the folder were not there any more.
  void TrainAndWrite() {
    RunJob(job_, [&](uint32_t rank, Communicator& communicator) {
      const std::unique_ptr<Device> device = *MakeTorchDevice("cpu", &TrainingSamples());
      const Registration self = {.rank = rank, .epoch = kEpoch, .job = job_};
      Trainer trainer({.registration = &self,
                       .device = device.get(),
                       .communicator = &communicator,
                       .watches_steps = true});
      EXPECT_FALSE(trainer.holds().has_value());
      for (uint64_t number = 0; number < 2; ++number) {
        const auto result = trainer.Run(ProgramOf(job_, {GetParam().mesh}, number, rank));
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(trainer.holds(), number + 1);
      }
      const CheckpointManifest of = ManifestOf(job_, 2);
      ASSERT_TRUE(
          WritePart(whole_, rank, *trainer.Part(/*training_goes_on=*/false), of, RealFolderChanges()).ok());
      const auto part = trainer.PartOfRescue([] { return absl::OkStatus(); });
      ASSERT_TRUE(part.ok()) << part.status();
      for (uint32_t lost = 0; lost < job_.world_size(); ++lost) {
        if (lost == rank) continue;
        const auto written = WriteRescuePart(Folder(lost), rank, *part, of, kEpoch, RealFolderChanges());
        ASSERT_TRUE(written.ok()) << written.status();
      }
    });
    ASSERT_TRUE(CompleteCheckpoint(whole_, 2, kKeptCheckpoints, RealFolderChanges()).ok());
  }

  std::string Folder(uint32_t lost) const { return temporary_.Path(absl::StrCat("without-", lost)); }

  Checkpoint Rescued(uint32_t lost) {
    const CheckpointManifest of = ManifestOf(job_, 2);
    RescueRecords records;
    FindRescueRecords(Folder(lost), of, kEpoch, records);
    EXPECT_EQ(records.size(), job_.world_size() - 1);
    std::map<uint32_t, WrittenShares> shares;
    for (const auto& [rank, _] : records) shares[rank] = WrittenShares::kOwnAndNext;
    EXPECT_TRUE(CoverAll(HolderRings(job_), shares));
    const auto completed = CompleteRescue(Folder(lost), of, records, kKeptCheckpoints, RealFolderChanges());
    EXPECT_TRUE(completed.ok()) << completed.status();
    return *OpenCheckpoint(Folder(lost), 2, CheckpointDepth::kContents);
  }

  const TemporaryFolder temporary_;
  const std::string whole_ = temporary_.Path("whole");
  const JobConfig job_ = JobOf(ModelOf(GetParam().model), GetParam().mesh);
};

TEST_P(RescuedTrainingTest, HasEveryBitWhicheverRankIsLostAndTrainingGoesOnFromIt) {
  TrainAndWrite();
  const Reference& reference = ReferenceOf(GetParam().model);
  const auto expected =
      WholeTensors(*OpenCheckpoint(whole_, 2, CheckpointDepth::kContents), reference.tensors);
  for (uint32_t lost = 0; lost < job_.world_size(); ++lost) {
    SCOPED_TRACE(absl::StrCat("without rank ", lost));
    ExpectEqual(WholeTensors(Rescued(lost), reference.tensors), expected, 0);
  }
  const std::string after = temporary_.Path("after");
  const Figures figures = Train(ModelOf(GetParam().model), GetParam().mesh, 2, 4, Folder(1), after);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(figures.losses[i], reference.figures.losses[i + 2], kTolerance) << "iteration " << i + 2;
  Train(ModelOf(GetParam().model), {}, 2, 4, Folder(0), temporary_.Path("alone"));
  ExpectEqual(TensorsOf(temporary_.Path("alone"), 4, 1, &reference.tensors), reference.tensors, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, RescuedTrainingTest,
    ::testing::Values(RescuedCase{"Gpt2", {.replicas = 2}},
                      RescuedCase{"Llama", {.replicas = 2, .stages = 2}},
                      RescuedCase{"Llama", {.replicas = 4}}, RescuedCase{"T5", {.replicas = 3, .stages = 2}},
                      RescuedCase{"Gpt2", {.contexts = 2}},
                      RescuedCase{"Llama", {.replicas = 2, .contexts = 2, .tensors = 2}},
                      RescuedCase{"Experts", {.replicas = 2, .contexts = 2, .experts = 2}},
                      RescuedCase{"AdaptedLlama", {.replicas = 2, .stages = 2}}),
    [](const auto& info) { return info.param.model + NameOf(info.param.mesh); });

}  // namespace
}  // namespace penstock::worker
