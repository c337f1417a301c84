// `penstock` against a real penstock-planner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "penstock/client/planner_client.h"
#include "tests/integration/cli/penstock_process.h"
#include "tests/support/planner_process.h"
#include "tests/unit/core/job_builder.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

class RemotePlanning : public testing::Test {
 protected:
  void SetUp() override {
    auto planner = PlannerProcess::Start(PENSTOCK_PLANNER_BINARY);
    ASSERT_TRUE(planner.ok()) << planner.status();
    planner_ = *std::move(planner);
    address_ = planner_->address();
  }

  Ended Plan(std::vector<std::string> more) { return penstock_.Run(penstock_.PlanningCommand("plan", more)); }

  Penstock penstock_;
  std::unique_ptr<PlannerProcess> planner_;
  std::string address_;
};

TEST_F(RemotePlanning, GivesThePlanThatPlanningHereGives) {
  const std::string remote = penstock_.folder().Path("remote.json"),
                    local = penstock_.folder().Path("local.json");
  const Ended ended = Plan({"--pp", "2", "--dp", "2", "--planner", address_, "--out", remote});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  ASSERT_EQ(Plan({"--pp", "2", "--dp", "2", "--out", local}).code, 0);
  Json a = Json::parse(penstock_.folder().Read("remote.json")),
       b = Json::parse(penstock_.folder().Read("local.json"));
  EXPECT_EQ(a["plan"]["content_hash"], b["plan"]["content_hash"]);
  for (Json* planned : {&a, &b}) (*planned)["plan"].erase("planning_time_ns");
  EXPECT_EQ(a, b);
}

TEST_F(RemotePlanning, PassesOnWhatThePlannerRefuses) {
  const Ended ended = Plan({"--pp", "9", "--planner", address_});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors, testing::HasSubstr("--pp: "));
}

TEST_F(RemotePlanning, JobsAreDrainedAndDeleted) {
  PlannerClient client(address_);
  v1::RegisterJobRequest request;
  *request.mutable_job() = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
  request.mutable_job()->set_job_id("mix");
  ASSERT_TRUE(client.RegisterJob(request).ok());
  const Ended drained = penstock_.Run({"drain", "--planner", address_, "--job", "mix"});
  EXPECT_EQ(drained.code, 0) << drained.errors;
  EXPECT_EQ(drained.output, "mix: finished\n");
  EXPECT_EQ(penstock_.Run({"delete", "--planner", address_, "--job", "mix"}).output, "mix: deleted\n");
  const Ended again = penstock_.Run({"delete", "--planner", address_, "--job", "mix"});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.errors, testing::HasSubstr("--job mix"));
}

TEST_F(RemotePlanning, StatusSaysHowMuchOfItsQuotasAnOwnerHasUsed) {
  auto planner = PlannerProcess::Start(PENSTOCK_PLANNER_BINARY, {"--samples-of-owner-a-minute=500"});
  ASSERT_TRUE(planner.ok()) << planner.status();
  PlannerClient client((*planner)->address());
  v1::RegisterJobRequest request;
  *request.mutable_job() = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  request.mutable_job()->set_job_id("mix");
  request.mutable_job()->set_owner("alice");
  ASSERT_TRUE(client.RegisterJob(request).ok());
  v1::GetJobRequest get;
  get.set_job_id("mix");
  const auto job = client.GetJob(get);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->quotas_size(), 5);
  const Ended shown = penstock_.Run({"status", "--planner", (*planner)->address()});
  EXPECT_THAT(shown.output, testing::ContainsRegex("alice +jobs-of-owner +1 +48"));
  EXPECT_THAT(shown.output, testing::ContainsRegex("alice +planning-seconds-of-owner-a-minute +0 +no limit"));
  const Json json =
      Json::parse(penstock_.Run({"status", "--planner", (*planner)->address(), "--json"}).output);
  ASSERT_EQ(json["quotas"].size(), 5);
  EXPECT_EQ(json["quotas"][3]["quota"], "samples-of-owner-a-minute");
  EXPECT_EQ(json["quotas"][3]["allowed"], 500);
  EXPECT_EQ(json["quotas"][4]["allowed"], nullptr);
}

TEST_F(RemotePlanning, StatusSaysHowFarLengthsHaveDrifted) {
  PlannerClient client(address_);
  v1::RegisterJobRequest request;
  *request.mutable_job() = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  request.mutable_job()->set_job_id("mix");
  request.mutable_job()->mutable_planning()->add_typical_samples()->set_target_tokens(300);
  ASSERT_TRUE(client.RegisterJob(request).ok());
  const auto status = [&] { return penstock_.Run({"status", "--planner", address_}).output; };
  EXPECT_THAT(status(), testing::Not(testing::HasSubstr("lengths of job")));
  v1::SubmitBatchesRequest submission;
  submission.set_job_id("mix");
  *submission.add_batches() = core::MakeBatch({{0, 20}, {0, 25}, {0, 30}});
  submission.mutable_batches(0)->set_iteration(0);
  const auto submitted = client.SubmitBatches(submission);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_THAT(status(), testing::AllOf(testing::HasSubstr("lengths of job mix: 100% of the tokens"),
                                       testing::HasSubstr("penstock advise --job mix")));
  const Json json = Json::parse(penstock_.Run({"status", "--planner", address_, "--json"}).output);
  EXPECT_EQ(json["jobs"][0]["length_drift"], 1);
}

TEST_F(RemotePlanning, NothingThatAWorkerSaysReachesATerminalAsACommand) {
  PlannerClient client(address_);
  v1::RegisterJobRequest request;
  *request.mutable_job() = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  request.mutable_job()->set_job_id("mix");
  ASSERT_TRUE(client.RegisterJob(request).ok());
  v1::RegisterWorkerRequest worker;
  worker.set_job_id("mix");
  worker.set_host("localhost");
  worker.set_incarnation(7);
  const auto registered = client.RegisterWorker(worker);
  ASSERT_TRUE(registered.ok()) << registered.status();
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_job_id("mix");
  heartbeat.set_rank(registered->rank());
  heartbeat.set_incarnation(worker.incarnation());
  heartbeat.set_epoch(registered->epoch());
  heartbeat.set_failure(
      "evil \x1b]0;owned\x07 \x1b[2J \xc2\x9b"
      "2J \x7f");
  client.Heartbeat(heartbeat).IgnoreError();
  for (const char* command : {"status", "jobs", "workers"}) {
    for (const char* form : {"--job=mix", "--json"}) {
      const Ended shown = penstock_.Run({command, "--planner", address_, form});
      ASSERT_EQ(shown.code, 0) << shown.errors;
      EXPECT_THAT(shown.output, testing::Not(testing::ContainsRegex("[\x1b\x07\x7f\xc2]"))) << command;
    }
  }
  EXPECT_THAT(penstock_.Run({"status", "--planner", address_}).output,
              testing::HasSubstr("evil \\x1b]0;owned\\x07 \\x1b[2J \\xc2\\x9b2J \\x7f"));
  const Ended refused = penstock_.Run({"drain", "--planner", address_, "--job", "mix"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.errors, testing::HasSubstr("evil \\x1b]0;owned"));
}

}  // namespace
}  // namespace penstock
