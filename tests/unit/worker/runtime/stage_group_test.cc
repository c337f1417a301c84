// Whole iterations of meshes with stage groups, their ranks as threads over Gloo, against one rank: losses,
// norm, parameters, optimizer state and checkpoints, which go from any mesh to any other.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/comm_testing.h"
#include "tests/unit/worker/runtime/hand_made_programs.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/device/device.h"
#include "worker/program/share.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/trainer.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocab = 19;

// Samples of so many tokens, the first of which is input.
class Dataset : public IndexedDataset {
 public:
  size_t size() const override { return kLengths.size(); }
  size_t bytes_per_token() const override { return 2; }
  SampleLength Length(size_t sample) const override { return {.input = 1, .target = kLengths[sample] - 1}; }
  absl::StatusOr<std::vector<int32_t>> Tokens(size_t sample) const override {
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < kLengths[sample]; ++i)
      tokens.push_back(static_cast<int32_t>((7 * sample + 3 * i + i * i) % kVocab));
    return tokens;
  }

 private:
  const std::vector<uint32_t> kLengths = {13, 3, 4, 9, 16, 2, 5, 8};
};

struct MeshOf {
  uint32_t replicas = 1;
  uint32_t stages = 1;
  uint32_t contexts = 1;
  uint32_t tensors = 1;
  bool zero = false;

  uint32_t ranks() const { return replicas * stages * contexts * tensors; }
};

std::string NameOf(const MeshOf& mesh) {
  return absl::StrCat("Dp", mesh.replicas, "Pp", mesh.stages, "Cp", mesh.contexts, "Tp", mesh.tensors,
                      mesh.zero ? "Zero" : "");
}

ModelConfig Gpt2() {
  return {.layers = 2,
          .hidden = 8,
          .heads = 4,
          .attention_inner = 8,
          .ffn = 16,
          .vocab = kVocab,
          .max_sequence_length = 16,
          .dtype = DataType::kFloat64};
}

// Its token embedding is shared by the first and the last stage.
ModelConfig Llama() {
  ModelConfig model = Gpt2();
  model.feed_forward = FeedForward::kGatedSilu;
  model.position = Position::kRotary;
  model.norm = Norm::kRms;
  model.attention_biases = Biases::kQueryKeyValue;
  model.feed_forward_biases = Biases::kNone;
  model.key_value_heads = 2;
  model.tied_head = true;
  return model;
}

// Relative biases are shared by its stages.
ModelConfig T5() {
  ModelConfig model = Gpt2();
  model.architecture = Architecture::kT5;
  model.feed_forward = FeedForward::kRelu;
  model.encoder_layers = 1;
  model.decoder_start_token = 0;
  model.tied_embeddings = true;
  return model;
}

ModelConfig ModelOf(const std::string& name) {
  return name == "T5" ? T5() : name == "Llama" ? Llama() : Gpt2();
}

JobConfig JobOf(const ModelConfig& model, const MeshOf& mesh) {
  return {.job_id = "job",
          .model = model,
          .pipeline = mesh.stages,
          .replicas = mesh.replicas,
          .context = mesh.contexts,
          .tensor = mesh.tensors,
          .topology = TopologyOf(mesh.replicas, mesh.stages, mesh.contexts, mesh.tensors),
          .training = {.seed = 3, .learning_rate = {.peak = 0.02}, .weight_decay = 0.1, .clip_norm = 0.7},
          .shard_optimizer_state = mesh.zero};
}

