// Plans of a size that takes minutes, with the real planner core: whoever gives them up, the planner goes on
// with what is waited for.
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/process/sanitized.h"
#include "planner/service/main/core_backend.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/event.h"

namespace penstock {
namespace {

using absl::StatusCode;

constexpr uint32_t kManySamples = 300'000;
// Far above what stopping takes on a busy machine, far below what the plan would take.
constexpr absl::Duration kSoon = absl::Seconds(5);

// The core, and word of every plan that it begins.
class WatchedFactory final : public BatchPlannerFactory {
 public:
  class Watched final : public BatchPlanner {
   public:
    Watched(std::unique_ptr<BatchPlanner> planner, Event* started)
        : planner_(std::move(planner)), started_(started) {}
    absl::Status CheckBatch(const v1::Batch& batch, core::StopToken stop) const override {
      return planner_->CheckBatch(batch, stop);
    }
    absl::Status ValidateBatch(const v1::Batch& batch, core::StopToken stop) const override {
      return planner_->ValidateBatch(batch, stop);
    }
    absl::StatusOr<core::PlanningShape> ShapeOf(const v1::Batch& batch) const override {
      return planner_->ShapeOf(batch);
    }
    std::vector<v1::Topology> Topologies() const override { return planner_->Topologies(); }
    double waiting_share() const override { return planner_->waiting_share(); }
    absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, core::StopToken stop) const override {
      started_->Notify();
      return planner_->MakePlan(batch, stop);
    }
    absl::StatusOr<std::vector<int64_t>> Durations(const v1::Batch& batch, const PackedPlan& plan,
                                                   uint32_t rank) const override {
      return planner_->Durations(batch, plan, rank);
    }

   private:
    const std::unique_ptr<BatchPlanner> planner_;
    Event* const started_;
  };

  explicit WatchedFactory(Event* started) : started_(started) {}
  absl::Status Check(const v1::JobSpec& job) const override { return core_.Check(job); }
  absl::StatusOr<core::PlanningShape> ShapeOf(const v1::JobSpec& job, const v1::Batch* batch) const override {
    return core_.ShapeOf(job, batch);
  }
  absl::StatusOr<std::unique_ptr<BatchPlanner>> Create(const v1::JobSpec& job,
                                                       absl::Span<const v1::Topology> topologies,
                                                       absl::Span<const uint32_t> strategies,
                                                       core::StopToken stop) const override {
    auto planner = core_.Create(job, topologies, strategies, stop);
    if (!planner.ok()) return planner.status();
    return std::make_unique<Watched>(*std::move(planner), started_);
  }

  absl::StatusOr<std::optional<core::Calibration>> Calibrate(const v1::JobSpec& job,
                                                             absl::Span<const v1::Topology> topologies,
                                                             const v1::CostProfile& in_effect,
                                                             const std::vector<HeldIteration>& iterations,
                                                             core::StopToken stop) const override {
    return core_.Calibrate(job, topologies, in_effect, iterations, stop);
  }
  absl::StatusOr<v1::JobDiagnosis> Diagnose(const std::vector<CostedIteration>& iterations,
                                            core::StopToken stop) const override {
    return core_.Diagnose(iterations, stop);
  }
  absl::StatusOr<core::Calibration> CalibratePasses(const v1::ReviseCostsRequest& request,
                                                    core::StopToken stop) const override {
    return core_.CalibratePasses(request, stop);
  }

 private:
  const CorePlannerFactory core_;
  Event* const started_;
};

class StoppedPlanTest : public PlannerFixture {
 protected:
  void SetUp() override {
    planners_ = &watched_;
    checker_ = &core_checker_;
    Serve({.engine = {.planning_threads = 1}, .drain = absl::ZeroDuration()});
    v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
    job.set_job_id("live");
    Register(job);
  }

