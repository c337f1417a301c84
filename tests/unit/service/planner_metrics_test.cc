// What the gauges of the engine show.
#include "planner/service/main/planner_metrics.h"

#include <thread>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;

class PlannerMetricsTest : public EngineFixture {
 protected:
  // Also in tests that end early: the pool waits for its plans.
  ~PlannerMetricsTest() override { Open(); }

  void Watch() {
    slot_.Lead(EnginePtr(engine_.get(), [](PlannerEngine*) {}));
    metrics_.Watch(&slot_);
  }

  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    opened_.SignalAll();
  }
  void WaitUntilOpen() {
    MutexLock lock(&mutex_);
    while (!open_) opened_.Wait(&mutex_);
  }

  MetricsRegistry registry_;
  PlannerMetrics metrics_{&registry_};
  EngineSlot slot_;

 private:
  Mutex mutex_;
  CondVar opened_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(PlannerMetricsTest, WorkersThatResumeAheadOfThePlansHaveNothingPlannedAhead) {
  Start({}, [this](const v1::Batch&) { WaitUntilOpen(); });
  Watch();
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 10)).ok());
  // From the checkpoint of iteration 10, while the planner has yet to plan the first batch.
  FormEpoch(*job, 101, /*first_iteration=*/10);
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_look_ahead_iterations{training_job=\"job\"} 0\n"));
  Open();
  engine_->Shutdown(absl::Seconds(20));
}

TEST_F(PlannerMetricsTest, OwnersJobsAreCountedByWhetherAnybodyStartedThem) {
  Watch();
  for (const char* id : {"a", "b", "c"}) {
    v1::JobSpec spec = MakeJob(id);
    spec.set_owner("team");
    Register(spec);
  }
  ASSERT_TRUE((*engine_->FindJob("a"))->SubmitBatches(MakeSubmission("a", 0, 1)).ok());
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_owner_jobs{owner=\"team\",started=\"yes\"} 1\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_owner_jobs{owner=\"team\",started=\"no\"} 2\n"));
}

TEST_F(PlannerMetricsTest, WhatAnOwnerUsesAndWhatItsQuotasRefusedIsSeen) {
  Start({.owners = {.samples_a_minute = 8}}, [this](const v1::Batch&) { clock_.Compute(absl::Seconds(3)); });
  Watch();
  v1::JobSpec spec = MakeJob("job");
  spec.set_owner("team");
  const auto job = Register(spec);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 3)).ok());
  EXPECT_FALSE(job->SubmitBatches(MakeSubmission("job", 3, 4)).ok());
  {
    Reader reader(job, StreamRequest(0));
    EXPECT_TRUE(reader.Next().has_value()) << "planned";
    EXPECT_THAT(registry_.Text(), HasSubstr("penstock_owner_streams{owner=\"team\"} 1\n"));
  }
  engine_->Shutdown(absl::Seconds(20));
  const std::string text = registry_.Text();
  EXPECT_THAT(text, testing::ContainsRegex(
                        "penstock_owner_planning_seconds_total[{]kind=\"batch\",owner=\"team\"[}] [1-9]"));
  EXPECT_THAT(text, HasSubstr("# TYPE penstock_owner_planning_seconds_total counter\n"));
  for (const char* line :
       {"penstock_owner_planning_seconds_total{kind=\"what_if\",owner=\"team\"} 0\n",
        "penstock_owner_samples_total{owner=\"team\"} 12\n", "penstock_owner_streams{owner=\"team\"} 0\n",
        "penstock_owner_refusals_total{owner=\"team\",quota=\"samples\"} 1\n",
        "penstock_owner_refusals_total{owner=\"team\",quota=\"jobs\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(PlannerMetricsTest, AStoreThatFailsIsSeenInMetricsAndInTheStatusOfJobs) {
  Watch();
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(Flush().ok());
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_store_writable 1\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_store_waiting_bytes 0\n"));
  EXPECT_EQ(job->Status().store_failure(), "");
  store_->Stop();
  EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok()) << "it is not known yet";
  EXPECT_FALSE(Flush().ok());
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_store_writable 0\n"));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_store_waiting_bytes 0\n")));
  EXPECT_THAT(job->Status().store_failure(), HasSubstr("the store was stopped"));
}

