#include "tests/unit/verify/plan_fixture.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/unit/verify/plan_sealing.h"
#include "tests/unit/verify/token_owners.h"

namespace penstock::core {
namespace {

constexpr int kLayers = 8;
constexpr int kHidden = 16;
constexpr int kHeads = 2;
constexpr int64_t kStoredBytes = 1000;
constexpr int64_t kTransientBytes = 300;

uint64_t LengthOf(const v1::Sample& sample) { return sample.input_tokens() + sample.target_tokens(); }

class Builder {
 public:
  explicit Builder(const FixtureOptions& options)
      : options_(options), stages_(options.pipeline * options.stages_per_rank) {}

  v1::PlannedBatch Build() {
    SetHead();
    SetTopology();
    for (int replica = 0; replica < options_.replicas; ++replica) AddMicroBatches();
    SetGroups();
    AddPrograms();
    for (int replica = 0; replica < options_.replicas; ++replica) RunReplica(replica);
    SetSchedule();
    Seal(planned_.mutable_plan());
    return planned_;
  }

 private:
  v1::Plan& plan() { return *planned_.mutable_plan(); }
  bool is_t5() const { return options_.architecture == v1::ARCHITECTURE_T5; }
  // Ranks of a stage group.
  int group() const { return options_.context * options_.tensor; }
  int RankOf(int replica, int stage, int place) const {
    const int number = (replica * options_.pipeline + stage % options_.pipeline) * group() + place;
    return options_.rank_numbers.empty() ? number : options_.rank_numbers[number];
  }
  bool Crosses(int stage) const { return options_.pipeline > 1 && stage >= 0 && stage + 1 < stages_; }

  // The norm, and where there are four stages both tables [32, kHeads] of float32.
  uint64_t StepBytes() const {
    const bool shared = is_t5() && stages_ > 2;
    return 8 + (shared ? uint64_t{2} * 32 * kHeads * 4 : 0);
  }

  // Half of the layers of a T5 are of the encoder: the first stage after them, or the one that they end in
  // the middle of, embeds the target.
  bool EmbedsTarget(int stage) const { return stage == (is_t5() ? stages_ / 2 : 0); }
  bool Loads(int stage) const { return stage == 0 || stage + 1 == stages_ || EmbedsTarget(stage); }

  void SetHead() {
    plan().set_iteration(7);
    planned_.mutable_batch()->set_iteration(7);
    v1::ModelSpec& model = *plan().mutable_model();
    model.set_architecture(options_.architecture);
    model.set_hidden(kHidden);
    model.set_heads(kHeads);
    model.set_ffn(4 * kHidden);
    model.set_dtype(v1::DATA_TYPE_FLOAT32);
    if (is_t5()) {
      model.set_encoder_layers(kLayers / 2);
      model.set_decoder_layers(kLayers / 2);
    } else {
      model.set_layers(kLayers);
    }
    plan().mutable_mesh()->set_pipeline(options_.pipeline);
    plan().mutable_mesh()->set_data(options_.replicas);
    if (options_.tensor > 1) plan().mutable_mesh()->set_tensor(options_.tensor);
    if (options_.context > 1) plan().mutable_mesh()->set_context(options_.context);
    for (int stage = 0; stage < stages_; ++stage) plan().add_layers_per_stage(kLayers / stages_);
  }

  void SetSchedule() {
    if (options_.split_backward) return plan().set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
    plan().set_schedule(options_.stages_per_rank > 1 ? v1::SCHEDULE_INTERLEAVED : v1::SCHEDULE_READY_FIRST);
  }

  void SetTopology() {
    for (int replica = 0; replica < options_.replicas; ++replica) {
      v1::ReplicaTopology& made = *plan().mutable_topology()->add_replicas();
      int encoders_left = is_t5() ? kLayers / 2 : 0;
      for (int stage = 0; stage < stages_; ++stage) {
        const int layers = kLayers / stages_;
        const int encoders = std::min(layers, encoders_left);
        encoders_left -= encoders;
        v1::StageTopology& placed = *made.add_stages();
        placed.set_encoder_layers(encoders);
        placed.set_decoder_layers(layers - encoders);
        for (int place = 0; place < group(); ++place) placed.add_ranks(RankOf(replica, stage, place));
      }
    }
  }

