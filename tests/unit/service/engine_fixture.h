// An engine with a fake clock and a fake planner, and readers that wait without sleeping.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "common/mesh/mesh_ranks.h"
#include "planner/service/engine/engine.h"
#include "planner/service/engine/fake_batch_planner.h"
#include "planner/service/engine/fake_clock.h"
#include "planner/service/store/memory_event_store.h"
#include "tests/unit/service/event.h"
#include "tests/unit/service/requests.h"

namespace penstock {

// Reads the programs of a rank as a stream does.
class Reader {
 public:
  Reader(const std::shared_ptr<Job>& job, const v1::StreamProgramsRequest& request)
      : wake_(std::make_shared<Event>()),
        subscription_(job->Subscribe(request, [wake = wake_] { wake->Notify(); })) {}

  // Without waiting.
  ProgramSubscription::Item Poll() { return subscription_->Next(); }
  bool IsPending() { return std::holds_alternative<ProgramSubscription::Pending>(Poll()); }

  // The next program, waited for; nullopt at the end.
  std::optional<v1::StreamProgramsResponse> Next() {
    auto item = Await();
    const auto* bytes = std::get_if<ProgramBytes>(&item);
    v1::StreamProgramsResponse program;
    if (bytes == nullptr || !program.ParseFromString(**bytes)) return std::nullopt;
    return program;
  }
  // How the stream ends, waited for. Programs before the end are skipped.
  absl::Status End() {
    while (true) {
      auto item = Await();
      if (auto* status = std::get_if<absl::Status>(&item)) return *status;
      if (!std::holds_alternative<ProgramBytes>(item)) {
        return absl::DeadlineExceededError("no end");
      }
    }
  }

 private:
  ProgramSubscription::Item Await() {
    while (true) {
      ProgramSubscription::Item item = subscription_->Next();
      if (!std::holds_alternative<ProgramSubscription::Pending>(item) || !wake_->Await()) return item;
    }
  }

  const std::shared_ptr<Event> wake_;
  const std::unique_ptr<ProgramSubscription> subscription_;
};

class EngineFixture : public testing::Test {
 protected:
  EngineFixture() { Start({}); }

  // An engine whose planner calls `gate` before each plan.
  void Start(const EngineOptions& options, FakeBatchPlanner::Gate gate = nullptr) {
    engine_.reset();
    planners_ = std::make_unique<FakeBatchPlannerFactory>(std::move(gate));
    store_ = std::make_unique<MemoryEventStore>();
    Restart(options);
  }

  // A new engine on the same store, as after a kill of the planner.
  void Restart(const EngineOptions& options = {}) {
    engine_.reset();
    engine_ = std::make_unique<PlannerEngine>(
        options, EngineDependencies{planners_.get(), &checker_, store_.get(), &clock_, &observer_});
    const absl::Status recovered = engine_->Recover();
    EXPECT_TRUE(recovered.ok()) << recovered;
  }

  // Waits until the job is prepared.
  static absl::StatusOr<v1::JobState> RegisterJob(PlannerEngine& engine, const v1::JobSpec& spec) {
    auto answered = std::make_shared<Event>();
    auto answer = std::make_shared<absl::StatusOr<v1::JobState>>(absl::UnknownError("not answered"));
    engine.RegisterJob(spec, [=](const absl::StatusOr<v1::JobState>& state) {
      *answer = state;
      answered->Notify();
    });
    EXPECT_TRUE(answered->Await());
    return *answer;
  }
  absl::StatusOr<v1::JobState> RegisterJob(const v1::JobSpec& spec) { return RegisterJob(*engine_, spec); }

  std::shared_ptr<Job> Register(const v1::JobSpec& spec) {
    EXPECT_TRUE(RegisterJob(spec).ok());
    return *engine_->FindJob(spec.job_id());
  }

  // Waits until everything so far of the jobs that are there is in the store.
  absl::Status Flush() {
    absl::Status status;
    for (const std::shared_ptr<Job>& job : engine_->Jobs()) {
      Event answered;
      job->WhenDurable([&](const absl::Status& durable) {
        status.Update(durable);
        answered.Notify();
      });
      EXPECT_TRUE(answered.Await());
    }
    return status;
  }

  static v1::StreamProgramsRequest StreamRequest(uint32_t rank, uint64_t from = 0, uint64_t incarnation = 0,
                                                 uint64_t epoch = 0) {
    v1::StreamProgramsRequest request;
    request.set_job_id("job");
    request.set_rank(rank);
    request.set_from_iteration(from);
    request.set_incarnation(incarnation);
    request.set_epoch(epoch);
    return request;
  }

  // Registers all ranks of a job with incarnations base, base + 1, ... and makes the epoch ready.
  static void FormEpoch(Job& job, uint64_t base, uint64_t first_iteration = 0) {
    const uint32_t ranks = static_cast<uint32_t>(RanksOf(job.spec().mesh()));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto response = job.RegisterWorker(MakeRegistration(base + rank, -1, first_iteration));
      ASSERT_TRUE(response.ok()) << response.status();
      ASSERT_EQ(response->rank(), rank);
    }
    ASSERT_TRUE(job.Heartbeat(MakeHeartbeat(0, base, job.Status().epoch())).ok());
  }

  // All ranks read and report the iterations from .. to - 1.
  static void Train(const std::shared_ptr<Job>& job, uint64_t from, uint64_t to, uint64_t base) {
    const uint64_t epoch = job->Status().epoch();
    const uint32_t ranks = static_cast<uint32_t>(RanksOf(job->spec().mesh()));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      Reader reader(job, StreamRequest(rank, from, base + rank, epoch));
      for (uint64_t iteration = from; iteration < to; ++iteration) {
        ASSERT_TRUE(reader.Next().has_value());
        const absl::Status reported = job->ReportIteration(MakeReport(rank, iteration, base + rank, epoch));
        ASSERT_TRUE(reported.ok()) << reported;
      }
    }
  }

  FakeClock clock_;
  FakePlanChecker checker_;
  NullObserver observer_;
  std::unique_ptr<FakeBatchPlannerFactory> planners_;
  std::unique_ptr<MemoryEventStore> store_;
  std::unique_ptr<PlannerEngine> engine_;
};

}  // namespace penstock
