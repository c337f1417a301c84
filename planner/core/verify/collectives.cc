// Rule 5: the ranks of a collective group issue the same collectives in the same order.
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/adapters.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

struct Issued {
  int rank;
  const v1::Instruction* instruction;
};

// Groups are judged with the topology (rule 0).
void CheckGroup(const PlanIndex& index, int rank, const v1::Instruction& instruction, Report& report) {
  const bool reduces = instruction.op() == v1::OP_REDUCE_GRADIENTS;
  const bool steps = instruction.op() == v1::OP_OPTIMIZER_STEP || instruction.op() == v1::OP_RESHARD;
  const uint32_t expected = reduces ? index.ReduceGroupOf(rank, instruction.stage())
                            : steps ? index.StepGroupOf(rank)
                                    : index.StageGroupOf(rank);
  if (instruction.collective().group() == expected) return;
  report.AddAt(kCollectives, rank, instruction,
               absl::StrCat("its group is ", instruction.collective().group(), ", that of its ",
                            reduces ? "stage"
                            : steps ? (index.has_shares() ? "job" : "replica")
                                    : "stage group",
                            " is ", expected));
}

// Of an element as gradients are summed.
uint64_t SumBytes(const v1::ModelSpec& model) { return model.dtype() == v1::DATA_TYPE_FLOAT64 ? 8 : 4; }

// Stages with encoder layers, and with decoder layers.
struct StackStages {
  int encoders = 0;
  int decoders = 0;
  // The first one with a decoder layer.
  int first_decoder = -1;
};

StackStages StackStagesOf(const v1::Plan& plan) {
  StackStages result;
  uint64_t layers = 0;
  for (int stage = 0; stage < plan.layers_per_stage_size(); ++stage) {
    if (layers < plan.model().encoder_layers()) ++result.encoders;
    layers += plan.layers_per_stage(stage);
    if (layers <= plan.model().encoder_layers()) continue;
    ++result.decoders;
    if (result.first_decoder < 0) result.first_decoder = stage;
  }
  return result;
}

// Of a token embedding that is tied: the gradients of its copies, where it has some.
uint64_t TiedTableBytes(const v1::Plan& plan, const StackStages& stages) {
  const v1::ModelSpec& model = plan.model();
  if (!model.tied_head() && !model.tied_embeddings()) return 0;
  const int first = model.tied_embeddings() ? 0 : stages.first_decoder;
  const int last = model.tied_head() ? plan.layers_per_stage_size() - 1 : stages.first_decoder;
  return first == last ? 0 : SumBytes(model) * model.vocab() * model.hidden();
}

// Bytes of the squared norm, and of the gradients of each table that several stages share.
uint64_t StepBytes(const v1::Plan& plan) {
  constexpr uint64_t kNormBytes = 8;
  // There they are one.
  if (plan.options().parameter_shares()) return kNormBytes;
  // What stages share is frozen.
  if (plan.model().has_adapters()) return kNormBytes;
  constexpr uint64_t kUsualBuckets = 32;
  const v1::ModelSpec& model = plan.model();
  const StackStages stages = StackStagesOf(plan);
  const uint64_t bytes = kNormBytes + TiedTableBytes(plan, stages);
  if (model.architecture() != v1::ARCHITECTURE_T5) return bytes;
  const uint64_t buckets =
      model.relative_position_buckets() > 0 ? model.relative_position_buckets() : kUsualBuckets;
  const uint64_t table = buckets * model.heads() * SumBytes(model);
  return bytes + table * ((stages.encoders > 1 ? 1 : 0) + (stages.decoders > 1 ? 1 : 0));
}