  static v1::PlanBatchRequest LargeRequest() {
    v1::PlanBatchRequest request;
    *request.mutable_job() = core::GptJob(8, 2, v1::POLICY_DYNAMIC);
    for (uint32_t i = 0; i < kManySamples; ++i) {
      request.mutable_batch()->add_samples()->set_target_tokens(20 + 7919 * i % 300);
    }
    return request;
  }

  // From a submission to the plan.
  absl::Duration TimeOfALiveBatch() {
    const absl::Time start = absl::Now();
    EXPECT_TRUE(client_->SubmitBatches(MakeSubmission("live", 0, 1)).ok());
    EXPECT_TRUE(Read("live", 0)->Next().ok());
    return absl::Now() - start;
  }

  Event started_;
  WatchedFactory watched_{&started_};
  CorePlanChecker core_checker_;
};

TEST_F(StoppedPlanTest, ALiveJobIsPlannedAtOnceWhenAHugePlanIsGivenUp) {
  const v1::PlanBatchRequest request = LargeRequest();
  // Enough for the request to be read, which takes seconds with a sanitizer.
  const absl::Duration patience = absl::Seconds(kSanitized ? 16 : 4);
  EXPECT_THAT(client_->PlanBatch(request, patience), Fails(StatusCode::kDeadlineExceeded, ""));
  ASSERT_TRUE(started_.Await());
  EXPECT_LT(TimeOfALiveBatch(), kSoon);
}

TEST_F(StoppedPlanTest, ALiveJobIsPlannedBesideAHugePlanOnTwoThreads) {
  Serve({.engine = {.planning_threads = 2}, .drain = absl::ZeroDuration()});
  v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
  job.set_job_id("live");
  Register(job);
  const v1::PlanBatchRequest request = LargeRequest();
  std::thread first([&] { (void)client_->PlanBatch(request, absl::Seconds(10)); });
  std::thread second([&] { (void)client_->PlanBatch(request, absl::Seconds(10)); });
  ASSERT_TRUE(started_.Await());
  EXPECT_LT(TimeOfALiveBatch(), kSoon);
  server_->Stop();
  first.join();
  second.join();
}

TEST_F(StoppedPlanTest, ThePlannerStopsSoonWhileItComputesAHugePlan) {
  const v1::PlanBatchRequest request = LargeRequest();
  absl::Status answer;
  // The client asks again until its deadline.
  const absl::Duration patience = absl::Seconds(kSanitized ? 16 : 8);
  std::thread asker([&] { answer = client_->PlanBatch(request, patience).status(); });
  ASSERT_TRUE(started_.Await());
  const absl::Time start = absl::Now();
  server_->Stop();
  EXPECT_LT(absl::Now() - start, kSoon);
  asker.join();
  EXPECT_FALSE(answer.ok());
}

TEST_F(StoppedPlanTest, APlanAboveTheLimitEndsWithItsReason) {
  Serve({.engine = {.planning_threads = 1, .planning_limit = absl::Milliseconds(300)},
         .drain = absl::ZeroDuration()});
  EXPECT_THAT(client_->PlanBatch(LargeRequest(), absl::Seconds(30)),
              Fails(StatusCode::kDeadlineExceeded, "--planning-limit-seconds"));
}

TEST_F(StoppedPlanTest, SizesBeyondTheLimitsAreRefusedAndNamed) {
  v1::PlanBatchRequest request;
  *request.mutable_batch() = MakeBatch(0);
  const auto refused = [&](const v1::JobSpec& job) {
    *request.mutable_job() = job;
    return client_->PlanBatch(request).status();
  };
  v1::JobSpec job = core::GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_model()->set_layers(100'000);
  EXPECT_THAT(refused(job),
              Fails(StatusCode::kInvalidArgument, "job.model.layers: 100000; use at most 4096"));
  job = core::GptJob(65'536, 65'536, v1::POLICY_DYNAMIC);
  EXPECT_THAT(refused(job),
              Fails(StatusCode::kInvalidArgument, "job.mesh.pipeline: 65536; use at most 1024"));
}

}  // namespace
}  // namespace penstock
