// The real penstock-planner, killed in the middle of recalibration: while costs are fitted, when a new
// version has just been recorded, and when a plan of it has just been delivered. Whatever anybody was given
// is the same afterwards.
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/integration/service/fake_worker.h"
#include "tests/support/planner_process.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using testing::AnyOf;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kRanks = 4;
constexpr uint64_t kLookAhead = 4;
// Version of the profile that the job is registered with.
constexpr uint64_t kRegistered = 3;
// Each a micro-batch of its own: a fit to so many takes much longer than it takes to see that it has begun.
constexpr uint32_t kSamples = 1200;

// Plan and costs of an iteration, byte for byte.
struct GivenPlan {
  uint64_t profile_version = 0;
  std::string bytes = {};
};

class KilledFitTest : public testing::Test {
 protected:
  void SetUp() override {
    auto planner = PlannerProcess::Start(
        PENSTOCK_PLANNER, {absl::StrCat("--store=sqlite:", folder_.Path("planner.db")), "--log-level=debug"});
    ASSERT_THAT(planner.status(), IsOk());
    planner_ = *std::move(planner);
    client_ = std::make_unique<PlannerClient>(planner_->address());
    Register();
    for (int rank = 0; rank < kRanks; ++rank) {
      workers_[rank] = std::make_unique<FakeWorker>(planner_->address(), "job", 101 + rank);
      ASSERT_THAT(workers_[rank]->Register(rank), IsOk());
      workers_[rank]->StartHeartbeats();
      // Slower from iteration to iteration, so that every fit finds other costs.
      workers_[rank]->set_slowness([](uint64_t iteration, const v1::Instruction& instruction) {
        return (1.5 + 0.05 * static_cast<double>(iteration)) * (instruction.id() % 3 == 0 ? 1.04 : 0.98);
      });
    }
  }

  static v1::JobSpec Job() {
    v1::JobSpec job = core::GptJob(2, 2, v1::POLICY_PADDING);
    job.set_job_id("job");
    job.set_look_ahead_window(kLookAhead);
    job.mutable_planning()->set_micro_batch_size(1);
    job.mutable_planning()->set_effort(v1::EFFORT_FAST);
    // No worker is lost while the planner is away.
    job.set_heartbeat_timeout_ms(600'000);
    return job;
  }
  void Register() {
    v1::RegisterJobRequest request;
    *request.mutable_job() = Job();
    ASSERT_THAT(client_->RegisterJob(request).status(), IsOk());
  }

  // Batches so far ahead as the planner takes them.
  void Submit() {
    const uint64_t end = completed_ + kLookAhead;
    for (; submitted_ < end; ++submitted_) {
      v1::SubmitBatchesRequest request;
      request.set_job_id("job");
      v1::Batch& batch = *request.add_batches();
      batch.set_iteration(submitted_);
      for (uint32_t i = 0; i < kSamples; ++i) {
        v1::Sample& sample = *batch.add_samples();
        sample.set_sample_id(submitted_ * kSamples + i);
        sample.set_target_tokens(1 + (i * 37 + static_cast<uint32_t>(submitted_) * 11) % 300);
      }
      ASSERT_THAT(client_->SubmitBatches(request).status(), IsOk());
    }
  }

  // Reads all programs that there are, so that their plans are durable, and takes the plans down.
  void TakePlans() {
    Submit();
    const auto stream = client_->StreamPrograms(workers_[0]->StreamRequest(completed_), kPatience);
    for (uint64_t iteration = completed_; iteration < submitted_; ++iteration) {
      ASSERT_THAT(stream->Next().status(), IsOk()) << planner_->Log();
      if (!given_.contains(iteration)) given_[iteration] = Held(iteration);
    }
  }

  // An iteration on all ranks.
  void TrainOne() {
    TakePlans();
    const absl::Time deadline = absl::Now() + kPatience;
    for (const auto& worker : workers_) {
      absl::Status status;
      do {
        status = worker->Work(completed_, 1);
      } while (absl::IsUnavailable(status) && absl::Now() < deadline);
      ASSERT_THAT(status, IsOk()) << planner_->Log();
    }
    ++completed_;
  }
  void TrainUntilAFitBegins() {
    const int before = FitsBegun();
    const absl::Time deadline = absl::Now() + kPatience;
    while (FitsBegun() == before && !HasFatalFailure() && absl::Now() < deadline) TrainOne();
    ASSERT_GT(FitsBegun(), before) << planner_->Log();
  }
  void TrainUntilAPlanHasVersion(uint64_t version) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (given_.rbegin()->second.profile_version != version && !HasFatalFailure() &&
           absl::Now() < deadline) {
      TrainOne();
      TakePlans();
    }
    ASSERT_EQ(given_.rbegin()->second.profile_version, version) << planner_->Log();
  }

