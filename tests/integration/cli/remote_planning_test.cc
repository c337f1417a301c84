// `penstock` against a real penstock-planner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/process/child_process.h"
#include "planner/client/planner_client.h"
#include "tests/integration/cli/penstock_process.h"
#include "tests/unit/core/job_builder.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

class RemotePlanning : public testing::Test {
 protected:
  void SetUp() override {
    const std::string port_file = penstock_.folder().Path("ports.json");
    auto planner = ChildProcess::Start({.arguments = {PENSTOCK_PLANNER_BINARY, "--listen=127.0.0.1:0",
                                                      "--port-file=" + port_file, "--store=memory"},
                                        .log_path = penstock_.folder().Path("planner.log")});
    ASSERT_TRUE(planner.ok()) << planner.status();
    planner_ = *std::move(planner);
    for (int polls = 0; polls < 1000 && !std::filesystem::exists(port_file); ++polls)
      ASSERT_FALSE(planner_->WaitFor(absl::Milliseconds(10)).has_value())
          << penstock_.folder().Read("planner.log");
    const Json ports =
        Json::parse(penstock_.folder().Read("ports.json"), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(ports.contains("planner_port"));
    address_ = "127.0.0.1:" + std::to_string(ports["planner_port"].get<int>());
  }

  Ended Plan(std::vector<std::string> more) { return penstock_.Run(penstock_.PlanningCommand("plan", more)); }

  Penstock penstock_;
  std::unique_ptr<ChildProcess> planner_;
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

}  // namespace
}  // namespace penstock
