// A planner that reads a job from the store tells of it what the one tells that serves it.
#include "planner/service/standby/stored_jobs.h"

#include "planner/service/state/job_status.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

class StoredJobsTest : public EngineFixture {
 protected:
  // As GetJob of a planner that reads the store now.
  v1::GetJobResponse Told(const std::string& job_id) {
    EXPECT_TRUE(Flush().ok());
    const absl::StatusOr<StoredJobs> jobs = StoredJobs::From(*store_->Load());
    EXPECT_THAT(jobs, IsOk());
    return DescriptionOf(*jobs->Find(job_id), 0);
  }
  // Of the planner that serves it. What only it knows is left out.
  static v1::GetJobResponse Known(const Job& job) {
    v1::GetJobResponse known = job.Get(0);
    for (v1::WorkerStatus& worker : *known.mutable_status()->mutable_workers())
      worker.set_heartbeat_age_ms(0);
    return known;
  }
  void ExpectTheSame(const Job& job, v1::JobState state) {
    EXPECT_EQ(Told(job.id()).ShortDebugString(), Known(job).ShortDebugString());
    EXPECT_EQ(Told(job.id()).status().state(), state);
  }
};

TEST_F(StoredJobsTest, SayOfAJobWhatItsPlannerSays) {
  v1::JobSpec spec = MakeJob("job");
  spec.set_owner("alice");
  const auto job = Register(spec);
  ExpectTheSame(*job, v1::JOB_STATE_REGISTERED);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  FormEpoch(*job, 101);
  Train(job, 0, 3, 101);
  Reader(job, StreamRequest(0, 3, 101, 1)).Next();
  ExpectTheSame(*job, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Told("job").status().completed_iteration(), 3);
  EXPECT_EQ(Told("job").iterations_size(), 3);
  clock_.Advance(absl::Seconds(20));
  engine_->Tick();  // all are lost
  ExpectTheSame(*job, v1::JOB_STATE_FAILED);
}

TEST_F(StoredJobsTest, SayWhichJobIsDamaged) {
  EXPECT_THAT(StoredJobs::From({{.job = 1, .job_id = "mix", .events = {"no event"}}}).status(),
              Fails(absl::StatusCode::kDataLoss, "job 'mix' of the store"));
}

}  // namespace
}  // namespace penstock
