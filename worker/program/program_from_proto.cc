#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/program/check_reshards.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/from_proto.h"
#include "worker/program/parts.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

using v1::StreamProgramsResponse;

// Of a program.
enum class Kind : uint8_t { kTraining, kValidation };

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// One sample's place in the micro-batch. `index` is into the global batch.
absl::Status AppendSample(const StreamProgramsResponse& message, uint32_t index, MicroBatch& micro_batch) {
  if (index >= static_cast<uint32_t>(message.samples_size())) {
    return Invalid("sample ", index, " is not in the batch of ", message.samples_size());
  }
  const v1::Sample& sample = message.samples(static_cast<int>(index));
  micro_batch.sample_ids.push_back(sample.sample_id());
  micro_batch.input_tokens.push_back(sample.input_tokens());
  micro_batch.target_tokens.push_back(sample.target_tokens());
  return absl::OkStatus();
}

bool HasWeights(const StreamProgramsResponse& message, const v1::MicroBatch& proto) {
  return std::ranges::any_of(proto.samples(), [&message](uint32_t index) {
    return message.samples(static_cast<int>(index)).has_loss_weight();
  });
}

// What the samples weigh in the loss, and whose tasks they are of. The samples are in the batch.
absl::Status AppendLoss(const StreamProgramsResponse& message, const v1::MicroBatch& proto,
                        const JobConfig& job, MicroBatch& micro_batch) {
  const bool weighted = HasWeights(message, proto);
  for (const uint32_t index : proto.samples()) {
    const v1::Sample& sample = message.samples(static_cast<int>(index));
    if (sample.has_loss_weight() && (!std::isfinite(sample.loss_weight()) || sample.loss_weight() < 0)) {
      return Invalid("samples[", index, "].loss_weight is ", sample.loss_weight(),
                     ", expected a number of at least 0");
    }
    std::optional<double> weight;
    if (sample.has_loss_weight()) weight = sample.loss_weight();
    if (weighted) micro_batch.loss_weights.push_back(weight);
    if (job.tasks == 0) continue;
    if (sample.task() >= job.tasks)
      return Invalid("samples[", index, "].task is ", sample.task(), ", but the job has ", job.tasks);
    micro_batch.tasks.push_back(sample.task());
  }
  return absl::OkStatus();
}

// The source or the target of a micro-batch.
struct TokenSide {
  const char* length_field;
  const char* cumulative_field;
  int64_t length = 0;
  const std::vector<int32_t>& cumulative;
  // Tokens of each sample.
  std::vector<int64_t> tokens;
};

absl::Status CheckPadded(const MicroBatch& micro_batch, const TokenSide& side) {
  for (size_t i = 0; i < side.tokens.size(); ++i) {
    if (side.tokens[i] <= side.length) continue;
    return Invalid(side.length_field, " is ", side.length, ", but sample ", micro_batch.sample_ids[i],
                   " has ", side.tokens[i], " tokens");
  }
  return absl::OkStatus();
}

absl::Status CheckConcatenated(const MicroBatch& micro_batch, const TokenSide& side) {
  for (size_t row = 0; row + 1 < micro_batch.row_samples.size(); ++row) {
    int64_t tokens = 0;
    for (int32_t i = micro_batch.row_samples[row]; i < micro_batch.row_samples[row + 1]; ++i) {
      tokens += side.tokens[static_cast<size_t>(i)];
    }
    if (tokens <= side.length) continue;
    return Invalid(side.length_field, " is ", side.length, ", but row ", row, " has ", tokens, " tokens");
  }
  return absl::OkStatus();
}

absl::Status CheckPacked(const MicroBatch& micro_batch, const TokenSide& side) {
  const size_t samples = side.tokens.size();
  if (side.cumulative.size() != samples + 1 || side.cumulative.front() != 0) {
    return Invalid(side.cumulative_field, " must be 0 and one more value for each of the ", samples,
                   " samples");
  }
  for (size_t i = 0; i < samples; ++i) {
    if (int64_t{side.cumulative[i + 1]} - side.cumulative[i] == side.tokens[i]) continue;
    return Invalid(side.cumulative_field, "[", i + 1, "] does not fit sample ", micro_batch.sample_ids[i],
                   " of ", side.tokens[i], " tokens");
  }
  return absl::OkStatus();
}