// Two samples in each of four micro-batches, which the replicas share out. Spans are as wide as the mesh and
// the sample allow, and narrower by turns.
HandMadeIteration IterationOf(const ModelConfig& model, const MeshOf& mesh, uint64_t number) {
  const bool t5 = model.architecture == Architecture::kT5;
  const Dataset dataset;
  HandMadeIteration iteration = {.iteration = number, .loss_tokens = 31};
  iteration.layers_per_stage.assign(mesh.stages, 2 / mesh.stages);
  iteration.micro_batches.resize(mesh.replicas);
  for (uint64_t first = 0; first < 8; first += 2) {
    MicroBatch shape;
    shape.layout = Layout::kPacked;
    shape.target_cu_seqlens = {0};
    if (t5) shape.source_cu_seqlens = {0};
    for (const uint64_t sample : {first, first + 1}) {
      const SampleLength length = dataset.Length(sample);
      const auto tokens = static_cast<int32_t>(t5 ? length.target : length.input + length.target);
      if (t5)
        shape.source_cu_seqlens.push_back(shape.source_cu_seqlens.back() +
                                          static_cast<int32_t>(length.input));
      shape.sample_ids.push_back(sample);
      shape.input_tokens.push_back(length.input);
      shape.target_tokens.push_back(length.target);
      shape.target_cu_seqlens.push_back(shape.target_cu_seqlens.back() + tokens);
      if (mesh.contexts == 1) continue;
      Span span = {.ranks = mesh.contexts >> (sample + number) % 2};
      while (span.ranks > 1 && tokens < 2 * static_cast<int32_t>(span.ranks)) span.ranks /= 2;
      span.first = static_cast<uint32_t>(sample) % (mesh.contexts / span.ranks) * span.ranks;
      shape.spans.push_back(span);
    }
    shape.computed_tokens = shape.target_cu_seqlens.back();
    shape.recompute.assign(mesh.stages, {.selective = first == 2 ? 1 : 0, .full = first == 4 ? 1 : 0});
    iteration.micro_batches[first / 2 % mesh.replicas].push_back(std::move(shape));
  }
  return iteration;
}

struct Figures {
  std::vector<double> losses;
  std::vector<double> norms;
};

// Iterations [first, end) on all ranks of the mesh, from the checkpoint if there is one; leaves one in
// `folder`. Figures are summed over the ranks, whose norms are equal in every bit.
Figures Train(const ModelConfig& model, const MeshOf& mesh, uint64_t first, uint64_t end,
              const std::string& from, const std::string& folder) {
  const JobConfig job = JobOf(model, mesh);
  const Dataset dataset;
  Figures figures = {std::vector<double>(end - first), std::vector<double>(end - first)};
  std::vector<std::vector<IterationResult>> results(mesh.ranks());
  RunTopology(job.topology, [&](uint32_t rank, Communicator& communicator) {
    const std::unique_ptr<Device> device = *MakeTorchDevice("cpu", &dataset);
    const Registration self = {.rank = rank, .epoch = 1, .job = job};
    TrainerParts parts = {.registration = &self, .device = device.get(), .communicator = &communicator};
    if (!from.empty()) parts.checkpoint = *OpenCheckpoint(from, first, CheckpointDepth::kContents);
    Trainer trainer(parts);
    for (uint64_t number = first; number < end; ++number) {
      const auto result = trainer.Run(HandMadeProgram(job, IterationOf(model, mesh, number), rank));
      ASSERT_TRUE(result.ok()) << result.status();
      results[rank].push_back(*result);
    }
    const absl::StatusOr<PartWriter> part = trainer.Part(/*training_goes_on=*/true);
    ASSERT_TRUE(part.ok()) << part.status();
    const auto written = WritePart(folder, rank, *part, ManifestOf(job, end), RealFolderChanges());
    EXPECT_TRUE(written.ok()) << written.status();
  });
  const absl::Status complete = CompleteCheckpoint(folder, end, kKeptCheckpoints, RealFolderChanges());
  EXPECT_TRUE(complete.ok()) << complete;
  for (const std::vector<IterationResult>& of_rank : results) {
    for (size_t i = 0; i < of_rank.size(); ++i) {
      figures.losses[i] += of_rank[i].loss;
      figures.norms[i] = of_rank[i].gradient_norm;
      EXPECT_EQ(of_rank[i].gradient_norm, results[0][i].gradient_norm) << "iteration " << i;
    }
  }
  return figures;
}

// All tensors of a checkpoint, whole. Fails where two entries have the same elements.
std::map<std::string, at::Tensor> TensorsOf(const std::string& folder, uint64_t next, const MeshOf& mesh,
                                            const std::map<std::string, at::Tensor>* like) {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> elements;
  const std::string path = CheckpointPath(folder, next);
  std::vector<TensorFile> files;
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    files.push_back(*TensorFile::Open(PartPath(path, rank)));
  for (const TensorFile& file : files) {
    for (const auto& [entry, stored] : file.entries()) {
      const std::string name = ParseEntryName(entry).tensor;
      elements[name] += c10::multiply_integers(stored.shape);
      if (like == nullptr) tensors[name] = at::zeros(stored.shape, at::kDouble);
    }
  }
  if (like != nullptr) {
    for (const auto& [name, tensor] : *like) tensors[name] = at::zeros_like(tensor);
  }
  for (const auto& [name, tensor] : tensors) {
    std::vector<MissingPiece> missing = PiecesToRead({{WholeSlice(name, tensor.sizes().vec()), 0, tensor}});
    for (const TensorFile& file : files) EXPECT_TRUE(ReadPieces(file, missing).ok());
    EXPECT_TRUE(missing.empty()) << name;
    EXPECT_EQ(elements[name], tensor.numel()) << name << " is not there once";
  }
  EXPECT_EQ(elements.size(), tensors.size());
  return tensors;
}

