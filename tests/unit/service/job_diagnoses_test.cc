// Where the time of a job's last iterations went, as its status says while it trains.
#include <thread>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

class JobDiagnosesTest : public EngineFixture {
 protected:
  // Trained so far, with as much planned ahead.
  std::shared_ptr<Job> TrainedTo(uint64_t completed) {
    v1::JobSpec spec = MakeJob("job");
    spec.set_look_ahead_window(kWindow);
    const std::shared_ptr<Job> job = Register(spec);
    FormEpoch(*job, 101);
    EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, kWindow)).ok());
    Reader reader(job, StreamRequest(0, 0, 101, job->Status().epoch()));
    for (uint64_t iteration = 0; iteration < kWindow; ++iteration) EXPECT_TRUE(reader.Next().has_value());
    Train(job, 0, completed, 101);
    return job;
  }

  // A diagnosis is made on a thread of the pool.
  static v1::JobDiagnosis AwaitDiagnosisUpTo(const Job& job, uint64_t end_iteration) {
    while (job.Status().diagnosis().end_iteration() < end_iteration) std::this_thread::yield();
    return job.Status().diagnosis();
  }

  static constexpr uint64_t kWindow = 16;
};

TEST_F(JobDiagnosesTest, AJobThatTrainsSaysWhatItsLastIterationsLost) {
  const auto job = TrainedTo(4);
  const v1::JobDiagnosis diagnosis = AwaitDiagnosisUpTo(*job, 4);
  EXPECT_EQ(diagnosis.first_iteration(), 0);
  ASSERT_EQ(diagnosis.causes_size(), 1);
  EXPECT_EQ(diagnosis.causes(0).cause(), "slow_rank");
  EXPECT_EQ(diagnosis.causes(0).ranks(0), 1);
}

TEST_F(JobDiagnosesTest, OneWithFewerIterationsHasNone) {
  const auto job = TrainedTo(3);
  EXPECT_FALSE(job->Status().has_diagnosis());
}

TEST_F(JobDiagnosesTest, ItIsMadeAnewWithNewIterationsAfterAWhile) {
  const auto job = TrainedTo(4);
  AwaitDiagnosisUpTo(*job, 4);
  Train(job, 4, 11, 101);
  EXPECT_EQ(job->Status().diagnosis().end_iteration(), 4);
  clock_.Advance(absl::Seconds(11));
  Train(job, 11, 12, 101);
  EXPECT_EQ(AwaitDiagnosisUpTo(*job, 12).first_iteration(), 4);
}

}  // namespace
}  // namespace penstock
