#include "planner/service/state/strategy_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/service/state/job_state.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

v1::Strategy StrategyOf(const v1::Mesh& mesh) {
  v1::Strategy strategy;
  *strategy.add_meshes()->mutable_mesh() = mesh;
  return strategy;
}

// Of two ranks, with two strategies.
v1::JobSpec Job() {
  v1::JobSpec job = MakeJob("job");
  *job.add_strategies() = StrategyOf(MakeMesh(2, 1, 1, 1));
  *job.add_strategies() = StrategyOf(MakeMesh(1, 2, 1, 1));
  return job;
}

store::v1::Event Prepared() {
  store::v1::Event event;
  event.mutable_job_prepared()->mutable_topology()->add_replicas()->add_stages()->add_ranks(0);
  event.mutable_job_prepared()->add_other_topologies()->add_replicas()->add_stages()->add_ranks(1);
  return event;
}

store::v1::Event Change(uint64_t from, const std::vector<uint32_t>& numbers,
                        const std::vector<v1::Strategy>& added = {}) {
  store::v1::Event event;
  store::v1::StrategiesChanged& changed = *event.mutable_strategies_changed();
  changed.set_from_iteration(from);
  changed.mutable_strategies()->Assign(numbers.begin(), numbers.end());
  for (const v1::Strategy& strategy : added) {
    *changed.add_added() = strategy;
    changed.add_added_topologies()->add_replicas()->add_stages()->add_ranks(
        static_cast<uint32_t>(changed.added_size() + 1));
  }
  return event;
}

JobState StateWith(const std::vector<store::v1::Event>& events) {
  JobState state(Job());
  state.Apply(Prepared());
  for (const store::v1::Event& event : events) state.Apply(event);
  return state;
}

TEST(StrategyChangesTest, AJobHasTheStrategiesThatItWasRegisteredWithUntilTheyChange) {
  const StrategyChanges changes(2);
  EXPECT_THAT(changes.NumbersOf(0), ElementsAre(0, 1));
  EXPECT_THAT(changes.now(), ElementsAre(0, 1));
  EXPECT_THAT(StrategyChanges(0).now(), IsEmpty());
}

TEST(StrategyChangesTest, AnIterationHasThoseThatHoldForItWhateverFollows) {
  const JobState state = StateWith({Change(5, {2}, {StrategyOf(MakeMesh(1, 1, 2, 1))}), Change(9, {0, 1})});
  EXPECT_THAT(state.strategies().NumbersOf(4), ElementsAre(0, 1));
  EXPECT_THAT(state.strategies().NumbersOf(5), ElementsAre(2));
  EXPECT_THAT(state.strategies().NumbersOf(8), ElementsAre(2));
  EXPECT_THAT(state.strategies().NumbersOf(9), ElementsAre(0, 1));
  EXPECT_THAT(state.strategies().HeldFrom(0), UnorderedElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(state.strategies().HeldFrom(9), UnorderedElementsAre(ElementsAre(0, 1)));
  EXPECT_EQ(state.spec().strategies_size(), 3);
  EXPECT_THAT(state.topologies(), SizeIs(3));
  EXPECT_EQ(state.RegisteredSpec().SerializeAsString(), Job().SerializeAsString());
}

TEST(StrategyChangesTest, OfTwoChangesForTheSameIterationTheSecondHoldsAndBothAdd) {
  const JobState state = StateWith({Change(5, {2}, {StrategyOf(MakeMesh(1, 1, 2, 1))}),
                                    Change(5, {3}, {StrategyOf(MakeMesh(1, 1, 1, 2))})});
  EXPECT_THAT(state.strategies().NumbersOf(5), ElementsAre(3));
  EXPECT_THAT(state.strategies().changes(), SizeIs(1));
  EXPECT_EQ(state.strategies().changes().front().added_size(), 2);
}

TEST(StrategyChangesTest, WhatIsForgottenIsNoIterationsAndAddedAllTheSame) {
  StrategyChanges changes(2);
  changes.Apply(Change(5, {2}, {StrategyOf(MakeMesh(1, 1, 2, 1))}).strategies_changed());
  changes.Apply(Change(9, {0}).strategies_changed());
  changes.Apply(Change(20, {1}).strategies_changed());
  changes.ForgetBefore(12);
  EXPECT_THAT(changes.changes(), SizeIs(2));
  EXPECT_EQ(changes.changes().front().added_size(), 1);
  EXPECT_EQ(changes.changes().front().added_topologies_size(), 1);
  EXPECT_THAT(changes.NumbersOf(12), ElementsAre(0));
  EXPECT_THAT(changes.NumbersOf(20), ElementsAre(1));
}

TEST(StrategyChangesTest, ASnapshotAndWhatComesBehindItGiveTheSameState) {
  store::v1::Event second = Change(9, {0, 2});
  v1::SampleLengths* typical = second.mutable_strategies_changed()->add_typical_samples();
  typical->set_target_tokens(70);
  second.mutable_strategies_changed()->set_typical_batch_size(8);
  const JobState state = StateWith({Change(5, {2}, {StrategyOf(MakeMesh(1, 1, 2, 1))}), second});
  std::vector<std::string> events;
  for (const store::v1::Event& event : state.SaveChanges()) events.push_back(event.SerializeAsString());
  const absl::StatusOr<JobState> restored = ReplayJob(state.Save().SerializeAsString(), events);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->Save().SerializeAsString(), state.Save().SerializeAsString());
  EXPECT_EQ(restored->spec().SerializeAsString(), state.spec().SerializeAsString());
  EXPECT_EQ(restored->spec().planning().typical_batch_size(), 8);
  EXPECT_EQ(restored->RegisteredSpec().SerializeAsString(), Job().SerializeAsString());
  ASSERT_EQ(restored->topologies().size(), state.topologies().size());
  for (size_t i = 0; i < state.topologies().size(); ++i)
    EXPECT_EQ(restored->topologies()[i].SerializeAsString(), state.topologies()[i].SerializeAsString());
  for (const uint64_t iteration : {0, 5, 8, 9, 100})
    EXPECT_EQ(restored->strategies().NumbersOf(iteration), state.strategies().NumbersOf(iteration));
}

