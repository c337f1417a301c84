#include "planner/service/page/page.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using absl::StatusCode;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

constexpr char kHostile[] = "<img src=x onerror=alert(1)>\"'&\u2028";

class PageTest : public EngineFixture {
 protected:
  PageTest() {
    slot_.Lead(EnginePtr(engine_.get(), [](PlannerEngine*) {}));
  }

  HttpAnswer Get(const std::string& path, const std::string& query = "",
                 const std::string& known_tag = "") const {
    return AnswerPage(slot_, {.path = path, .query = query, .known_tag = known_tag});
  }
  Json Data(const std::string& path, const std::string& query = "") const {
    const HttpAnswer answer = Get(path, query);
    EXPECT_EQ(answer.content_type, "application/json; charset=utf-8");
    const Json json = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(json.is_discarded()) << answer.body;
    return json;
  }
  static std::string Header(const HttpAnswer& answer, const std::string& name) {
    const auto found = std::find_if(answer.headers.begin(), answer.headers.end(),
                                    [&](const auto& one) { return one.first == name; });
    return found == answer.headers.end() ? "" : found->second;
  }
  // A job of two ranks that has done three iterations.
  std::shared_ptr<Job> TrainedJob() {
    const auto job = Register(MakeJob("job"));
    EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 5)).ok());
    FormEpoch(*job, 101);
    Train(job, 0, 3, 101);
    return job;
  }

  EngineSlot slot_;
};

TEST_F(PageTest, LayersOfExpertsAreThoseOfTheLastIterationAlone) {
  v1::JobSpec spec = MakeJob("job", 1);
  spec.mutable_model()->set_layers(2);
  spec.mutable_model()->set_experts(4);
  const auto job = Register(spec);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  for (uint64_t iteration = 0; iteration < 2; ++iteration) {
    ASSERT_TRUE(Reader(job, StreamRequest(0, iteration)).Next().has_value());
    v1::ReportIterationRequest report = MakeReport(0, iteration);
    for (const uint64_t fullest : {20, 30}) {
      report.add_expert_rows(40);
      report.add_fullest_expert_rows(fullest);
    }
    ASSERT_TRUE(job->ReportIteration(report).ok());
  }
  const Json iterations = Data("/data/job", "id=job")["job"]["iterations"];
  ASSERT_EQ(iterations.size(), 2);
  EXPECT_TRUE(iterations[0]["expert_layers"].empty());
  ASSERT_EQ(iterations[1]["expert_layers"].size(), 2) << iterations[1];
  EXPECT_EQ(iterations[1]["expert_layers"][1]["layer"], 2);
  EXPECT_EQ(iterations[1]["expert_layers"][1]["fullest_expert"], 3);
}

TEST_F(PageTest, ListsJobsWithoutTheirWorkers) {
  const auto job = TrainedJob();
  Register(MakeJob("another"));
  const Json jobs = Data("/data/jobs")["jobs"];
  ASSERT_EQ(jobs.size(), 2);
  EXPECT_EQ(jobs[0]["job_id"], "another");
  EXPECT_EQ(jobs[1]["state"], "JOB_STATE_RUNNING");
  EXPECT_EQ(jobs[1]["completed_iteration"], "3");
  EXPECT_EQ(jobs[1]["workers"], Json::array());
}

TEST_F(PageTest, AJobHasStateWorkersLastIterationsAndHistory) {
  const auto job = TrainedJob();
  const Json data = Data("/data/job", "id=job");
  EXPECT_EQ(data["job"]["status"]["workers"].size(), 2);
  EXPECT_EQ(data["job"]["status"]["workers"][1]["last_iteration"], "2");
  EXPECT_EQ(data["job"]["iterations"].size(), 3);
  EXPECT_EQ(data["job"]["iterations"][2]["iteration"], "2");
  EXPECT_EQ(data["history"]["iteration"], Json({0, 1, 2}));
  EXPECT_EQ(data["history"]["loss"], Json({3.0, 3.0, 3.0}));
}

TEST_F(PageTest, OfManyIterationsTheLastTwelveAreSentInFull) {
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 16)).ok());
  FormEpoch(*job, 101);
  Train(job, 0, 16, 101);
  const Json data = Data("/data/job", "id=job");
  ASSERT_EQ(data["job"]["iterations"].size(), 12);
  EXPECT_EQ(data["job"]["iterations"][0]["iteration"], "4");
  EXPECT_EQ(data["history"]["iteration"].size(), 16);
}

TEST_F(PageTest, WhatThePageDoesNotShowIsNotSent) {
  v1::JobSpec spec = MakeJob("job");
  for (int i = 0; i < 1000; ++i) spec.mutable_profile()->add_layers()->set_name("a layer of the profile");
  Register(spec);
  EXPECT_LT(Get("/data/job", "id=job").body.size(), 4000);
}

