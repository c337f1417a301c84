#include "worker/runtime/trainer.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/checkpoint/initial_values.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/memory/heap.h"
#include "worker/optimizer/parameter_slice.h"
#include "worker/runtime/communication.h"
#include "worker/shares/reshard_routes.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// What one of the holders writes of tensors that all of them have: about as many bytes as every other.
std::vector<NamedTensor> ShareOf(const std::vector<NamedTensor>& tensors, int holder, int holders) {
  std::vector<size_t> bytes(static_cast<size_t>(holders), 0);
  std::vector<NamedTensor> share;
  for (const NamedTensor& tensor : tensors) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    *least += tensor.value.nbytes();
    if (least - bytes.begin() == holder) share.push_back(tensor);
  }
  return share;
}

// Replica by replica, and in each in the order of the stage group, as gradients are summed. `holders`: how
// many ranks of a stage group have the same, `own` which of them this is.
Sharding ShardingOver(const JobConfig& job, uint32_t replica, int holders, int own, int tensor_rank) {
  const int count = static_cast<int>(job.replicas) * holders;
  return {.count = count,
          .own = static_cast<int>(replica) * holders + own,
          .divided = job.shard_optimizer_state && count > 1,
          .tensor_rank = tensor_rank};
}

Shardings ShardingsOf(const JobConfig& job, const GroupPlace& place, uint32_t replica) {
  Shardings shardings = {.of_tensor_rank =
                             ShardingOver(job, replica, place.contexts, place.context, place.tensor)};
  if (place.experts > 1) {
    shardings.of_experts =
        ShardingOver(job, replica, place.expert_groups(), place.expert_group(), place.tensor);
  }
  return shardings;
}

// Of parameters of this tensor rank.
std::vector<TensorPiece> PiecesOf(const std::vector<NamedParameter>& parameters, int tensor_rank) {
  std::vector<TensorPiece> pieces;
  for (const NamedParameter& parameter : parameters)
    pieces.push_back({.slice = SliceOf(parameter, tensor_rank), .values = parameter.value});
  return pieces;
}

// The part of a rank as tensors. DATA_LOSS: it is damaged, or another rank found that it is.
absl::StatusOr<TensorFile> OpenPart(const Checkpoint& checkpoint, uint32_t rank) {
  absl::Status status = CheckPart(checkpoint, rank);
  if (status.ok()) {
    absl::StatusOr<TensorFile> file = TensorFile::Open(PartPath(checkpoint.path, rank));
    if (file.ok()) return file;
    status = file.status();
  }
  if (!absl::IsNotFound(status) && !absl::IsInvalidArgument(status)) return status;
  return absl::DataLossError(status.message());
}

}  // namespace

Trainer::Trainer(TrainerParts parts)
    : parts_(std::move(parts)),
      job_(parts_.registration->job),
      timer_(parts_.device->MakeTimer()),
      order_(parts_.device->MakeOrder(timer_.get())) {}

uint64_t Trainer::first_iteration() const {
  return parts_.checkpoint.has_value() ? parts_.checkpoint->manifest.next_iteration : job().first_iteration;
}

StageGroup& Trainer::group() const {
  StageGroup* const joined = parts_.communicator->StageGroupOf(strategy_);
  return joined != nullptr ? *joined : SoleRank();
}

absl::Status Trainer::MakeStages(const Program& program, std::optional<uint64_t> seed) {
  for (const uint32_t number : program.stages) {
    PENSTOCK_ASSIGN_OR_RETURN(
        stages_[number], parts_.device->MakeStage(job().model, StageRangeOf(program.layers_per_stage, number),
                                                  seed, group(), job().gradient_bucket_bytes));
  }
  return absl::OkStatus();
}

absl::Status Trainer::MakeShare() {
  return RunTorch("the share of the parameters", [&] {
    layout_.emplace(job().model.layers, job().ShareWeights(),
                    [this](const StageRange& range, const GroupPlace& place) {
                      return parts_.device->ParametersOf(job().model, range, place);
                    });
    share_ =
        MakeFlatParameters(layout_->SpecsOf(parts_.registration->rank), job().training.seed,
                           ToScalarType(parts_.device->ParameterType(job().model)), parts_.device->place());
  });
}

