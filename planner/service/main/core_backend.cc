#include "planner/service/main/core_backend.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/calibrate/calibrate.h"
#include "planner/core/calibrate/durations.h"
#include "planner/core/calibrate/passes_from_proto.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/plan_of_mesh.h"
#include "planner/core/diagnose/cause_words.h"
#include "planner/core/diagnose/diagnose.h"
#include "planner/core/planner.h"
#include "planner/core/strategies/calibrate_strategy.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/strategies/strategy_specs.h"
#include "planner/core/timeline/timeline_of_iterations.h"
#include "planner/core/verify/check_plan.h"
#include "planner/service/main/joint_durations_of_plans.h"

namespace penstock {
namespace {

class CoreBatchPlanner final : public BatchPlanner {
 public:
  // `devices`: with the costs of simulated devices, where these are others; else null.
  CoreBatchPlanner(std::unique_ptr<core::StrategyPlanner> planner,
                   std::unique_ptr<core::StrategyPlanner> devices, core::RunTasks run_tasks,
                   double waiting_share)
      : planner_(std::move(planner)),
        devices_(std::move(devices)),
        run_tasks_(std::move(run_tasks)),
        waiting_share_(waiting_share) {}

  absl::Status CheckBatch(const v1::Batch& batch, core::StopToken stop) const override {
    return planner_->ValidateBatch(batch, core::Planner::Explain::kCauseAlone, stop);
  }
  absl::Status ValidateBatch(const v1::Batch& batch, core::StopToken stop) const override {
    return planner_->ValidateBatch(batch, core::Planner::Explain::kChanges, stop);
  }
  absl::StatusOr<core::PlanningShape> ShapeOf(const v1::Batch& batch) const override {
    return planner_->ShapeOf(batch);
  }
  std::vector<v1::Topology> Topologies() const override { return planner_->topologies(); }
  double waiting_share() const override { return waiting_share_; }
  bool devices_have_other_costs() const override { return devices_ != nullptr; }
  absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, core::StopToken stop) const override {
    return planner_->MakePlan(batch, run_tasks_, stop);
  }
  absl::StatusOr<std::vector<int64_t>> Durations(const v1::Batch& batch, const PackedPlan& plan,
                                                 uint32_t rank) const override {
    const core::StrategyPlanner& of_durations = devices_ != nullptr ? *devices_ : *planner_;
    PENSTOCK_ASSIGN_OR_RETURN(const core::MeshPlanners* const planners, of_durations.Of(plan.frame()));
    const int mesh = core::MeshOfRank(plan.frame(), static_cast<int>(rank));
    const core::Planner& planner = planners->planner(mesh);
    PENSTOCK_ASSIGN_OR_RETURN(const core::Batch samples, core::BatchFromProto(batch, planner.job()));
    PENSTOCK_ASSIGN_OR_RETURN(const JointDurationsPtr joint, joint_.Of(plan, mesh, planner.costs()));
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan of_rank, plan.PlanFor(static_cast<int>(rank)));
    if (planners->meshes() == 1)
      return core::OwnDurations(of_rank, samples, planner.costs(), static_cast<int>(rank), *joint);
    return core::OwnDurations(core::PlanOfMesh(of_rank, mesh), samples, planner.costs(),
                              static_cast<int>(rank) - core::RangeOfMesh(of_rank, mesh).first_rank, *joint);
  }

 private:
  const std::unique_ptr<core::StrategyPlanner> planner_;
  const std::unique_ptr<core::StrategyPlanner> devices_;
  const core::RunTasks run_tasks_;
  const double waiting_share_;
  mutable JointDurationsOfPlans joint_;
};

// To a gRPC client UNIMPLEMENTED would mean that the server lacks the method.
absl::Status AsInvalid(const absl::Status& status) {
  return absl::IsUnimplemented(status) ? absl::InvalidArgumentError(status.message()) : status;
}

// The job with the costs of its devices.
v1::JobSpec WithCosts(const v1::JobSpec& job, const v1::CostProfile& devices) {
  v1::JobSpec with = job;
  *with.mutable_profile() = devices;
  return with;
}

absl::Status OfDevices(const absl::Status& status) {
  return AnnotateError(AsInvalid(status), "job, with the profile of this planner's simulated devices");
}

