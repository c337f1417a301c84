// Random jobs whose stages are held by groups of context and tensor ranks: every plan is sound in all its
// ranks, hardly a job is refused that a plan of one sample a micro-batch fits, and small ones are near the
// best of all plans.
//
// PENSTOCK_RANDOM_JOBS=N runs N jobs; PENSTOCK_RANDOM_SEED=S runs job S alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/process/sanitized.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/schedule/recompute_ladder.h"
#include "planner/core/schedule/stage_bytes.h"
#include "planner/core/search/memory_room.h"
#include "planner/core/verify/check_plan.h"
#include "tests/support/environment.h"
#include "tests/unit/core/brute_force.h"
#include "tests/unit/core/has_parts.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

int GroupJobCount() {
#if defined(NDEBUG)
  return kSanitized ? 40 : 800;
#else
  return 40;
#endif
}

RandomJobLimits Limits(int seed) {
  RandomJobLimits limits;
  limits.context = 4;
  limits.tensor = 4;
  limits.expert_percent = 30;
  limits.dense_percent = 40;
  limits.uneven_percent = 50;
  limits.replicas = 2;
  limits.slow_percent = 25;
  limits.slow_link_percent = 15;
  limits.rank_memory_percent = 25;
  limits.shares_percent = 20;
  limits.weights_percent = 50;
  limits.windows_percent = 25;
  limits.backward_forms_percent = 25;
  limits.calls_percent = 20;
  limits.fixed_step_percent = 30;
  limits.speeds_percent = 30;
  limits.efficiency_percent = 25;
  if (seed % 4 == 0) limits.samples = 30;
  if (seed % 4 == 1 || seed % 4 == 3) {
    limits.samples = 4;
    limits.pipeline = 3;
    limits.layers = 6;
  }
  return limits;
}

bool IsPassOp(v1::Op op) {
  return op == v1::OP_FORWARD || op == v1::OP_BACKWARD || op == v1::OP_BACKWARD_INPUT ||
         op == v1::OP_BACKWARD_WEIGHT;
}

// The ranks of every stage group, by what the contract says of ranks.
std::vector<std::vector<uint32_t>> StageGroups(const v1::Mesh& mesh) {
  const uint32_t ranks = std::max(1u, mesh.context()) * std::max(1u, mesh.tensor());
  std::vector<std::vector<uint32_t>> groups(mesh.data() * mesh.pipeline());
  for (uint32_t i = 0; i < groups.size(); ++i) {
    for (uint32_t place = 0; place < ranks; ++place) groups[i].push_back(i * ranks + place);
  }
  return groups;
}

std::string OrderOf(const v1::Program& program) {
  std::string order;
  for (const v1::Instruction& instruction : program.instructions()) {
    absl::StrAppend(&order, instruction.op(), ".", instruction.stream(), ".", instruction.stage(), ".",
                    instruction.micro_batch(), ".", instruction.part(), "(");
    for (const uint32_t dependency : instruction.deps()) absl::StrAppend(&order, dependency, ",");
    absl::StrAppend(&order, ") ");
  }
  return order;
}

class StageGroupJobsTest : public testing::Test {
 protected:
  void Run(int seed);
  static void ExpectOneOrder(const v1::Plan& plan, const std::vector<uint32_t>& group);
  static void ExpectJointPasses(const v1::Plan& plan, const std::vector<uint32_t>& group);
  void CheckRefusal(const Planner& planner, const Batch& batch, const absl::Status& status);
  void CompareWithOptimum(const Planner& planner, const Batch& batch, const v1::Plan& plan);

  std::string name_;
  int jobs_ = 0;
  int groups_ = 0;
  int impossible_ = 0;
  int planned_ = 0;
  int refused_ = 0;
  int wrongly_refused_ = 0;
  std::map<int, int> violations_;
  double worst_gap_ = 0;
  // Of jobs that are small enough to try all plans.
  int tried_ = 0;
  std::vector<double> above_optimum_;
  // The same where places of a group have links that are not equally fast: some are slow, or lead to other
  // nodes. Searches take each for the slowest, and place rows whatever links they take.
  std::vector<double> above_optimum_of_uneven_links_;
  std::vector<double> optimum_above_bound_;
};