  void AddMicroBatches() {
    v1::Replica& target = *plan().add_replicas();
    for (int m = 0; m < options_.micro_batches; ++m) {
      v1::MicroBatch& micro_batch = *target.add_micro_batches();
      for (int i = 0; i < options_.samples_per_micro_batch; ++i) AddSample(micro_batch);
      SetLayout(micro_batch);
      SetSpans(micro_batch);
      for (int stage = 0; stage < stages_; ++stage)
        micro_batch.add_recompute()->set_full_layers(options_.full_layers);
      plan().set_loss_tokens(plan().loss_tokens() + micro_batch.loss_tokens());
      plan().set_real_tokens(plan().real_tokens() + micro_batch.real_tokens());
      plan().set_computed_tokens(plan().computed_tokens() + micro_batch.computed_tokens());
    }
  }

  void AddSample(v1::MicroBatch& micro_batch) {
    const uint32_t number = planned_.batch().samples_size();
    v1::Sample& sample = *planned_.mutable_batch()->add_samples();
    sample.set_sample_id(1000 + number);
    sample.set_input_tokens(number % 3 * 5);  // every third sample is learnt whole
    sample.set_target_tokens(4 + number % 7);
    micro_batch.add_samples(number);
    micro_batch.set_real_tokens(micro_batch.real_tokens() + LengthOf(sample));
    const bool whole = sample.input_tokens() == 0 && !is_t5();
    micro_batch.set_loss_tokens(micro_batch.loss_tokens() + sample.target_tokens() - (whole ? 1 : 0));
  }

  void SetLayout(v1::MicroBatch& micro_batch) {
    micro_batch.set_layout(options_.layout);
    uint32_t source = 0, target = 0, longest_source = 0, longest_target = 0;
    std::vector<uint32_t> source_ends = {0}, target_ends = {0};
    for (uint32_t number : micro_batch.samples()) {
      const v1::Sample& sample = planned_.batch().samples(number);
      const uint32_t own_source = is_t5() ? sample.input_tokens() : 0;
      const uint32_t own_target = is_t5() ? sample.target_tokens() : LengthOf(sample);
      source_ends.push_back(source += own_source);
      target_ends.push_back(target += own_target);
      longest_source = std::max(longest_source, own_source);
      longest_target = std::max(longest_target, own_target);
    }
    if (options_.layout == v1::LAYOUT_PACKED) {
      if (is_t5()) micro_batch.mutable_source_cu_seqlens()->Add(source_ends.begin(), source_ends.end());
      micro_batch.mutable_target_cu_seqlens()->Add(target_ends.begin(), target_ends.end());
      micro_batch.set_computed_tokens(source + target);
      return;
    }
    micro_batch.set_rows(micro_batch.samples_size());
    if (options_.layout == v1::LAYOUT_CONCATENATED) {
      longest_source = longest_target = 0;
      SetRows(micro_batch, source_ends, target_ends, &longest_source, &longest_target);
    }
    micro_batch.set_source_length(longest_source);
    micro_batch.set_target_length(longest_target);
    micro_batch.set_computed_tokens(uint64_t{micro_batch.rows()} * (longest_source + longest_target));
  }

  // Rows are on 1, 2, 4, ... context ranks in turn, where they have enough tokens.
  void SetSpans(v1::MicroBatch& micro_batch) {
    if (options_.context == 1) return;
    const bool packed = micro_batch.layout() == v1::LAYOUT_PACKED;
    const int rows = packed ? micro_batch.samples_size() : static_cast<int>(micro_batch.rows());
    int ranks = 1;
    for (int row = 0; row < rows; ++row) {
      const uint32_t length =
          packed ? micro_batch.target_cu_seqlens(row + 1) - micro_batch.target_cu_seqlens(row)
                 : micro_batch.target_length();
      ranks = ranks == options_.context ? 1 : 2 * ranks;
      const int span = length >= 2 * static_cast<uint32_t>(ranks) ? ranks : 1;
      micro_batch.add_span_first(row * span % options_.context);
      micro_batch.add_span_ranks(span);
    }
  }

