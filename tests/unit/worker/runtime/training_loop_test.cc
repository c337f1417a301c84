#include "worker/runtime/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/temporary_folder.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Answers from lists and keeps what it is told.
class FakeControlPlane : public ControlPlane {
 public:
  const Registration& registration() const override { return registration_; }
  void AnnounceRendezvous(const std::string&) override {}
  absl::StatusOr<Rendezvous> WaitUntilReady(absl::Duration) override { return Rendezvous(); }
  void StartPrograms(uint64_t) override {}
  absl::StatusOr<NextProgram> Next() override {
    if (programs.empty()) return absl::UnavailableError("the planner is gone");
    NextProgram next = std::move(programs.front());
    programs.pop_front();
    return next;
  }
  std::shared_ptr<const Program> Upcoming() override {
    return programs.empty() ? nullptr : programs.front().program;
  }
  absl::Status Report(IterationReport report) override {
    reports.push_back(std::move(report));
    return report_status;
  }
  absl::Status FlushReports(absl::Duration) override {
    flushed = reports.size();
    return flush_status;
  }
  uint64_t Reported() const override {
    return reports.empty() || reported_late ? 0 : reports.back().iteration + 1;
  }
  absl::Status ReportFailure(const absl::Status& failure, absl::Duration) override { return failure; }
  void Leave() override {}

  void Add(uint64_t iteration) {
    Program program;
    program.iteration = iteration;
    NextProgram next;
    next.program = std::make_shared<const Program>(std::move(program));
    next.waited = absl::Nanoseconds(70 + static_cast<int64_t>(iteration));
    programs.push_back(std::move(next));
  }
  void AddEnd() { programs.push_back({.finished = true, .program = {}, .waited = {}}); }

  std::deque<NextProgram> programs;
  std::vector<IterationReport> reports;
  // The planner has none yet.
  bool reported_late = false;
  absl::Status report_status;
  absl::Status flush_status;
  // Reports that were there when the last flush came.
  size_t flushed = 0;

 private:
  Registration registration_;
};

class TrainingLoopTest : public ::testing::Test {
 protected:
  TrainingLoopTest() {
    job_ = {.job_id = "job", .model = {}, .pipeline = 1, .replicas = 1};
    job_.training.iterations = 6;
  }

  absl::Status Run(const std::string& checkpoint_dir = "") {
    Checkpointing checkpoints(
        {.directory = checkpoint_dir,
         .job = &job_,
         .part = [this](bool, const CheckpointingParts::StillWanted&) -> absl::StatusOr<PartWriter> {
           events_.push_back(absl::StrCat("part, ", control_.reports.size(), " reports"));
           return PartOf("state");
         },
         .reported = [this] { return control_.Reported(); },
         .flush_reports = [this] { return control_.FlushReports(absl::Seconds(1)); },
         .meet = [this](bool) -> absl::StatusOr<bool> {
           events_.push_back(absl::StrCat("meet, ", control_.flushed, " reports"));
           if (!meet_status_.ok()) return meet_status_;
           return false;
         }});
    return RunTrainingLoop(
        control_,
        {.prepare =
             [this](const std::shared_ptr<const Program>& program) {
               prepared_.push_back(program->iteration);
             },
         .run = [this](const Program& program) -> absl::StatusOr<IterationResult> {
           events_.push_back(absl::StrCat("run ", program.iteration));
           if (program.iteration == failing_) return absl::UnavailableError("rank 1 is gone");
           IterationResult result{.loss = 0.5, .peak_memory_bytes = 77, .duration_ns = 9};
           result.votes = {.stop = program.iteration == stopping_, .unwritten = control_.reported_late};
           return result;
         },
         .checkpoints = &checkpoints,
         .stop_reason = [this] { return stop_reason_; },
         .ran = [this](const Program& program, const IterationResult&,
                       absl::Duration waited) { waited_[program.iteration] = waited; },
         .finished =
             [this](uint64_t iteration) { events_.push_back(absl::StrCat("finished ", iteration)); }});
  }

  const TemporaryFolder folder_;
  JobConfig job_;
  FakeControlPlane control_;
  uint64_t failing_ = 99;
  uint64_t stopping_ = 99;
  absl::Status stop_reason_;
  absl::Status meet_status_;
  std::vector<std::string> events_;
  std::vector<uint64_t> prepared_;
  // By iteration: what the loop says of the wait for its program.
  std::map<uint64_t, absl::Duration> waited_;
};