absl::Status Trainer::Build(const Program& program) {
  std::vector<const FlatParameters*> trained;
  Shardings shardings;
  if (job().parameter_shares) {
    PENSTOCK_RETURN_IF_ERROR(MakeShare());
    trained.push_back(&*share_);
  } else {
    PENSTOCK_RETURN_IF_ERROR(MakeStages(program, job().training.seed));
    for (const auto& [number, stage] : stages_) trained.push_back(&stage->flat_parameters());
    shardings = ShardingsOf(job(), group().place(), program.replica);
    tensor_rank_ = group().place().tensor;
  }
  for (const FlatParameters* flat : trained)
    parameters_.insert(parameters_.end(), flat->parameters.begin(), flat->parameters.end());
  PENSTOCK_RETURN_IF_ERROR(SetFrozenValues(trained));
  PENSTOCK_RETURN_IF_ERROR(SetInitialValues());
  PENSTOCK_ASSIGN_OR_RETURN(optimizer_, AdamW::Create(job().training, trained, shardings));
  PENSTOCK_RETURN_IF_ERROR(SetInitialMasters());
  if (parts_.checkpoint.has_value()) PENSTOCK_RETURN_IF_ERROR(Restore());
  holds_ = first_iteration();
  if (!parts_.checkpoint_dir.empty() && parts_.registration->rank == 0) {
    RemovePartialCheckpoints(parts_.checkpoint_dir, RealFolderChanges());
  }
  return absl::OkStatus();
}

void Trainer::MakeResharding(const Program& program) {
  ReshardEnds ends = {.rank = program.rank,
                      .layout = &*layout_,
                      .specs =
                          [this](const StageRange& range, const GroupPlace& place) {
                            return parts_.device->ParametersOf(job().model, range, place);
                          },
                      .topology = &strategy_job_.topology,
                      .share = &*share_};
  ReshardingParts parts = {.rank = program.rank,
                           .share = &*share_,
                           .communicator = parts_.communicator,
                           .world = job().topology.WorldGroup()};
  for (const auto& [number, stage] : stages_) {
    ends.stages[number] = &stage->flat_parameters();
    parts.stages[number] = stage.get();
  }
  std::shared_ptr<const ReshardRoutes>& routes = routes_[program.strategy];
  if (routes == nullptr) {
    const auto element_bytes = static_cast<int64_t>(share_->values.element_size());
    routes =
        std::make_shared<const ReshardRoutes>(MakeReshardRoutes(ends, element_bytes, parts_.round_bytes));
  }
  resharding_ = std::make_unique<Resharding>(std::move(parts), routes);
}

void Trainer::LearnStrategies(const Program& program) {
  if (program.added_strategy != nullptr)
    job_.added_strategies.try_emplace(program.strategy, program.added_strategy);
  if (program.validation != nullptr) LearnStrategies(*program.validation);
}

absl::Status Trainer::JoinStrategy(const Program& program) {
  if (program.added_strategy == nullptr || joined_.contains(program.strategy)) return absl::OkStatus();
  // A rank may still write its checkpoint: it is waited for as long as in a transfer.
  PENSTOCK_RETURN_IF_ERROR(Meet().status());
  const absl::Time met = absl::Now();
  const Topology& topology = program.added_strategy->topology;
  PENSTOCK_RETURN_IF_ERROR(parts_.communicator->JoinPasses(
      program.strategy, PassGroupsOf(topology, program.rank), topology.LinksOf(program.rank)));
  joined_.insert(program.strategy);
  LogInfo("the groups of a new strategy are joined",
          {{"strategy", program.strategy},
           {"iteration", program.iteration},
           {"milliseconds", absl::ToInt64Milliseconds(absl::Now() - met)}});
  return absl::OkStatus();
}

absl::Status Trainer::Enter(const Program& program) {
  // One strategy's stages are in memory at a time.
  executor_.reset();
  PENSTOCK_RETURN_IF_ERROR(JoinStrategy(program));
  strategy_ = program.strategy;
  strategy_job_ = job().Of(strategy_, program.rank);
  const bool is_new = !routes_.contains(strategy_);
  if (job().parameter_shares) {
    resharding_.reset();
    stages_.clear();
    PENSTOCK_RETURN_IF_ERROR(MakeStages(program, /*seed=*/std::nullopt));
    MakeResharding(program);
  }
  ExecutorParts executor = {.job = &strategy_job_,
                            .device = parts_.device,
                            .optimizer = optimizer_.get(),
                            .resharding = resharding_.get(),
                            .communicator = parts_.communicator,
                            .group = &group(),
                            .timer = timer_.get(),
                            .order = order_.get(),
                            .votes = parts_.votes};
  for (const auto& [number, stage] : stages_) executor.stages[number] = stage.get();
  if (!parts_.gradients_dir.empty()) {
    executor.gradients_ready = [this](uint64_t iteration) { return DumpGradients(iteration); };
  }
  if (parts_.watches_steps) executor.step_begins = [this] { holds_.reset(); };
  executor_ = std::make_unique<Executor>(std::move(executor), TokensOf(strategy_));
  // Random values and pieces of files were there beside the parameters. Later stages of one strategy take
  // what those of another leave.
  if (is_new) ReturnFreedMemory();
  return absl::OkStatus();
}