TEST_F(PlannerMetricsTest, LayersOfTheLastIterationTellHowEvenlyTheirExpertsWereUsed) {
  Watch();
  v1::JobSpec spec = MakeJob("job", 2);
  spec.mutable_model()->set_layers(4);
  spec.mutable_model()->set_experts(4);
  spec.mutable_model()->add_dense_layers(2);
  const auto job = Register(spec);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  const auto report = [&](uint32_t rank, uint64_t iteration, const std::vector<uint64_t>& fullest) {
    Reader reader(job, StreamRequest(rank, iteration));
    ASSERT_TRUE(reader.Next().has_value());
    v1::ReportIterationRequest made = MakeReport(rank, iteration);
    for (const uint64_t rows : fullest) {
      made.add_expert_rows(80);
      made.add_fullest_expert_rows(rows);
    }
    const absl::Status reported = job->ReportIteration(made);
    ASSERT_TRUE(reported.ok()) << reported;
  };
  report(0, 0, {30});
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_expert_layer_load_ratio{")));
  report(1, 0, {20, 70});
  const std::string text = registry_.Text();
  for (const char* line :
       {"penstock_expert_layer_load_ratio{layer=\"1\",of=\"expert\",training_job=\"job\"} 1.5\n",
        "penstock_expert_layer_load_ratio{layer=\"3\",of=\"expert\",training_job=\"job\"} 1\n",
        "penstock_expert_layer_load_ratio{layer=\"4\",of=\"expert\",training_job=\"job\"} 3.5\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("penstock_expert_layer_load_ratio{layer=\"2\"")));
  EXPECT_THAT(text, Not(HasSubstr("of=\"rank\""))) << "no ranks divide experts";
  const store::v1::JobSnapshot saved = job->Snapshot();
  ASSERT_EQ(saved.summaries_size(), 1);
  EXPECT_EQ(saved.summaries(0).expert_layers_size(), 3);
}

TEST_F(PlannerMetricsTest, AJobsEpochGrowsWhenItsWorkersBeginAgain) {
  Watch();
  const auto job = Register(MakeJob("job"));
  FormEpoch(*job, 101);
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_job_epoch{training_job=\"job\"} 1\n"));
  clock_.Advance(absl::Seconds(10));
  job->Tick();
  FormEpoch(*job, 201);
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_job_epoch{training_job=\"job\"} 2\n"));
}

TEST_F(PlannerMetricsTest, AgesEndWithTheJob) {
  Watch();
  const auto job = Register(MakeJob("job"));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_worker_heartbeat_age_seconds{")));
  FormEpoch(*job, 101);
  EXPECT_THAT(registry_.Text(),
              HasSubstr("penstock_worker_heartbeat_age_seconds{rank=\"1\",training_job=\"job\"}"));
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_job_state{state=\"RUNNING\",training_job=\"job\"} 1\n"));
  clock_.Advance(absl::Seconds(10));
  job->Tick();
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_job_state{state=\"FAILED\",training_job=\"job\"} 1\n"));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_worker_heartbeat_age_seconds{")));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_look_ahead_iterations{")));
}

