#include "planner/core/calibrate/observed_iteration.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/calibrate/foretold_pass.h"
#include "planner/core/calibrate/measured_reshards.h"
#include "planner/core/calibrate/time_beside_passes.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/micro_batch_shares.h"
#include "planner/core/contract/transfer_ends.h"

namespace penstock::core {
namespace {

// What a context rank has of a micro-batch.
struct OwnShare {
  const Share& whole;
  const std::vector<Share>& parts;
  bool whole_backward = false;

  bool Layers(const CostModel& costs, LayerCosts* layers) const {
    return costs.Layers(whole, parts, whole_backward, layers);
  }
};

// Passes, of which those that were run in two parts are put together.
class PassCollector {
 public:
  void Add(v1::Op op, uint32_t micro_batch, const MeasuredPass& pass, double beside_ns) {
    if (op == v1::OP_FORWARD || op == v1::OP_BACKWARD) {
      passes_.push_back(pass);
      return;
    }
    AddPart(op == v1::OP_BACKWARD_WEIGHT, micro_batch, pass, beside_ns);
  }

  std::vector<MeasuredPass> Take() {
    for (auto& [where, parts] : split_) {
      if (parts.ready) passes_.push_back(parts.whole);
    }
    return std::move(passes_);
  }

 private:
  // A backward pass that was run in two parts.
  struct SplitPass {
    MeasuredPass whole;
    int parts = 0;
    bool ready = false;
  };

  // `beside_ns`, of BACKWARD_WEIGHT: products for weights that the pass before made beside exchanges.
  void AddPart(bool weight, uint32_t micro_batch, MeasuredPass pass, double beside_ns) {
    SplitPass& split = split_[{pass.rank, pass.stage, micro_batch}];
    const MeasuredPass before = split.whole;
    if (weight) {
      MeasuredPass whole = pass;
      whole.kind = MeasuredKind::kBackwardWeight;
      whole.duration_ns += beside_ns;
      passes_.push_back(whole);
    }
    pass.kind = MeasuredKind::kBackward;
    pass.duration_ns += before.duration_ns;
    pass.host_ns += before.host_ns;
    split.whole = pass;
    split.ready = ++split.parts == 2;
  }

  std::vector<MeasuredPass> passes_;
  // By rank, stage and micro-batch.
  std::map<std::tuple<int, int, uint32_t>, SplitPass> split_;
};

class Observer {
 public:
  Observer(const ObservedIteration& iteration, const CostModel& costs, const CostModel& in_effect,
           const Job& job)
      : iteration_(iteration), costs_(costs), in_effect_(in_effect), job_(job) {}

  absl::StatusOr<Measurements> Run() {
    if (iteration_.plan->programs_size() != costs_.topology().ranks())
      return absl::InvalidArgumentError("plan.programs: not those of the job's ranks");
    PENSTOCK_ASSIGN_OR_RETURN(batch_, BatchFromProto(*iteration_.batch, job_));
    PENSTOCK_RETURN_IF_ERROR(ReadShares());
    for (const v1::ReportIterationRequest* report : iteration_.reports)
      PENSTOCK_RETURN_IF_ERROR(ReadReport(*report));
    if (step_.has_value()) measured_.steps.push_back(*std::move(step_));
    for (const auto& [which, transfer] : transfers_) measured_.transfers.push_back(transfer);
    for (auto& [which, ring] : rings_) measured_.rings.push_back(std::move(ring));
    measured_.reshards = MeasuredReshards(iteration_, costs_, job_.world);
    measured_.passes = of_groups_.Take();
    measured_.rank_passes = of_ranks_.Take();
    return std::move(measured_);
  }