  // Two samples a row; as long as the longest row.
  static void SetRows(v1::MicroBatch& micro_batch, const std::vector<uint32_t>& source_ends,
                      const std::vector<uint32_t>& target_ends, uint32_t* source, uint32_t* target) {
    micro_batch.add_row_samples(0);
    const uint32_t samples = micro_batch.samples_size();
    for (uint32_t first = 0; first < samples; first += 2) {
      const uint32_t end = std::min(first + 2, samples);
      micro_batch.add_row_samples(end);
      *source = std::max(*source, source_ends[end] - source_ends[first]);
      *target = std::max(*target, target_ends[end] - target_ends[first]);
    }
    micro_batch.set_rows(micro_batch.row_samples_size() - 1);
  }

  // Groups of the stages by tensor rank, then those of the replicas, then the stage groups.
  void SetGroups() {
    for (int stage = 0; stage < stages_; ++stage) {
      for (int tensor = 0; tensor < options_.tensor; ++tensor) {
        v1::CollectiveGroup& reducers = *plan().add_groups();
        for (int replica = 0; replica < options_.replicas; ++replica)
          for (int context = 0; context < options_.context; ++context)
            reducers.add_ranks(RankOf(replica, stage, context * options_.tensor + tensor));
      }
    }
    for (int replica = 0; replica < options_.replicas; ++replica) {
      v1::CollectiveGroup& pipeline = *plan().add_groups();
      for (int position = 0; position < options_.pipeline; ++position)
        for (int place = 0; place < group(); ++place) pipeline.add_ranks(RankOf(replica, position, place));
      std::sort(pipeline.mutable_ranks()->begin(), pipeline.mutable_ranks()->end());
    }
    if (group() == 1) return;
    for (int replica = 0; replica < options_.replicas; ++replica) AddStageGroups(replica);
  }

  // By their lowest ranks.
  void AddStageGroups(int replica) {
    std::map<uint32_t, int> positions;
    for (int position = 0; position < options_.pipeline; ++position) {
      int lowest = RankOf(replica, position, 0);
      for (int place = 1; place < group(); ++place)
        lowest = std::min(lowest, RankOf(replica, position, place));
      positions[lowest] = position;
    }
    for (const auto& [lowest, position] : positions) {
      stage_groups_[{replica, position}] = plan().groups_size();
      v1::CollectiveGroup& stage_group = *plan().add_groups();
      for (int place = 0; place < group(); ++place) stage_group.add_ranks(RankOf(replica, position, place));
    }
  }

  void AddPrograms() {
    const int ranks = options_.replicas * options_.pipeline * group();
    places_.resize(ranks);
    for (int rank = 0; rank < ranks; ++rank) plan().add_programs()->set_rank(rank);
    for (int replica = 0; replica < options_.replicas; ++replica) {
      for (int position = 0; position < options_.pipeline; ++position) {
        for (int place = 0; place < group(); ++place) {
          const int rank = RankOf(replica, position, place);
          places_[rank] = {replica, position, place};
          v1::Program& program = *plan().mutable_programs(rank);
          program.set_replica(replica);
          for (int stage = position; stage < stages_; stage += options_.pipeline) program.add_stages(stage);
          program.set_static_memory_bytes(5000);
          program.set_memory_limit_bytes(1'000'000);
        }
      }
    }
  }

  OwnedTokens TokensOf(int rank, const v1::MicroBatch& m) const {
    return OwnersOf(planned_.batch(), m, is_t5(), options_.context)[places_[rank].place / options_.tensor];
  }

  // Of a context rank's tokens, those that its tensor ranks have between layers.
  uint32_t PartOf(uint32_t tokens, int rank) const {
    const uint32_t tensors = options_.tensor, each = tokens / tensors;
    const uint32_t number = places_[rank].place % tensors;
    return number + 1 < tensors ? each : tokens - number * each;
  }

