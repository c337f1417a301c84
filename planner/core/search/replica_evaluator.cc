#include "planner/core/search/replica_evaluator.h"

#include <algorithm>

#include "planner/core/cost/rounding.h"

namespace penstock::core {
namespace {

// A replayed pass takes about one part in so many of one that is scheduled.
constexpr int64_t kReplaySpeed = 8;
constexpr int64_t kNoisyReplaySpeed = 4;

// What each context rank takes alone.
void AddContexts(const CostModel& costs, int replica, int stage, const StageRecompute& recompute,
                 absl::Span<const Share> shares, absl::Span<const LayerCosts> layers,
                 ReplicaPipeline* pipeline) {
  for (size_t context = 0; context < shares.size(); ++context) {
    const auto slowed = [&](int64_t ns) {
      return costs.slow_groups().Slowed(ns, replica, costs.position_of(stage), static_cast<int>(context));
    };
    ContextPass& pass = pipeline->contexts.emplace_back();
    pass.forward_ns = slowed(costs.ForwardNs(stage, layers[context]));
    pass.backward_ns = slowed(costs.BackwardNs(stage, layers[context], recompute));
    pass.weight_ns = slowed(costs.WeightNs(stage, layers[context]));
    pass.forward = costs.ForwardExchange(stage, layers[context]);
    pass.backward = costs.BackwardExchange(stage, layers[context], recompute);
    pass.sums = shares[context].sums;
  }
}

}  // namespace

ReplicaEvaluator::ReplicaEvaluator(const ScheduleSpace& space)
    : space_(space),
      scheduler_(space.costs().position_of_stage(), space.costs().positions(), space.stop()),
      replay_(space.costs().position_of_stage(), space.costs().positions(), space.stop()) {
  transfer_ns_.resize(space.costs().stages());
  gradient_transfer_ns_.resize(space.costs().stages());
  for (int replica = 0; replica < space.replicas(); ++replica)
    link_slowness_.push_back(LinksOf(space, replica));
}

std::vector<ReplicaEvaluator::LinkSlowness> ReplicaEvaluator::LinksOf(const ScheduleSpace& space,
                                                                      int replica) {
  const CostModel& costs = space.costs();
  std::vector<LinkSlowness> links;
  if (!costs.slow_links().any()) return links;
  bool any = false;
  for (int stage = 0; stage + 1 < costs.stages(); ++stage) {
    const auto slowness = [&](bool gradients) {
      return costs.SlownessAcross(space.topology(), replica, stage, gradients);
    };
    links.push_back({.activations = slowness(false), .gradients = slowness(true)});
    any |= links.back().activations > 1 || links.back().gradients > 1;
  }
  return any ? links : std::vector<LinkSlowness>();
}

MicroBatchTable::Field ReplicaEvaluator::TransferField(int replica, int stage) const {
  const Link link = space_.costs().LinkAcross(space_.topology(), replica, stage);
  return link == Link::kInsideNode ? MicroBatchTable::kNearTransferNs : MicroBatchTable::kFarTransferNs;
}

bool ReplicaEvaluator::IsSlow(int replica) const {
  return space_.costs().slow_groups().AnyOf(replica) || !link_slowness_[replica].empty();
}

void ReplicaEvaluator::SlowDown(const MicroBatchTable& table, absl::Span<const int32_t> slots, int replica) {
  const CostModel& costs = space_.costs();
  slowed_.clear();
  rows_.clear();
  for (const int32_t slot : slots) {
    rows_.push_back(static_cast<int32_t>(slowed_.size()));
    const absl::Span<const int64_t> figures = table.figures(slot);
    slowed_.insert(slowed_.end(), figures.begin(), figures.end());
    table.SlowDown(slot, replica, absl::MakeSpan(slowed_).subspan(rows_.back()));
    const std::vector<LinkSlowness>& links = link_slowness_[replica];
    slowed_.resize(slowed_.size() + costs.stages());
    int64_t* const row = &slowed_[rows_.back()];
    for (size_t stage = 0; stage < links.size(); ++stage) {
      int64_t& ns = row[TransferField(replica, static_cast<int>(stage)) * costs.stages() + stage];
      row[MicroBatchTable::kFields * costs.stages() + stage] =
          RoundToInteger(static_cast<double>(ns) * links[stage].gradients);
      ns = RoundToInteger(static_cast<double>(ns) * links[stage].activations);
    }
  }
}

bool ReplicaEvaluator::Gather(const MicroBatchTable& table, absl::Span<const int32_t> slots, int replica) {
  using Table = MicroBatchTable;
  rows_.clear();
  for (const int32_t slot : slots) {
    if (!table.known(slot)) return false;
    rows_.push_back(table.offset(slot));
  }
  const CostModel& costs = space_.costs();
  // A replica without work, where there are fewer samples than replicas, has nothing that could be slowed
  // down.
  const bool slow = !slots.empty() && IsSlow(replica);
  if (slow) SlowDown(table, slots, replica);
  const auto field = [&](Table::Field which) {
    return slow ? slowed_.data() + static_cast<ptrdiff_t>(which * costs.stages()) : table.field(which);
  };
  passes_.stages = costs.stages();
  passes_.positions = costs.positions();
  passes_.rows = rows_;
  passes_.forward_ns = field(Table::kForwardNs);
  passes_.backward_ns = field(Table::kBackwardNs);
  passes_.weight_ns = field(Table::kWeightNs);
  passes_.input_bytes = field(Table::kInputBytes);
  passes_.held_bytes = field(Table::kHeldBytes);
  passes_.put_aside_bytes = field(Table::kPutAsideBytes);
  passes_.forward_passing_bytes = field(Table::kForwardPassingBytes);
  passes_.passing_bytes = field(Table::kPassingBytes);
  passes_.reduce_ns = space_.reduce_ns().data();
  passes_.optimizer_ns = space_.optimizer_ns().data();
  passes_.available_bytes = space_.room().Of(replica).data();
  const bool slow_links = slow && !link_slowness_[replica].empty();
  for (int stage = 0; stage + 1 < costs.stages(); ++stage) {
    transfer_ns_[stage] = field(TransferField(replica, stage));
    gradient_transfer_ns_[stage] = slow_links ? field(Table::kFields) : transfer_ns_[stage];
  }
  passes_.transfer_ns = transfer_ns_.data();
  passes_.gradient_transfer_ns = gradient_transfer_ns_.data();
  return true;
}

int64_t ReplicaEvaluator::Makespan(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                   const ScheduleRules& rules, int replica, int64_t give_up_ns,
                                   std::vector<Pass>* order) {
  if (!Gather(table, slots, replica)) return kInfeasibleNs;
  const int64_t makespan = scheduler_.Run(passes_, rules, give_up_ns, order);
  simulated_ += scheduler_.passes();
  return makespan;
}

int64_t ReplicaEvaluator::Replay(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                 absl::Span<const Pass> order, int replica, int64_t give_up_ns) {
  if (!Gather(table, slots, replica)) return kInfeasibleNs;
  simulated_ += static_cast<int64_t>(order.size()) / kReplaySpeed;
  return replay_.Run(passes_, order, give_up_ns);
}

void ReplicaEvaluator::ReplayUnderNoise(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                        absl::Span<const Pass> order, int replica, const PassNoise& noise,
                                        absl::Span<int64_t> makespans) {
  if (!Gather(table, slots, replica)) {
    std::ranges::fill(makespans, kInfeasibleNs);
    return;
  }
  for (size_t draw = 0; draw < makespans.size(); ++draw) {
    const PassTable& passes = noisy_.Draw(passes_, order, noise, replica, static_cast<int>(draw));
    makespans[draw] = replay_.Run(passes, order, kInfeasibleNs);
  }
  simulated_ += static_cast<int64_t>(makespans.size() * order.size()) / kNoisyReplaySpeed;
}

void ReplicaEvaluator::ScheduleUnderNoise(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                          const ScheduleRules& rules, absl::Span<const Pass> order,
                                          int replica, const PassNoise& noise, int draw,
                                          std::vector<Pass>* scheduled) {
  scheduled->clear();
  if (!Gather(table, slots, replica)) return;
  scheduler_.Run(noisy_.Draw(passes_, order, noise, replica, draw), rules, kInfeasibleNs, scheduled);
  simulated_ += scheduler_.passes();
}

bool ReplicaEvaluator::MakePipeline(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                    const ScheduleRules& rules, absl::Span<const Pass> order, int replica,
                                    ReplicaPipeline* pipeline) {
  std::vector<Pass> passes(order.begin(), order.end());
  if ((passes.empty() || Replay(table, slots, passes, replica) == kInfeasibleNs) &&
      Makespan(table, slots, rules, replica, kInfeasibleNs, &passes) == kInfeasibleNs) {
    return false;
  }
  pipeline->passes = ByRank(passes, space_.costs().position_of_stage(), space_.costs().positions());
  const CostModel& costs = space_.costs();
  const int stages = costs.stages();
  PipelineCosts& times = pipeline->costs;
  times.Resize(stages, static_cast<int>(slots.size()));
  times.gradient_transfer_ns.clear();
  if (!link_slowness_[replica].empty()) times.gradient_transfer_ns.resize(times.transfer_ns.size());
  times.positions = costs.positions();
  times.position_of_stage = costs.position_of_stage();
  pipeline->memory.clear();
  pipeline->recompute.clear();
  pipeline->contexts.clear();
  for (size_t m = 0; m < slots.size(); ++m) {
    if (space_.stop().stopped()) return false;
    const absl::Span<const Share> shares = table.Shares(slots[m]);
    for (int stage = 0; stage < stages; ++stage) {
      const int32_t at = rows_[m] + stage;
      times.forward_ns[m * stages + stage] = passes_.forward_ns[at];
      times.backward_ns[m * stages + stage] = passes_.backward_ns[at];
      times.weight_ns[m * stages + stage] = passes_.weight_ns[at];
      times.transfer_ns[m * stages + stage] = stage + 1 < stages ? transfer_ns_[stage][at] : 0;
      if (!times.gradient_transfer_ns.empty() && stage + 1 < stages)
        times.gradient_transfer_ns[m * stages + stage] = gradient_transfer_ns_[stage][at];
      for (const Share& share : shares) pipeline->memory.push_back(costs.Memory(stage, share));
      pipeline->recompute.push_back(
          RecomputeAtLevel(costs.stage(stage), table.levels(slots[m])[stage], costs.has_selective()));
      if (costs.group().ranks() > 1)
        AddContexts(costs, replica, stage, pipeline->recompute.back(), shares, table.layer_costs(slots[m]),
                    pipeline);
    }
  }
  return true;
}

}  // namespace penstock::core
