#include "worker/runtime/gradient_reductions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/comm/groups.h"
#include "worker/comm/pending_all.h"
#include "worker/model/whole_gradients.h"
#include "worker/runtime/makes_gradients.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// That the shards of a reduction over the group are those of the optimizer.
absl::Status CheckShards(const std::vector<uint32_t>& group, uint32_t rank, const Sharding& sharding) {
  if (static_cast<int>(group.size()) == sharding.count && PositionIn(group, rank) == sharding.own)
    return absl::OkStatus();
  return absl::InternalError(absl::StrCat("gradients are reduced over ranks ", Describe(group), ", but rank ",
                                          rank, " updates shard ", sharding.own, " of ", sharding.count));
}

}  // namespace

GradientReductions::GradientReductions(const ExecutorParts& parts, const Program& program)
    : parts_(parts), program_(program) {
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op != Op::kReduceGradients) continue;
    groups_[instruction.stage] = instruction.group;
    const auto stage = parts.stages.find(instruction.stage);
    if (stage != parts.stages.end())
      started_[instruction.stage].buckets_left = stage->second->flat_parameters().buckets;
  }
  FindLastPasses();
}

// By stage the last pass so far; a reduction of another stage forgets it, because that one is to start first.
void GradientReductions::FindLastPasses() {
  std::map<uint32_t, const Instruction*> last;
  for (const Instruction& instruction : program_.instructions) {
    if (MakesGradients(instruction.op)) last[instruction.stage] = &instruction;
    if (instruction.op != Op::kReduceGradients) continue;
    const auto pass = last.find(instruction.stage);
    if (pass != last.end()) reduction_of_pass_[pass->second->id] = instruction.id;
    last.clear();
  }
}

GradientsReady GradientReductions::During(const Instruction& pass) {
  const auto found = reduction_of_pass_.find(pass.id);
  if (found == reduction_of_pass_.end()) return {};
  const Instruction& reduction = program_.instructions[found->second];
  return [this, &reduction](int64_t begin) {
    if (status_.ok()) status_ = StartBuckets(reduction, begin);
  };
}

std::vector<uint32_t> GradientReductions::GroupOf(uint32_t stage, Holders holders) const {
  return holders == Holders::kOfExperts ? parts_.job->topology.ExpertHolders(program_.rank, stage)
                                        : program_.groups[groups_.at(stage)];
}

absl::Status GradientReductions::StartSpan(const Instruction& reduction, const FlatSpan& span) {
  const std::vector<uint32_t> group = GroupOf(reduction.stage, span.holders);
  const Sharding& sharding = parts_.optimizer->shardings().Of(span.holders);
  if (sharding.divided) PENSTOCK_RETURN_IF_ERROR(CheckShards(group, program_.rank, sharding));
  const FlatParameters& flat = parts_.stages.at(reduction.stage)->flat_parameters();
  PENSTOCK_RETURN_IF_ERROR(
      RunTorch("the gradients of the tensor ranks", [&] { SumWholeGradients(flat, span, *parts_.group); }));
  PENSTOCK_RETURN_IF_ERROR(parts_.group->status());
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor gradients, CallTorch("the gradients of a stage", [&] {
                              return flat.gradients.narrow(0, span.begin, span.size());
                            }));
  Communicator& communicator = *parts_.communicator;
  PENSTOCK_ASSIGN_OR_RETURN(started_[reduction.stage].pending.emplace_back(),
                            sharding.divided ? communicator.StartReduceScatterSum({gradients}, group)
                                             : communicator.StartAllReduceSum({gradients}, group));
  return absl::OkStatus();
}

absl::Status GradientReductions::StartBuckets(const Instruction& reduction, int64_t begin) {
  const FlatParameters& flat = parts_.stages.at(reduction.stage)->flat_parameters();
  size_t& left = started_[reduction.stage].buckets_left;
  for (; left > 0 && flat.spans[left - 1].begin >= begin; --left) {
    PENSTOCK_RETURN_IF_ERROR(StartSpan(reduction, flat.spans[left - 1]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> GradientReductions::Start(const Instruction& reduction) {
  PENSTOCK_RETURN_IF_ERROR(StartBuckets(reduction, /*begin=*/0));
  const FlatParameters& flat = parts_.stages.at(reduction.stage)->flat_parameters();
  for (size_t i = flat.buckets; i < flat.spans.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(StartSpan(reduction, flat.spans[i]));
  }
  return std::make_unique<PendingAll>(std::move(started_[reduction.stage].pending));
}

}  // namespace penstock::worker