  // What crosses the boundary after `stage` at the place of `rank`.
  std::vector<uint32_t> Shape(const v1::MicroBatch& m, int stage, int rank) const {
    const bool source_only = is_t5() && (stage + 1) * (kLayers / stages_) <= kLayers / 2;
    if (group() > 1) {
      const OwnedTokens tokens = TokensOf(rank, m);
      const uint32_t source = PartOf(tokens.source, rank), target = PartOf(tokens.target, rank);
      if (!is_t5()) return {target, kHidden};
      if (source_only) return {source, kHidden};
      return {(source + target) * kHidden};
    }
    const bool packed = m.layout() == v1::LAYOUT_PACKED;
    const uint32_t source = !packed ? m.source_length() : is_t5() ? *m.source_cu_seqlens().rbegin() : 0;
    const uint32_t target = packed ? *m.target_cu_seqlens().rbegin() : m.target_length();
    if (is_t5() && !source_only) return {(packed ? 1 : m.rows()) * (source + target) * kHidden};
    const uint32_t length = source_only ? source : target;
    if (packed) return {length, kHidden};
    return {m.rows(), length, kHidden};
  }

  int64_t Bytes(const v1::MicroBatch& micro_batch, int stage, int rank) const {
    int64_t bytes = 4;
    for (uint32_t extent : Shape(micro_batch, stage, rank)) bytes *= extent;
    return bytes;
  }

  // Two integers of eight bytes for each token embedded and each loss position.
  int64_t LoadedBytes(const v1::MicroBatch& m, int stage, int rank) const {
    const OwnedTokens tokens = TokensOf(rank, m);
    int64_t loaded = 0;
    if (stage == 0) loaded += tokens.source;
    if (EmbedsTarget(stage)) loaded += tokens.target;
    if (stage + 1 == stages_) loaded += tokens.loss;
    return 16 * loaded;
  }

  // Of a stage group of several ranks: the pass is one of its collectives, in which it exchanges something.
  void Join(int rank, int m, int stage, uint32_t id) {
    if (group() == 1) return;
    v1::Instruction& pass = *plan().mutable_programs(rank)->mutable_instructions(id);
    const Place& place = places_[rank];
    pass.mutable_collective()->set_group(stage_groups_[{place.replica, place.position}]);
    pass.mutable_collective()->set_sequence(passes_[rank]++);
    if (pass.op() == v1::OP_BACKWARD_WEIGHT) return;
    const OwnedTokens tokens = TokensOf(rank, plan().replicas(place.replica).micro_batches(m));
    SetExchange(tokens, stage, pass.op() == v1::OP_FORWARD, pass);
  }

  void SetExchange(const OwnedTokens& tokens, int stage, bool forward, v1::Instruction& pass) const {
    const int encoders = planned_.plan().topology().replicas(0).stages(stage).encoder_layers();
    const int decoders = planned_.plan().topology().replicas(0).stages(stage).decoder_layers();
    v1::PassExchange exchange;
    if (options_.tensor > 1) {
      const auto half = [&](uint32_t count) {
        return uint64_t{count} * kHidden * 4 * (options_.tensor - 1) / options_.tensor;
      };
      uint64_t source = is_t5() && stage == 0 ? 1 : 0;
      uint64_t target = EmbedsTarget(stage) ? 1 : 0;
      for (int layer = 0; layer < encoders + decoders; ++layer) {
        const bool encoder = layer < encoders, again = !forward && layer < options_.full_layers;
        if (forward || again) source += encoder ? 4 : is_t5() ? 1 : 0;
        if (forward || again) target += encoder ? 0 : is_t5() ? 6 : 4;
        if (!forward) source += encoder ? 6 : is_t5() ? 2 : 0;
        if (!forward) target += encoder ? 0 : is_t5() ? 9 : 6;
      }
      if (forward && stage + 1 == stages_) target += 2;
      exchange.set_tensor_bytes(source * half(tokens.source) + target * half(tokens.target));
      exchange.set_tensor_ns(5);
    }
    // Keys and values of kHeads / tensor heads.
    const uint64_t bytes = uint64_t{2} * kHidden / options_.tensor * 4 * (encoders + decoders);
    exchange.set_context_sent_bytes(bytes * (tokens.sent + (forward ? 0 : tokens.received)));
    exchange.set_context_received_bytes(bytes * (tokens.received + (forward ? 0 : tokens.sent)));
    if (tokens.sent + tokens.received > 0) {
      exchange.set_context_ns(4);
      exchange.set_context_exposed_ns(2);
    }
    if (exchange.ByteSizeLong() > 0) *pass.mutable_exchange() = exchange;
  }