TEST_F(PlannerMetricsTest, AJobsCountersAreGoneWithTheJob) {
  Watch();
  const auto job = Register(MakeJob("job"));
  v1::IterationSummary summary;
  summary.set_real_tokens(90);
  summary.set_computed_tokens(100);
  summary.set_measured_ns(1'500'000'000);
  summary.set_predicted_ns(1'000'000'000);
  for (int i = 0; i < 2; ++i) metrics_.OnIterationCompleted("job", summary);
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE penstock_job_tokens_total counter\n"));
  for (const char* line :
       {"penstock_job_iterations_total{training_job=\"job\"} 2\n",
        "penstock_job_tokens_total{kind=\"real\",training_job=\"job\"} 180\n",
        "penstock_job_tokens_total{kind=\"computed\",training_job=\"job\"} 200\n",
        "penstock_job_iteration_seconds_total{kind=\"measured\",training_job=\"job\"} 3\n",
        "penstock_job_iteration_seconds_total{kind=\"predicted\",training_job=\"job\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  ASSERT_TRUE(engine_->DeleteJob("job", /*force=*/false).ok());
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("training_job=\"job\"")));
  // Another of that name begins anew.
  Register(MakeJob("job"));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_job_iterations_total{training_job")));
}

TEST_F(PlannerMetricsTest, CallsThatAreRefusedForWhoMakesThemAreCounted) {
  EXPECT_THAT(registry_.Text(),
              HasSubstr("penstock_rpcs_refused_total{code=\"UNAUTHENTICATED\",method=\"other\"} 0\n"));
  metrics_.OnRefused({.method = "GetJob", .code = grpc::StatusCode::UNAUTHENTICATED});
  // In a handler: somebody else's job.
  metrics_.OnCall({.method = "DeleteJob", .code = grpc::StatusCode::PERMISSION_DENIED, .duration = {}});
  metrics_.OnCall({.method = "DeleteJob", .code = grpc::StatusCode::NOT_FOUND, .duration = {}});
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("penstock_rpcs_refused_total{code=\"UNAUTHENTICATED\",method=\"GetJob\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("penstock_rpcs_refused_total{code=\"PERMISSION_DENIED\",method=\"DeleteJob\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("penstock_rpcs_refused_total{code=\"NOT_FOUND\"")));
  // It never reached a handler.
  EXPECT_THAT(text, Not(HasSubstr("penstock_rpcs_total{code=\"UNAUTHENTICATED\"")));
}

TEST_F(PlannerMetricsTest, LengthsThatDriftShowOfJobsThatSayWhichTheyExpect) {
  Open();
  Watch();
  v1::JobSpec spec = MakeJob("job");
  spec.mutable_planning()->add_typical_samples()->set_target_tokens(1 << 20);
  const auto job = Register(spec);
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_length_drift_ratio{")));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_length_drift_ratio{training_job=\"job\"} 1\n"));
  engine_->Shutdown(absl::Seconds(20));
}

TEST_F(PlannerMetricsTest, CostsShowTheirVersionAndOnceTheyAreFittedWhatTheFitWasWorth) {
  Open();
  planners_->set_calibrates(true);
  Watch();
  v1::JobSpec spec = MakeJob("job");
  spec.mutable_profile()->set_version(7);
  const auto job = Register(spec);
  EXPECT_THAT(registry_.Text(), HasSubstr("penstock_costs_version{training_job=\"job\"} 7\n"));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_costs_error_ratio{")));
  FormEpoch(*job, 101);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Reader(job, StreamRequest(0, i, 101, 1)).Next().has_value());
  Train(job, 0, 4, 101);
  // A thread of the pool fits.
  while (job->Snapshot().costs().empty()) std::this_thread::yield();
  const std::string text = registry_.Text();
  for (const char* line : {"penstock_costs_version{training_job=\"job\"} 8\n",
                           "penstock_costs_error_ratio{training_job=\"job\",when=\"before\"} 0.25\n",
                           "penstock_costs_error_ratio{training_job=\"job\",when=\"after\"} 0.125\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST_F(PlannerMetricsTest, SlowRanksAndLinksOfTheCostsShowOfJobsThatRun) {
  Open();
  Watch();
  v1::JobSpec spec = MakeJob("job");
  v1::SlowRank* const rank = spec.mutable_profile()->add_slow_ranks();
  rank->set_rank(1);
  rank->set_factor(1.5);
  v1::SlowLink* const link = spec.mutable_profile()->add_slow_links();
  link->set_from(1);
  link->set_to(0);
  link->set_factor(4);
  const auto job = Register(spec);
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("_slow_factor{")));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  FormEpoch(*job, 101);
  EXPECT_THAT(registry_.Text(),
              HasSubstr("penstock_link_slow_factor{from=\"1\",to=\"0\",training_job=\"job\"} 4\n"));
  EXPECT_THAT(registry_.Text(),
              HasSubstr("penstock_worker_slow_factor{rank=\"1\",training_job=\"job\"} 1.5\n"));
  engine_->Shutdown(absl::Seconds(20));
}

TEST_F(PlannerMetricsTest, WhatMendingACauseWouldSaveShowsOfJobsThatRun) {
  Open();
  Watch();
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  FormEpoch(*job, 101);
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_cause_gain_ratio{")));
  Train(job, 0, 4, 101);
  while (!job->Status().has_diagnosis()) std::this_thread::yield();
  EXPECT_THAT(
      registry_.Text(),
      HasSubstr("penstock_cause_gain_ratio{cause=\"slow_rank\",ranks=\"1\",training_job=\"job\"} 0.25\n"));
  engine_->Shutdown(absl::Seconds(20));
}

TEST_F(PlannerMetricsTest, StrategiesThatHoldShowOfJobsThatHaveSome) {
  Open();
  Watch();
  Register(MakeJob("plain"));
  v1::JobSpec spec = MakeJob("job");
  for (const v1::Mesh& mesh : {MakeMesh(2, 1, 1, 1), MakeMesh(1, 2, 1, 1)})
    *spec.add_strategies()->add_meshes()->mutable_mesh() = mesh;
  const auto job = Register(spec);
  const std::string second = "penstock_job_active_strategy{strategy=\"1\",training_job=\"job\"} 1\n";
  EXPECT_THAT(registry_.Text(), HasSubstr(second));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("training_job=\"plain\",strategy")));
  v1::ChangeStrategiesRequest request;
  *request.add_strategies() = spec.strategies(0);
  Event changed;
  job->ChangeStrategies(request, [&](const auto& answer) {
    EXPECT_TRUE(answer.ok()) << answer.status();
    changed.Notify();
  });
  ASSERT_TRUE(changed.Await());
  EXPECT_THAT(registry_.Text(), Not(HasSubstr(second)));
  engine_->Shutdown(absl::Seconds(20));
}

TEST_F(PlannerMetricsTest, StreamsHaveNoPartInTheTimesOfCalls) {
  metrics_.OnCall({.method = "GetJob", .code = grpc::StatusCode::OK, .duration = absl::Milliseconds(3)});
  metrics_.OnCall({.method = "StreamPrograms",
                   .code = grpc::StatusCode::CANCELLED,
                   .duration = absl::Hours(1),
                   .streams = true});
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("penstock_rpcs_total{code=\"OK\",method=\"GetJob\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("penstock_rpcs_total{code=\"CANCELLED\",method=\"StreamPrograms\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("penstock_rpc_seconds_bucket{method=\"GetJob\",le=\"0.0025\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("penstock_rpc_seconds_bucket{method=\"GetJob\",le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("penstock_rpc_seconds_bucket{method=\"StreamPrograms\"")));
}

}  // namespace
}  // namespace penstock
