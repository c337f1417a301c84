#include "planner/service/state/check_log.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/limits.h"

namespace penstock {
namespace {

absl::Status Wrong(absl::string_view field, uint64_t value, absl::string_view allowed) {
  return absl::DataLossError(absl::StrCat(field, " is ", value, ": ", allowed));
}

absl::Status CheckRank(absl::string_view field, uint32_t rank, uint32_t ranks) {
  if (rank < ranks) return absl::OkStatus();
  return Wrong(absl::StrCat(field, ".rank"), rank, absl::StrCat("the job has ", ranks, " ranks"));
}

absl::Status CheckIteration(absl::string_view field, uint64_t iteration) {
  if (iteration <= core::kMostIterations) return absl::OkStatus();
  return Wrong(field, iteration, absl::StrCat("at most ", core::kMostIterations));
}

// What the state is made from. The rest of a specification was taken by the planner that wrote it, whose
// limits may have been others.
absl::Status CheckSpec(const v1::JobSpec& spec) {
  const uint64_t ranks = RanksOf(spec);
  if (ranks == 0 || ranks > core::kMostRanks)
    return Wrong("job.mesh", ranks, absl::StrCat("ranks are 1 to ", core::kMostRanks));
  return CheckIteration("job.first_iteration", spec.first_iteration());
}

absl::Status CheckDone(absl::string_view field, const store::v1::IterationsDone& done) {
  PENSTOCK_RETURN_IF_ERROR(CheckIteration(absl::StrCat(field, ".next"), done.next()));
  for (const uint64_t iteration : done.beyond())
    PENSTOCK_RETURN_IF_ERROR(CheckIteration(absl::StrCat(field, ".beyond"), iteration));
  return absl::OkStatus();
}

absl::Status CheckEpoch(const store::v1::Epoch& epoch, uint32_t ranks) {
  PENSTOCK_RETURN_IF_ERROR(CheckIteration("epoch.first_iteration", epoch.first_iteration()));
  for (const store::v1::WorkerRegistered& member : epoch.members())
    PENSTOCK_RETURN_IF_ERROR(CheckRank("epoch.members", member.rank(), ranks));
  for (const store::v1::WorkerFailed& failure : epoch.failures())
    PENSTOCK_RETURN_IF_ERROR(CheckRank("epoch.failures", failure.rank(), ranks));
  return absl::OkStatus();
}

absl::Status CheckReported(const store::v1::IterationReported& report, uint32_t ranks) {
  PENSTOCK_RETURN_IF_ERROR(CheckRank("iteration_reported", report.rank(), ranks));
  return CheckIteration("iteration_reported.iteration", report.iteration());
}

absl::Status CheckCosts(const store::v1::CostsRevised& costs) {
  PENSTOCK_RETURN_IF_ERROR(CheckIteration("costs_revised.from_iteration", costs.from_iteration()));
  return CheckIteration("costs_revised.measured_before", costs.measured_before());
}

// A plan is made again with the costs that hold for its iteration: with others it would be another.
absl::Status CheckPlanned(const JobState& state, const store::v1::IterationPlanned& planned) {
  PENSTOCK_RETURN_IF_ERROR(CheckIteration("iteration_planned.iteration", planned.iteration()));
  const uint64_t version = state.CostsVersionOf(planned.iteration());
  if (!planned.has_costs_version() || planned.costs_version() == version) return absl::OkStatus();
  return Wrong("iteration_planned.costs_version", planned.costs_version(),
               absl::StrCat("the costs of iteration ", planned.iteration(), " are version ", version));
}

// Strategies that plans are made on, and those that are added: with as many ranks as the others.
absl::Status CheckStrategies(const JobState& state, const store::v1::StrategiesChanged& changed) {
  const std::string field = "strategies_changed";
  PENSTOCK_RETURN_IF_ERROR(CheckIteration(absl::StrCat(field, ".from_iteration"), changed.from_iteration()));
  if (changed.from_iteration() < state.strategies().from_iteration())
    return Wrong(absl::StrCat(field, ".from_iteration"), changed.from_iteration(),
                 "others hold from later on");
  if (state.strategies().registered() == 0 || !state.is_prepared())
    return Wrong(absl::StrCat(field, ".strategies"), changed.strategies_size(),
                 "the job has none, or is not prepared");
  if (changed.strategies().empty()) return Wrong(absl::StrCat(field, ".strategies"), 0, "at least one");
  if (changed.added_topologies_size() != changed.added_size())
    return Wrong(absl::StrCat(field, ".added_topologies"), changed.added_topologies_size(),
                 absl::StrCat("one for each of ", changed.added_size(), " that are added"));
  const auto known = static_cast<uint32_t>(state.spec().strategies_size() + changed.added_size());
  for (const uint32_t number : changed.strategies())
    if (number >= known)
      return Wrong(absl::StrCat(field, ".strategies"), number, absl::StrCat("the job has ", known));
  for (const v1::Strategy& strategy : changed.added())
    if (RanksOf(strategy) != state.ranks())
      return Wrong(absl::StrCat(field, ".added"), RanksOf(strategy),
                   absl::StrCat("the job has ", state.ranks(), " ranks"));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRegistered(const store::v1::JobRegistered& registered) {
  return CheckSpec(registered.spec());
}

absl::Status CheckSnapshot(const store::v1::JobSnapshot& snapshot) {
  PENSTOCK_RETURN_IF_ERROR(CheckSpec(snapshot.spec()));
  const auto ranks = static_cast<uint32_t>(RanksOf(snapshot.spec()));
  if (static_cast<uint32_t>(snapshot.reported_size()) != ranks ||
      static_cast<uint32_t>(snapshot.last_reported_size()) != ranks)
    return Wrong("reported", snapshot.reported_size(), absl::StrCat("the job has ", ranks, " ranks"));
  PENSTOCK_RETURN_IF_ERROR(CheckIteration("first_held", snapshot.first_held()));
  PENSTOCK_RETURN_IF_ERROR(CheckIteration("next_iteration", snapshot.next_iteration()));
  if (static_cast<uint64_t>(snapshot.batch_hashes_size()) > snapshot.next_iteration())
    return Wrong("batch_hashes", snapshot.batch_hashes_size(), "more than next_iteration");
  PENSTOCK_RETURN_IF_ERROR(CheckDone("planned", snapshot.planned()));
  for (const store::v1::IterationsDone& done : snapshot.reported())
    PENSTOCK_RETURN_IF_ERROR(CheckDone("reported", done));
  for (const store::v1::IterationPlanned& plan : snapshot.plans())
    PENSTOCK_RETURN_IF_ERROR(CheckIteration("plans.iteration", plan.iteration()));
  for (const store::v1::IterationReported& report : snapshot.reports())
    PENSTOCK_RETURN_IF_ERROR(CheckReported(report, ranks));
  for (const store::v1::PlanningTried& tried : snapshot.tried())
    PENSTOCK_RETURN_IF_ERROR(CheckIteration("tried.iteration", tried.iteration()));
  for (const store::v1::CostsRevised& costs : snapshot.costs()) PENSTOCK_RETURN_IF_ERROR(CheckCosts(costs));
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(snapshot.epoch(), ranks));
  const JobState state(snapshot);
  for (const store::v1::IterationPlanned& plan : snapshot.plans())
    PENSTOCK_RETURN_IF_ERROR(CheckPlanned(state, plan));
  return absl::OkStatus();
}

absl::Status CheckEvent(const JobState& state, const store::v1::Event& event) {
  switch (event.what_case()) {
    case store::v1::Event::kBatchesAccepted:
      return CheckIteration("batches_accepted",
                            state.admission().next_iteration() + event.batches_accepted().hashes_size());
    case store::v1::Event::kIterationPlanned:
      return CheckPlanned(state, event.iteration_planned());
    case store::v1::Event::kPlanningTried:
      return CheckIteration("planning_tried.iteration", event.planning_tried().iteration());
    case store::v1::Event::kWorkerRegistered:
      PENSTOCK_RETURN_IF_ERROR(
          CheckRank("worker_registered", event.worker_registered().rank(), state.ranks()));
      return CheckIteration("worker_registered.first_iteration", event.worker_registered().first_iteration());
    case store::v1::Event::kWorkerFailed:
      return CheckRank("worker_failed", event.worker_failed().rank(), state.ranks());
    case store::v1::Event::kWorkerLeft:
      return CheckRank("worker_left", event.worker_left().rank(), state.ranks());
    case store::v1::Event::kIterationReported:
      return CheckReported(event.iteration_reported(), state.ranks());
    case store::v1::Event::kCostsRevised:
      PENSTOCK_RETURN_IF_ERROR(CheckCosts(event.costs_revised()));
      if (event.costs_revised().from_iteration() < state.planned_end())
        return Wrong("costs_revised.from_iteration", event.costs_revised().from_iteration(),
                     "it was planned before");
      return absl::OkStatus();
    case store::v1::Event::kStrategiesChanged:
      return CheckStrategies(state, event.strategies_changed());
    default:
      return absl::OkStatus();
  }
}

}  // namespace penstock