 private:
  absl::Status ReadShares() {
    for (const v1::Replica& replica : iteration_.plan->replicas()) {
      auto& of_replica = shares_.emplace_back();
      for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
        for (const uint32_t sample : micro_batch.samples()) {
          if (sample >= batch_.samples.size())
            return absl::InvalidArgumentError("plan.replicas: a sample that the batch lacks");
        }
        PENSTOCK_ASSIGN_OR_RETURN(of_replica.emplace_back(),
                                  ComputedShares(micro_batch, batch_, costs_.nodes(), costs_.group().context,
                                                 costs_.profile().windows));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadReport(const v1::ReportIterationRequest& report) {
    if (report.rank() >= static_cast<uint32_t>(iteration_.plan->programs_size()))
      return absl::InvalidArgumentError(
          absl::StrCat("report.rank: ", report.rank(), "; the plan has fewer ranks"));
    const v1::Program& program = iteration_.plan->programs(static_cast<int>(report.rank()));
    for (const v1::MeasuredInstruction& measured : report.instructions()) {
      if (measured.id() >= static_cast<uint32_t>(program.instructions_size()))
        return absl::InvalidArgumentError(
            absl::StrCat("report.instructions: ", measured.id(), " is not in the program"));
    }
    const std::map<uint32_t, int64_t> host_ns = TimeBesidePasses(program, report);
    for (const v1::MeasuredInstruction& measured : report.instructions()) {
      const auto beside = host_ns.find(measured.id());
      Read(program, program.instructions(static_cast<int>(measured.id())), measured,
           beside != host_ns.end() ? beside->second : 0);
    }
    return absl::OkStatus();
  }

  void Read(const v1::Program& program, const v1::Instruction& instruction,
            const v1::MeasuredInstruction& measured, int64_t host_ns) {
    const int64_t measured_ns = measured.duration_ns();
    switch (instruction.op()) {
      case v1::OP_FORWARD:
      case v1::OP_BACKWARD:
      case v1::OP_BACKWARD_INPUT:
      case v1::OP_BACKWARD_WEIGHT:
        ReadPass(program, instruction, measured, host_ns);
        break;
      case v1::OP_OPTIMIZER_STEP:
        ReadOptimizer(program, instruction, measured_ns);
        break;
      case v1::OP_SEND:
      case v1::OP_RECV:
        ReadTransfer(program, instruction, measured_ns);
        break;
      case v1::OP_REDUCE_GRADIENTS:
        ReadRing(program, instruction, measured_ns);
        break;
      default:
        break;
    }
  }

  void ReadOptimizer(const v1::Program& program, const v1::Instruction& instruction, int64_t measured_ns) {
    const auto rank = static_cast<int>(program.rank());
    const int64_t gather_ns = costs_.GatherNs(rank);
    const int64_t update_ns = costs_.StepNs(rank) - gather_ns;
    if (update_ns < kFreeNs) return;
    // Parameters and shares of the state differ: how long the rank took for what it had to do is what counts.
    if (step_.has_value() && static_cast<double>(measured_ns) * (step_->update_ns + step_->gather_ns) >=
                                 step_->measured_ns * static_cast<double>(update_ns + gather_ns))
      return;
    MeasuredStep& step = step_.emplace();
    step = {.measured_ns = static_cast<double>(measured_ns),
            .update_ns = static_cast<double>(update_ns),
            .gather_ns = static_cast<double>(gather_ns)};
    if (gather_ns == 0) return;
    MeasuredRing ring = RingOf(static_cast<int>(instruction.stage()), costs_.topology().PlaceOf(rank).tensor);
    step.ring = std::move(ring.steps);
    step.link = ring.link;
  }

  void ReadTransfer(const v1::Program& program, const v1::Instruction& instruction, int64_t measured_ns) {
    const v1::Transfer& transfer = instruction.transfer();
    const auto [from, to] = EndsOfTransfer(static_cast<int>(program.rank()), instruction);
    const Link link = costs_.LinkBetween(from, to);
    const int64_t expected_ns = costs_.LinkNs(static_cast<int64_t>(transfer.bytes()), link);
    if (expected_ns < kFreeNs) return;
    MeasuredTransfer& measured = transfers_[{from, to, transfer.sequence()}];
    measured.from = from;
    measured.to = to;
    measured.link = link;
    (instruction.op() == v1::OP_SEND ? measured.sent : measured.received) =
        static_cast<double>(measured_ns) / static_cast<double>(expected_ns);
  }

  void ReadRing(const v1::Program& program, const v1::Instruction& instruction, int64_t measured_ns) {
    // With experts that ranks divide there are two rings in one, of other ranks.
    if (costs_.group().divides_experts()) return;
    const auto stage = static_cast<int>(instruction.stage());
    const int tensor = costs_.topology().PlaceOf(static_cast<int>(program.rank())).tensor;
    const ReduceTime time = costs_.ReduceTimes(stage, tensor);
    // What is measured of several buckets is what a pass left of them.
    if (time.buckets > 1) return;
    const int64_t expected_ns = time.WholeNs();
    if (expected_ns < kFreeNs) return;
    const double ratio = static_cast<double>(measured_ns) / static_cast<double>(expected_ns);
    const auto [found, added] = rings_.try_emplace({stage, tensor}, RingOf(stage, tensor));
    found->second.ratio = added ? ratio : std::min(found->second.ratio, ratio);
  }

  MeasuredRing RingOf(int stage, int tensor) const {
    const std::vector<int32_t> ranks = costs_.topology().GradientGroup(stage, tensor);
    MeasuredRing ring;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const std::pair<int, int> step = {ranks[i], ranks[(i + 1) % ranks.size()]};
      const Link link = costs_.LinkBetween(step.first, step.second);
      if (link != ring.link && link == Link::kInsideNode) continue;
      if (link != ring.link) ring.steps.clear();
      ring.link = link;
      ring.steps.push_back(step);
    }
    return ring;
  }

  void ReadPass(const v1::Program& program, const v1::Instruction& instruction,
                const v1::MeasuredInstruction& measured, int64_t host_ns) {
    if (program.replica() >= shares_.size() || instruction.micro_batch() >= shares_[program.replica()].size())
      return;
    const GroupShape& group = costs_.group();
    const bool says_waits = group.ranks() > 1 && measured.has_exchange_ns() && !group.divides_experts();
    // The others wait for the one that has most to do.
    const bool waits =
        group.ranks() > 1 && instruction.own_duration_ns() < instruction.expected_duration_ns();
    if (waits && !says_waits) return;
    const auto rank = static_cast<int>(program.rank());
    MeasuredPass pass;
    pass.rank = rank;
    pass.stage = static_cast<int>(instruction.stage());
    pass.kind = instruction.op() == v1::OP_FORWARD ? MeasuredKind::kForward : MeasuredKind::kBackward;
    const SharesInParts& shares = shares_[program.replica()][instruction.micro_batch()];
    const auto context = static_cast<size_t>(costs_.topology().PlaceOf(rank).context);
    const OwnShare share = {shares.whole[context], shares.parts[context], shares.whole_backward};
    pass.sums = share.whole.sums;
    pass.recompute = RecomputeOf(program, instruction);
    const double whole = WholeOverParts(instruction, share, pass.recompute);
    const double beside_ns = instruction.op() == v1::OP_BACKWARD_WEIGHT ? BesideNs(pass.stage, share) : 0;
    const auto add = [&](int64_t waited_ns, PassCollector& to) {
      pass.duration_ns =
          static_cast<double>(std::max<int64_t>(measured.duration_ns() - waited_ns, 1)) * whole +
          pass.host_ns;
      to.Add(instruction.op(), instruction.micro_batch(), pass, beside_ns);
    };
    if (says_waits) add(measured.exchange_ns(), of_ranks_);
    if (waits) return;
    pass.host_ns = static_cast<double>(host_ns);
    pass.context_work = ContextWork(pass, shares, context);
    const v1::PassExchange& exchange = instruction.exchange();
    add(exchange.tensor_ns() + exchange.context_exposed_ns() +
            ExposedRowsNs(instruction, share, pass.recompute),
        of_groups_);
  }

  // MeasuredPass::context_work. Where ranks divide experts, all of a group take as long as each other.
  std::vector<double> ContextWork(const MeasuredPass& pass, const SharesInParts& shares,
                                  size_t context) const {
    if (shares.whole.size() == 1 || in_effect_.group().divides_experts()) return {};
    std::vector<double> work;
    for (size_t other = 0; other < shares.whole.size(); ++other) {
      LayerCosts layers;
      if (!OwnShare{shares.whole[other], shares.parts[other], shares.whole_backward}.Layers(in_effect_,
                                                                                            &layers))
        return {};
      work.push_back(ForetoldNs(in_effect_, pass, layers));
    }
    const double own = work[context];
    for (double& of : work) of /= own;
    return work;
  }

  // What a pass waits for rows of experts: by the plan of a router that was more or less even, it may be much
  // less or more.
  int64_t ExposedRowsNs(const v1::Instruction& instruction, const OwnShare& share,
                        const StageRecompute& recompute) const {
    LayerCosts layers;
    if (!in_effect_.group().divides_experts() || instruction.op() == v1::OP_BACKWARD_WEIGHT ||
        !share.Layers(in_effect_, &layers))
      return 0;
    const auto stage = static_cast<int>(instruction.stage());
    return instruction.op() == v1::OP_FORWARD
               ? in_effect_.ForwardExchange(stage, layers).expert_exposed_ns
               : in_effect_.BackwardExchange(stage, layers, recompute).expert_exposed_ns;
  }

  // What a pass computes if it goes through the micro-batch as it is, over what it computes in parts, which
  // cost more: what is fitted is the first.
  double WholeOverParts(const v1::Instruction& instruction, const OwnShare& share,
                        const StageRecompute& recompute) const {
    if (share.parts.empty()) return 1;
    LayerCosts whole, in_parts;
    if (!costs_.Layers(share.whole, &whole) || !share.Layers(costs_, &in_parts)) return 1;
    for (LayerCosts* layers : {&whole, &in_parts}) layers->DropExchanges();
    const auto stage = static_cast<int>(instruction.stage());
    const auto computed = [&](const LayerCosts& layers) {
      return static_cast<double>(instruction.op() == v1::OP_FORWARD
                                     ? costs_.ForwardNs(stage, layers)
                                     : costs_.BackwardNs(stage, layers, recompute));
    };
    return computed(in_parts) > 0 ? computed(whole) / computed(in_parts) : 1;
  }

  double BesideNs(int stage, const OwnShare& share) const {
    LayerCosts layers;
    if (!costs_.group().divides_experts() || !share.Layers(costs_, &layers)) return 0;
    return static_cast<double>(costs_.BesideNs(stage, layers));
  }

  StageRecompute RecomputeOf(const v1::Program& program, const v1::Instruction& instruction) const {
    const v1::MicroBatch& micro_batch = iteration_.plan->replicas(static_cast<int>(program.replica()))
                                            .micro_batches(static_cast<int>(instruction.micro_batch()));
    if (instruction.stage() >= static_cast<uint32_t>(micro_batch.recompute_size())) return {};
    const v1::StageRecompute& recompute = micro_batch.recompute(static_cast<int>(instruction.stage()));
    return {.selective = static_cast<int32_t>(recompute.selective_layers()),
            .full = static_cast<int32_t>(recompute.full_layers())};
  }

  const ObservedIteration& iteration_;
  const CostModel& costs_;
  const CostModel& in_effect_;
  const Job& job_;
  Batch batch_;
  // By replica and micro-batch.
  std::vector<std::vector<SharesInParts>> shares_;
  Measurements measured_;
  // Of the rank that waited least.
  std::optional<MeasuredStep> step_;
  // By sender, receiver and sequence.
  std::map<std::tuple<int, int, uint32_t>, MeasuredTransfer> transfers_;
  // By stage and tensor rank.
  std::map<std::pair<int, int>, MeasuredRing> rings_;
  PassCollector of_groups_;
  PassCollector of_ranks_;
};

}  // namespace

absl::StatusOr<Measurements> MeasurementsOf(const ObservedIteration& iteration, const CostModel& costs,
                                            const CostModel& in_effect, const Job& job) {
  return Observer(iteration, costs, in_effect, job).Run();
}

int64_t MeasuredMakespanNs(const ObservedIteration& iteration) {
  int64_t longest = 0;
  for (const v1::ReportIterationRequest* report : iteration.reports)
    longest = std::max(longest, report->duration_ns());
  return longest;
}

}  // namespace penstock::core