TEST_F(PageTest, AnIterationHasItsPlanAndItsMeasurements) {
  const auto job = TrainedJob();
  const Json data = Data("/data/iteration", "job=job&iteration=1");
  EXPECT_EQ(data["iteration"], 1);
  EXPECT_EQ(data["planned_us"], 6000);
  EXPECT_EQ(data["samples"], 4);
  ASSERT_EQ(data["ranks"].size(), 2);
  EXPECT_EQ(data["ranks"][1]["measured"].size(), 6);
  EXPECT_EQ(Data("/data/iteration", "job=job&iteration=1&replica=7")["ranks"], Json::array());
}

TEST_F(PageTest, TextOfOthersIsDataAndNeverMarkup) {
  const auto job = Register(MakeJob("job"));
  v1::RegisterWorkerRequest worker = MakeRegistration(101);
  worker.set_host(kHostile);
  ASSERT_TRUE(job->RegisterWorker(worker).ok());
  const HttpAnswer answer = Get("/data/job", "id=job");
  EXPECT_EQ(Json::parse(answer.body)["job"]["status"]["workers"][0]["host"], kHostile);
  EXPECT_THAT(answer.body, Not(HasSubstr("<img")));
  EXPECT_EQ(Get("/data/job", "id=%3Cimg%3E").content_type, "application/json; charset=utf-8");
}

TEST_F(PageTest, ErrorsNameWhatIsWrong) {
  const auto job = TrainedJob();
  const struct {
    std::string path, query;
    int status;
    std::string part;
  } cases[] = {{"/data/job", "", 400, "id: name a job"},
               {"/data/job", "id=none", 404, "none"},
               {"/data/iteration", "job=job", 400, "iteration: name one"},
               {"/data/iteration", "job=job&iteration=-1", 400, "iteration: '-1' is no number"},
               {"/data/iteration", "job=job&iteration=1&replica=x", 400, "replica: 'x' is no number"},
               {"/data/iteration", "job=job&iteration=99", 404, "not held"},
               {"/data/nothing", "", 404, "no such data"}};
  for (const auto& one : cases) {
    EXPECT_EQ(Get(one.path, one.query).status, one.status) << one.path << "?" << one.query;
    EXPECT_THAT(Data(one.path, one.query).value("error", ""), HasSubstr(one.part));
  }
}

TEST_F(PageTest, AStandbySaysWhoLeads) {
  slot_.Follow(EnginePtr(engine_.get(), [](PlannerEngine*) {}),
               absl::UnavailableError("planner-a:7070 leads"));
  EXPECT_EQ(Get("/data/jobs").status, 503);
  EXPECT_EQ(Data("/data/jobs")["error"], "planner-a:7070 leads");
}

TEST_F(PageTest, FilesOfThePageLoadNothingFromElsewhere) {
  for (const char* path : {"/", "/page.css", "/main.js", "/colours.js", "/icon.svg"}) {
    const HttpAnswer answer = Get(path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_THAT(Header(answer, "Content-Security-Policy"), HasSubstr("default-src 'none'")) << path;
    EXPECT_THAT(Header(answer, "Content-Security-Policy"), Not(HasSubstr("unsafe"))) << path;
    EXPECT_THAT(answer.body, Not(HasSubstr("https://"))) << path;
  }
  EXPECT_EQ(Get("/").content_type, "text/html; charset=utf-8");
}

TEST_F(PageTest, AFileThatIsKnownIsNotSentAgain) {
  const HttpAnswer first = Get("/page.css");
  const HttpAnswer again = Get("/page.css", "", Header(first, "ETag"));
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_EQ(Get("/page.css", "", "\"other\"").status, 200);
}

TEST_F(PageTest, OtherPathsAreNotFound) {
  for (const char* path :
       {"", "/index.html", "/../page.css", "/assets/page.css", "/page.css/", "/data", "/etc/passwd"})
    EXPECT_EQ(Get(path).status, 404) << path;
}

TEST_F(PageTest, OtherMachinesAreServedOnlyWhereSomebodyTakesTheRisk) {
  EXPECT_THAT(ServePage({.listen = "0.0.0.0:0"}, &slot_),
              Fails(StatusCode::kInvalidArgument, "--page-allow-anyone"));
  EXPECT_TRUE(ServePage({.listen = "127.0.0.1:0"}, &slot_).ok());
  EXPECT_TRUE(ServePage({.listen = "0.0.0.0:0", .allow_anyone = true}, &slot_).ok());
  EXPECT_THAT(ServePage({.listen = "127.0.0.1:99999"}, &slot_),
              Fails(StatusCode::kInvalidArgument, "--page-listen: cannot listen on"));
}

}  // namespace
}  // namespace penstock