  GivenPlan Held(uint64_t iteration) {
    v1::GetIterationRequest request;
    request.set_job_id("job");
    request.set_iteration(iteration);
    const absl::Time deadline = absl::Now() + kPatience;
    absl::StatusOr<v1::GetIterationResponse> held;
    do {
      held = client_->GetIteration(request);
    } while (absl::IsUnavailable(held.status()) && absl::Now() < deadline);
    EXPECT_THAT(held.status(), IsOk()) << "iteration " << iteration << "\n" << planner_->Log();
    if (!held.ok()) return {};
    // How long planning took is no part of a plan.
    held->mutable_plan()->clear_planning_time_ns();
    return {.profile_version = held->plan().profile_version(),
            .bytes = held->plan().SerializeAsString() + held->profile().SerializeAsString()};
  }
  void ExpectPlansAsTheyWereGiven() {
    for (const auto& [iteration, given] : given_) {
      const GivenPlan held = Held(iteration);
      EXPECT_EQ(held.profile_version, given.profile_version) << iteration;
      EXPECT_TRUE(held.bytes == given.bytes) << "the plan of iteration " << iteration << " is another one";
    }
  }

  uint64_t Version() {
    v1::GetJobRequest request;
    request.set_job_id("job");
    const auto job = client_->GetJob(request);
    EXPECT_THAT(job.status(), IsOk());
    if (!job.ok()) return 0;
    EXPECT_EQ(job->status().failure(), "");
    return job->status().costs_version();
  }

  int Count(const std::string& line) const {
    return static_cast<int>(std::vector<std::string>(absl::StrSplit(planner_->Log(), line)).size()) - 1;
  }
  int FitsBegun() const { return Count("costs are being fitted"); }
  int FitsRecorded() const { return Count("costs revised"); }
  void AwaitRecorded(int count) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (FitsRecorded() < count && absl::Now() < deadline) planner_->WaitFor(absl::Milliseconds(1));
    ASSERT_GE(FitsRecorded(), count) << planner_->Log();
  }

  void KillAndRestart() {
    planner_->Kill();
    ASSERT_THAT(planner_->Restart(), IsOk());
    client_ = std::make_unique<PlannerClient>(planner_->address());
    Register();
  }

  const TemporaryFolder folder_;
  std::unique_ptr<PlannerProcess> planner_;
  std::unique_ptr<PlannerClient> client_;
  std::array<std::unique_ptr<FakeWorker>, kRanks> workers_;
  // By iteration; all that were ever delivered.
  std::map<uint64_t, GivenPlan> given_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
};

TEST_F(KilledFitTest, AFitThatWasNotRecordedChangesNothing) {
  for (const uint64_t version : {kRegistered, kRegistered + 1}) {
    const int recorded = FitsRecorded();
    TrainUntilAFitBegins();
    KillAndRestart();
    ASSERT_EQ(FitsRecorded(), recorded) << "the fit was faster than the kill\n" << planner_->Log();
    EXPECT_EQ(Version(), version);
    ExpectPlansAsTheyWereGiven();
    // The one that is made instead.
    TrainUntilAFitBegins();
    AwaitRecorded(recorded + 1);
    TrainUntilAPlanHasVersion(version + 1);
    if (HasFatalFailure()) return;
  }
}

TEST_F(KilledFitTest, AVersionThatHasJustBeenRecordedIsThereOrNobodyHasSeenIt) {
  for (int fit = 1; fit <= 2; ++fit) {
    const uint64_t before = Version();
    TrainUntilAFitBegins();
    AwaitRecorded(fit);
    KillAndRestart();
    if (HasFatalFailure()) return;
    EXPECT_THAT(Version(), AnyOf(before, before + 1));
    ExpectPlansAsTheyWereGiven();
  }
}

TEST_F(KilledFitTest, AVersionOfWhichAPlanWasDeliveredIsThereWithAllItsPlans) {
  for (const uint64_t version : {kRegistered + 1, kRegistered + 2}) {
    TrainUntilAFitBegins();
    TrainUntilAPlanHasVersion(version);
    KillAndRestart();
    if (HasFatalFailure()) return;
    EXPECT_EQ(Version(), version);
    ExpectPlansAsTheyWereGiven();
  }
}

}  // namespace
}  // namespace penstock