// Those that were given, and those that a planner chose.
std::vector<v1::Topology> AllTopologies(absl::Span<const v1::Topology> given,
                                        const core::StrategyPlanner& planner) {
  std::vector<v1::Topology> all(given.begin(), given.end());
  const std::vector<v1::Topology> own = planner.topologies();
  for (size_t i = 0; i < own.size(); ++i) {
    const uint32_t number = planner.numbers()[i];
    if (number >= all.size()) all.resize(number + 1);
    all[number] = own[i];
  }
  return all;
}

// As many of the typical samples, in turn, as a batch has; none where stages are not chosen by them.
v1::Batch TypicalBatch(const v1::PlanningOptions& planning) {
  v1::Batch batch;
  if (planning.stage_split() == v1::STAGE_SPLIT_EVEN || planning.layers_per_stage_size() > 0) return batch;
  const int typical = planning.typical_samples_size();
  if (typical == 0) return batch;
  const auto size =
      planning.typical_batch_size() > 0 ? static_cast<int>(planning.typical_batch_size()) : typical;
  for (int i = 0; i < size; ++i) {
    const v1::SampleLengths& lengths = planning.typical_samples(i % typical);
    v1::Sample* sample = batch.add_samples();
    sample->set_input_tokens(lengths.input_tokens());
    sample->set_target_tokens(lengths.target_tokens());
  }
  return batch;
}

v1::JobDiagnosis ToProto(const core::Timeline& timeline, const core::Diagnosis& diagnosis) {
  v1::JobDiagnosis proto;
  proto.set_first_iteration(timeline.steps.front().number);
  proto.set_end_iteration(timeline.steps.back().number + 1);
  proto.set_measured_ns(diagnosis.measured_ns);
  proto.set_ideal_ns(diagnosis.ideal_ns);
  proto.set_replay_error(diagnosis.replay_error);
  for (const core::Cause& cause : diagnosis.causes) {
    v1::DiagnosedCause* const one = proto.add_causes();
    one->set_cause(core::NameOfCause(cause.kind));
    one->set_description(core::DescribeCause(timeline, cause));
    one->set_advice(core::AdviceFor(cause.kind));
    one->set_gain(std::max(0.0, cause.gain));
    for (const int32_t rank : core::NumbersOfRanks(timeline, core::RanksOfCause(cause)))
      one->add_ranks(static_cast<uint32_t>(rank));
  }
  return proto;
}

// The first of those that most iterations ran on.
int MostFrequentStrategy(const std::vector<HeldIteration>& iterations) {
  std::map<uint32_t, int> counts;
  for (const HeldIteration& iteration : iterations) ++counts[iteration.plan->frame().strategy()];
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? 0 : static_cast<int>(most->first);
}

}  // namespace

absl::StatusOr<core::PlanningShape> CorePlannerFactory::ShapeOf(const v1::JobSpec& job,
                                                                const v1::Batch* batch) const {
  const v1::Batch typical = batch == nullptr ? TypicalBatch(job.planning()) : v1::Batch();
  if (batch == nullptr && typical.samples().empty()) return core::PlanningShape();
  const auto planner = core::StrategyPlanner::Create(job, core::Planner::Explain::kCauseAlone);
  if (!planner.ok()) return AsInvalid(planner.status());
  PENSTOCK_ASSIGN_OR_RETURN(core::PlanningShape shape,
                            (*planner)->ShapeOf(batch == nullptr ? typical : *batch));
  // Two stages a rank may be chosen.
  if (job.planning().stage_split() != v1::STAGE_SPLIT_EVEN && job.planning().layers_per_stage().empty())
    shape.stages = std::max(shape.stages, 2 * shape.positions);
  return shape;
}

absl::Status CorePlannerFactory::Check(const v1::JobSpec& job) const {
  PENSTOCK_RETURN_IF_ERROR(AsInvalid(core::StrategyPlanner::CheckJob(job)));
  if (!job.simulated() || !devices_.has_value()) return absl::OkStatus();
  if (!google::protobuf::util::MessageDifferencer::Equals(job.model(), devices_->model())) {
    return absl::InvalidArgumentError(
        "job.model: the profile of this planner's simulated devices is of another model");
  }
  return OfDevices(core::StrategyPlanner::CheckJob(WithCosts(job, devices_->profile())));
}