const std::shared_ptr<TokenReader>& Trainer::TokensOf(uint32_t strategy) {
  std::shared_ptr<TokenReader>& tokens = tokens_[strategy];
  if (tokens == nullptr) {
    tokens = std::make_shared<TokenReader>(
        parts_.device, job().model,
        job().Of(strategy, parts_.registration->rank).topology.PlaceOf(parts_.registration->rank));
  }
  return tokens;
}

void Trainer::Prepare(std::shared_ptr<const Program> program) {
  if (executor_ == nullptr) return;
  LearnStrategies(*program);
  TokensOf(program->strategy)->Begin(program);
  if (program->validation != nullptr) TokensOf(program->validation->strategy)->Begin(program->validation);
}

absl::StatusOr<IterationResult> Trainer::Run(const Program& program) {
  LearnStrategies(program);
  if (optimizer_ == nullptr) PENSTOCK_RETURN_IF_ERROR(Build(program));
  PENSTOCK_ASSIGN_OR_RETURN(IterationResult result, RunPasses(program));
  holds_ = program.iteration + 1;
  if (program.validation == nullptr) return result;
  PENSTOCK_ASSIGN_OR_RETURN(IterationResult validation, RunPasses(*program.validation));
  result.validation = {.instructions = std::move(validation.instructions),
                       .duration_ns = validation.duration_ns,
                       .loss = validation.loss,
                       .tasks = std::move(validation.tasks),
                       .peak_memory_bytes = validation.peak_memory_bytes};
  // Who is done first would begin the next iteration and wait in it for the others: its time would be theirs.
  PENSTOCK_RETURN_IF_ERROR(Meet().status());
  return result;
}

absl::StatusOr<IterationResult> Trainer::RunPasses(const Program& program) {
  if (executor_ == nullptr || strategy_ != program.strategy) PENSTOCK_RETURN_IF_ERROR(Enter(program));
  return executor_->Run(program);
}

absl::StatusOr<bool> Trainer::Meet(bool says) {
  const at::TensorOptions type = at::TensorOptions(at::kFloat).device(parts_.device->place());
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor said, CallTorch("a barrier", [&] {
                              return says ? at::ones({1}, type) : at::zeros({1}, type);
                            }));
  std::vector<at::Tensor> tensors = {said};
  PENSTOCK_RETURN_IF_ERROR(parts_.communicator->AllReduceSum(tensors, job().topology.WorldGroup()));
  // On a GPU nobody has waited so far but a stream.
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor sum, parts_.device->ToHost(tensors.front()));
  return sum.const_data_ptr<float>()[0] > 0;
}

absl::Status Trainer::CheckFinite() const {
  for (const NamedParameter& parameter : parameters_) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool finite, CallTorch("looking at the parameters", [&] {
                                return at::isfinite(parameter.value).all().item<bool>();
                              }));
    if (finite) continue;
    return absl::OutOfRangeError(absl::StrCat(
        "parameter '", parameter.name,
        "' is not finite after its update, and is not written. Try a lower learning rate (--lr)"));
  }
  return absl::OkStatus();
}

std::vector<NamedTensor> Trainer::PartTensors(Shares shares) const {
  std::vector<NamedTensor> own;
  for (const Holders holders : {Holders::kOfTensorRank, Holders::kOfExperts}) {
    const Sharding& sharding = optimizer_->shardings().Of(holders);
    std::vector<NamedTensor> state = EntriesOf(optimizer_->StateOf(holders));
    std::vector<NamedTensor> of_all_holders = EntriesOf(ParametersOf(holders));
    std::ranges::move(state, std::back_inserter(sharding.divided ? own : of_all_holders));
    std::ranges::move(ShareOf(of_all_holders, sharding.own, sharding.count), std::back_inserter(own));
    const int next = (sharding.own + 1) % sharding.count;
    if (shares == Shares::kOwn || next == sharding.own) continue;
    std::ranges::move(ShareOf(of_all_holders, next, sharding.count), std::back_inserter(own));
  }
  return own;
}

