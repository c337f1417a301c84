#include "planner/service/page/iteration_view.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/rank_places.h"
#include "planner/service/page/length_histogram.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kNanosecondsPerMicrosecond = 1000;
constexpr int kNotMeasured = -1;

int64_t Microseconds(int64_t nanoseconds) { return nanoseconds / kNanosecondsPerMicrosecond; }

// What a rank computes, and what all of it waits for; transfers are where it has nothing to do.
bool IsShown(const v1::Instruction& instruction) {
  switch (instruction.op()) {
    case v1::OP_FORWARD:
    case v1::OP_BACKWARD:
    case v1::OP_BACKWARD_INPUT:
    case v1::OP_BACKWARD_WEIGHT:
    case v1::OP_RECOMPUTE:
    case v1::OP_REDUCE_GRADIENTS:
    case v1::OP_RESHARD:
    case v1::OP_OPTIMIZER_STEP:
      return true;
    default:
      return false;
  }
}

// A report, and where its times begin: ranks start an iteration one after another.
struct Measurement {
  const v1::ReportIterationRequest* report = nullptr;
  int64_t offset_ns = 0;
};

std::map<uint32_t, Measurement> MeasurementsByRank(const HeldIteration& iteration) {
  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const ReportPtr& report : iteration.reports) earliest = std::min(earliest, report->started_unix_ns());
  std::map<uint32_t, Measurement> by_rank;
  for (const ReportPtr& report : iteration.reports)
    by_rank[report->rank()] = {report.get(), report->started_unix_ns() - earliest};
  return by_rank;
}

Json Blocks(const v1::Program& program) {
  Json blocks = Json::array();
  for (const v1::Instruction& instruction : program.instructions()) {
    if (!IsShown(instruction)) continue;
    const int64_t numbers[] = {instruction.op(), instruction.micro_batch(), instruction.stage(),
                               Microseconds(instruction.expected_start_ns()),
                               Microseconds(instruction.expected_duration_ns())};
    for (const int64_t number : numbers) blocks.push_back(number);
  }
  return blocks;
}

Json MeasuredBlocks(const v1::Program& program, const Measurement& measurement) {
  std::vector<const v1::MeasuredInstruction*> by_id(static_cast<size_t>(program.instructions_size()),
                                                    nullptr);
  for (const v1::MeasuredInstruction& one : measurement.report->instructions())
    if (one.id() < by_id.size()) by_id[one.id()] = &one;
  Json blocks = Json::array();
  for (const v1::Instruction& instruction : program.instructions()) {
    if (!IsShown(instruction)) continue;
    const v1::MeasuredInstruction* one = instruction.id() < by_id.size() ? by_id[instruction.id()] : nullptr;
    blocks.push_back(one == nullptr ? kNotMeasured : Microseconds(measurement.offset_ns + one->start_ns()));
    blocks.push_back(one == nullptr ? kNotMeasured : Microseconds(one->duration_ns()));
  }
  return blocks;
}

// `place`: in its stage group; empty without groups.
Json RankAsJson(const v1::Program& program, const std::string& place,
                const std::map<uint32_t, Measurement>& measurements) {
  Json rank = {{"rank", program.rank()},
               {"replica", program.replica()},
               {"stages", program.stages()},
               {"blocks", Blocks(program)}};
  if (!place.empty()) rank["place"] = place;
  const auto measured = measurements.find(program.rank());
  if (measured != measurements.end()) rank["measured"] = MeasuredBlocks(program, measured->second);
  return rank;
}