  v1::Instruction& Emit(int rank, v1::Op op, v1::Stream stream, int m, int stage, uint32_t part,
                        std::vector<uint32_t> deps, int64_t acquired = 0, int64_t released = 0) {
    v1::Program& program = *plan().mutable_programs(rank);
    v1::Instruction& instruction = *program.add_instructions();
    instruction.set_id(program.instructions_size() - 1);
    instruction.set_op(op);
    instruction.set_stream(stream);
    instruction.set_micro_batch(m);
    instruction.set_stage(stage);
    instruction.set_part(part);
    instruction.mutable_deps()->Add(deps.begin(), deps.end());
    instruction.set_memory_acquired_bytes(acquired);
    instruction.set_memory_released_bytes(released);
    return instruction;
  }

  void SetTransfer(v1::Instruction& instruction, int peer, const std::vector<uint32_t>& shape,
                   uint32_t sequence, uint32_t order) {
    v1::Transfer& transfer = *instruction.mutable_transfer();
    transfer.set_peer(peer);
    transfer.set_kind(instruction.part() == 0 ? v1::TRANSFER_KIND_ACTIVATION : v1::TRANSFER_KIND_GRADIENT);
    uint64_t bytes = 4;
    for (uint32_t extent : shape) {
      transfer.add_shape(extent);
      bytes *= extent;
    }
    transfer.set_dtype(v1::DATA_TYPE_FLOAT32);
    transfer.set_bytes(bytes);
    transfer.set_sequence(sequence);
    transfer.set_order(order);
  }

  // Id of the latest instruction of the compute stream, if there is one.
  std::vector<uint32_t> LastCompute(int rank) const {
    const auto& instructions = planned_.plan().programs(rank).instructions();
    for (auto it = instructions.rbegin(); it != instructions.rend(); ++it)
      if (it->stream() == v1::STREAM_COMPUTE) return {it->id()};
    return {};
  }

  // SEND, WAIT and FREE on one side, RECV and WAIT on the other.
  void Move(int place, int m, int from, int to, uint32_t part, uint32_t made_by, int replica) {
    const v1::MicroBatch& micro_batch = plan().replicas(replica).micro_batches(m);
    const int sender = RankOf(replica, from, place), receiver = RankOf(replica, to, place);
    const std::vector<uint32_t> shape = Shape(micro_batch, std::min(from, to), sender);
    const int64_t bytes = Bytes(micro_batch, std::min(from, to), sender);
    const uint32_t sequence = sequences_[{sender, receiver}]++;
    const uint32_t order = orders_[{replica, place}]++;
    v1::Instruction& send = Emit(sender, v1::OP_SEND, part == 0 ? v1::STREAM_NEXT : v1::STREAM_PREVIOUS, m,
                                 from, part, {made_by});
    SetTransfer(send, receiver, shape, sequence, order);
    const uint32_t send_id = send.id();
    v1::Instruction& recv = Emit(receiver, v1::OP_RECV, part == 0 ? v1::STREAM_PREVIOUS : v1::STREAM_NEXT, m,
                                 to, part, LastCompute(receiver), bytes);
    SetTransfer(recv, sender, shape, sequence, order);
    const uint32_t recv_id = recv.id();
    Emit(receiver, v1::OP_WAIT, v1::STREAM_COMPUTE, m, to, part, {recv_id}).set_transfer_id(recv_id);
    Emit(sender, v1::OP_WAIT, v1::STREAM_COMPUTE, m, from, part + 2, {send_id}).set_transfer_id(send_id);
    Emit(sender, v1::OP_FREE, v1::STREAM_COMPUTE, m, from, part, {}, 0, bytes);
  }

  void Forward(int replica, int m, int stage) {
    const v1::MicroBatch& micro_batch = plan().replicas(replica).micro_batches(m);
    for (int place = 0; place < group(); ++place) {
      const int rank = RankOf(replica, stage, place);
      if (Loads(stage))
        Emit(rank, v1::OP_LOAD, v1::STREAM_COMPUTE, m, stage, 0, {}, LoadedBytes(micro_batch, stage, rank));
      const int64_t output = Crosses(stage) ? Bytes(micro_batch, stage, rank) : 0;
      const uint32_t id =
          Emit(rank, v1::OP_FORWARD, v1::STREAM_COMPUTE, m, stage, 0, {}, kStoredBytes + output).id();
      Join(rank, m, stage, id);
      if (Crosses(stage)) Move(place, m, stage, stage + 1, 0, id, replica);
    }
  }

