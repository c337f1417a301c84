#include "worker/runtime/trainer.h"

#include <ATen/ops/ones.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Complete checkpoints that are kept.
constexpr size_t kKeptCheckpoints = 2;

}  // namespace

Trainer::Trainer(TrainerParts parts) : parts_(std::move(parts)), timer_(parts_.device->MakeTimer()) {}

uint64_t Trainer::first_iteration() const {
  return parts_.checkpoint.has_value() ? parts_.checkpoint->next_iteration : job().first_iteration;
}

absl::Status Trainer::Build(const Program& program) {
  ExecutorParts executor = {
      .job = &job(), .device = parts_.device, .communicator = parts_.communicator, .timer = timer_.get()};
  for (uint32_t number : program.stages) {
    PENSTOCK_ASSIGN_OR_RETURN(
        std::unique_ptr<Stage> stage,
        parts_.device->MakeStage(job().model, StageRangeOf(program.layers_per_stage, number),
                                 job().training.seed));
    const std::vector<NamedParameter>& parameters = stage->parameters();
    parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
    executor.stages[number] = stage.get();
    stages_[number] = std::move(stage);
  }
  std::vector<const FlatParameters*> flat;
  for (const auto& [number, stage] : stages_) flat.push_back(&stage->flat_parameters());
  const Sharding sharding = {.count = static_cast<int>(job().replicas),
                             .own = static_cast<int>(program.replica),
                             .divided = job().shard_optimizer_state && job().replicas > 1};
  PENSTOCK_ASSIGN_OR_RETURN(optimizer_, AdamW::Create(job().training, flat, sharding));
  executor.optimizer = optimizer_.get();
  if (!parts_.gradients_dir.empty()) {
    executor.gradients_ready = [this](uint64_t iteration) { return DumpGradients(iteration); };
  }
  executor_ = std::make_unique<Executor>(std::move(executor));
  if (parts_.checkpoint.has_value()) PENSTOCK_RETURN_IF_ERROR(Restore());
  if (!parts_.checkpoint_dir.empty() && parts_.registration->rank == 0) {
    RemovePartialCheckpoints(parts_.checkpoint_dir);
  }
  return absl::OkStatus();
}

absl::StatusOr<IterationResult> Trainer::Run(const Program& program) {
  if (executor_ == nullptr) PENSTOCK_RETURN_IF_ERROR(Build(program));
  return executor_->Run(program);
}

absl::Status Trainer::Barrier() {
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor one, CallTorch("a barrier", [&] {
                              return at::ones({1},
                                              at::TensorOptions(at::kFloat).device(parts_.device->place()));
                            }));
  std::vector<at::Tensor> tensors = {one};
  return parts_.communicator->AllReduceSum(tensors, job().topology.WorldGroup());
}

absl::StatusOr<bool> Trainer::WriteCheckpointPart(uint64_t iteration) {
  const uint64_t interval = job().training.checkpoint_interval;
  if (interval == 0 || parts_.checkpoint_dir.empty() || (iteration + 1) % interval != 0) return false;
  const std::string what = absl::StrCat("the checkpoint after iteration ", iteration);
  const absl::StatusOr<std::string> partial = MakePartialCheckpoint(parts_.checkpoint_dir, iteration + 1);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(partial.status(), what));
  const std::string file = RankFile(*partial, parts_.registration->rank);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(WriteTensorFile(file, State(/*with_copies=*/false)), what));
  return true;
}

absl::Status Trainer::FinishCheckpoint(uint64_t iteration) {
  const std::string what = absl::StrCat("the checkpoint after iteration ", iteration);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(Barrier(), what));
  if (parts_.registration->rank != 0) return absl::OkStatus();
  const std::string& directory = parts_.checkpoint_dir;
  PENSTOCK_RETURN_IF_ERROR(
      AnnotateError(CompleteCheckpointFolder(directory, iteration + 1, job(), kKeptCheckpoints), what));
  LogInfo("checkpoint written", {{"directory", directory}, {"next_iteration", iteration + 1}});
  return absl::OkStatus();
}

std::vector<NamedTensor> Trainer::State(bool with_copies) const {
  std::vector<NamedTensor> tensors = optimizer_->State(with_copies);
  for (const NamedParameter& parameter : parameters_) {
    if (with_copies || !parameter.copy) tensors.push_back({parameter.name, parameter.value});
  }
  return tensors;
}

absl::Status Trainer::Restore() {
  const CompleteCheckpoint& checkpoint = *parts_.checkpoint;
  // Tensors have the same names however the model is split, so any file may hold them; this rank's own comes
  // first.
  std::vector<MissingPiece> missing = PiecesToRead(State(/*with_copies=*/true));
  for (uint32_t i = 0; i < checkpoint.ranks && !missing.empty(); ++i) {
    const uint32_t rank = (parts_.registration->rank + i) % checkpoint.ranks;
    PENSTOCK_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::Open(RankFile(checkpoint.path, rank)));
    PENSTOCK_RETURN_IF_ERROR(ReadPieces(file, missing));
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint '", checkpoint.path, "' has no '",
                                                   missing.front().name, "': it is of another model"));
  }
  LogInfo("continuing from a checkpoint",
          {{"checkpoint", checkpoint.path}, {"next_iteration", checkpoint.next_iteration}});
  return absl::OkStatus();
}

absl::Status Trainer::DumpGradients(uint64_t iteration) {
  std::vector<NamedTensor> gradients;
  for (const NamedParameter& parameter : parameters_) {
    if (!parameter.copy) gradients.push_back({parameter.name, parameter.gradient});
  }
  const std::string folder = absl::StrCat(parts_.gradients_dir, "/iteration-", iteration);
  return WriteTensorFile(RankFile(folder, parts_.registration->rank), gradients);
}

}  // namespace penstock::worker
