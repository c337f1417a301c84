// A job is the fold of its events: replaying any of them gives the state that the engine had, bit for bit.
#include "planner/service/state/job_state.h"

#include "absl/strings/escaping.h"
#include "common/hash/sha256.h"
#include "planner/service/state/job_status.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

// All that happens to jobs: failures, two epochs, a drain, a planning failure.
class JobStateTest : public EngineFixture {
 protected:
  std::shared_ptr<Job> EventfulJob() {
    v1::JobSpec spec = MakeJob("job");
    spec.mutable_training()->set_iterations(90);
    auto job = Register(spec);
    EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 10)).ok());
    FormEpoch(*job, 101);
    Train(job, 0, 6, 101);
    EXPECT_TRUE(Reader(job, StreamRequest(0, 6, 101, 1)).Next().has_value());
    EXPECT_TRUE(job->ReportIteration(MakeReport(0, 6, 101, 1)).ok());
    clock_.Advance(absl::Seconds(2));
    engine_->Tick();  // both are lost
    FormEpoch(*job, 201, /*first_iteration=*/4);
    for (uint64_t i = 10; i < 80; ++i) {
      if (i > 14) Train(job, i - 11, i - 10, 201);
      if (i == 14) Train(job, 4, 5, 201);
      EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", i, i + 1)).ok());
    }
    auto heartbeat = MakeHeartbeat(1, 202, 2);
    heartbeat.set_failure("out of memory");
    EXPECT_TRUE(job->Heartbeat(heartbeat).ok());
    FormEpoch(*job, 301, /*first_iteration=*/66);
    EXPECT_TRUE(job->Drain().ok());
    // All is planned, by two threads: the last may be done before the one before it.
    for (uint64_t i = 66; i < 80; ++i) EXPECT_TRUE(Reader(job, StreamRequest(0, i)).Next().has_value());
    return job;
  }

  std::vector<StoredJob> Stored() {
    EXPECT_TRUE(Flush().ok());
    return *store_->Load();
  }

  // Equal fingerprints are equal states.
  static std::string Fingerprint(const store::v1::JobSnapshot& snapshot) {
    return absl::BytesToHexString(Sha256(snapshot.SerializeAsString()));
  }
  static std::string Fingerprint(const JobState& state) { return Fingerprint(state.Save()); }
};

TEST_F(JobStateTest, ReplayingEveryPrefixGivesTheStateOfThatMoment) {
  const auto job = EventfulJob();
  const std::vector<StoredJob> stored = Stored();
  ASSERT_EQ(stored.size(), 1);
  const std::vector<std::string>& events = stored.front().events;
  ASSERT_GT(events.size(), 250);

  // One step after another, from a saved state, and from nothing.
  auto step = ReplayJob(std::nullopt, {events.front()});
  ASSERT_TRUE(step.ok()) << step.status();
  for (size_t count = 2; count <= events.size(); ++count) {
    store::v1::Event event;
    ASSERT_TRUE(event.ParseFromString(events[count - 1]));
    const JobState reloaded(step->Save());
    ASSERT_EQ(Fingerprint(reloaded), Fingerprint(*step)) << "saved after event " << count - 1;
    JobState next = reloaded;
    next.Apply(event);
    step->Apply(event);
    ASSERT_EQ(Fingerprint(next), Fingerprint(*step))
        << "after event " << count << ": " << event.ShortDebugString();
    const auto replayed =
        ReplayJob(std::nullopt, {events.begin(), events.begin() + static_cast<ptrdiff_t>(count)});
    ASSERT_TRUE(replayed.ok());
    ASSERT_EQ(Fingerprint(*replayed), Fingerprint(*step)) << "after event " << count;
  }

  EXPECT_EQ(Fingerprint(*step), Fingerprint(job->Snapshot()));
}

