// `penstock feed` as a process that is killed and started again, on a real planner.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/process/child_process.h"
#include "common/process/sanitized.h"
#include "penstock/client/planner_client.h"
#include "tests/integration/cli/penstock_process.h"
#include "tests/support/planner_process.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr char kFedJob[] = "fed";
// More than are submitted before the last kill.
constexpr uint64_t kBatches = kSanitized ? 120 : 300;
constexpr int kKills = kSanitized ? 2 : 5;
constexpr absl::Duration kLongestLife = absl::Milliseconds(15);
constexpr absl::Duration kFeedDeadline = absl::Seconds(50);

class FeedCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string samples;
    for (int i = 0; i < 100; ++i) {
      std::vector<int> tokens(1 + i * 37 % 60, i % 11);
      samples += absl::StrCat(R"({"tokens": [)", absl::StrJoin(tokens, ","), "]}\n");
    }
    const Ended import = penstock_.Run(
        {"dataset", "import", "--out", Dataset(), penstock_.folder().Write("samples.jsonl", samples)});
    ASSERT_EQ(import.code, 0) << import.errors;
  }

  std::string Dataset() const { return penstock_.folder().Path("data"); }

  static std::unique_ptr<PlannerProcess> NewPlanner() {
    auto planner = PlannerProcess::Start(PENSTOCK_PLANNER_BINARY);
    EXPECT_THAT(planner, IsOk());
    return planner.ok() ? *std::move(planner) : nullptr;
  }

  // Flags of the job, whose window is wide enough for all batches: nobody trains.
  std::vector<std::string> JobFlags(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> flags = {"--job-id",     kFedJob,  "--device",     "simulated",
                                      "--profile",    profile_, "--pp",         "2",
                                      "--seed",       "7",      "--iterations", absl::StrCat(kBatches),
                                      "--look-ahead", "4096"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  std::vector<std::string> Feed(const std::string& planner, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "feed", "--planner", planner, "--dataset", Dataset(), "--global-batch", "6", "--max-length", "48"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Ended RunFeed(const PlannerProcess& planner, const std::vector<std::string>& more) {
    return penstock_.Run(Feed(planner.address(), more), kFeedDeadline);
  }

  std::unique_ptr<ChildProcess> StartFeeder(const std::string& planner,
                                            const std::vector<std::string>& more) {
    std::vector<std::string> arguments = Feed(planner, more);
    arguments.insert(arguments.begin(), PENSTOCK_BINARY);
    auto feeder = ChildProcess::Start(
        {.arguments = std::move(arguments), .log_path = penstock_.folder().Path("feeder.log")});
    EXPECT_THAT(feeder, IsOk());
    return feeder.ok() ? *std::move(feeder) : nullptr;
  }

  // The iteration whose batch the planner expects next; 0 where it has no such job.
  static uint64_t NextBatch(PlannerClient& client) {
    v1::GetJobRequest request;
    request.set_job_id(kFedJob);
    const auto job = client.GetJob(request);
    return job.ok() ? job->status().next_iteration() : 0;
  }

  void WaitForBatch(PlannerClient& client, uint64_t next) {
    const absl::Time deadline = absl::Now() + kFeedDeadline;
    while (NextBatch(client) < next) {
      ASSERT_LT(absl::Now(), deadline) << penstock_.folder().Read("feeder.log");
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  // Batch and plan of every iteration.
  static std::vector<std::string> History(PlannerClient& client, uint64_t iterations) {
    std::vector<std::string> history;
    for (uint64_t i = 0; i < iterations; ++i) {
      v1::GetIterationRequest request;
      request.set_job_id(kFedJob);
      request.set_iteration(i);
      const absl::Time deadline = absl::Now() + kFeedDeadline;
      auto answer = client.GetIteration(request);
      // It is planned after it was taken.
      for (; (!answer.ok() || !answer->has_plan()) && absl::Now() < deadline;
           answer = client.GetIteration(request))
        absl::SleepFor(absl::Milliseconds(5));
      if (!answer.ok() || !answer->has_plan()) {
        ADD_FAILURE() << "iteration " << i << " is not planned: " << answer.status();
        return history;
      }
      history.push_back(absl::StrCat(answer->batch().SerializeAsString(), answer->plan().content_hash()));
    }
    return history;
  }

  v1::JobSpec JobOf(PlannerClient& client) {
    v1::GetJobRequest request;
    request.set_job_id(kFedJob);
    const auto job = client.GetJob(request);
    EXPECT_THAT(job, IsOk());
    return job.ok() ? job->job() : v1::JobSpec();
  }

  std::string WriteJobFile(const v1::JobSpec& job) const {
    std::string json;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(job, &json).ok());
    return penstock_.folder().Write("job.json", json);
  }

  Penstock penstock_;
  const std::string profile_ = penstock_.WriteProfile();
};

TEST_F(FeedCommandTest, RegistersAMeshOfStageGroupsThatStatusShows) {
  const auto planner = NewPlanner();
  ASSERT_NE(planner, nullptr);
  const Ended fed = RunFeed(*planner, JobFlags({"--cp", "2", "--iterations", "3"}));
  ASSERT_EQ(fed.code, 0) << fed.errors;
  PlannerClient client(planner->address());
  EXPECT_EQ(JobOf(client).mesh().context(), 2u);
  EXPECT_EQ(JobOf(client).mesh().pipeline(), 2u);
  const Ended status = penstock_.Run({"status", "--planner", planner->address()});
  EXPECT_EQ(status.code, 0) << status.errors;
  EXPECT_THAT(status.output, HasSubstr("pp 2 x dp 1 x cp 2"));
  const Ended json = penstock_.Run({"status", "--planner", planner->address(), "--json"});
  EXPECT_THAT(json.output, HasSubstr(R"("mesh":{"pipeline":2,"data":1,"context":2,"tensor":1})"));
}

TEST_F(FeedCommandTest, KilledAtAnyMomentItGoesOnAndTheHistoryIsThatOfAFeederThatWasLeftAlone) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const auto disturbed = NewPlanner();
  PlannerClient client(disturbed->address());
  int in_the_middle = 0;
  // Where the machine holds this test up, a feeder may be done before it is killed.
  for (int kill = 0; kill < kKills && NextBatch(client) < kBatches; ++kill) {
    const uint64_t before = NextBatch(client);
    const auto feeder = StartFeeder(disturbed->address(), JobFlags());
    WaitForBatch(client, before + 1);
    absl::SleepFor(std::uniform_real_distribution<double>(0, 1)(random) * kLongestLife);
    feeder->Signal(SIGKILL);
    ASSERT_TRUE(feeder->WaitFor(kFeedDeadline).has_value());
    if (NextBatch(client) < kBatches) ++in_the_middle;
  }
  EXPECT_GT(in_the_middle, 0) << "the first feeder was done before it was killed";
  const Ended last = RunFeed(*disturbed, JobFlags());
  ASSERT_EQ(last.code, 0) << last.errors;
  EXPECT_THAT(last.output, HasSubstr(absl::StrCat("the batches of all ", kBatches, " iterations")));
  EXPECT_EQ(NextBatch(client), kBatches);

  const auto alone = NewPlanner();
  ASSERT_EQ(RunFeed(*alone, JobFlags()).code, 0);
  PlannerClient other(alone->address());
  EXPECT_EQ(History(client, kBatches), History(other, kBatches));
  EXPECT_EQ(RunFeed(*alone, JobFlags()).code, 0) << "there is nothing left to do";
}

TEST_F(FeedCommandTest, SubmitsAsFarAsTheWindowAndEndsWithASignal) {
  const auto planner = NewPlanner();
  PlannerClient client(planner->address());
  const auto feeder = StartFeeder(planner->address(), JobFlags({"--look-ahead", "3"}));
  WaitForBatch(client, 3);
  feeder->Signal(SIGTERM);
  const auto ended = feeder->WaitFor(kFeedDeadline);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 1);
  EXPECT_THAT(penstock_.folder().Read("feeder.log"), HasSubstr("before iteration 3"));
  EXPECT_EQ(NextBatch(client), 3);
}

TEST_F(FeedCommandTest, AnotherJobUnderTheSameNameIsRefused) {
  const auto planner = NewPlanner();
  ASSERT_EQ(RunFeed(*planner, JobFlags({"--iterations", "4"})).code, 0);
  const Ended other = RunFeed(*planner, JobFlags({"--iterations", "4", "--seed", "8"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.errors, HasSubstr("another specification"));
}

TEST_F(FeedCommandTest, AJobIsTakenFromAFileAndOtherDataForItIsRefused) {
  const auto planner = NewPlanner();
  PlannerClient client(planner->address());
  ASSERT_EQ(RunFeed(*planner, JobFlags({"--iterations", "4"})).code, 0);
  v1::JobSpec job = JobOf(client);
  const auto second = NewPlanner();
  const std::vector<std::string> file = {"--device", "simulated", "--job-file", WriteJobFile(job)};
  const Ended fed = RunFeed(*second, file);
  ASSERT_EQ(fed.code, 0) << fed.errors;
  PlannerClient second_client(second->address());
  EXPECT_EQ(History(client, 4), History(second_client, 4));

  // What the file does not say is compared by the last batch.
  job.mutable_training()->set_iterations(8);
  job.set_look_ahead_window(5);
  const auto third = NewPlanner();
  PlannerClient third_client(third->address());
  const std::vector<std::string> longer = {"--device", "simulated", "--job-file", WriteJobFile(job)};
  const auto feeder = StartFeeder(third->address(), longer);
  WaitForBatch(third_client, 5);
  feeder->Signal(SIGKILL);
  std::vector<std::string> shorter = longer;
  shorter.insert(shorter.end(), {"--max-length", "20"});
  const Ended refused = RunFeed(*third, shorter);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("iteration 4 was submitted with other content"));
}

TEST_F(FeedCommandTest, WhatIsValidatedIsInTheBatchOfEveryFewIterationsAndOfTheLast) {
  const auto planner = NewPlanner();
  PlannerClient client(planner->address());
  ASSERT_EQ(RunFeed(*planner, JobFlags({"--iterations", "4"})).code, 0);
  v1::JobSpec job = JobOf(client);
  job.clear_simulated();
  const std::vector<std::string> validated = {
      "--job-file",           WriteJobFile(job),
      "--validation",         absl::StrCat("one:", Dataset(), ",two:", Dataset()),
      "--validate-every",     "3",
      "--validation-samples", "5"};
  const auto second = NewPlanner();
  const Ended fed = RunFeed(*second, validated);
  ASSERT_EQ(fed.code, 0) << fed.errors;
  PlannerClient second_client(second->address());
  EXPECT_THAT(JobOf(second_client).tasks(), testing::ElementsAre("training", "one", "two"));
  ASSERT_EQ(History(second_client, 4).size(), 4u);
  for (uint64_t iteration = 0; iteration < 4; ++iteration) {
    v1::GetIterationRequest request;
    request.set_job_id(kFedJob);
    request.set_iteration(iteration);
    const auto planned = second_client.GetIteration(request);
    ASSERT_THAT(planned, IsOk());
    EXPECT_EQ(planned->batch().validation().samples_size(), iteration < 2 ? 0 : 10) << iteration;
    EXPECT_EQ(planned->plan().validation().forward_only(), iteration >= 2) << iteration;
  }

  job.add_tasks("of another validation");
  const auto third = NewPlanner();
  ASSERT_EQ(validated[1], WriteJobFile(job)) << "the same path";
  const Ended refused = RunFeed(*third, validated);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--validation: tasks of --job-file are of another validation"));
}

TEST_F(FeedCommandTest, WrongFlagsAreNamed) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "--job-id"},
      {{"--job-file", penstock_.folder().Path("absent.json")}, "--job-file"},
      {{"--job-file", penstock_.folder().Write("list.json", "[]")}, "--job-file"},
      {{"--job-file", penstock_.folder().Write("no-id.json", "{}")}, "jobId"},
      {{"--job-file", profile_, "--pp", "2"}, "--pp"},
      {{"--job-file", profile_, "--seed", "2"}, "--seed"},
      {{"--job-id", "x", "--device", "simulated"}, "--profile"},
  };
  for (const auto& [flags, name] : cases) {
    const Ended ended = penstock_.Run(Feed("127.0.0.1:1", flags));
    EXPECT_EQ(ended.code, 2) << name;
    EXPECT_THAT(ended.errors, HasSubstr(name));
  }
}

}  // namespace
}  // namespace penstock