void StageGroupJobsTest::ExpectOneOrder(const v1::Plan& plan, const std::vector<uint32_t>& group) {
  const std::string order = OrderOf(plan.programs(static_cast<int>(group.front())));
  for (const uint32_t rank : group)
    ASSERT_EQ(OrderOf(plan.programs(static_cast<int>(rank))), order) << "rank " << rank;
}

void StageGroupJobsTest::ExpectJointPasses(const v1::Plan& plan, const std::vector<uint32_t>& group) {
  const v1::Program& first = plan.programs(static_cast<int>(group.front()));
  for (int i = 0; i < first.instructions_size(); ++i) {
    const v1::Instruction& pass = first.instructions(i);
    if (!IsPassOp(pass.op())) continue;
    int64_t longest = 0;
    for (const uint32_t rank : group) {
      const v1::Instruction& own = plan.programs(static_cast<int>(rank)).instructions(i);
      ASSERT_TRUE(own.has_collective());
      ASSERT_EQ(own.collective().group(), pass.collective().group());
      ASSERT_EQ(own.collective().sequence(), pass.collective().sequence());
      ASSERT_EQ(own.expected_start_ns(), pass.expected_start_ns());
      ASSERT_EQ(own.expected_duration_ns(), pass.expected_duration_ns());
      longest = std::max(longest, own.own_duration_ns());
    }
    ASSERT_EQ(longest, pass.expected_duration_ns());
    const auto& ranks = plan.groups(static_cast<int>(pass.collective().group())).ranks();
    ASSERT_EQ(std::vector<uint32_t>(ranks.begin(), ranks.end()), group);
  }
}

// Whether a micro-batch of this sample alone, over as many context ranks as it has chunks for, fits on every
// rank of the replica with as much recompute as the job allows.
bool FitsAlone(const CostModel& costs, const Job& job, const std::vector<SampleTokens>& samples,
               uint32_t sample, int replica) {
  const int contexts = costs.group().context;
  const std::vector<uint32_t> list = {sample};
  std::vector<Share> shares = {WholeShare(SumsOf(list, samples, Layout::kPacked))};
  if (contexts > 1) {
    Span span;
    while (2 * span.ranks <= contexts && samples[sample].target >= 4u * span.ranks) span.ranks *= 2;
    SharesOf(RowsOf(list, samples, Layout::kPacked, {}), samples, {span}, costs.nodes(), contexts, &shares);
  }
  for (int position = 0; position < costs.positions(); ++position) {
    int64_t held = 0;
    int64_t most = 0;
    for (int stage = 0; stage < costs.stages(); ++stage) {
      if (costs.position_of(stage) != position) continue;
      const int layers = costs.stage(stage).layers();
      StageRecompute recompute;
      if (job.recompute == RecomputeMode::kFull || job.recompute == RecomputeMode::kAuto)
        recompute.full = layers;
      if (job.recompute == RecomputeMode::kSelective) recompute.selective = layers;
      const StageMemory memory = LargestMemory(costs, stage, shares);
      held += HeldBytes(costs, stage, memory, recompute);
      most = std::max(most, held + MostPassingBytes(memory, TransferBuffers::kOwn));
    }
    if (most > AvailableBytes(job, costs).Of(replica)[position]) return false;
  }
  return true;
}

void StageGroupJobsTest::CheckRefusal(const Planner& planner, const Batch& batch,
                                      const absl::Status& status) {
  ++refused_;
  const auto code = status.code();
  ASSERT_TRUE(code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kResourceExhausted)
      << name_ << status;
  const Job& job = planner.job();
  if (job.policy != Policy::kDynamic || job.layout == LayoutChoice::kPadded) return;
  for (uint32_t i = 0; i < batch.samples.size(); ++i) {
    const auto fits = [&](int replica) { return FitsAlone(planner.costs(), job, batch.samples, i, replica); };
    bool anywhere = false;
    for (int replica = 0; replica < job.topology.replicas(); ++replica) anywhere = anywhere || fits(replica);
    if (!anywhere) return;
  }
  ++wrongly_refused_;
  std::cout << "refused, though every sample fits alone: " << name_ << status << "\n";
}