absl::Status CheckSide(const MicroBatch& micro_batch, const TokenSide& side) {
  switch (micro_batch.layout) {
    case Layout::kPadded:
      return CheckPadded(micro_batch, side);
    case Layout::kPacked:
      return CheckPacked(micro_batch, side);
    case Layout::kConcatenated:
      return CheckConcatenated(micro_batch, side);
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const MicroBatch& micro_batch) {
  const auto samples = static_cast<int64_t>(micro_batch.sample_ids.size());
  if (micro_batch.layout == Layout::kPadded && micro_batch.rows != samples) {
    return Invalid("rows is ", micro_batch.rows, " for ", samples, " samples");
  }
  if (micro_batch.layout != Layout::kConcatenated) return absl::OkStatus();
  const std::vector<int32_t>& ends = micro_batch.row_samples;
  if (static_cast<int64_t>(ends.size()) == micro_batch.rows + 1 && ends.front() == 0 &&
      ends.back() == samples && std::ranges::is_sorted(ends)) {
    return absl::OkStatus();
  }
  return Invalid("row_samples must be ", micro_batch.rows + 1, " ascending values from 0 to ", samples);
}

// The spans of the rows, where there are several context ranks.
absl::Status AppendSpans(const v1::MicroBatch& proto, const JobConfig& job, MicroBatch& micro_batch) {
  if (proto.span_first_size() != proto.span_ranks_size()) {
    return Invalid("span_first has ", proto.span_first_size(), " values, span_ranks ",
                   proto.span_ranks_size());
  }
  if (job.context == 1 && proto.span_first_size() > 0) {
    return Invalid("span_first has ", proto.span_first_size(), " values, but the job has one context rank");
  }
  for (int row = 0; row < proto.span_first_size(); ++row) {
    micro_batch.spans.push_back({.first = proto.span_first(row), .ranks = proto.span_ranks(row)});
  }
  const auto contexts = static_cast<int>(job.context);
  if (job.model.architecture == Architecture::kT5)
    PENSTOCK_RETURN_IF_ERROR(CheckSpans(micro_batch, Side::kSource, contexts));
  return CheckSpans(micro_batch, Side::kTarget, contexts);
}

// The parts in which passes go through the rows. The samples are where the layout says.
absl::Status AppendParts(const v1::MicroBatch& proto, const JobConfig& job, MicroBatch& micro_batch) {
  micro_batch.part_rows.assign(proto.part_rows().begin(), proto.part_rows().end());
  return CheckParts(micro_batch, {.contexts = static_cast<int>(job.context),
                                  .tensors = static_cast<int>(job.tensor),
                                  .experts = static_cast<int>(job.expert)});
}

// That the samples are where the layout says.
absl::Status AppendPlaces(const v1::MicroBatch& proto, const JobConfig& job, MicroBatch& micro_batch) {
  const ModelConfig& model = job.model;
  PENSTOCK_RETURN_IF_ERROR(CheckRows(micro_batch));
  TokenSide source = {
      "source_length", "source_cu_seqlens", micro_batch.source_length, micro_batch.source_cu_seqlens, {}};
  TokenSide target = {
      "target_length", "target_cu_seqlens", micro_batch.target_length, micro_batch.target_cu_seqlens, {}};
  const bool t5 = model.architecture == Architecture::kT5;
  for (size_t i = 0; i < micro_batch.sample_ids.size(); ++i) {
    const int64_t input = micro_batch.input_tokens[i];
    source.tokens.push_back(input);
    target.tokens.push_back(micro_batch.target_tokens[i] + (t5 ? 0 : input));
  }
  if (t5) PENSTOCK_RETURN_IF_ERROR(CheckSide(micro_batch, source));
  PENSTOCK_RETURN_IF_ERROR(CheckSide(micro_batch, target));
  return AppendSpans(proto, job, micro_batch);
}

// Recompute of each stage.
absl::Status AppendRecompute(const StreamProgramsResponse& message, const v1::MicroBatch& proto,
                             MicroBatch& micro_batch) {
  if (proto.recompute_size() != message.layers_per_stage_size()) {
    return Invalid("recompute has ", proto.recompute_size(), " entries for ", message.layers_per_stage_size(),
                   " stages");
  }
  for (int stage = 0; stage < proto.recompute_size(); ++stage) {
    const v1::StageRecompute& recompute = proto.recompute(stage);
    const uint32_t layers = message.layers_per_stage(stage);
    if (uint64_t{recompute.full_layers()} + recompute.selective_layers() > layers) {
      return Invalid("recompute of stage ", stage, " names ", recompute.full_layers(), " full_layers and ",
                     recompute.selective_layers(), " selective_layers of ", layers);
    }
    micro_batch.recompute.push_back({.selective = static_cast<int32_t>(recompute.selective_layers()),
                                     .full = static_cast<int32_t>(recompute.full_layers())});
  }
  return absl::OkStatus();
}

absl::StatusOr<MicroBatch> MicroBatchFromProto(const StreamProgramsResponse& message,
                                               const v1::MicroBatch& proto, const JobConfig& job, Kind kind) {
  MicroBatch micro_batch;
  for (uint32_t index : proto.samples()) {
    PENSTOCK_RETURN_IF_ERROR(AppendSample(message, index, micro_batch));
  }
  if (micro_batch.sample_ids.empty()) return Invalid("samples is empty");
  PENSTOCK_RETURN_IF_ERROR(AppendLoss(message, proto, job, micro_batch));
  PENSTOCK_ASSIGN_OR_RETURN(micro_batch.layout, LayoutFromProto(proto.layout(), "layout"));
  micro_batch.computed_tokens = static_cast<int64_t>(proto.computed_tokens());
  micro_batch.rows = proto.rows();
  micro_batch.source_length = proto.source_length();
  micro_batch.target_length = proto.target_length();
  micro_batch.source_cu_seqlens.assign(proto.source_cu_seqlens().begin(), proto.source_cu_seqlens().end());
  micro_batch.target_cu_seqlens.assign(proto.target_cu_seqlens().begin(), proto.target_cu_seqlens().end());
  micro_batch.row_samples.assign(proto.row_samples().begin(), proto.row_samples().end());
  if (kind == Kind::kTraining && job.model.counts_routed_samples()) {
    if (message.real_tokens() == 0)
      return Invalid(
          "real_tokens is 0, but losses of the model's routers are divided by it, and a batch with experts "
          "of a capacity has some");
    micro_batch.batch_tokens = message.real_tokens();
  }
  PENSTOCK_RETURN_IF_ERROR(AppendPlaces(proto, job, micro_batch));
  PENSTOCK_RETURN_IF_ERROR(AppendParts(proto, job, micro_batch));
  PENSTOCK_RETURN_IF_ERROR(AppendRecompute(message, proto, micro_batch));
  return micro_batch;
}

absl::StatusOr<Transfer> TransferFromProto(const v1::Transfer& proto, const JobConfig& job) {
  if (proto.peer() >= job.world_size()) {
    return Invalid("transfer.peer is ", proto.peer(), ", but the job has ", job.world_size(), " ranks");
  }
  Transfer transfer = {.peer = proto.peer(), .shape = {proto.shape().begin(), proto.shape().end()}};
  PENSTOCK_ASSIGN_OR_RETURN(transfer.kind, TransferKindFromProto(proto.kind(), "transfer.kind"));
  PENSTOCK_ASSIGN_OR_RETURN(transfer.dtype, DataTypeFromProto(proto.dtype(), "transfer.dtype"));
  transfer.bytes = proto.bytes();
  transfer.sequence = proto.sequence();
  if (transfer.dtype != job.model.dtype) return Invalid("transfer.dtype is not that of the model");
  return transfer;
}

// The index of the collective's group, which must exist and hold this rank.
absl::StatusOr<uint32_t> GroupOf(const v1::Instruction& proto, const Program& program) {
  if (!proto.has_collective()) return Invalid("collective is not set");
  const uint32_t group = proto.collective().group();
  if (group >= program.groups.size())
    return Invalid("collective.group is ", group, ": there is no such group");
  if (std::ranges::find(program.groups[group], program.rank) == program.groups[group].end()) {
    return Invalid("collective.group ", group, " does not hold rank ", program.rank);
  }
  return group;
}

// A day: no instruction takes longer, and the sum over a program does not overflow.
constexpr int64_t kLongestNs = 86'400'000'000'000;

bool NeedsMicroBatch(Op op) {
  return op != Op::kReduceGradients && op != Op::kReshard && op != Op::kOptimizerStep;
}

absl::Status CheckPlace(const Instruction& instruction, const Program& program) {
  if (instruction.op != Op::kOptimizerStep &&
      std::ranges::find(program.stages, instruction.stage) == program.stages.end()) {
    return Invalid("stage ", instruction.stage, " is not on this rank");
  }
  if (NeedsMicroBatch(instruction.op) && instruction.micro_batch >= program.micro_batches.size()) {
    return Invalid("micro_batch is ", instruction.micro_batch, ", but the replica has ",
                   program.micro_batches.size());
  }
  for (uint32_t dep : instruction.deps) {
    if (dep >= instruction.id) return Invalid("deps names ", dep, ", which is not earlier");
  }
  return absl::OkStatus();
}

absl::Status CheckExchange(const v1::PassExchange& exchange) {
  for (const int64_t time : {exchange.tensor_ns(), exchange.context_ns(), exchange.context_exposed_ns(),
                             exchange.expert_ns(), exchange.expert_exposed_ns()}) {
    if (time < 0 || time > kLongestNs) return Invalid("exchange has a time of ", time);
  }
  return absl::OkStatus();
}

absl::StatusOr<ProductsBeside> BesideFromProto(const v1::PassExchange& exchange, const JobConfig& job,
                                               Op op) {
  const ProductsBeside beside = {.products_on_return = exchange.products_beside_return(),
                                 .products_on_arrival = exchange.products_beside_arrival(),
                                 .others_on_arrival = exchange.others_beside_arrival()};
  const int64_t named = int64_t{beside.products_on_return} + beside.products_on_arrival;
  if (!beside.any()) return beside;
  const int64_t ranks = job.expert;
  if (ranks == 1 || (op != Op::kBackward && op != Op::kBackwardInput))
    return Invalid("exchange puts products beside an exchange that the pass has not");
  const bool gated =
      job.model.feed_forward == FeedForward::kGatedGelu || job.model.feed_forward == FeedForward::kGatedSilu;
  const int64_t products = job.model.experts / ranks * (gated ? 3 : 2);
  if (named > products) {
    return Invalid("exchange puts ", named, " products of experts beside exchanges, the rank has ", products);
  }
  return beside;
}

// What a pass of a stage group has beside a pass of a rank alone: where the stage is on one rank, nothing.
absl::Status ConvertJoint(const v1::Instruction& proto, const JobConfig& job, const Program& program,
                          Instruction& instruction) {
  instruction.own_duration_ns = proto.own_duration_ns();
  const RankGroup ranks = job.topology.StageGroupOf(program.rank);
  if (ranks.size() == 1) {
    if (proto.has_collective() || proto.has_exchange() || proto.own_duration_ns() != 0)
      return Invalid("collective, exchange and own_duration_ns are for stage groups of several ranks");
    return absl::OkStatus();
  }
  instruction.joint = true;
  PENSTOCK_ASSIGN_OR_RETURN(instruction.group, GroupOf(proto, program));
  if (program.groups[instruction.group] != ranks)
    return Invalid("collective.group ", instruction.group, " is not the stage group of rank ", program.rank);
  if (proto.own_duration_ns() < 0 || proto.own_duration_ns() > proto.expected_duration_ns()) {
    return Invalid("own_duration_ns is ", proto.own_duration_ns(), ", expected 0 to ",
                   proto.expected_duration_ns());
  }
  PENSTOCK_ASSIGN_OR_RETURN(instruction.beside, BesideFromProto(proto.exchange(), job, instruction.op));
  if (instruction.beside.any() && PartsOf(program.micro_batches[instruction.micro_batch]) > 0)
    return Invalid(
        "exchange puts products beside exchanges of a micro-batch in parts, which has its own rule");
  return CheckExchange(proto.exchange());
}

absl::Status CheckWait(const Instruction& instruction, const Program& program) {
  const uint32_t id = instruction.transfer;
  if (id >= instruction.id) return Invalid("transfer_id is ", id, ", which is not earlier");
  const Op awaited = program.instructions[id].op;
  if (awaited == Op::kSend || awaited == Op::kRecv) return absl::OkStatus();
  return Invalid("transfer_id ", id, " names neither a SEND nor a RECV");
}

// Converts one instruction and appends it, with its transfer, to the program.
absl::Status AppendInstruction(const v1::Instruction& proto, const JobConfig& job, Program& program) {
  if (proto.id() != program.instructions.size()) return Invalid("id is ", proto.id());
  Instruction instruction = {.id = proto.id(),
                             .micro_batch = proto.micro_batch(),
                             .stage = proto.stage(),
                             .part = proto.part(),
                             .deps = {proto.deps().begin(), proto.deps().end()},
                             .expected_duration_ns = proto.expected_duration_ns(),
                             .memory_acquired_bytes = proto.memory_acquired_bytes(),
                             .memory_released_bytes = proto.memory_released_bytes()};
  if (proto.memory_acquired_bytes() < 0) return Invalid("memory_acquired_bytes is negative");
  if (proto.memory_released_bytes() < 0) return Invalid("memory_released_bytes is negative");
  if (proto.expected_duration_ns() < 0 || proto.expected_duration_ns() > kLongestNs) {
    return Invalid("expected_duration_ns is ", proto.expected_duration_ns(), ", expected 0 to ", kLongestNs);
  }
  PENSTOCK_ASSIGN_OR_RETURN(instruction.op, OpFromProto(proto.op(), "op"));
  PENSTOCK_ASSIGN_OR_RETURN(instruction.stream, StreamFromProto(proto.stream(), "stream"));
  PENSTOCK_RETURN_IF_ERROR(CheckPlace(instruction, program));
  switch (instruction.op) {
    case Op::kSend:
    case Op::kRecv: {
      PENSTOCK_ASSIGN_OR_RETURN(Transfer transfer, TransferFromProto(proto.transfer(), job));
      if (transfer.peer == program.rank) return Invalid("transfer.peer is the rank itself");
      instruction.transfer = static_cast<uint32_t>(program.transfers.size());
      program.transfers.push_back(std::move(transfer));
      break;
    }
    case Op::kWait:
      instruction.transfer = proto.transfer_id();
      PENSTOCK_RETURN_IF_ERROR(CheckWait(instruction, program));
      break;
    case Op::kFree:
      if (proto.part() > static_cast<uint32_t>(FreePart::kLoadedTokens)) {
        return absl::UnimplementedError(
            absl::StrCat("part ", proto.part(), " of a FREE is not known to this worker"));
      }
      break;
    case Op::kReshard:
      if (proto.part() > static_cast<uint32_t>(ReshardPart::kGradients)) {
        return absl::UnimplementedError(
            absl::StrCat("part ", proto.part(), " of a RESHARD is not known to this worker"));
      }
      [[fallthrough]];
    case Op::kReduceGradients:
    case Op::kOptimizerStep: {
      PENSTOCK_ASSIGN_OR_RETURN(instruction.group, GroupOf(proto, program));
      break;
    }
    case Op::kForward:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      PENSTOCK_RETURN_IF_ERROR(ConvertJoint(proto, job, program, instruction));
      break;
    case Op::kLoad:
      break;
  }
  program.instructions.push_back(std::move(instruction));
  return absl::OkStatus();
}

absl::Status ConvertHeader(const StreamProgramsResponse& message, const JobConfig& job, Program& program) {
  program.iteration = message.iteration();
  program.strategy = message.strategy();
  program.rank = message.program().rank();
  program.replica = message.program().replica();
  program.stages = {message.program().stages().begin(), message.program().stages().end()};
  program.layers_per_stage = {message.layers_per_stage().begin(), message.layers_per_stage().end()};
  program.loss_tokens = message.loss_tokens();
  program.loss_weight = message.loss_weight();
  if (!std::isfinite(program.loss_weight) || program.loss_weight < 0)
    return Invalid("loss_weight is ", program.loss_weight, ", expected a number of at least 0");
  program.static_memory_bytes = message.program().static_memory_bytes();
  if (program.rank >= job.world_size()) return Invalid("program.rank is ", program.rank);
  if (program.stages != job.topology.StagesOf(program.rank)) {
    return Invalid("program.stages are not those that the topology gives to rank ", program.rank);
  }
  // Parameters come from the shares by what the topology says of stages.
  if (job.parameter_shares && program.layers_per_stage != job.topology.LayersPerStageOf(program.rank))
    return Invalid("layers_per_stage is not that of the topology");
  for (uint32_t stage : program.stages) {
    if (stage >= program.layers_per_stage.size()) {
      return Invalid("program.stages names stage ", stage, " of ", program.layers_per_stage.size());
    }
  }
  int64_t layers = 0;
  for (uint32_t count : program.layers_per_stage) layers += count;
  if (layers != job.model.layers) {
    return Invalid("layers_per_stage sums to ", layers, ", but the model has ", job.model.layers, " layers");
  }
  for (const v1::CollectiveGroup& group : message.groups()) {
    program.groups.emplace_back(group.ranks().begin(), group.ranks().end());
  }
  return absl::OkStatus();
}

absl::Status ConvertProfileDurations(const StreamProgramsResponse& message, Program& program) {
  const auto& durations = message.profile_duration_ns();
  if (durations.empty()) return absl::OkStatus();
  if (static_cast<size_t>(durations.size()) != program.instructions.size()) {
    return Invalid("profile_duration_ns has ", durations.size(), " values for ", program.instructions.size(),
                   " instructions");
  }
  for (Instruction& instruction : program.instructions) {
    instruction.profile_duration_ns = durations.Get(static_cast<int>(instruction.id));
    if (instruction.profile_duration_ns < 0 || instruction.profile_duration_ns > kLongestNs)
      return Invalid("profile_duration_ns has a time of ", instruction.profile_duration_ns);
  }
  return absl::OkStatus();
}

bool Learns(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kReduceGradients:
    case Op::kOptimizerStep:
      return true;
    case Op::kReshard:
      return instruction.part == static_cast<uint32_t>(ReshardPart::kGradients);
    default:
      return false;
  }
}