TEST_F(JobStateTest, AnEngineThatWasKilledAtAnyEventGoesOnFromThere) {
  EventfulJob();
  const StoredJob whole = Stored().front();
  for (size_t count = 1; count <= whole.events.size(); count += 7) {
    MemoryEventStore store;
    JobChange change{.job = whole.job, .job_id = "job", .first_sequence = 1};
    change.events.assign(whole.events.begin(), whole.events.begin() + static_cast<ptrdiff_t>(count));
    for (uint64_t i = 0; i < 80; ++i) change.batches.emplace_back(i, MakeBatch(i).SerializeAsString());
    ASSERT_TRUE(store.Commit({change}).ok());
    PlannerEngine engine({}, {planners_.get(), &checker_, &store, &clock_, &observer_});
    ASSERT_TRUE(engine.Recover().ok());
    const auto job = *engine.FindJob("job");
    const auto state = ReplayJob(std::nullopt, change.events);
    EXPECT_EQ(job->Status().next_iteration(), state->admission().next_iteration());
    EXPECT_EQ(job->Status().completed_iteration(), state->progress().completed());
    EXPECT_EQ(job->Status().failure(), state->failure());
    // It can be prepared, and every batch that it took is planned.
    ASSERT_TRUE(RegisterJob(engine, job->spec()).ok());
    if (const uint64_t next = state->admission().next_iteration(); next > 0) {
      EXPECT_TRUE(Reader(job, StreamRequest(0, next - 1)).Next().has_value());
    }
  }
}

TEST_F(JobStateTest, ALogThatIsNoneIsRefused) {
  EXPECT_THAT(ReplayJob(std::nullopt, {}), Fails(absl::StatusCode::kDataLoss, "no events"));
  EXPECT_THAT(ReplayJob(std::nullopt, {"\xff\xff"}), Fails(absl::StatusCode::kDataLoss, "event 1 of 1"));
  store::v1::Event drained;
  drained.mutable_job_drained();
  EXPECT_THAT(ReplayJob(std::nullopt, {drained.SerializeAsString()}),
              Fails(absl::StatusCode::kDataLoss, "not its registration"));
  EXPECT_THAT(ReplayJob("\xff\xff", {}), Fails(absl::StatusCode::kDataLoss, "snapshot"));
}

// A store keeps checksums; what passes them and makes no sense is an error all the same, never a crash.
TEST_F(JobStateTest, EventsThatNoEngineWritesAreRefused) {
  store::v1::Event registered;
  *registered.mutable_job_registered()->mutable_spec() = MakeJob("job");
  const auto replay = [&](const store::v1::Event& event) {
    return ReplayJob(std::nullopt, {registered.SerializeAsString(), event.SerializeAsString()});
  };
  store::v1::Event event;
  event.mutable_worker_registered()->set_rank(2);
  EXPECT_THAT(replay(event), Fails(absl::StatusCode::kDataLoss, "event 2 of 2: worker_registered.rank is 2"));
  event.mutable_worker_failed()->set_rank(7);
  EXPECT_THAT(replay(event), Fails(absl::StatusCode::kDataLoss, "worker_failed.rank is 7"));
  event.mutable_worker_left()->set_rank(UINT32_MAX);
  EXPECT_THAT(replay(event), Fails(absl::StatusCode::kDataLoss, "worker_left.rank"));
  event.mutable_iteration_reported()->set_rank(2);
  EXPECT_THAT(replay(event), Fails(absl::StatusCode::kDataLoss, "iteration_reported.rank is 2"));
  event.mutable_iteration_planned()->set_iteration(UINT64_MAX);
  EXPECT_THAT(replay(event), Fails(absl::StatusCode::kDataLoss, "iteration_planned.iteration"));
  registered.mutable_job_registered()->mutable_spec()->mutable_mesh()->set_pipeline(UINT32_MAX);
  EXPECT_THAT(replay(event), Fails(absl::StatusCode::kDataLoss, "event 1 of 2: job.mesh is 4294967295"));
}