// Whether everything fits at once on one rank of each group, undivided.
bool FitsUndivided(const CostModel& costs, const Job& job, const Batch& batch) {
  TokenSums sums;
  for (const SampleTokens& sample : batch.samples) AddPacked(sample, &sums);
  sums.target *= 2;
  for (int position = 0; position < costs.positions(); ++position) {
    int64_t bytes = 0;
    for (int stage = 0; stage < costs.stages(); ++stage) {
      if (costs.position_of(stage) != position) continue;
      StageMemory memory = costs.Memory(stage, sums);
      memory.keys_values = static_cast<int64_t>(sums.target) * costs.exchange_model().key_value_bytes();
      bytes += costs.StoredBytes(stage, memory, {}) + memory.backward_peak() + memory.forward_peak() +
               memory.tokens + 4 * (memory.input + memory.output);
    }
    if (bytes > AvailableBytes(job, costs).LeastAt(position)) return false;
  }
  return true;
}

// Placements are tried one by one: with four context ranks there are 7 for each row.
bool IsSmallEnough(const Job& job, const Batch& batch) {
  const size_t most = job.topology.shape().group.context == 4 ? 3 : 4;
  return batch.samples.size() <= most && job.topology.shape().positions <= 4 &&
         job.topology.shape().stages.size() <= 4;
}

// Whether a transfer between two stages takes longer for one place of a group than for another.
bool HasUnevenLinks(const CostModel& costs) {
  constexpr int64_t kBytes = 1 << 20;
  const Topology& topology = costs.topology();
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    for (int stage = 0; stage + 1 < costs.stages(); ++stage) {
      if (costs.position_of(stage) == costs.position_of(stage + 1)) continue;
      std::set<int64_t> times;
      for (int place = 0; place < costs.group().ranks(); ++place) {
        const int lower = topology.RankOf(replica, stage, place);
        const int upper = topology.RankOf(replica, stage + 1, place);
        times.insert({costs.TransferNs(kBytes, lower, upper), costs.TransferNs(kBytes, upper, lower)});
      }
      if (times.size() > 1) return true;
    }
  }
  return false;
}

void StageGroupJobsTest::CompareWithOptimum(const Planner& planner, const Batch& batch,
                                            const v1::Plan& plan) {
  const Job& job = planner.job();
  if (job.policy != Policy::kDynamic || job.topology.shape().group.ranks() == 1) return;
  if (job.schedule == ScheduleFamily::kOneForwardOneBackward || job.recompute != RecomputeMode::kAuto) return;
  if (!IsSmallEnough(job, batch) || !FitsUndivided(planner.costs(), job, batch)) return;
  // Which brute force does not try.
  if (HasParts(plan)) return;
  const int64_t makespan = plan.predicted().makespan_ns();
  const BruteForceAnswer best = BruteForce(planner.costs(), job, batch.samples, {makespan, 100000});
  if (!best.complete) return;
  ++tried_;
  ASSERT_TRUE(best.found) << "the plan is better than the optimum\n" << name_;
  ASSERT_LE(plan.lower_bound_ns(), best.makespan_ns) << name_ << best.text;
  const double above = static_cast<double>(makespan) / static_cast<double>(best.makespan_ns) - 1;
  (HasUnevenLinks(planner.costs()) ? above_optimum_of_uneven_links_ : above_optimum_).push_back(above);
  optimum_above_bound_.push_back(
      static_cast<double>(best.makespan_ns) / static_cast<double>(plan.lower_bound_ns()) - 1);
  if (above > 0.1) std::cout << "above the optimum by " << 100 * above << " %: " << name_ << best.text;
}

void PrintShares(const std::string& name, std::vector<double>* values) {
  if (values->empty()) return;
  std::sort(values->begin(), values->end());
  const auto at = [&](double share) {
    return 100 * (*values)[static_cast<size_t>(share * static_cast<double>(values->size() - 1))];
  };
  const double sum = std::accumulate(values->begin(), values->end(), 0.0);
  std::cout << name << ": " << values->size() << " jobs, mean "
            << 100 * sum / static_cast<double>(values->size()) << " %, median " << at(0.5) << " %, 90 % "
            << at(0.9) << " %, 99 % " << at(0.99) << " %, worst " << at(1) << " %\n";
}

// Runs the tasks on two threads, the later ones first.
void RunOnTwoThreads(int count, absl::FunctionRef<void(int)> task) {
  std::thread half([&] {
    for (int i = count - 1; i >= count / 2; --i) task(i);
  });
  for (int i = count / 2 - 1; i >= 0; --i) task(i);
  half.join();
}

