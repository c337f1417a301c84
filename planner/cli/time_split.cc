#include "planner/cli/time_split.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/mesh/rank_places.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/micro_batch_shares.h"
#include "planner/core/contract/passes.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::cli {
namespace {

struct PartName {
  const char* key;
  const char* title;
};

constexpr PartName kNames[kTimeParts] = {{"useful", "useful work"},
                                         {"padding", "padding"},
                                         {"recompute", "recompute"},
                                         {"overhead", "overhead of micro-batches"},
                                         {"exchange", "exchange in stage groups"},
                                         {"update", "optimizer step"},
                                         {"fill", "waits: fill"},
                                         {"dependency", "waits: dependency"},
                                         {"transfer", "waits: transfer"},
                                         {"memory", "waits: memory"},
                                         {"group", "waits: stage group"},
                                         {"drain", "waits: drain"},
                                         {"imbalance", "waits: other replicas"}};

// The same layers if every token cost what it does in an endless micro-batch, or among as many as suit it
// best.
core::CostModel WithoutOverhead(const core::Planner& planner) {
  core::Profile profile = planner.costs().profile();
  const auto strip = [](core::LayerTime* time) {
    *time = time->AtBestEfficiency();
    time->fixed_ns = 0;
    time->half_efficiency_tokens = 0;
    time->packed_row_ns = 0;
    time->divided_row_ns = 0;
    time->target_call_square_ns = time->source_call_square_ns = 0;
  };
  for (core::LayerProfile& layer : profile.layers) {
    strip(&layer.forward);
    // A part of the whole layer.
    for (core::TensorCost& tensor : layer.tensor) {
      tensor.efficiency = 1;
      tensor.measured = false;
    }
  }
  strip(&profile.embedding_forward);
  return {std::move(profile), planner.job()};
}

// Costs of what a context rank has of a micro-batch: as it is computed, without padding, and without overhead
// as well. None of what is exchanged.
struct ShareCosts {
  core::LayerCosts real;
  core::LayerCosts tight;
  core::LayerCosts ideal;
  // False: the profile cannot tell the last two.
  bool has_tight = false;
  // Tokens of samples / tokens computed.
  double real_tokens = 1;
};

// Computation of an instruction.
struct PassCosts {
  double recompute_share = 0;
  double tight_ns = 0;
  double ideal_ns = 0;
};

class Splitter {
 public:
  Splitter(const core::Planner& planner, const core::Batch& batch, const v1::Plan& plan)
      : costs_(planner.costs()), ideal_(WithoutOverhead(planner)), batch_(batch), plan_(plan) {}

  absl::StatusOr<std::vector<TimeSplit>> Split() {
    if (plan_.predicted().ranks_size() != plan_.programs_size())
      return absl::InvalidArgumentError("plan.predicted: has not one entry for each program");
    PENSTOCK_RETURN_IF_ERROR(CostMicroBatches());
    const std::vector<GroupPlace> places = PlacesOf(plan_);
    std::vector<TimeSplit> ranks;
    for (const v1::Program& program : plan_.programs()) {
      const uint32_t context = places[ranks.size()].context;
      TimeSplit& split = ranks.emplace_back();
      for (const v1::Instruction& instruction : program.instructions())
        PENSTOCK_RETURN_IF_ERROR(AddPass(program, instruction, context, &split));
      AddRest(plan_.predicted().ranks(static_cast<int>(ranks.size()) - 1), &split);
    }
    return ranks;
  }