// Programs of a stage group one after another, by place; without groups in their order.
std::vector<uint32_t> GroupByGroup(const v1::Plan& plan, const std::vector<GroupPlace>& places) {
  std::vector<uint32_t> order(static_cast<size_t>(plan.programs_size()));
  std::iota(order.begin(), order.end(), 0);
  if (!HasGroups(plan)) return order;
  const auto key = [&](uint32_t index) {
    const v1::Program& program = plan.programs(static_cast<int>(index));
    return std::tuple(program.replica(), program.stages_size() > 0 ? program.stages(0) : 0,
                      places[index].context, places[index].tensor);
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return order;
}

void AddRanks(const v1::Plan& plan, const std::map<uint32_t, Measurement>& measurements,
              const IterationViewOptions& options, Json& view) {
  Json ranks = Json::array();
  size_t blocks = 0;
  size_t left_out = 0;
  const std::vector<GroupPlace> places = PlacesOf(plan);
  for (const uint32_t index : GroupByGroup(plan, places)) {
    const v1::Program& program = plan.programs(static_cast<int>(index));
    if (options.replica.has_value() && program.replica() != *options.replica) continue;
    const auto its_blocks = static_cast<size_t>(
        std::count_if(program.instructions().begin(), program.instructions().end(), IsShown));
    if (left_out > 0 || (!ranks.empty() && blocks + its_blocks > options.most_blocks)) {
      ++left_out;
      continue;
    }
    blocks += its_blocks;
    ranks.push_back(
        RankAsJson(program, PlaceName(MeshOfReplica(plan, program.replica()), places[index]), measurements));
  }
  view["ranks"] = std::move(ranks);
  view["ranks_left_out"] = left_out;
}

// The time until which the ranks of a replica compute is what its imbalance is about: the optimizer waits for
// all of them.
int64_t LastBackwardEnd(const v1::Program& program, const v1::ReportIterationRequest& report) {
  int64_t end = 0;
  for (const v1::MeasuredInstruction& one : report.instructions()) {
    if (one.id() >= static_cast<uint32_t>(program.instructions_size())) continue;
    const v1::Op op = program.instructions(static_cast<int>(one.id())).op();
    if (op == v1::OP_BACKWARD || op == v1::OP_BACKWARD_INPUT || op == v1::OP_BACKWARD_WEIGHT)
      end = std::max(end, one.start_ns() + one.duration_ns());
  }
  return end;
}

int64_t PlannedBackwardEnd(const v1::Program& program) {
  int64_t end = 0;
  for (const v1::Instruction& one : program.instructions()) {
    if (one.op() == v1::OP_BACKWARD || one.op() == v1::OP_BACKWARD_INPUT ||
        one.op() == v1::OP_BACKWARD_WEIGHT)
      end = std::max(end, one.expected_start_ns() + one.expected_duration_ns());
  }
  return end;
}

Json Replicas(const v1::Plan& plan, const std::map<uint32_t, Measurement>& measurements) {
  struct Ends {
    int64_t planned_ns = 0;
    int64_t measured_ns = kNotMeasured;
  };
  std::vector<Ends> ends(static_cast<size_t>(plan.replicas_size()));
  for (const v1::Program& program : plan.programs()) {
    if (program.replica() >= ends.size()) continue;
    Ends& its = ends[program.replica()];
    its.planned_ns = std::max(its.planned_ns, PlannedBackwardEnd(program));
    if (const auto found = measurements.find(program.rank()); found != measurements.end()) {
      its.measured_ns = std::max(its.measured_ns,
                                 found->second.offset_ns + LastBackwardEnd(program, *found->second.report));
    }
  }
  Json replicas = Json::array();
  for (int replica = 0; replica < plan.replicas_size(); ++replica) {
    uint64_t samples = 0;
    uint64_t real_tokens = 0;
    uint64_t computed_tokens = 0;
    for (const v1::MicroBatch& micro_batch : plan.replicas(replica).micro_batches()) {
      samples += static_cast<uint64_t>(micro_batch.samples_size());
      real_tokens += micro_batch.real_tokens();
      computed_tokens += micro_batch.computed_tokens();
    }
    const Ends& its = ends[static_cast<size_t>(replica)];
    replicas.push_back(
        {{"micro_batches", plan.replicas(replica).micro_batches_size()},
         {"samples", samples},
         {"real_tokens", real_tokens},
         {"computed_tokens", computed_tokens},
         {"planned_us", Microseconds(its.planned_ns)},
         {"measured_us", its.measured_ns < 0 ? Json(nullptr) : Json(Microseconds(its.measured_ns))}});
  }
  return replicas;
}

Json Lengths(const v1::Batch& batch) {
  Json lengths = Json::array();
  for (const LengthBucket& bucket : LengthHistogram(batch)) {
    lengths.push_back(
        {{"from", bucket.from}, {"to", bucket.to}, {"samples", bucket.samples}, {"tokens", bucket.tokens}});
  }
  return lengths;
}

// Names without "OP_", of what is shown.
Json OpNames() {
  Json names = Json::object();
  for (int op = v1::Op_MIN; op <= v1::Op_MAX; ++op) {
    v1::Instruction instruction;
    instruction.set_op(static_cast<v1::Op>(op));
    if (v1::Op_IsValid(op) && IsShown(instruction))
      names[absl::StrCat(op)] = v1::Op_Name(instruction.op()).substr(3);
  }
  return names;
}

Json MeasuredEnd(const std::map<uint32_t, Measurement>& measurements) {
  if (measurements.empty()) return nullptr;
  int64_t end = 0;
  for (const auto& [rank, measurement] : measurements)
    end = std::max(end, measurement.offset_ns + measurement.report->duration_ns());
  return Microseconds(end);
}

}  // namespace

Json IterationAsJson(const HeldIteration& iteration, const v1::Plan& plan,
                     const IterationViewOptions& options) {
  const std::map<uint32_t, Measurement> measurements = MeasurementsByRank(iteration);
  Json view = {{"job", plan.job_id()},
               {"iteration", plan.iteration()},
               {"planned_us", Microseconds(plan.predicted().makespan_ns())},
               {"lower_bound_us", Microseconds(plan.lower_bound_ns())},
               {"measured_us", MeasuredEnd(measurements)},
               {"ranks_reported", measurements.size()},
               {"ranks_planned", plan.programs_size()},
               {"samples", iteration.batch->samples_size()},
               {"real_tokens", plan.real_tokens()},
               {"computed_tokens", plan.computed_tokens()},
               {"mesh", MeshName(plan)},
               {"layers_per_stage", plan.layers_per_stage()},
               {"ops", OpNames()},
               {"lengths", Lengths(*iteration.batch)},
               {"replicas", Replicas(plan, measurements)}};
  AddRanks(plan, measurements, options, view);
  return view;
}

}  // namespace penstock