absl::StatusOr<PartWriter> Trainer::Part(bool training_goes_on,
                                         std::function<absl::Status()> still_wanted) const {
  PENSTOCK_RETURN_IF_ERROR(CheckFinite());
  std::vector<NamedTensor> tensors = PartTensors(Shares::kOwn);
  if (!training_goes_on) {
    return [tensors = std::move(tensors), still_wanted = std::move(still_wanted)](const std::string& path) {
      return WriteTensorFile(path, tensors, still_wanted);
    };
  }
  PENSTOCK_ASSIGN_OR_RETURN(TensorCopies copies, TensorCopies::Of(tensors));
  return [copies = std::make_shared<const TensorCopies>(std::move(copies)),
          still_wanted = std::move(still_wanted)](const std::string& path) {
    return copies->Write(path, still_wanted);
  };
}

absl::StatusOr<PartWriter> Trainer::PartOfRescue(std::function<absl::Status()> still_wanted) const {
  PENSTOCK_RETURN_IF_ERROR(CheckFinite());
  return [tensors = PartTensors(Shares::kOwnAndNext), still_wanted = std::move(still_wanted)](
             const std::string& path) { return WriteTensorFile(path, tensors, still_wanted); };
}

std::vector<TensorPiece> Trainer::Parameters() const { return PiecesOf(parameters_, tensor_rank_); }

std::vector<TensorPiece> Trainer::ParametersOf(Holders holders) const {
  std::vector<TensorPiece> pieces;
  for (const NamedParameter& parameter : parameters_) {
    if (!parameter.copy && parameter.holders == holders)
      pieces.push_back({.slice = SliceOf(parameter, tensor_rank_), .values = parameter.value});
  }
  return pieces;
}

absl::Status Trainer::SetFrozenValues(const std::vector<const FlatParameters*>& stages) const {
  if (parts_.base.empty()) return absl::OkStatus();
  if (!job().model.adapters.any())
    return absl::InvalidArgumentError("--base: the model has no adapters, so that all of it learns");
  for (const FlatParameters* stage : stages) {
    const std::vector<TensorPiece> frozen = PiecesOf(stage->frozen, tensor_rank_);
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(ReadInitialValues(parts_.base, frozen), "--base"));
  }
  return absl::OkStatus();
}

bool Trainer::BeginsWithAModel() const { return !parts_.init_from.empty() && !parts_.checkpoint.has_value(); }

absl::Status Trainer::SetInitialMasters() const {
  if (!BeginsWithAModel()) return absl::OkStatus();
  return AnnotateError(ReadInitialMasters(parts_.init_from, optimizer_->Masters()), "--init-from");
}

absl::Status Trainer::SetInitialValues() const {
  if (!BeginsWithAModel()) return absl::OkStatus();
  const std::vector<TensorPiece> values = Parameters();
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(ReadInitialValues(parts_.init_from, values), "--init-from"));
  LogInfo("beginning with the parameters of a checkpoint", {{"checkpoint", parts_.init_from}});
  return absl::OkStatus();
}

absl::Status Trainer::Restore() {
  const Checkpoint& checkpoint = *parts_.checkpoint;
  // Tensors have the same names however the model is split, so any part may hold them.
  std::vector<MissingPiece> missing = PiecesToRead(Parameters());
  std::ranges::move(PiecesToRead(optimizer_->State(/*with_copies=*/true)), std::back_inserter(missing));
  for (const uint32_t rank : ReadingOrder(checkpoint.manifest, parts_.registration->rank)) {
    if (missing.empty()) break;
    const absl::StatusOr<TensorFile> file = OpenPart(checkpoint, rank);
    if (absl::IsDataLoss(file.status())) {
      return PassOverDamaged(checkpoint, file.status(), RealFolderChanges());
    }
    PENSTOCK_RETURN_IF_ERROR(file.status());
    PENSTOCK_RETURN_IF_ERROR(ReadPieces(*file, missing));
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint '", checkpoint.path, "' has no '",
                                                   missing.front().name, "': it is of another model"));
  }
  LogInfo("continuing from a checkpoint",
          {{"checkpoint", checkpoint.path}, {"next_iteration", checkpoint.manifest.next_iteration}});
  return absl::OkStatus();
}

absl::Status Trainer::DumpGradients(uint64_t iteration) {
  std::vector<TensorPiece> pieces;
  for (const NamedParameter& parameter : parameters_) {
    if (!parameter.copy)
      pieces.push_back({.slice = SliceOf(parameter, tensor_rank_), .values = parameter.gradient});
  }
  const std::string folder = absl::StrCat(parts_.gradients_dir, "/iteration-", iteration);
  return WriteTensorFile(PartPath(folder, parts_.registration->rank), EntriesOf(pieces)).status();
}

}  // namespace penstock::worker