absl::Status CheckForwardOnly(const Program& program) {
  for (const Instruction& instruction : program.instructions) {
    if (Learns(instruction))
      return Invalid("instruction ", instruction.id, " learns, which a validation does not");
  }
  return absl::OkStatus();
}

absl::StatusOr<Program> Convert(const StreamProgramsResponse& message, const JobConfig& job, Kind kind) {
  Program program;
  program.forward_only = kind == Kind::kValidation;
  PENSTOCK_RETURN_IF_ERROR(ConvertHeader(message, job, program));
  for (int i = 0; i < message.micro_batches_size(); ++i) {
    absl::StatusOr<MicroBatch> micro_batch =
        MicroBatchFromProto(message, message.micro_batches(i), job, kind);
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(micro_batch.status(), absl::StrCat("micro-batch ", i)));
    program.micro_batches.push_back(*std::move(micro_batch));
  }
  for (int i = 0; i < message.program().instructions_size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(AppendInstruction(message.program().instructions(i), job, program),
                                           absl::StrCat("instruction ", i)));
  }
  PENSTOCK_RETURN_IF_ERROR(ConvertProfileDurations(message, program));
  PENSTOCK_RETURN_IF_ERROR(CheckReshards(program, job));
  if (program.forward_only) PENSTOCK_RETURN_IF_ERROR(CheckForwardOnly(program));
  return program;
}