TEST(StrategyChangesTest, StrategiesOfOneMeaningHaveOneNumber) {
  v1::Strategy same = StrategyOf(MakeMesh(1, 2, 1, 1));
  same.mutable_meshes(0)->mutable_mesh()->set_tensor(1);
  v1::Strategy staged = StrategyOf(MakeMesh(2, 1, 1, 1));
  staged.mutable_meshes(0)->add_layers_per_stage(3);
  google::protobuf::RepeatedPtrField<v1::Strategy> wanted;
  *wanted.Add() = staged;
  *wanted.Add() = same;
  *wanted.Add() = staged;
  const WantedStrategies numbered = NumberStrategies(Job().strategies(), wanted);
  EXPECT_THAT(numbered.numbers, ElementsAre(2, 1, 2));
  EXPECT_THAT(numbered.added, SizeIs(1));
}

TEST(StrategyChangesTest, ChangesThatNoEngineWritesAreRefused) {
  const auto replay = [](const store::v1::Event& event, bool prepared = true) {
    store::v1::Event registered;
    *registered.mutable_job_registered()->mutable_spec() = Job();
    std::vector<std::string> events = {registered.SerializeAsString()};
    if (prepared) events.push_back(Prepared().SerializeAsString());
    events.push_back(Change(5, {0}).SerializeAsString());
    events.push_back(event.SerializeAsString());
    return ReplayJob(std::nullopt, events);
  };
  EXPECT_TRUE(replay(Change(6, {1})).ok());
  EXPECT_THAT(replay(Change(4, {1})), Fails(absl::StatusCode::kDataLoss, "from_iteration is 4"));
  EXPECT_THAT(replay(Change(6, {2})), Fails(absl::StatusCode::kDataLoss, "strategies is 2: the job has 2"));
  EXPECT_THAT(replay(Change(6, {})), Fails(absl::StatusCode::kDataLoss, "strategies is 0: at least one"));
  EXPECT_THAT(replay(Change(6, {2}, {StrategyOf(MakeMesh(3, 1, 1, 1))})),
              Fails(absl::StatusCode::kDataLoss, "added is 3: the job has 2 ranks"));
  store::v1::Event nowhere = Change(6, {2}, {StrategyOf(MakeMesh(1, 1, 2, 1))});
  nowhere.mutable_strategies_changed()->clear_added_topologies();
  EXPECT_THAT(replay(nowhere), Fails(absl::StatusCode::kDataLoss, "added_topologies is 0"));
  EXPECT_THAT(replay(Change(6, {1}), /*prepared=*/false),
              Fails(absl::StatusCode::kDataLoss, "is not prepared"));
}

}  // namespace
}  // namespace penstock