absl::StatusOr<std::unique_ptr<BatchPlanner>> CorePlannerFactory::Create(
    const v1::JobSpec& job, absl::Span<const v1::Topology> topologies, absl::Span<const uint32_t> strategies,
    core::StopToken stop) const {
  absl::StatusOr<std::unique_ptr<core::StrategyPlanner>> planner = core::StrategyPlanner::Create(
      job, core::Planner::Explain::kChanges, run_tasks_, stop, topologies, strategies);
  if (!planner.ok()) return AsInvalid(planner.status());
  std::unique_ptr<core::StrategyPlanner> devices;
  if (job.simulated() && devices_.has_value()) {
    auto made = core::StrategyPlanner::Create(WithCosts(job, devices_->profile()),
                                              core::Planner::Explain::kCauseAlone, run_tasks_, stop,
                                              AllTopologies(topologies, **planner), strategies);
    if (!made.ok()) return OfDevices(made.status());
    devices = *std::move(made);
  }
  return std::make_unique<CoreBatchPlanner>(*std::move(planner), std::move(devices), run_tasks_,
                                            job.profile().waiting_share());
}

absl::StatusOr<std::optional<core::Calibration>> CorePlannerFactory::Calibrate(
    const v1::JobSpec& job, absl::Span<const v1::Topology> topologies, const v1::CostProfile& in_effect,
    const std::vector<HeldIteration>& iterations, core::StopToken stop) const {
  const int strategy = MostFrequentStrategy(iterations);
  if (static_cast<size_t>(strategy) >= topologies.size())
    return absl::InvalidArgumentError(
        absl::StrCat("an iteration ran on strategy ", strategy, " of ", topologies.size()));
  std::vector<core::ObservedIteration> observed;
  std::deque<v1::Plan> plans;
  for (const HeldIteration& iteration : iterations) {
    if (static_cast<int>(iteration.plan->frame().strategy()) != strategy) continue;
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, iteration.plan->Plan());
    core::ObservedIteration& one = observed.emplace_back();
    one.batch = iteration.batch.get();
    one.plan = &plans.emplace_back(std::move(plan));
    for (const ReportPtr& report : iteration.reports) one.reports.push_back(report.get());
  }
  return core::CalibrateStrategy(job, strategy, topologies[static_cast<size_t>(strategy)], in_effect,
                                 observed, run_tasks_, stop);
}

absl::StatusOr<v1::JobDiagnosis> CorePlannerFactory::Diagnose(const std::vector<CostedIteration>& iterations,
                                                              core::StopToken stop) const {
  std::vector<core::MeasuredIteration> measured;
  std::deque<v1::Plan> plans;
  // Of which nothing but slow ranks is asked.
  std::deque<v1::CostProfile> profiles;
  for (const CostedIteration& iteration : iterations) {
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, iteration.values.plan->Plan());
    core::MeasuredIteration& one = measured.emplace_back();
    one.plan = &plans.emplace_back(std::move(plan));
    v1::CostProfile& profile = profiles.emplace_back();
    *profile.mutable_slow_ranks() = iteration.slow_ranks;
    one.profile = &profile;
    for (const ReportPtr& report : iteration.values.reports) one.reports.push_back(report.get());
  }
  PENSTOCK_ASSIGN_OR_RETURN(const core::Timeline timeline, core::TimelineOfIterations(measured));
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  PENSTOCK_ASSIGN_OR_RETURN(const core::Diagnosis diagnosis, core::Diagnose(timeline));
  return ToProto(timeline, diagnosis);
}

absl::StatusOr<core::Calibration> CorePlannerFactory::CalibratePasses(const v1::ReviseCostsRequest& request,
                                                                      core::StopToken stop) const {
  const absl::StatusOr<std::unique_ptr<core::Planner>> planner =
      core::Planner::Create(request.job(), core::Planner::Explain::kCauseAlone, run_tasks_, stop);
  if (!planner.ok()) return AsInvalid(planner.status());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<core::MeasuredPass> passes,
                            core::PassesFromProto(request.passes(), (*planner)->costs(), (*planner)->job()));
  return core::CalibratePasses(**planner, passes);
}

absl::Status CorePlanChecker::Check(const v1::Batch& batch, const v1::Plan& plan,
                                    core::StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<core::Violation> violations,
                            core::CheckPlan(batch, plan, stop));
  return core::ViolationsToStatus(violations);
}

}  // namespace penstock