TEST_F(JobStateTest, CostsThatAnEarlierVersionFittedHoldWithoutErrors) {
  store::v1::Event registered;
  *registered.mutable_job_registered()->mutable_spec() = MakeJob("job");
  store::v1::Event revised;
  revised.mutable_costs_revised()->mutable_profile()->set_version(1);
  revised.mutable_costs_revised()->set_from_iteration(16);
  revised.mutable_costs_revised()->set_measured_before(4);
  const auto replayed =
      ReplayJob(std::nullopt, {registered.SerializeAsString(), revised.SerializeAsString()});
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  for (const JobState& state : {*replayed, JobState(replayed->Save())}) {
    EXPECT_EQ(StatusOf(state).costs_version(), 1);
    EXPECT_FALSE(StatusOf(state).has_costs_errors());
  }
}

// A plan that was made with other costs would be made as another one after a restart.
TEST_F(JobStateTest, APlanOfCostsThatDoNotHoldForItsIterationIsRefused) {
  store::v1::Event registered;
  *registered.mutable_job_registered()->mutable_spec() = MakeJob("job");
  registered.mutable_job_registered()->mutable_spec()->mutable_profile()->set_version(3);
  store::v1::Event revised;
  revised.mutable_costs_revised()->mutable_profile()->set_version(4);
  revised.mutable_costs_revised()->set_from_iteration(16);
  const std::vector<std::string> costs = {registered.SerializeAsString(), revised.SerializeAsString()};
  const auto replay = [&](uint64_t iteration, std::optional<uint64_t> version) {
    store::v1::Event planned;
    planned.mutable_iteration_planned()->set_iteration(iteration);
    if (version.has_value()) planned.mutable_iteration_planned()->set_costs_version(*version);
    std::vector<std::string> events = costs;
    events.push_back(planned.SerializeAsString());
    return ReplayJob(std::nullopt, events);
  };
  EXPECT_TRUE(replay(15, 3).ok());
  EXPECT_TRUE(replay(16, 4).ok());
  // An earlier version of the planner did not say.
  EXPECT_TRUE(replay(15, std::nullopt).ok() && replay(16, std::nullopt).ok());
  EXPECT_THAT(replay(15, 4), Fails(absl::StatusCode::kDataLoss,
                                   "event 3 of 3: iteration_planned.costs_version is 4: the costs of "
                                   "iteration 15 are version 3"));
  EXPECT_THAT(replay(16, 3), Fails(absl::StatusCode::kDataLoss, "costs_version is 3"));

  store::v1::JobSnapshot snapshot = replay(16, 4)->Save();
  ASSERT_TRUE(ReplayJob(snapshot.SerializeAsString(), {}).ok());
  snapshot.mutable_plans(0)->clear_costs_version();
  EXPECT_TRUE(ReplayJob(snapshot.SerializeAsString(), {}).ok());
  snapshot.mutable_plans(0)->set_costs_version(5);
  EXPECT_THAT(ReplayJob(snapshot.SerializeAsString(), {}),
              Fails(absl::StatusCode::kDataLoss, "its snapshot: iteration_planned.costs_version is 5"));
}

TEST_F(JobStateTest, SnapshotsThatNoEngineWritesAreRefused) {
  const store::v1::JobSnapshot valid = JobState(MakeJob("job")).Save();
  ASSERT_TRUE(ReplayJob(valid.SerializeAsString(), {}).ok());
  store::v1::JobSnapshot snapshot = valid;
  snapshot.add_reported();
  EXPECT_THAT(ReplayJob(snapshot.SerializeAsString(), {}),
              Fails(absl::StatusCode::kDataLoss, "its snapshot: reported is 3"));
  snapshot = valid;
  snapshot.mutable_epoch()->add_members()->set_rank(2);
  EXPECT_THAT(ReplayJob(snapshot.SerializeAsString(), {}),
              Fails(absl::StatusCode::kDataLoss, "epoch.members.rank is 2"));
  snapshot = valid;
  snapshot.clear_spec();
  EXPECT_THAT(ReplayJob(snapshot.SerializeAsString(), {}), Fails(absl::StatusCode::kDataLoss, "job.mesh"));
}

}  // namespace
}  // namespace penstock
