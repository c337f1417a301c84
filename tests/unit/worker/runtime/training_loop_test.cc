#include "worker/runtime/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

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
  absl::Status Report(IterationReport report) override {
    reports.push_back(std::move(report));
    return report_status;
  }
  absl::Status FlushReports(absl::Duration) override {
    flushed = reports.size();
    return flush_status;
  }
  absl::Status ReportFailure(const absl::Status& failure, absl::Duration) override { return failure; }
  void Leave() override {}

  void Add(uint64_t iteration) {
    NextProgram next;
    next.program.iteration = iteration;
    next.waited = absl::Nanoseconds(70 + static_cast<int64_t>(iteration));
    programs.push_back(std::move(next));
  }
  void AddEnd() { programs.push_back({.finished = true, .program = {}, .waited = {}}); }

  std::deque<NextProgram> programs;
  std::vector<IterationReport> reports;
  absl::Status report_status;
  absl::Status flush_status;
  // Reports that were there when the last flush came.
  size_t flushed = 0;

 private:
  Registration registration_;
};

class TrainingLoopTest : public ::testing::Test {
 protected:
  absl::Status Run() {
    return RunTrainingLoop(
        control_,
        {.run = [this](const Program& program) -> absl::StatusOr<IterationResult> {
           events_.push_back(absl::StrCat("run ", program.iteration));
           if (program.iteration == failing_) return absl::UnavailableError("rank 1 is gone");
           return IterationResult{.loss = 0.5, .peak_memory_bytes = 77, .duration_ns = 9};
         },
         .write_checkpoint =
             [this](uint64_t iteration) {
               if (iteration == checkpoint_) events_.push_back(absl::StrCat("write ", iteration));
               return iteration == checkpoint_;
             },
         .complete_checkpoint =
             [this](uint64_t iteration) {
               events_.push_back(absl::StrCat("complete ", iteration, ", ", control_.flushed, " reports"));
               return absl::OkStatus();
             },
         .finished =
             [this](uint64_t iteration) { events_.push_back(absl::StrCat("finished ", iteration)); }});
  }

  FakeControlPlane control_;
  uint64_t failing_ = 99;
  uint64_t checkpoint_ = 99;
  std::vector<std::string> events_;
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
  EXPECT_EQ(control_.reports[1].loss, 0.5);
  EXPECT_EQ(control_.reports[1].peak_memory_bytes, 77);
  EXPECT_EQ(control_.flushed, 2u);
}

TEST_F(TrainingLoopTest, ACheckpointIsCompleteOnlyOnceThePlannerHasTheReportsBeforeIt) {
  control_.Add(4);
  control_.Add(5);
  control_.AddEnd();
  checkpoint_ = 5;
  EXPECT_TRUE(Run().ok());
  EXPECT_THAT(events_,
              ElementsAre("run 4", "finished 4", "run 5", "write 5", "complete 5, 2 reports", "finished 5"));

  control_.Add(6);
  checkpoint_ = 6;
  control_.flush_status = absl::DeadlineExceededError("1 report has not reached the planner");
  EXPECT_EQ(Run(), control_.flush_status);
  EXPECT_EQ(events_.back(), "write 6");
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
