#include "planner/core/contract/plan_to_proto.h"

#include <utility>

namespace penstock::core {
namespace {

v1::Op OpToProto(Op op) {
  switch (op) {
    case Op::kLoad:
      return v1::OP_LOAD;
    case Op::kForward:
      return v1::OP_FORWARD;
    case Op::kBackward:
      return v1::OP_BACKWARD;
    case Op::kBackwardInput:
      return v1::OP_BACKWARD_INPUT;
    case Op::kBackwardWeight:
      return v1::OP_BACKWARD_WEIGHT;
    case Op::kSend:
      return v1::OP_SEND;
    case Op::kRecv:
      return v1::OP_RECV;
    case Op::kWait:
      return v1::OP_WAIT;
    case Op::kFree:
      return v1::OP_FREE;
    case Op::kReduceGradients:
      return v1::OP_REDUCE_GRADIENTS;
    case Op::kReshard:
      return v1::OP_RESHARD;
    case Op::kOptimizerStep:
      return v1::OP_OPTIMIZER_STEP;
  }
  return v1::OP_UNSPECIFIED;
}

v1::Stream StreamToProto(Stream stream) {
  switch (stream) {
    case Stream::kCompute:
      return v1::STREAM_COMPUTE;
    case Stream::kPrevious:
      return v1::STREAM_PREVIOUS;
    case Stream::kNext:
      return v1::STREAM_NEXT;
    case Stream::kCollective:
      return v1::STREAM_COLLECTIVE;
  }
  return v1::STREAM_UNSPECIFIED;
}

v1::Schedule ScheduleToProto(ScheduleFamily schedule) {
  switch (schedule) {
    case ScheduleFamily::kAuto:
      break;
    case ScheduleFamily::kOneForwardOneBackward:
      return v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
    case ScheduleFamily::kReadyFirst:
      return v1::SCHEDULE_READY_FIRST;
    case ScheduleFamily::kSplitBackward:
      return v1::SCHEDULE_SPLIT_BACKWARD;
    case ScheduleFamily::kInterleaved:
      return v1::SCHEDULE_INTERLEAVED;
  }
  return v1::SCHEDULE_UNSPECIFIED;
}

void AddExchange(const PassExchange& exchange, v1::Instruction* proto) {
  v1::PassExchange* result = proto->mutable_exchange();
  result->set_tensor_bytes(static_cast<uint64_t>(exchange.tensor_bytes));
  result->set_tensor_ns(exchange.tensor_ns);
  result->set_context_sent_bytes(static_cast<uint64_t>(exchange.context_sent_bytes));
  result->set_context_received_bytes(static_cast<uint64_t>(exchange.context_received_bytes));
  result->set_context_ns(exchange.context_ns);
  result->set_context_exposed_ns(exchange.context_exposed_ns);
  result->set_expert_bytes(static_cast<uint64_t>(exchange.expert_bytes));
  result->set_expert_ns(exchange.expert_ns);
  result->set_expert_exposed_ns(exchange.expert_exposed_ns);
  result->set_products_beside_return(static_cast<uint32_t>(exchange.products_beside_return));
  result->set_products_beside_arrival(static_cast<uint32_t>(exchange.products_beside_arrival));
  result->set_others_beside_arrival(exchange.others_beside_arrival);
}

class Converter {
 public:
  explicit Converter(const PlanParts& parts) : parts_(parts) {}

  v1::Plan Convert();

 private:
  void AddOptions();
  void AddMicroBatch(const MicroBatch& micro_batch, const TokenSums& sums, v1::Replica* replica);
  void AddCuSeqlens(const MicroBatch& micro_batch, v1::MicroBatch* proto) const;
  void AddRowSamples(const MicroBatch& micro_batch, v1::MicroBatch* proto) const;
  void AddProgram(int rank);
  void AddInstruction(int rank, int32_t position, v1::Program* program) const;
  void AddTransfer(int rank, const Instruction& instruction, v1::Instruction* proto) const;
  void AddShapeOfPlace(const RankPlace& place, int64_t bytes, int stage, v1::Transfer* transfer) const;
  void AddShape(int replica, int32_t micro_batch, int stage, v1::Transfer* transfer) const;
  void AddPrediction();

