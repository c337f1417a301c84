// The engine with the planner core behind it, whose plans share the threads of one pool.
#include "planner/service/main/core_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/compact/packed_plan.h"
#include "common/parallel/task_pool.h"
#include "planner/core/planner.h"
#include "planner/service/engine/engine.h"
#include "planner/service/store/memory_event_store.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/event.h"

namespace penstock {
namespace {

// As the composition root of the service makes them.
struct Service {
  explicit Service(int threads)
      : pool(threads),
        planners(pool.AsFunction()),
        engine({.planning_threads = threads}, {&planners, &checker, &store, &clock, &observer}) {}

  TaskPool pool;
  const CorePlannerFactory planners;
  const CorePlanChecker checker;
  MemoryEventStore store;
  MachineClock clock;
  NullObserver observer;
  PlannerEngine engine;
};

v1::PlanBatchRequest Request(uint64_t iteration) {
  v1::PlanBatchRequest request;
  *request.mutable_job() = core::GptJob(4, 2, v1::POLICY_DYNAMIC);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 40; ++i) lengths.push_back({0, 30 + (37 * i + 11 * iteration) % 300});
  *request.mutable_batch() = core::MakeBatch(lengths);
  request.mutable_batch()->set_iteration(iteration);
  return request;
}

// What the core plans on one thread.
std::string HashOf(const v1::PlanBatchRequest& request) {
  const auto planner = core::Planner::Create(request.job());
  EXPECT_TRUE(planner.ok()) << planner.status();
  const auto plan = (*planner)->MakePlan(request.batch());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->content_hash();
}

// Answers to batches 0 .. count - 1.
class Answers {
 public:
  void Ask(PlannerEngine& engine, uint64_t iteration) {
    engine.PlanBatch(Request(iteration), "host", [this, iteration](absl::StatusOr<v1::Plan> plan) {
      {
        MutexLock lock(&mutex_);
        ++counts_[iteration];
        plans_.insert_or_assign(iteration, std::move(plan));
      }
      answered_.Notify();
    });
  }
  bool Await() { return answered_.Await(); }
  int count(uint64_t iteration) {
    MutexLock lock(&mutex_);
    return counts_[iteration];
  }
  absl::StatusOr<v1::Plan> plan(uint64_t iteration) {
    MutexLock lock(&mutex_);
    return plans_.at(iteration);
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, int> counts_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, absl::StatusOr<v1::Plan>> plans_ ABSL_GUARDED_BY(mutex_);
  Event answered_;
};

TEST(CoreBackendTest, PlansMadeSideBySideAreThoseOfOneThread) {
  constexpr uint64_t kBatches = 6;
  for (const int threads : {1, 2, 7}) {
    Service service(threads);
    Answers answers;
    for (uint64_t i = 0; i < kBatches; ++i) answers.Ask(service.engine, i);
    for (uint64_t i = 0; i < kBatches; ++i) ASSERT_TRUE(answers.Await());
    for (uint64_t i = 0; i < kBatches; ++i) {
      ASSERT_TRUE(answers.plan(i).ok()) << answers.plan(i).status();
      EXPECT_EQ(answers.plan(i)->content_hash(), HashOf(Request(i))) << threads << " threads, batch " << i;
    }
  }
}

// A job as others, on simulated devices.
v1::JobSpec SimulatedJob() {
  v1::JobSpec job = core::GptJob(4, 2, v1::POLICY_DYNAMIC);
  job.set_simulated(true);
  return job;
}

// Their layers take three times what the job says.
v1::ProfileFile SlowDevices() {
  v1::ProfileFile devices;
  *devices.mutable_model() = SimulatedJob().model();
  *devices.mutable_profile() = SimulatedJob().profile();
  for (v1::LayerCost& layer : *devices.mutable_profile()->mutable_layers()) {
    v1::LayerTime& forward = *layer.mutable_forward();
    forward.set_fixed_ns(3 * forward.fixed_ns());
    forward.set_target_token_ns(3 * forward.target_token_ns());
    forward.set_target_square_ns(3 * forward.target_square_ns());
  }
  return devices;
}

TEST(CoreBackendTest, SimulatedDevicesTakeWhatTheirOwnProfileSays) {
  const CorePlannerFactory factory(core::RunSerially, SlowDevices());
  ASSERT_TRUE(factory.Check(SimulatedJob()).ok()) << factory.Check(SimulatedJob());
  const auto planner = factory.Create(SimulatedJob(), {}, {}, {});
  ASSERT_TRUE(planner.ok()) << planner.status();
  EXPECT_TRUE((*planner)->devices_have_other_costs());
  const v1::Batch batch = Request(0).batch();
  const auto plan = (*planner)->MakePlan(batch, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->content_hash(), HashOf(Request(0))) << "plans know nothing of it";
  const PackedPlan packed(*plan);
  for (uint32_t rank = 0; rank < 8; ++rank) {
    const auto durations = (*planner)->Durations(batch, packed, rank);
    ASSERT_TRUE(durations.ok()) << durations.status();
    for (const v1::Instruction& instruction : plan->programs(static_cast<int>(rank)).instructions()) {
      if (instruction.op() != v1::OP_FORWARD) continue;
      // Each layer's time is rounded.
      EXPECT_NEAR(static_cast<double>((*durations)[instruction.id()]),
                  3 * static_cast<double>(instruction.expected_duration_ns()), 20);
    }
  }
}

// A stage of eight layers on each of four ranks that get samples of different lengths. An exchange goes on
// beside all that they compute, over a link that takes about as long.
v1::JobSpec JobOfUnevenPasses() {
  v1::JobSpec job = core::GptJob(1, 4, v1::POLICY_PACKED);
  job.set_simulated(true);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(8e6);
  v1::Cluster& cluster = *job.mutable_profile()->mutable_cluster();
  cluster.set_exchange_overlap(1);
  cluster.set_intra_node_bytes_per_second(1e10);
  return job;
}

// Devices with the costs that the plan was made with take what it says.
void ExpectPlannedDurations(const v1::JobSpec& job) {
  const auto planner = CorePlannerFactory().Create(job, {}, {}, {});
  ASSERT_TRUE(planner.ok()) << planner.status();
  const v1::Batch batch = core::MakeBatch({{0, 4000}, {0, 2000}, {0, 900}, {0, 100}});
  const auto plan = (*planner)->MakePlan(batch, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PackedPlan packed(*plan);
  for (const v1::Program& program : plan->programs()) {
    const auto durations = (*planner)->Durations(batch, packed, program.rank());
    ASSERT_TRUE(durations.ok()) << durations.status();
    for (const v1::Instruction& instruction : program.instructions()) {
      EXPECT_EQ((*durations)[instruction.id()], instruction.expected_duration_ns())
          << "rank " << program.rank() << ", " << instruction.ShortDebugString();
    }
  }
}

TEST(CoreBackendTest, WhatPassesHideOfSumsOfGradientsIsJudgedByThoseOfAllRanks) {
  v1::JobSpec job = JobOfUnevenPasses();
  job.mutable_planning()->set_gradient_bucket_bytes(1);
  ExpectPlannedDurations(job);
}

TEST(CoreBackendTest, WhatPassesHideOfReshardsIsJudgedByThoseOfAllRanks) {
  v1::JobSpec job = JobOfUnevenPasses();
  job.mutable_planning()->set_parameter_shares(true);
  ExpectPlannedDurations(job);
}

TEST(CoreBackendTest, OtherWorkersHaveNothingToDoWithIt) {
  const CorePlannerFactory factory(core::RunSerially, SlowDevices());
  const auto planner = factory.Create(Request(0).job(), {}, {}, {});
  ASSERT_TRUE(planner.ok()) << planner.status();
  EXPECT_FALSE((*planner)->devices_have_other_costs());
}

TEST(CoreBackendTest, AProfileOfDevicesIsOfTheModelOfTheirJob) {
  v1::ProfileFile other = SlowDevices();
  other.mutable_model()->set_vocab(other.model().vocab() + 1);
  EXPECT_EQ(CorePlannerFactory(core::RunSerially, other).Check(SimulatedJob()).message(),
            "job.model: the profile of this planner's simulated devices is of another model");
  v1::ProfileFile empty = SlowDevices();
  empty.mutable_profile()->clear_layers();
  EXPECT_THAT(std::string(CorePlannerFactory(core::RunSerially, empty).Check(SimulatedJob()).message()),
              testing::StartsWith("job, with the profile of this planner's simulated devices: "));
}

TEST(CoreBackendTest, ShutdownAnswersEveryBatchOnce) {
  constexpr uint64_t kBatches = 12;
  Service service(3);
  Answers answers;
  for (uint64_t i = 0; i < kBatches; ++i) answers.Ask(service.engine, i);
  ASSERT_TRUE(answers.Await());
  service.engine.Shutdown(absl::ZeroDuration());
  for (uint64_t i = 0; i < kBatches; ++i) {
    ASSERT_EQ(answers.count(i), 1) << "batch " << i;
    const absl::Status status = answers.plan(i).status();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
}

}  // namespace
}  // namespace penstock