TEST_F(TrainingLoopTest, RunsAndReportsUntilTheJobIsFinished) {
  control_.Add(4);
  control_.Add(5);
  control_.AddEnd();
  EXPECT_TRUE(Run().ok());
  EXPECT_THAT(events_, ElementsAre("run 4", "finished 4", "run 5", "finished 5"));
  ASSERT_EQ(control_.reports.size(), 2u);
  EXPECT_EQ(control_.reports[1].iteration, 5u);
  EXPECT_EQ(control_.reports[1].waited_for_program_ns, 75);
  EXPECT_THAT(waited_, ElementsAre(Pair(4, absl::Nanoseconds(74)), Pair(5, absl::Nanoseconds(75))));
  EXPECT_EQ(control_.reports[1].loss, 0.5);
  EXPECT_EQ(control_.reports[1].peak_memory_bytes, 77);
  EXPECT_EQ(control_.flushed, 2u);
}

TEST_F(TrainingLoopTest, PreparesWhatItRunsNextAndWhatIsThereAlready) {
  control_.Add(4);
  control_.Add(5);
  control_.AddEnd();
  EXPECT_TRUE(Run().ok());
  EXPECT_THAT(prepared_, ElementsAre(4, 5, 5));
}

TEST_F(TrainingLoopTest, TheLastIterationIsWrittenBeforeItIsReportedAndCompleteAtTheEnd) {
  control_.Add(4);
  control_.Add(5);
  control_.AddEnd();
  EXPECT_TRUE(Run(folder_.path()).ok());
  EXPECT_THAT(events_, ElementsAre("run 4", "finished 4", "run 5", "part, 1 reports", "finished 5"));
  EXPECT_THAT(CompleteCheckpoints(folder_.path()), ElementsAre(6));
}

TEST_F(TrainingLoopTest, ARankThatIsToStopEndsWithACheckpoint) {
  control_.Add(2);
  control_.Add(3);
  control_.Add(4);
  stopping_ = 3;
  stop_reason_ = absl::CancelledError("stopped by SIGTERM");
  EXPECT_EQ(Run(folder_.path()), stop_reason_);
  EXPECT_THAT(events_, ElementsAre("run 2", "finished 2", "run 3", "part, 1 reports", "finished 3",
                                   "meet, 2 reports", "meet, 2 reports"));
  EXPECT_THAT(CompleteCheckpoints(folder_.path()), ElementsAre(4));
}

TEST_F(TrainingLoopTest, ARankThatIsNotToStopGoesOnAfterTheCheckpointOfTheOthers) {
  control_.Add(3);
  control_.Add(4);
  stopping_ = 3;
  EXPECT_EQ(Run(folder_.path()), absl::UnavailableError("the planner is gone"));
  EXPECT_THAT(events_, ::testing::Contains("finished 4"));
  EXPECT_THAT(CompleteCheckpoints(folder_.path()), ElementsAre(4));
}

TEST_F(TrainingLoopTest, AnIterationThatIsDoneIsReportedThoughARankIsLostAtItsCheckpoint) {
  job_.training.checkpoint_interval = 1;
  for (uint64_t iteration = 0; iteration < 3; ++iteration) control_.Add(iteration);
  control_.reported_late = true;
  meet_status_ = absl::UnavailableError("rank 1 is gone");
  EXPECT_TRUE(absl::IsUnavailable(Run(folder_.path())));
  EXPECT_THAT(events_, ::testing::Contains("meet, 2 reports")) << "before others and the disk are waited for";
  EXPECT_EQ(control_.reports.size(), 2u);
}

TEST_F(TrainingLoopTest, TheLastIterationIsNotReportedWhereItsCheckpointFails) {
  job_.training.checkpoint_interval = 1;
  control_.Add(4);
  control_.Add(5);
  control_.reported_late = true;
  meet_status_ = absl::UnavailableError("rank 1 is gone");
  EXPECT_TRUE(absl::IsUnavailable(Run(folder_.path())));
  EXPECT_EQ(control_.reports.size(), 1u);
}

TEST_F(TrainingLoopTest, EndsWithTheErrorOfAnIterationAndDoesNotReportIt) {
  control_.Add(0);
  control_.Add(1);
  failing_ = 1;
  EXPECT_EQ(Run(), absl::UnavailableError("rank 1 is gone"));
  EXPECT_EQ(control_.reports.size(), 1u);
}

TEST_F(TrainingLoopTest, EndsWithTheErrorOfThePlanner) {
  control_.Add(0);
  EXPECT_EQ(Run(), absl::UnavailableError("the planner is gone"));
}

TEST_F(TrainingLoopTest, EndsWhenAReportIsRefused) {
  control_.Add(0);
  control_.report_status = absl::AbortedError("stale");
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace penstock::worker
