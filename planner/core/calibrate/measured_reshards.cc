#include "planner/core/calibrate/measured_reshards.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "planner/core/contract/passes.h"
#include "planner/core/contract/reshard_durations.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {
namespace {

struct Span {
  int64_t start_ns = 0;
  int64_t duration_ns = 0;

  int64_t end_ns() const { return start_ns + duration_ns; }
};

// On a stage of a rank, from the end of the rank's RESHARD of parameters on: that is one moment for all
// ranks, whose clocks may differ.
struct OuterSpans {
  StageOfRank stage;
  std::optional<Span> first = {};
  std::optional<Span> last = {};

  void Add(const Span& pass) {
    if (!first.has_value() || pass.start_ns < first->start_ns) first = pass;
    if (!last.has_value() || pass.end_ns() > last->end_ns()) last = pass;
  }
};

class ReshardsOfIteration {
 public:
  explicit ReshardsOfIteration(const v1::Plan& plan) : plan_(plan) {}

  void Read(const v1::ReportIterationRequest& report) {
    const v1::Program& program = plan_.programs(static_cast<int>(report.rank()));
    int64_t origin_ns = 0;
    for (const v1::MeasuredInstruction& measured : report.instructions()) {
      const v1::Instruction& instruction = program.instructions(static_cast<int>(measured.id()));
      if (instruction.op() != v1::OP_RESHARD) continue;
      if (instruction.part() == kParametersToStages) origin_ns = measured.start_ns() + measured.duration_ns();
      std::optional<int64_t>& least =
          instruction.part() == kParametersToStages ? parameters_ns_ : gradients_ns_;
      least = std::min(least.value_or(measured.duration_ns()), measured.duration_ns());
    }
    ReadPasses(program, report, origin_ns);
  }

  // What was measured of both parts, over what the costs say.
  std::vector<double> Factors(const ReshardTime& time, bool passes_are_known) const {
    std::vector<PassBeside> first, last;
    int64_t end_ns = 0;
    for (const OuterSpans& outer : outer_) end_ns = std::max(end_ns, outer.last->end_ns());
    for (const OuterSpans& outer : outer_) {
      if (!passes_are_known) break;
      first.push_back({static_cast<double>(outer.first->start_ns), outer.first->duration_ns, outer.stage});
      last.push_back(
          {static_cast<double>(end_ns - outer.last->end_ns()), outer.last->duration_ns, outer.stage});
    }
    std::vector<double> factors;
    if (parameters_ns_.has_value())
      factors.push_back(time.FactorOf(static_cast<double>(*parameters_ns_), first));
    if (gradients_ns_.has_value())
      factors.push_back(time.FactorOf(static_cast<double>(*gradients_ns_), last));
    return factors;
  }

 private:
  void ReadPasses(const v1::Program& program, const v1::ReportIterationRequest& report, int64_t origin_ns) {
    std::map<uint32_t, OuterSpans> of_stages;
    for (const v1::MeasuredInstruction& measured : report.instructions()) {
      const v1::Instruction& instruction = program.instructions(static_cast<int>(measured.id()));
      if (!IsPass(instruction.op())) continue;
      OuterSpans& outer =
          of_stages
              .try_emplace(instruction.stage(),
                           OuterSpans{.stage = StageOfRankIn(program, instruction.stage(), plan_)})
              .first->second;
      outer.Add({measured.start_ns() - origin_ns, measured.duration_ns()});
    }
    for (const auto& [stage, outer] : of_stages) outer_.push_back(outer);
  }

  const v1::Plan& plan_;
  std::vector<OuterSpans> outer_;
  // Of the rank that waited least for the others.
  std::optional<int64_t> parameters_ns_;
  std::optional<int64_t> gradients_ns_;
};

}  // namespace

std::vector<MeasuredReshard> MeasuredReshards(const ObservedIteration& iteration, const CostModel& costs,
                                              const World& world) {
  if (!costs.has_shares()) return {};
  const ReshardTime time = costs.ReshardTimes();
  const bool may_hide = time.overlap > 0 && time.rounds > 1;
  const bool has_others = world.ranks > costs.topology().ranks();
  if (time.whole_ns < kFreeNs || (may_hide && has_others)) return {};
  ReshardsOfIteration measured(*iteration.plan);
  for (const v1::ReportIterationRequest* report : iteration.reports) measured.Read(*report);
  std::vector<MeasuredReshard> reshards;
  for (const double factor : measured.Factors(time, /*passes_are_known=*/!has_others))
    reshards.push_back({.link = costs.ReshardLink(), .ratio = factor});
  return reshards;
}

void TakeSlownessOut(absl::Span<const SlowLink> slow, const Nodes& nodes,
                     std::vector<MeasuredReshard>* reshards) {
  for (MeasuredReshard& reshard : *reshards) {
    double slowness = 1;
    for (const SlowLink& link : slow)
      if (nodes.Between(link.from, link.to) == reshard.link) slowness = std::max(slowness, link.factor);
    reshard.ratio /= slowness;
  }
}

}  // namespace penstock::core