void CheckBytes(const PlanIndex& index, int rank, const v1::Instruction& instruction, Report& report) {
  if (IsPass(instruction.op()) && instruction.collective().bytes() != 0)
    report.AddAt(kCollectives, rank, instruction,
                 absl::StrCat("its collective has ", instruction.collective().bytes(),
                              " bytes; a pass has 0, and what it exchanges in `exchange`"));
  if (instruction.op() == v1::OP_REDUCE_GRADIENTS && index.plan().model().has_adapters()) {
    const uint64_t adapters = AdapterBytes(index.plan(), instruction.stage());
    if (instruction.collective().bytes() != adapters)
      report.AddAt(kCollectives, rank, instruction,
                   absl::StrCat("its collective has ", instruction.collective().bytes(),
                                " bytes; the adapters of its stage have ", adapters));
  }
  if (instruction.op() != v1::OP_OPTIMIZER_STEP) return;
  const uint64_t expected = StepBytes(index.plan());
  if (instruction.collective().bytes() != expected)
    report.AddAt(kCollectives, rank, instruction,
                 absl::StrCat("its collective has ", instruction.collective().bytes(),
                              " bytes; norm and shared parameters have ", expected));
}

void Compare(const Issued& mine, const Issued& first, Report& report) {
  const v1::Instruction& a = *mine.instruction;
  const v1::Instruction& b = *first.instruction;
  const bool each_of_its_own = a.op() == v1::OP_OPTIMIZER_STEP || a.op() == v1::OP_RESHARD;
  const bool same_stage = each_of_its_own || a.stage() == b.stage();
  if (a.op() == b.op() && a.part() == b.part() && same_stage && a.micro_batch() == b.micro_batch() &&
      a.collective().bytes() == b.collective().bytes())
    return;
  report.AddAt(kCollectives, mine.rank, a,
               absl::StrCat("its op, stage, micro-batch or bytes differ from what rank ", first.rank,
                            " issues at this place, ", Describe(b)));
}

using IssuedByRank = std::map<int, std::vector<Issued>>;

void CheckSameCollectives(const v1::CollectiveGroup& group, int number, const IssuedByRank& issued,
                          Report& report) {
  const auto& [first_rank, first] = *issued.begin();
  for (uint32_t rank : group.ranks()) {
    const auto mine = issued.find(static_cast<int>(rank));
    const size_t count = mine == issued.end() ? 0 : mine->second.size();
    if (count != first.size()) {
      report.AddAt(kCollectives, static_cast<int>(rank),
                   absl::StrCat("it issues ", count, " collectives in group ", number, ", rank ", first_rank,
                                " issues ", first.size()));
      continue;
    }
    for (size_t i = 0; i < count; ++i) Compare(mine->second[i], first[i], report);
  }
}

}  // namespace

void CheckCollectives(const PlanIndex& index, Report& report) {
  const v1::Plan& plan = index.plan();
  std::vector<IssuedByRank> groups(plan.groups_size());
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    for (const v1::Instruction& instruction : index.program(rank).instructions()) {
      const bool ends = IsOfWholeIteration(instruction.op());
      const bool joint = index.MeshOfRank(rank).group_ranks() > 1 && IsPass(instruction.op());
      if (!ends && !joint) continue;
      const v1::Collective& collective = instruction.collective();
      if (collective.group() >= groups.size()) {
        report.AddAt(kCollectives, rank, instruction,
                     absl::StrCat("its group is ", collective.group(), ", but the plan has ", groups.size()));
        continue;
      }
      CheckGroup(index, rank, instruction, report);
      CheckBytes(index, rank, instruction, report);
      std::vector<Issued>& issued = groups[collective.group()][rank];
      if (collective.sequence() != issued.size())
        report.AddAt(kCollectives, rank, instruction,
                     absl::StrCat("its sequence is ", collective.sequence(), ", but it is number ",
                                  issued.size(), " of its group"));
      issued.push_back({rank, &instruction});
    }
  }
  for (size_t g = 0; g < groups.size(); ++g)
    if (!groups[g].empty())
      CheckSameCollectives(plan.groups(static_cast<int>(g)), static_cast<int>(g), groups[g], report);
}

}  // namespace penstock::core::verify