  const PlanParts& parts_;
  // Of each micro-batch of each replica.
  std::vector<std::vector<TokenSums>> sums_;
  v1::Plan plan_;
};

v1::Plan Converter::Convert() {
  plan_.set_job_id(parts_.spec.job_id());
  plan_.set_iteration(parts_.batch.iteration);
  plan_.set_plan_version(1);
  plan_.set_profile_version(parts_.spec.profile().version());
  *plan_.mutable_model() = parts_.spec.model();
  *plan_.mutable_mesh() = parts_.spec.mesh();
  *plan_.mutable_topology() = TopologyToProto(parts_.job.topology);
  for (const Stage& stage : parts_.job.topology.shape().stages)
    plan_.add_layers_per_stage(static_cast<uint32_t>(stage.layers()));
  AddOptions();
  for (const std::vector<MicroBatch>& micro_batches : parts_.assignment) {
    v1::Replica* replica = plan_.add_replicas();
    std::vector<TokenSums>& sums = sums_.emplace_back();
    for (const MicroBatch& micro_batch : micro_batches) {
      if (parts_.stop.stopped()) return {};
      sums.push_back(SumsOf(micro_batch.samples, parts_.batch.samples, micro_batch.layout, micro_batch.row));
      AddMicroBatch(micro_batch, sums.back(), replica);
    }
  }
  for (int rank = 0; rank < parts_.programs.ranks(); ++rank) {
    if (parts_.stop.stopped()) return {};
    AddProgram(rank);
  }
  for (const std::vector<int32_t>& ranks : parts_.programs.groups) {
    plan_.add_groups()->mutable_ranks()->Add(ranks.begin(), ranks.end());
  }
  AddPrediction();
  plan_.set_loss_weight(parts_.batch.loss_weight);
  plan_.set_lower_bound_ns(parts_.lower_bound_ns);
  plan_.set_forward_only(parts_.forward_only);
  if (!parts_.forward_only) plan_.set_schedule(ScheduleToProto(parts_.schedule));
  return std::move(plan_);
}

void Converter::AddOptions() {
  v1::PlanningOptions* options = plan_.mutable_options();
  *options = parts_.spec.planning();
  options->clear_typical_samples();
  *options->mutable_layers_per_stage() = plan_.layers_per_stage();
  const std::vector<int32_t>& ranks = parts_.job.topology.shape().position_of_stage;
  options->mutable_rank_of_stage()->Assign(ranks.begin(), ranks.end());
}

void Converter::AddCuSeqlens(const MicroBatch& micro_batch, v1::MicroBatch* proto) const {
  const bool t5 = parts_.job.architecture == Architecture::kT5;
  uint32_t source = 0;
  uint32_t target = 0;
  if (t5) proto->add_source_cu_seqlens(0);
  proto->add_target_cu_seqlens(0);
  for (const uint32_t sample : micro_batch.samples) {
    source += parts_.batch.samples[sample].source;
    target += parts_.batch.samples[sample].target;
    if (t5) proto->add_source_cu_seqlens(source);
    proto->add_target_cu_seqlens(target);
  }
}

void Converter::AddRowSamples(const MicroBatch& micro_batch, v1::MicroBatch* proto) const {
  proto->add_row_samples(0);
  ForEachRow(micro_batch.samples, parts_.batch.samples, micro_batch.row,
             [&](size_t end) { proto->add_row_samples(static_cast<uint32_t>(end)); });
}

void Converter::AddMicroBatch(const MicroBatch& micro_batch, const TokenSums& sums, v1::Replica* replica) {
  v1::MicroBatch* proto = replica->add_micro_batches();
  proto->mutable_samples()->Add(micro_batch.samples.begin(), micro_batch.samples.end());
  if (micro_batch.layout != Layout::kPacked) {
    proto->set_layout(micro_batch.layout == Layout::kPadded ? v1::LAYOUT_PADDED : v1::LAYOUT_CONCATENATED);
    proto->set_rows(static_cast<uint32_t>(sums.rows));
    proto->set_source_length(static_cast<uint32_t>(sums.source_length));
    proto->set_target_length(static_cast<uint32_t>(sums.target_length));
    if (micro_batch.layout == Layout::kConcatenated) AddRowSamples(micro_batch, proto);
  } else {
    proto->set_layout(v1::LAYOUT_PACKED);
    AddCuSeqlens(micro_batch, proto);
  }
  uint64_t real = 0;
  uint64_t loss = 0;
  for (const uint32_t sample : micro_batch.samples) {
    const SampleTokens& tokens = parts_.batch.samples[sample];
    real += uint64_t{tokens.source} + tokens.target;
    loss += tokens.loss;
  }
  proto->set_computed_tokens(static_cast<uint64_t>(sums.source + sums.target));
  proto->set_real_tokens(real);
  proto->set_loss_tokens(loss);
  plan_.set_computed_tokens(plan_.computed_tokens() + proto->computed_tokens());
  plan_.set_real_tokens(plan_.real_tokens() + real);
  plan_.set_loss_tokens(plan_.loss_tokens() + loss);
  for (const Span& span : micro_batch.spans) {
    proto->add_span_first(static_cast<uint32_t>(span.first));
    proto->add_span_ranks(static_cast<uint32_t>(span.ranks));
  }
  for (const int32_t row : micro_batch.part_rows) proto->add_part_rows(static_cast<uint32_t>(row));
  for (const int32_t chunk : micro_batch.part_chunks) proto->add_part_chunks(static_cast<uint32_t>(chunk));
  proto->set_whole_backward(micro_batch.whole_backward);
  for (const StageRecompute& recompute : micro_batch.recompute) {
    v1::StageRecompute* stage = proto->add_recompute();
    stage->set_selective_layers(static_cast<uint32_t>(recompute.selective));
    stage->set_full_layers(static_cast<uint32_t>(recompute.full));
  }
}

void Converter::AddProgram(int rank) {
  const Topology& topology = parts_.job.topology;
  v1::Program* program = plan_.add_programs();
  program->set_rank(static_cast<uint32_t>(rank));
  program->set_replica(static_cast<uint32_t>(topology.PlaceOf(rank).replica));
  for (const int32_t stage : topology.StagesOf(rank)) program->add_stages(static_cast<uint32_t>(stage));
  program->set_static_memory_bytes(parts_.programs.static_bytes[rank]);
  program->set_memory_limit_bytes(parts_.job.memory_limits.Of(rank));
  const int32_t begin = parts_.programs.rank_begin[rank];
  const int32_t end = parts_.programs.rank_begin[rank + 1];
  program->mutable_instructions()->Reserve(end - begin);
  for (int32_t position = begin; position < end; ++position) {
    if (parts_.stop.stopped()) return;
    AddInstruction(rank, position, program);
  }
}

void Converter::AddInstruction(int rank, int32_t position, v1::Program* program) const {
  const Instruction& instruction = parts_.programs.instructions[position];
  v1::Instruction* proto = program->add_instructions();
  proto->set_id(static_cast<uint32_t>(position - parts_.programs.rank_begin[rank]));
  proto->set_op(OpToProto(instruction.op));
  proto->set_stream(StreamToProto(instruction.stream));
  proto->set_micro_batch(static_cast<uint32_t>(instruction.micro_batch));
  proto->set_stage(static_cast<uint32_t>(instruction.stage));
  proto->set_part(instruction.part);
  for (int32_t dep = instruction.deps_begin; dep < instruction.deps_end; ++dep) {
    proto->add_deps(static_cast<uint32_t>(parts_.programs.deps[dep]));
  }
  proto->set_memory_acquired_bytes(instruction.acquired_bytes);
  proto->set_memory_released_bytes(instruction.released_bytes);
  proto->set_expected_start_ns(parts_.simulator.start_ns()[position]);
  proto->set_expected_duration_ns(parts_.simulator.end_ns()[position] -
                                  parts_.simulator.start_ns()[position]);
  if (instruction.op == Op::kSend || instruction.op == Op::kRecv) {
    AddTransfer(rank, instruction, proto);
  } else if (instruction.op == Op::kWait) {
    proto->set_transfer_id(static_cast<uint32_t>(instruction.waits_for));
  } else if (instruction.joint >= 0) {
    const Collective& collective = parts_.programs.collectives[instruction.joint];
    proto->mutable_collective()->set_group(static_cast<uint32_t>(collective.group));
    proto->mutable_collective()->set_sequence(static_cast<uint32_t>(collective.sequence));
    proto->mutable_collective()->set_bytes(static_cast<uint64_t>(collective.bytes));
    if (!IsPass(instruction.op)) return;
    proto->set_own_duration_ns(instruction.own_ns);
    if (instruction.exchange >= 0) AddExchange(parts_.programs.exchanges[instruction.exchange], proto);
  }
}

void Converter::AddTransfer(int rank, const Instruction& instruction, v1::Instruction* proto) const {
  const Transfer& transfer = parts_.programs.transfers[instruction.joint];
  const bool gradient = instruction.part == kGradientPart;
  v1::Transfer* result = proto->mutable_transfer();
  result->set_peer(static_cast<uint32_t>(rank == transfer.from_rank ? transfer.to_rank : transfer.from_rank));
  result->set_kind(gradient ? v1::TRANSFER_KIND_GRADIENT : v1::TRANSFER_KIND_ACTIVATION);
  result->set_dtype(parts_.spec.model().dtype());
  result->set_bytes(static_cast<uint64_t>(transfer.bytes));
  result->set_sequence(static_cast<uint32_t>(transfer.sequence));
  result->set_order(static_cast<uint32_t>(transfer.order));
  // The stage whose output it is, or the gradient of that: the lower one of its two ends.
  const bool upper_end = (instruction.op == Op::kSend) == gradient;
  const int stage = upper_end ? instruction.stage - 1 : instruction.stage;
  const RankPlace place = parts_.job.topology.PlaceOf(rank);
  if (parts_.job.topology.shape().group.ranks() > 1) {
    AddShapeOfPlace(place, transfer.bytes, stage, result);
  } else {
    AddShape(place.replica, instruction.micro_batch, stage, result);
  }
}

// A place of a stage group has rows of its own: flat in every layout.
void Converter::AddShapeOfPlace(const RankPlace& place, int64_t bytes, int stage,
                                v1::Transfer* transfer) const {
  const auto elements = static_cast<uint32_t>(bytes / parts_.job.bytes_per_element);
  const auto hidden = static_cast<uint32_t>(parts_.job.hidden);
  const bool t5 = parts_.job.architecture == Architecture::kT5;
  if (t5 && !parts_.job.topology.pipeline(place.replica).stages[stage].encoder_boundary) {
    transfer->add_shape(elements);
    return;
  }
  transfer->add_shape(elements / hidden);
  transfer->add_shape(hidden);
}

void Converter::AddShape(int replica, int32_t micro_batch, int stage, v1::Transfer* transfer) const {
  const TokenSums& sums = sums_[replica][micro_batch];
  const auto hidden = static_cast<uint32_t>(parts_.job.hidden);
  const bool t5 = parts_.job.architecture == Architecture::kT5;
  const bool encoder = parts_.job.topology.pipeline(replica).stages[stage].encoder_boundary;
  if (t5 && !encoder) {
    transfer->add_shape(static_cast<uint32_t>(parts_.costs.BoundaryElements(stage, sums)));
    return;
  }
  if (sums.layout != Layout::kPacked) {
    transfer->add_shape(static_cast<uint32_t>(sums.rows));
    transfer->add_shape(static_cast<uint32_t>(t5 ? sums.source_length : sums.target_length));
  } else {
    transfer->add_shape(static_cast<uint32_t>(t5 ? sums.source : sums.target));
  }
  transfer->add_shape(hidden);
}

void Converter::AddPrediction() {
  v1::Prediction* prediction = plan_.mutable_predicted();
  prediction->set_makespan_ns(parts_.simulator.makespan_ns());
  prediction->set_last_backward_ns(LastPassEnd(parts_.programs, parts_.simulator));
  const std::vector<RankTime> times = ExplainTime(parts_.programs, parts_.simulator, parts_.job.topology,
                                                  parts_.job.memory_limits, parts_.stop);
  const std::vector<RankMemory> memory = AccountMemory(parts_.programs);
  for (int rank = 0; rank < parts_.programs.ranks(); ++rank) {
    v1::RankPrediction* proto = prediction->add_ranks();
    proto->set_busy_ns(times[rank].busy_ns);
    v1::Bubble* bubble = proto->mutable_bubble();
    bubble->set_fill_ns(times[rank].fill_ns);
    bubble->set_drain_ns(times[rank].drain_ns);
    bubble->set_dependency_ns(times[rank].dependency_ns);
    bubble->set_transfer_ns(times[rank].transfer_ns);
    bubble->set_imbalance_ns(times[rank].imbalance_ns);
    bubble->set_memory_ns(times[rank].memory_ns);
    bubble->set_group_ns(times[rank].group_ns);
    proto->set_peak_memory_bytes(memory[rank].peak_bytes);
    proto->set_peak_instruction(static_cast<uint32_t>(memory[rank].peak_instruction));
  }
}

}  // namespace

v1::Topology TopologyToProto(const Topology& topology) {
  v1::Topology proto;
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    const PipelineShape& shape = topology.pipeline(replica);
    v1::ReplicaTopology* made = proto.add_replicas();
    for (size_t stage = 0; stage < shape.stages.size(); ++stage) {
      const Stage& layers = shape.stages[stage];
      v1::StageTopology* placed = made->add_stages();
      placed->set_encoder_layers(static_cast<uint32_t>(layers.encoder_layers));
      placed->set_decoder_layers(static_cast<uint32_t>(layers.decoder_layers));
      for (const int32_t rank : topology.GroupAt(replica, shape.position_of_stage[stage])) {
        placed->add_ranks(static_cast<uint32_t>(rank));
      }
    }
  }
  return proto;
}

v1::Plan PlanToProto(const PlanParts& parts) { return Converter(parts).Convert(); }

}  // namespace penstock::core
