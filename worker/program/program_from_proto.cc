#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/program/check_reshards.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/from_proto.h"
#include "worker/program/invalid_program.h"
#include "worker/program/micro_batch_from_proto.h"

namespace penstock::worker {
namespace {

using v1::StreamProgramsResponse;

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
  if (instruction.beside.any() && HasBackwardInParts(program.micro_batches[instruction.micro_batch]))
    return Invalid(
        "exchange puts products beside exchanges of a micro-batch in parts, which has its own rule");
  PENSTOCK_RETURN_IF_ERROR(CheckExchange(proto.exchange()));
  instruction.exchange_ns = proto.exchange().tensor_ns() + proto.exchange().context_exposed_ns() +
                            proto.exchange().expert_exposed_ns();
  return absl::OkStatus();
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

absl::StatusOr<Program> Convert(const StreamProgramsResponse& message, const JobConfig& job,
                                ProgramKind kind) {
  Program program;
  program.forward_only = kind == ProgramKind::kValidation;
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
                                           ProgramKind kind) {
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
  return ConvertForStrategy(message, job, ProgramKind::kValidation);
}

absl::StatusOr<Program> ConvertWithValidation(const StreamProgramsResponse& message, const JobConfig& job) {
  PENSTOCK_ASSIGN_OR_RETURN(Program program, ConvertForStrategy(message, job, ProgramKind::kTraining));
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