void StageGroupJobsTest::Run(int seed) {
  const RandomPlanningCase given = MakeRandomCase(3000000 + seed, Limits(seed));
  const v1::Mesh& mesh = given.job.mesh();
  name_ = absl::StrCat("seed ", seed, "\n", given.Describe());
  ++jobs_;
  const auto planner = Planner::Create(given.job);
  if (!planner.ok()) {
    ++impossible_;
    EXPECT_EQ(planner.status().code(), absl::StatusCode::kInvalidArgument) << name_ << planner.status();
    return;
  }
  const auto batch = BatchFromProto(given.batch, (*planner)->job());
  ASSERT_TRUE(batch.ok()) << name_ << batch.status();
  const auto plan = (*planner)->MakePlan(given.batch);
  if (!plan.ok()) return CheckRefusal(**planner, *batch, plan.status());
  ++planned_;
  ASSERT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns()) << name_;
  if ((*planner)->job().policy == Policy::kDynamic) {
    worst_gap_ = std::max(worst_gap_, static_cast<double>(plan->predicted().makespan_ns()) /
                                          static_cast<double>(plan->lower_bound_ns()));
  }
  for (int rank = 0; rank < plan->programs_size(); ++rank)
    ASSERT_LE(plan->predicted().ranks(rank).peak_memory_bytes(), (*planner)->job().memory_limits.Of(rank))
        << name_;
  if (mesh.context() * mesh.tensor() > 1) {
    ++groups_;
    SCOPED_TRACE(name_);
    for (const std::vector<uint32_t>& group : StageGroups(mesh)) {
      ExpectOneOrder(*plan, group);
      ExpectJointPasses(*plan, group);
    }
  }
  const std::vector<Violation> violations = CheckPlan(given.batch, *plan);
  for (const Violation& violation : violations) ++violations_[violation.rule];
  EXPECT_TRUE(violations.empty()) << name_ << "rule " << violations[0].rule << ": " << violations[0].message;
  if (!HasOneWayLinks(given.job.profile())) CompareWithOptimum(**planner, *batch, *plan);
  if (seed % 4 == 2) {
    EXPECT_EQ((*planner)->MakePlan(given.batch, RunOnTwoThreads)->SerializeAsString(),
              plan->SerializeAsString())
        << name_;
  }
}

// Of 100,000 jobs the two that were refused although each of their samples fits: dense layers between those
// with experts, and ranks with less memory than others.
TEST_F(StageGroupJobsTest, WhatFitsOneByOneIsPlanned) {
  for (const int seed : {16604, 44156}) Run(seed);
  EXPECT_EQ(planned_, 2);
}

TEST_F(StageGroupJobsTest, EveryPlanIsSoundOnAllRanks) {
  const int only = FromEnvironment("PENSTOCK_RANDOM_SEED", -1);
  const int count = only >= 0 ? only + 1 : FromEnvironment("PENSTOCK_RANDOM_JOBS", GroupJobCount());
  for (int seed = std::max(only, 0); seed < count && !HasFatalFailure(); ++seed) Run(seed);
  std::cout << jobs_ << " jobs: " << impossible_ << " impossible, " << planned_ << " planned (" << groups_
            << " with stage groups), " << refused_ << " refused (" << wrongly_refused_
            << " of them wrongly); worst plan above lower bound " << 100 * (worst_gap_ - 1) << " %\n";
  for (const auto& [rule, broken] : violations_)
    std::cout << "rule " << rule << ": " << broken << " violations\n";
  PrintShares("plan above optimum", &above_optimum_);
  PrintShares("plan above optimum, uneven links", &above_optimum_of_uneven_links_);
  PrintShares("optimum above lower bound", &optimum_above_bound_);
  EXPECT_EQ(wrongly_refused_, 0);
  if (only >= 0) return;
  if (!above_optimum_.empty()) {
    // Of the worst of 2,000 some are up to a half above.
    EXPECT_LT(above_optimum_[above_optimum_.size() * 99 / 100], 0.1);
    EXPECT_LT(above_optimum_[above_optimum_.size() * 9 / 10], 0.02);
  }
  EXPECT_GT(groups_, jobs_ / 4);
  EXPECT_GT(planned_, jobs_ / 2);
}

}  // namespace
}  // namespace penstock::core