 private:
  absl::Status CostMicroBatches() {
    for (const v1::Replica& replica : plan_.replicas()) {
      std::vector<std::vector<ShareCosts>>& costs = micro_batches_.emplace_back();
      for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
        PENSTOCK_RETURN_IF_ERROR(CheckMicroBatch(micro_batch));
        PENSTOCK_ASSIGN_OR_RETURN(costs.emplace_back(), CostsOf(micro_batch));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckMicroBatch(const v1::MicroBatch& micro_batch) const {
    for (const uint32_t sample : micro_batch.samples())
      if (sample >= batch_.samples.size())
        return absl::InvalidArgumentError(absl::StrCat("plan.replicas: names sample ", sample, " of ",
                                                       batch_.samples.size(), " in the batch"));
    if (micro_batch.recompute_size() == costs_.stages()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("plan.replicas: a micro-batch has recompute of ",
                                                   micro_batch.recompute_size(), " stages, the job has ",
                                                   costs_.stages()));
  }

  // By context rank.
  absl::StatusOr<std::vector<ShareCosts>> CostsOf(const v1::MicroBatch& micro_batch) const {
    const int contexts = costs_.group().context;
    const core::AttentionWindows& windows = costs_.profile().windows;
    PENSTOCK_ASSIGN_OR_RETURN(const core::SharesInParts computed,
                              core::ComputedShares(micro_batch, batch_, costs_.nodes(), contexts, windows));
    PENSTOCK_ASSIGN_OR_RETURN(const core::SharesInParts real,
                              core::RealShares(micro_batch, batch_, costs_.nodes(), contexts, windows));
    std::vector<ShareCosts> costs(computed.whole.size());
    for (size_t i = 0; i < costs.size(); ++i) {
      ShareCosts& share = costs[i];
      const auto find = [&](const core::CostModel& model, const core::SharesInParts& shares,
                            core::LayerCosts* layers) {
        return model.Layers(shares.whole[i], shares.parts[i], shares.whole_backward, layers);
      };
      if (!find(costs_, computed, &share.real))
        return absl::InvalidArgumentError("plan.replicas: a micro-batch is outside of the job's profile");
      share.has_tight = find(costs_, real, &share.tight) && find(ideal_, real, &share.ideal);
      for (core::LayerCosts* layers : {&share.real, &share.tight, &share.ideal}) layers->DropExchanges();
      if (micro_batch.computed_tokens() > 0)
        share.real_tokens = static_cast<double>(micro_batch.real_tokens()) /
                            static_cast<double>(micro_batch.computed_tokens());
    }
    return costs;
  }

  core::StageRecompute RecomputeOf(uint32_t replica, const v1::Instruction& instruction) const {
    const v1::StageRecompute& recompute = plan_.replicas(static_cast<int>(replica))
                                              .micro_batches(static_cast<int>(instruction.micro_batch()))
                                              .recompute(static_cast<int>(instruction.stage()));
    return {.selective = static_cast<int32_t>(recompute.selective_layers()),
            .full = static_cast<int32_t>(recompute.full_layers())};
  }

  // Nanoseconds of a pass by one of the three costs; `recompute` counts in backward passes only.
  static double PassNs(const core::CostModel& costs, v1::Op op, int stage, const core::LayerCosts& layers,
                       const core::StageRecompute& recompute) {
    const auto ns = [](int64_t value) { return static_cast<double>(value); };
    switch (op) {
      case v1::OP_FORWARD:
        return ns(costs.ForwardNs(stage, layers));
      case v1::OP_BACKWARD:
        return ns(costs.BackwardNs(stage, layers, recompute));
      case v1::OP_BACKWARD_INPUT:
        return ns(costs.BackwardNs(stage, layers, recompute) - costs.WeightNs(stage, layers));
      case v1::OP_BACKWARD_WEIGHT:
        return ns(costs.WeightNs(stage, layers));
      default:
        return 0;
    }
  }

  PassCosts CostsOfPass(uint32_t replica, const v1::Instruction& instruction, uint32_t context) const {
    const ShareCosts& costs = micro_batches_[replica][instruction.micro_batch()][context];
    const auto stage = static_cast<int>(instruction.stage());
    const core::StageRecompute none;
    const double with =
        PassNs(costs_, instruction.op(), stage, costs.real, RecomputeOf(replica, instruction));
    const double without = PassNs(costs_, instruction.op(), stage, costs.real, none);
    PassCosts pass;
    if (with > 0) pass.recompute_share = std::clamp(1 - without / with, 0.0, 1.0);
    pass.tight_ns = costs.has_tight ? PassNs(costs_, instruction.op(), stage, costs.tight, none)
                                    : without * costs.real_tokens;
    pass.ideal_ns =
        costs.has_tight ? PassNs(ideal_, instruction.op(), stage, costs.ideal, none) : pass.tight_ns;
    return pass;
  }

  absl::Status AddPass(const v1::Program& program, const v1::Instruction& instruction, uint32_t context,
                       TimeSplit* split) const {
    // The rest of a joint pass is waiting.
    auto duration = static_cast<double>(instruction.has_collective() ? instruction.own_duration_ns()
                                                                     : instruction.expected_duration_ns());
    if (instruction.op() == v1::OP_RECOMPUTE) (*split)[kRecompute] += duration;
    if (!core::IsPass(instruction.op())) return absl::OkStatus();
    if (program.replica() >= micro_batches_.size() ||
        instruction.micro_batch() >= micro_batches_[program.replica()].size() ||
        context >= micro_batches_[program.replica()][instruction.micro_batch()].size() ||
        instruction.stage() >= static_cast<uint32_t>(costs_.stages()))
      return absl::InvalidArgumentError(
          absl::StrCat("plan.programs[", program.rank(), "]: instruction ", instruction.id(),
                       " is of a micro-batch, stage or context rank that there is not"));
    const v1::PassExchange& exchanged = instruction.exchange();
    const double exchange =
        std::min(duration, static_cast<double>(exchanged.tensor_ns() + exchanged.context_exposed_ns() +
                                               exchanged.expert_exposed_ns()));
    duration -= exchange;
    const PassCosts pass = CostsOfPass(program.replica(), instruction, context);
    const double recompute = duration * pass.recompute_share;
    const double once = duration - recompute;
    const double padding = std::max(0.0, once - pass.tight_ns);
    const double overhead = std::max(0.0, once - padding - pass.ideal_ns);
    (*split)[kExchange] += exchange;
    (*split)[kRecompute] += recompute;
    (*split)[kPadding] += padding;
    (*split)[kOverhead] += overhead;
    (*split)[kUseful] += once - padding - overhead;
    return absl::OkStatus();
  }

  static void AddRest(const v1::RankPrediction& predicted, TimeSplit* split) {
    const v1::Bubble& bubble = predicted.bubble();
    (*split)[kUpdate] = static_cast<double>(predicted.busy_ns()) - BusyNs(*split);
    (*split)[kFill] = static_cast<double>(bubble.fill_ns());
    (*split)[kDependency] = static_cast<double>(bubble.dependency_ns());
    (*split)[kTransfer] = static_cast<double>(bubble.transfer_ns());
    (*split)[kMemory] = static_cast<double>(bubble.memory_ns());
    (*split)[kGroup] = static_cast<double>(bubble.group_ns());
    (*split)[kDrain] = static_cast<double>(bubble.drain_ns());
    (*split)[kImbalance] = static_cast<double>(bubble.imbalance_ns());
  }

  const core::CostModel& costs_;
  const core::CostModel ideal_;
  const core::Batch& batch_;
  const v1::Plan& plan_;
  // By replica, position and context rank.
  std::vector<std::vector<std::vector<ShareCosts>>> micro_batches_;
};

}  // namespace

const char* Title(TimePart part) { return kNames[part].title; }
const char* Key(TimePart part) { return kNames[part].key; }

absl::StatusOr<std::vector<TimeSplit>> SplitTime(const core::Planner& planner, const v1::Batch& batch,
                                                 const v1::Plan& plan) {
  PENSTOCK_ASSIGN_OR_RETURN(const core::Batch samples, core::BatchFromProto(batch, planner.job()));
  return Splitter(planner, samples, plan).Split();
}

TimeSplit MeanOf(const std::vector<TimeSplit>& ranks) {
  TimeSplit mean = {};
  for (const TimeSplit& rank : ranks)
    for (int part = 0; part < kTimeParts; ++part)
      mean[part] += rank[part] / static_cast<double>(ranks.size());
  return mean;
}

double BusyNs(const TimeSplit& split) {
  return split[kUseful] + split[kPadding] + split[kRecompute] + split[kOverhead] + split[kExchange] +
         split[kUpdate];
}

}  // namespace penstock::cli
