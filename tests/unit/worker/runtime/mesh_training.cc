#include "tests/unit/worker/runtime/mesh_training.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/runtime/hand_made_programs.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/device/device.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/communication.h"
#include "worker/runtime/trainer.h"

namespace penstock::worker {
namespace {

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

ModelConfig Experts() {
  ModelConfig model = Llama();
  model.tied_head = false;
  model.experts = 4;
  model.experts_per_token = 2;
  model.normalised_experts = true;
  return model;
}

// Its rank and its scale divide nothing else.
ModelConfig Adapted(ModelConfig model) {
  model.adapters = {.rank = 3,
                    .scale = 1.7,
                    .targets = {LinearLayer::kQuery, LinearLayer::kKey, LinearLayer::kValue,
                                LinearLayer::kOutput, LinearLayer::kUp, LinearLayer::kDown}};
  if (model.feed_forward == FeedForward::kGatedSilu) model.adapters.targets.push_back(LinearLayer::kGate);
  return model;
}

}  // namespace

ModelConfig ModelOf(const std::string& name) {
  if (name.starts_with("Adapted")) return Adapted(ModelOf(name.substr(sizeof("Adapted") - 1)));
  return name == "T5" ? T5() : name == "Llama" ? Llama() : name == "Experts" ? Experts() : Gpt2();
}

std::string NameOf(const MeshOf& mesh) {
  std::string name = absl::StrCat("Dp", mesh.replicas, "Pp", mesh.stages, "Cp", mesh.contexts, "Tp",
                                  mesh.tensors, mesh.experts > 1 ? absl::StrCat("Ep", mesh.experts) : "",
                                  mesh.zero ? "Zero" : "", mesh.in_parts ? "InParts" : "",
                                  mesh.bucket_bytes > 0 ? absl::StrCat("Bucket", mesh.bucket_bytes) : "");
  for (const MeshOf& other : mesh.beside) absl::StrAppend(&name, "And", NameOf(other));
  return name;
}

namespace {

// Of its two layers.
uint32_t LayersOfStage(const MeshOf& mesh) { return 2 / mesh.stages; }

// It and those beside it.
std::vector<MeshOf> AllOf(const MeshOf& mesh) {
  std::vector<MeshOf> all = {mesh};
  all.insert(all.end(), mesh.beside.begin(), mesh.beside.end());
  return all;
}

Topology TopologyOfMesh(const MeshOf& meshes) {
  Topology all;
  uint32_t first_rank = 0;
  for (const MeshOf& mesh : AllOf(meshes)) {
    Topology topology = TopologyOf(mesh.replicas, mesh.stages, mesh.contexts, mesh.tensors);
    for (ReplicaTopology& replica : topology.replicas) {
      replica.expert = mesh.experts;
      for (StageTopology& stage : replica.stages) {
        stage.layers = LayersOfStage(mesh);
        for (uint32_t& rank : stage.ranks) rank += first_rank;
      }
      all.replicas.push_back(replica);
    }
    first_rank += mesh.own_ranks();
  }
  return all;
}

// Of each replica, its mesh.
std::vector<MeshOf> MeshesOfReplicas(const MeshOf& meshes) {
  std::vector<MeshOf> of_replicas;
  for (const MeshOf& mesh : AllOf(meshes)) of_replicas.insert(of_replicas.end(), mesh.replicas, mesh);
  return of_replicas;
}

// As a rank sees it whose stages have these layers.
HandMadeIteration IterationOf(const ModelConfig& model, const MeshOf& meshes, uint64_t number,
                              std::vector<uint32_t> layers_per_stage) {
  const bool t5 = model.architecture == Architecture::kT5;
  const Dataset dataset;
  HandMadeIteration iteration = {.iteration = number, .loss_tokens = 31};
  iteration.layers_per_stage = std::move(layers_per_stage);
  const std::vector<MeshOf> replicas = MeshesOfReplicas(meshes);
  iteration.micro_batches.resize(replicas.size());
  for (uint64_t first = 0; first < 8; first += 2) {
    const size_t replica = first / 2 % replicas.size();
    const MeshOf& mesh = replicas[replica];
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
    if (mesh.in_parts) shape.part_rows = {0, 1, 2};
    shape.computed_tokens = shape.target_cu_seqlens.back();
    shape.recompute.assign(mesh.stages, {.selective = first == 2 ? 1 : 0, .full = first == 4 ? 1 : 0});
    iteration.micro_batches[replica].push_back(std::move(shape));
  }
  return iteration;
}

}  // namespace

// Nobody leaves before all have joined, nor before all are done: a connection that closes fails the others.
void RunJob(const JobConfig& job, const RankBody& body) {
  const CommTestServer server;
  std::latch joined(job.world_size());
  std::latch done(job.world_size());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < job.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options = server.Options(rank, job.world_size());
      SetGroups(job, rank, options);
      const auto communicator = MakeGlooCommunicator(options);
      joined.arrive_and_wait();
      EXPECT_TRUE(communicator.ok()) << communicator.status();
      if (communicator.ok()) body(rank, **communicator);
      done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

JobConfig JobOf(const ModelConfig& model, const MeshOf& mesh) {
  JobConfig job = {
      .job_id = "job",
      .model = model,
      .pipeline = mesh.stages,
      .replicas = mesh.replicas,
      .context = mesh.contexts,
      .tensor = mesh.tensors,
      .expert = mesh.experts,
      .topology = TopologyOfMesh(mesh),
      .training = {.seed = 3, .learning_rate = {.peak = 0.02}, .weight_decay = 0.1, .clip_norm = 0.7},
      .shard_optimizer_state = mesh.zero};
  if (mesh.bucket_bytes > 0) job.gradient_bucket_bytes = mesh.bucket_bytes;
  return job;
}

JobConfig JobOfStrategies(const ModelConfig& model, const std::vector<MeshOf>& meshes) {
  JobConfig job = JobOf(model, meshes.front());
  job.parameter_shares = true;
  for (const MeshOf& mesh : meshes) {
    StrategyConfig& strategy = job.strategies.emplace_back();
    strategy.topology = TopologyOfMesh(mesh);
    for (const MeshOf& one : AllOf(mesh)) {
      strategy.meshes.push_back({.pipeline = one.stages,
                                 .replicas = one.replicas,
                                 .context = one.contexts,
                                 .tensor = one.tensors,
                                 .expert = one.experts});
    }
  }
  if (!meshes.front().beside.empty()) job.ranks = meshes.front().ranks();
  return job;
}

JobConfig WithAddedStrategies(JobConfig job) {
  for (size_t i = 1; i < job.strategies.size(); ++i)
    job.added_strategies[static_cast<uint32_t>(i)] =
        std::make_shared<const StrategyConfig>(job.strategies[i]);
  job.strategies.resize(1);
  return job;
}

const IndexedDataset& TrainingSamples() {
  static const auto* const samples = new Dataset;
  return *samples;
}

Program ProgramOf(const JobConfig& job, const std::vector<MeshOf>& meshes, uint64_t number, uint32_t rank) {
  const auto strategy = static_cast<uint32_t>(number % meshes.size());
  const JobConfig own = job.Of(strategy, rank);
  const std::vector<uint32_t> layers_per_stage = own.topology.LayersPerStageOf(rank);
  Program program =
      HandMadeProgram(own, IterationOf(job.model, meshes[strategy], number, layers_per_stage), rank);
  program.strategy = strategy;
  const auto added = job.added_strategies.find(strategy);
  if (added != job.added_strategies.end()) program.added_strategy = added->second;
  return program;
}

Figures Train(const JobConfig& job, const std::vector<MeshOf>& meshes, uint64_t first, uint64_t end,
              const std::string& from, const std::string& folder) {
  const uint64_t count = end - first;
  Figures figures = {std::vector<double>(count), std::vector<double>(count), std::vector<PartNorms>(count)};
  std::vector<std::vector<IterationResult>> results(job.world_size());
  RunJob(job, [&](uint32_t rank, Communicator& communicator) {
    const std::unique_ptr<Device> device = *MakeTorchDevice("cpu", &TrainingSamples());
    Registration self = {.rank = rank, .epoch = 1, .job = job};
    // Programs tell of these.
    self.job.added_strategies.clear();
    TrainerParts parts = {.registration = &self, .device = device.get(), .communicator = &communicator};
    // As many rounds as there are layers, which go while passes make others.
    parts.round_bytes = 1;
    if (!from.empty()) parts.checkpoint = *OpenCheckpoint(from, first, CheckpointDepth::kContents);
    Trainer trainer(parts);
    for (uint64_t number = first; number < end; ++number) {
      const auto result = trainer.Run(ProgramOf(job, meshes, number, rank));
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
      for (const MeasuredPart& part : of_rank[i].parts) figures.parts[i][part.part] += part.norm * part.norm;
    }
  }
  for (uint64_t i = 0; i < count; ++i) {
    double squares = 0;
    for (auto& [part, norm] : figures.parts[i]) {
      squares += norm;
      norm = std::sqrt(norm);
    }
    EXPECT_NEAR(std::sqrt(squares), figures.norms[i], 1e-12 * figures.norms[i]) << "iteration " << i;
  }
  return figures;
}

Figures Train(const ModelConfig& model, const MeshOf& mesh, uint64_t first, uint64_t end,
              const std::string& from, const std::string& folder) {
  return Train(JobOf(model, mesh), {mesh}, first, end, from, folder);
}

std::map<std::string, at::Tensor> TensorsOf(const std::string& folder, uint64_t next, uint32_t ranks,
                                            const std::map<std::string, at::Tensor>* like) {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> elements;
  const std::string path = CheckpointPath(folder, next);
  std::vector<TensorFile> files;
  for (uint32_t rank = 0; rank < ranks; ++rank) files.push_back(*TensorFile::Open(PartPath(path, rank)));
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
    for (const TensorFile& file : files) EXPECT_TRUE(ReadPieces(file, missing, StoredTypes::kAnyFloat).ok());
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

void ExpectEqual(const std::vector<PartNorms>& found, const std::vector<PartNorms>& expected,
                 double tolerance) {
  ASSERT_LE(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size()) << "iteration " << i;
    for (const auto& [part, norm] : expected[i])
      EXPECT_NEAR(found[i].at(part), norm, tolerance) << "part " << part << " of iteration " << i;
  }
}

const Reference& ReferenceOf(const std::string& name) {
  static auto* const folder = new TemporaryFolder;
  static auto* const references = new std::map<std::string, Reference>;
  const auto found = references->find(name);
  if (found != references->end()) return found->second;
  const ModelConfig model = ModelOf(name);
  Reference& reference = (*references)[name];
  reference.checkpoint = folder->Path(name);
  reference.figures = Train(model, {}, 0, 2, "", reference.checkpoint);
  const Figures rest = Train(model, {}, 2, 4, reference.checkpoint, reference.checkpoint);
  for (const double loss : rest.losses) reference.figures.losses.push_back(loss);
  for (const double norm : rest.norms) reference.figures.norms.push_back(norm);
  for (const PartNorms& parts : rest.parts) reference.figures.parts.push_back(parts);
  reference.tensors = TensorsOf(reference.checkpoint, 4, 1, nullptr);
  return reference;
}

}  // namespace penstock::worker
