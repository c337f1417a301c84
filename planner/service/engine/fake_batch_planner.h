// A planner for tests: one micro-batch a replica with every so many-th sample, one FORWARD, BACKWARD and
// OPTIMIZER_STEP a rank, 1 ms each.
//
// Lengths ask for trouble: a sample of kTooLong tokens is refused by ValidateBatch, kNoPlan makes MakePlan
// fail, kBadPlan makes the checker find a violation, and kUntilStopped takes until the plan is stopped.
// Of several strategies iterations have one after the other in turn.
// `gate`, when set, is called before each plan (to block it).
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/sync.h"
#include "planner/service/engine/batch_planner.h"

namespace penstock {

class FakeBatchPlanner final : public BatchPlanner {
 public:
  static constexpr uint32_t kTooLong = 1'000'001;
  static constexpr uint32_t kNoPlan = 1'000'002;
  static constexpr uint32_t kBadPlan = 1'000'003;
  static constexpr uint32_t kUntilStopped = 1'000'004;
  static constexpr uint32_t kHuge = 1'000'005;
  // Fits by the costs that a job was registered with alone, not by fitted ones.
  static constexpr uint32_t kTooLongLater = 1'000'006;
  // Fits on the first strategy alone.
  static constexpr uint32_t kForTheFirst = 1'000'007;

  // Of a profile with this name simulated devices take something else than it says.
  static constexpr absl::string_view kWrongCosts = "wrong";

  // A planner of this version makes no plan.
  static constexpr absl::string_view kMakesNone = "none";

  using Gate = std::function<void(const v1::Batch&)>;
  // `version`: of what it makes; plans of another version have other content. `estimates`: counts calls of
  // ShapeOf. `strategies`: of which it makes plans; empty: all.
  FakeBatchPlanner(v1::JobSpec job, Gate gate, std::string version = "",
                   std::atomic<int>* estimates = nullptr, std::vector<uint32_t> strategies = {})
      : job_(std::move(job)),
        gate_(std::move(gate)),
        version_(std::move(version)),
        estimates_(estimates),
        strategies_(std::move(strategies)) {
    if (strategies_.empty()) {
      strategies_.resize(static_cast<size_t>(std::max(1, job_.strategies_size())));
      std::iota(strategies_.begin(), strategies_.end(), 0U);
    }
  }