void ExpectEqual(const std::map<std::string, at::Tensor>& found,
                 const std::map<std::string, at::Tensor>& expected, double tolerance) {
  for (const auto& [name, tensor] : expected) {
    const double difference = (found.at(name) - tensor).abs().max().item<double>();
    EXPECT_LE(difference, tolerance * std::max(1.0, tensor.abs().max().item<double>())) << name;
  }
}

// What one rank makes of four iterations, and how they stand after two.
struct Reference {
  Figures figures;
  std::map<std::string, at::Tensor> tensors;
  std::string checkpoint;
};

const Reference& ReferenceOf(const std::string& name, const ModelConfig& model) {
  static auto* const folder = new TemporaryFolder;
  static auto* const references = new std::map<std::string, Reference>;
  const auto found = references->find(name);
  if (found != references->end()) return found->second;
  Reference& reference = (*references)[name];
  reference.checkpoint = folder->Path(name);
  reference.figures = Train(model, {}, 0, 2, "", reference.checkpoint);
  const Figures rest = Train(model, {}, 2, 4, reference.checkpoint, reference.checkpoint);
  for (const double loss : rest.losses) reference.figures.losses.push_back(loss);
  for (const double norm : rest.norms) reference.figures.norms.push_back(norm);
  reference.tensors = TensorsOf(reference.checkpoint, 4, {}, nullptr);
  return reference;
}

struct Case {
  std::string model;
  MeshOf mesh;
};

class StageGroupTest : public ::testing::TestWithParam<Case> {
 protected:
  ModelConfig model() const { return ModelOf(GetParam().model); }
  const Reference& reference() const { return ReferenceOf(GetParam().model, model()); }
  TemporaryFolder folder_;
};

constexpr double kTolerance = 1e-11;

TEST_P(StageGroupTest, TrainsAsOneRankDoes) {
  const Figures figures = Train(model(), GetParam().mesh, 0, 4, "", folder_.Path("checkpoints"));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(figures.losses[i], reference().figures.losses[i], kTolerance) << "iteration " << i;
    EXPECT_NEAR(figures.norms[i], reference().figures.norms[i], kTolerance) << "iteration " << i;
  }
  ExpectEqual(TensorsOf(folder_.Path("checkpoints"), 4, GetParam().mesh, &reference().tensors),
              reference().tensors, kTolerance);
}

TEST_P(StageGroupTest, GoesOnFromACheckpointOfOneRankAndBack) {
  const std::string checkpoint = folder_.Path("checkpoints");
  Train(model(), GetParam().mesh, 2, 3, reference().checkpoint, checkpoint);
  Train(model(), {}, 3, 4, checkpoint, checkpoint);
  ExpectEqual(TensorsOf(checkpoint, 4, {}, &reference().tensors), reference().tensors, kTolerance);
}

TEST_P(StageGroupTest, TheNormHasTheSameBitsWhereTheStateIsDivided) {
  MeshOf mesh = GetParam().mesh;
  if (!mesh.zero) GTEST_SKIP() << "other meshes show it";
  mesh.zero = false;
  const Figures whole = Train(model(), mesh, 0, 2, "", folder_.Path("whole"));
  mesh.zero = true;
  const Figures divided = Train(model(), mesh, 0, 2, "", folder_.Path("divided"));
  EXPECT_EQ(whole.norms, divided.norms);
  ExpectEqual(TensorsOf(folder_.Path("divided"), 2, mesh, &reference().tensors),
              TensorsOf(folder_.Path("whole"), 2, mesh, &reference().tensors), 0);
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
  return cases;
}

TEST(CheckpointsOfStageGroupsTest, GoFromAnyMeshToAnyOther) {
  for (const char* name : {"Gpt2", "Llama"}) {
    const Reference& reference = ReferenceOf(name, ModelOf(name));
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
    ExpectEqual(TensorsOf(folder.path(), 4, last, &reference.tensors), reference.tensors, kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, StageGroupTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.model + NameOf(info.param.mesh); });

}  // namespace
}  // namespace penstock::worker