  void Backward(int replica, int m, int stage) {
    for (int place = 0; place < group(); ++place) BackwardAt(replica, m, stage, place);
  }

  void BackwardAt(int replica, int m, int stage, int place) {
    const int rank = RankOf(replica, stage, place);
    const v1::MicroBatch& micro_batch = plan().replicas(replica).micro_batches(m);
    const int64_t below = Crosses(stage - 1) ? Bytes(micro_batch, stage - 1, rank) : 0;
    const int64_t above = Crosses(stage) ? Bytes(micro_batch, stage, rank) : 0;
    const int64_t taken = kTransientBytes + below, given = kStoredBytes + below + above;
    const bool split = options_.split_backward;
    const uint32_t id = Emit(rank, split ? v1::OP_BACKWARD_INPUT : v1::OP_BACKWARD, v1::STREAM_COMPUTE, m,
                             stage, 0, {}, taken, kTransientBytes + (split ? 0 : given))
                            .id();
    Join(rank, m, stage, id);
    if (Crosses(stage - 1)) Move(place, m, stage, stage - 1, 1, id, replica);
    if (split)
      Join(rank, m, stage,
           Emit(rank, v1::OP_BACKWARD_WEIGHT, v1::STREAM_COMPUTE, m, stage, 0, {}, 0, given).id());
    if (Loads(stage))
      Emit(rank, v1::OP_FREE, v1::STREAM_COMPUTE, m, stage, 2, {}, 0, LoadedBytes(micro_batch, stage, rank));
  }

  void RunReplica(int replica) {
    for (int m = 0; m < options_.micro_batches; ++m)
      for (int stage = 0; stage < stages_; ++stage) Forward(replica, m, stage);
    for (int m = 0; m < options_.micro_batches; ++m)
      for (int stage = stages_ - 1; stage >= 0; --stage) Backward(replica, m, stage);
    for (int position = 0; position < options_.pipeline; ++position)
      for (int place = 0; place < group(); ++place) Finish(replica, RankOf(replica, position, place));
  }

  void Finish(int replica, int rank) {
    const v1::Program& program = plan().programs(rank);
    std::vector<uint32_t> last_compute;
    if (program.instructions_size() > 0)
      last_compute = {static_cast<uint32_t>(program.instructions_size() - 1)};
    uint32_t reduce = 0;
    for (uint32_t stage : program.stages()) {
      v1::Instruction& instruction =
          Emit(rank, v1::OP_REDUCE_GRADIENTS, v1::STREAM_COLLECTIVE, 0, stage, 0, last_compute);
      instruction.mutable_collective()->set_group(stage * options_.tensor +
                                                  places_[rank].place % options_.tensor);
      instruction.mutable_collective()->set_bytes(4096);
      reduce = instruction.id();
    }
    v1::Instruction& step =
        Emit(rank, v1::OP_OPTIMIZER_STEP, v1::STREAM_COMPUTE, 0, program.stages(0), 0, {reduce});
    step.mutable_collective()->set_group(stages_ * options_.tensor + replica);
    step.mutable_collective()->set_bytes(StepBytes());
  }

  const FixtureOptions options_;
  const int stages_;
  v1::PlannedBatch planned_;
  std::map<std::pair<int, int>, uint32_t> sequences_;
  // By replica and place.
  std::map<std::pair<int, int>, uint32_t> orders_;
  // Their indices in Plan.groups, by replica and position.
  std::map<std::pair<int, int>, int> stage_groups_;
  struct Place {
    int replica = 0;
    int position = 0;
    int place = 0;
  };
  // By rank; and how many passes it has had.
  std::vector<Place> places_;
  std::map<int, uint32_t> passes_;
};

}  // namespace

v1::PlannedBatch MakeValidPlan(const FixtureOptions& options) { return Builder(options).Build(); }

}  // namespace penstock::core