  absl::Status CheckBatch(const v1::Batch& batch, core::StopToken) const override {
    for (int j = 0; j < batch.samples_size(); ++j) {
      const uint32_t tokens = batch.samples(j).target_tokens();
      if (tokens == kTooLong || (tokens == kTooLongLater && !job_.profile().slow_ranks().empty()) ||
          (tokens == kForTheFirst && strategies_.front() != 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("batch.samples[", j, "] of ", tokens, " tokens does not fit in memory"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ValidateBatch(const v1::Batch& batch, core::StopToken stop) const override {
    return CheckBatch(batch, stop);
  }

  // A batch with a sample of kHuge tokens has a billion.
  absl::StatusOr<core::PlanningShape> ShapeOf(const v1::Batch& batch) const override {
    if (estimates_ != nullptr) ++*estimates_;
    core::PlanningShape shape;
    shape.samples = Has(batch, kHuge) ? 1'000'000'000 : batch.samples_size();
    return shape;
  }

  bool devices_have_other_costs() const override { return job_.profile().name() == kWrongCosts; }

  // Seven nanoseconds each.
  absl::StatusOr<std::vector<int64_t>> Durations(const v1::Batch&, const PackedPlan& plan,
                                                 uint32_t rank) const override {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Program program, plan.Program(static_cast<int>(rank)));
    return std::vector<int64_t>(program.instructions_size(), 7);
  }

  std::vector<v1::Topology> Topologies() const override {
    if (job_.strategies().empty()) return {TopologyOf(job_.mesh())};
    std::vector<v1::Topology> topologies;
    for (const uint32_t strategy : strategies_)
      topologies.push_back(TopologyOf(job_.strategies(static_cast<int>(strategy)).meshes(0).mesh()));
    return topologies;
  }

  double waiting_share() const override { return job_.profile().waiting_share(); }

  absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, core::StopToken stop) const override {
    if (gate_) gate_(batch);
    while (Has(batch, kUntilStopped) && !stop.stopped()) std::this_thread::yield();
    if (stop.stopped()) return stop.status();
    if (Has(batch, kNoPlan) || version_ == kMakesNone)
      return absl::ResourceExhaustedError("no plan fits in memory");
    v1::Plan plan;
    plan.set_job_id(job_.job_id());
    plan.set_iteration(batch.iteration());
    plan.set_plan_version(1);
    plan.set_profile_version(job_.profile().version());
    const uint64_t costs = job_.profile().version();
    plan.set_strategy(strategies_[batch.iteration() % strategies_.size()]);
    plan.set_content_hash(
        absl::StrCat("hash ", version_, version_.empty() ? "" : " ", "of iteration ", batch.iteration(),
                     costs > 0 ? absl::StrCat(" costs ", costs) : "",
                     job_.strategies().empty() ? "" : absl::StrCat(" strategy ", plan.strategy())));
    plan.set_real_tokens(100);
    plan.set_computed_tokens(125);
    plan.set_loss_tokens(99);
    for (uint32_t replica = 0; replica < job_.mesh().data(); ++replica) {
      v1::MicroBatch* micro_batch = plan.add_replicas()->add_micro_batches();
      for (int i = static_cast<int>(replica); i < batch.samples_size();
           i += static_cast<int>(job_.mesh().data())) {
        micro_batch->add_samples(static_cast<uint32_t>(i));
      }
      for (uint32_t stage = 0; stage < job_.mesh().pipeline(); ++stage) AddProgram(replica, stage, &plan);
    }
    plan.mutable_predicted()->set_makespan_ns(6'000'000);
    if (!batch.has_validation()) return plan;
    // Its first passes, of the same samples.
    v1::Plan validation = plan;
    validation.set_forward_only(true);
    for (v1::Program& program : *validation.mutable_programs())
      program.mutable_instructions()->DeleteSubrange(1, program.instructions_size() - 1);
    validation.mutable_predicted()->set_makespan_ns(2'000'000);
    *plan.mutable_validation() = std::move(validation);
    return plan;
  }

  static bool Has(const v1::Batch& batch, uint32_t tokens) {
    for (const v1::Sample& sample : batch.samples()) {
      if (sample.target_tokens() == tokens) return true;
    }
    return false;
  }

 private:
  // One stage a rank; layers divided evenly.
  v1::Topology TopologyOf(const v1::Mesh& mesh) const {
    v1::Topology topology;
    uint32_t rank = 0;
    for (uint32_t replica = 0; replica < mesh.data(); ++replica) {
      v1::ReplicaTopology* made = topology.add_replicas();
      for (uint32_t stage = 0; stage < mesh.pipeline(); ++stage) {
        made->add_stages()->add_ranks(rank++);
        made->mutable_stages()->rbegin()->set_decoder_layers(job_.model().layers() / mesh.pipeline());
      }
    }
    return topology;
  }

  static void AddProgram(uint32_t replica, uint32_t stage, v1::Plan* plan) {
    v1::Program* program = plan->add_programs();
    program->set_rank(plan->programs_size() - 1);
    program->set_replica(replica);
    program->add_stages(stage);
    for (const v1::Op op : {v1::OP_FORWARD, v1::OP_BACKWARD, v1::OP_OPTIMIZER_STEP}) {
      v1::Instruction* instruction = program->add_instructions();
      instruction->set_id(program->instructions_size() - 1);
      instruction->set_op(op);
      instruction->set_expected_duration_ns(1'000'000);
    }
  }

  const v1::JobSpec job_;
  const Gate gate_;
  const std::string version_;
  std::atomic<int>* const estimates_;
  std::vector<uint32_t> strategies_;
};

class FakeBatchPlannerFactory final : public BatchPlannerFactory {
 public:
  // A pipeline of so many ranks cannot be prepared.
  static constexpr uint32_t kTooLarge = 77;
  // Takes until its preparation is stopped.
  static constexpr uint32_t kUntilStopped = 78;
  // Of every fit.
  static constexpr double kErrorBefore = 0.25;
  static constexpr double kErrorAfter = 0.125;

  explicit FakeBatchPlannerFactory(FakeBatchPlanner::Gate gate = nullptr) : gate_(std::move(gate)) {}

  // Called before each planner is made. Set it while none is.
  void set_preparation_gate(std::function<void()> gate) { preparation_gate_ = std::move(gate); }
  // Planners that are made from now on are of this version.
  void set_version(std::string version) { version_ = std::move(version); }

  absl::Status Check(const v1::JobSpec&) const override { return absl::OkStatus(); }

  // As FakeBatchPlanner; of typical samples their number.
  absl::StatusOr<core::PlanningShape> ShapeOf(const v1::JobSpec& job, const v1::Batch* batch) const override {
    if (batch != nullptr) return FakeBatchPlanner(job, nullptr).ShapeOf(*batch);
    core::PlanningShape shape;
    shape.samples = job.planning().typical_batch_size();
    return shape;
  }

  absl::StatusOr<std::unique_ptr<BatchPlanner>> Create(const v1::JobSpec& job, absl::Span<const v1::Topology>,
                                                       absl::Span<const uint32_t> strategies,
                                                       core::StopToken stop) const override {
    if (preparation_gate_) preparation_gate_();
    while (job.mesh().pipeline() == kUntilStopped && !stop.stopped()) std::this_thread::yield();
    if (stop.stopped()) return stop.status();
    if (job.mesh().pipeline() == kTooLarge)
      return absl::InvalidArgumentError("job.mesh.pipeline: does not fit");
    // A strategy of a tensor degree of kTooLarge cannot be prepared either.
    for (int i = 0; i < job.strategies_size(); ++i) {
      if (job.strategies(i).meshes(0).mesh().tensor() == kTooLarge)
        return absl::InvalidArgumentError(
            absl::StrCat("job.strategies[", i, "]: job.mesh.tensor: is too large"));
    }
    return std::make_unique<FakeBatchPlanner>(job, gate_, version_, &estimates_,
                                              std::vector<uint32_t>(strategies.begin(), strategies.end()));
  }

  // How often a planner of a job was asked what planning a batch takes.
  int estimates() const { return estimates_; }

  // The iterations of each fit.
  std::vector<std::vector<uint64_t>> fits() const {
    MutexLock lock(&mutex_);
    return fits_;
  }

  // Whatever was measured, costs are revised, or not.
  void set_calibrates(bool calibrates) { calibrates_ = calibrates; }

  absl::StatusOr<std::optional<core::Calibration>> Calibrate(const v1::JobSpec&,
                                                             absl::Span<const v1::Topology>,
                                                             const v1::CostProfile& in_effect,
                                                             const std::vector<HeldIteration>& iterations,
                                                             core::StopToken) const override {
    {
      MutexLock lock(&mutex_);
      std::vector<uint64_t>& fit = fits_.emplace_back();
      for (const HeldIteration& iteration : iterations) fit.push_back(iteration.batch->iteration());
    }
    if (!calibrates_) return std::nullopt;
    core::Calibration calibration;
    calibration.error_before = kErrorBefore;
    calibration.error_after = kErrorAfter;
    calibration.profile = in_effect;
    calibration.profile.set_version(in_effect.version() + 1);
    calibration.profile.clear_slow_ranks();
    v1::SlowRank* const slow = calibration.profile.add_slow_ranks();
    slow->set_rank(1);
    slow->set_factor(1.5);
    calibration.profile.clear_slow_links();
    v1::SlowLink* const link = calibration.profile.add_slow_links();
    link->set_from(0);
    link->set_to(1);
    link->set_factor(20);
    calibration.profile.clear_expert_loads();
    v1::ExpertLoad* const load = calibration.profile.add_expert_loads();
    load->set_ranks(2);
    load->set_fullest(1.25);
    return calibration;
  }

  // Names rank 1 as slow.
  absl::StatusOr<v1::JobDiagnosis> Diagnose(const std::vector<CostedIteration>& iterations,
                                            core::StopToken) const override {
    v1::JobDiagnosis diagnosis;
    diagnosis.set_first_iteration(iterations.front().values.batch->iteration());
    diagnosis.set_end_iteration(iterations.back().values.batch->iteration() + 1);
    v1::DiagnosedCause* const cause = diagnosis.add_causes();
    cause->set_cause("slow_rank");
    cause->set_description("rank 1 is slow");
    cause->set_advice("mend it");
    cause->set_gain(0.25);
    cause->add_ranks(1);
    return diagnosis;
  }

  absl::StatusOr<core::Calibration> CalibratePasses(const v1::ReviseCostsRequest& request,
                                                    core::StopToken) const override {
    core::Calibration calibration;
    calibration.profile = request.job().profile();
    calibration.profile.set_version(request.job().profile().version() + 1);
    return calibration;
  }

 private:
  mutable std::atomic<int> estimates_ = 0;
  const FakeBatchPlanner::Gate gate_;
  bool calibrates_ = false;
  mutable Mutex mutex_;
  mutable std::vector<std::vector<uint64_t>> fits_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> preparation_gate_;
  std::string version_;
};

class FakePlanChecker final : public PlanChecker {
 public:
  absl::Status Check(const v1::Batch& batch, const v1::Plan&, core::StopToken) const override {
    if (!FakeBatchPlanner::Has(batch, FakeBatchPlanner::kBadPlan)) return absl::OkStatus();
    return absl::InternalError("the plan breaks rule 2 (transfers in one order) at rank 0, instruction 1");
  }
};

}  // namespace penstock