// For the strategy that it names.
absl::StatusOr<Program> ConvertForStrategy(const StreamProgramsResponse& message, const JobConfig& job,
                                           Kind kind) {
  const uint32_t strategy = message.strategy();
  if (!job.Knows(strategy))
    return Invalid("strategy is ", strategy, ", but the job has ", job.strategy_count());
  if (job.strategies.empty()) return Convert(message, job, kind);
  PENSTOCK_ASSIGN_OR_RETURN(Program program,
                            Convert(message, job.Of(strategy, message.program().rank()), kind));
  const auto added = job.added_strategies.find(strategy);
  if (added != job.added_strategies.end()) program.added_strategy = added->second;
  return program;
}

// Of the rank and iteration of `program`.
absl::StatusOr<Program> ConvertValidation(const StreamProgramsResponse& message, const JobConfig& job,
                                          const Program& program) {
  if (message.has_validation()) return Invalid("it has a validation itself");
  if (message.iteration() != program.iteration || message.program().rank() != program.rank)
    return Invalid("it is of iteration ", message.iteration(), " and rank ", message.program().rank());
  return ConvertForStrategy(message, job, Kind::kValidation);
}

absl::StatusOr<Program> ConvertWithValidation(const StreamProgramsResponse& message, const JobConfig& job) {
  PENSTOCK_ASSIGN_OR_RETURN(Program program, ConvertForStrategy(message, job, Kind::kTraining));
  if (!message.has_validation()) return program;
  absl::StatusOr<Program> validation = ConvertValidation(message.validation(), job, program);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(validation.status(), "validation"));
  program.validation = std::make_shared<const Program>(*std::move(validation));
  return program;
}

}  // namespace

absl::StatusOr<Program> ProgramFromProto(const StreamProgramsResponse& message, const JobConfig& job) {
  absl::StatusOr<Program> program = ConvertWithValidation(message, job);
  if (program.ok()) return program;
  return AnnotateError(program.status(), absl::StrCat("the program of iteration ", message.iteration()));
}

}  // namespace penstock::worker
