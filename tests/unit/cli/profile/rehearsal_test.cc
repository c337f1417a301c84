#include "planner/cli/profile/rehearsal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "tests/unit/cli/profile/some_profile.h"

namespace penstock::cli {
namespace {

using ::testing::HasSubstr;

// Planned and measured, from iteration 0 on.
std::vector<v1::IterationSummary> Iterations(const std::vector<std::pair<int64_t, int64_t>>& times) {
  std::vector<v1::IterationSummary> iterations;
  for (const auto& [planned, measured] : times) {
    v1::IterationSummary& iteration = iterations.emplace_back();
    iteration.set_iteration(iterations.size() - 1);
    iteration.set_predicted_ns(planned);
    iteration.set_measured_ns(measured);
  }
  return iterations;
}

TEST(Rehearsal, ItsFactorIsTheMedianOfWhatIterationsTookWithoutTheFirst) {
  const auto factor = TrainingFactorOf(Iterations({{100, 900}, {100, 110}, {200, 240}, {100, 500}}));
  ASSERT_TRUE(factor.ok()) << factor.status();
  EXPECT_DOUBLE_EQ(*factor, 1.2);
}

TEST(Rehearsal, AFactorThatSomethingElseMustHaveMadeIsNoFactor) {
  for (const int64_t measured : {40, 300}) {
    const auto factor = TrainingFactorOf(Iterations({{100, 100}, {100, measured}}));
    EXPECT_TRUE(absl::IsUnavailable(factor.status())) << measured;
    EXPECT_THAT(std::string(factor.status().message()), HasSubstr("times as long as planned"));
  }
  EXPECT_TRUE(absl::IsUnavailable(TrainingFactorOf(Iterations({{100, 100}})).status()));
}

TEST(Rehearsal, GoesOnUntilItHasTakenSoLong) {
  const auto iterations = Iterations({{100, 900}, {100, 100}, {100, 200}});
  EXPECT_EQ(IterationsLeft(iterations, absl::Nanoseconds(1200)), 0);
  EXPECT_EQ(IterationsLeft(iterations, absl::Nanoseconds(1201)), 1);
  EXPECT_EQ(IterationsLeft(iterations, absl::Nanoseconds(4400)), 8);
  EXPECT_EQ(IterationsLeft(iterations, absl::Hours(1)), 64);
  EXPECT_EQ(IterationsLeft({}, absl::Hours(1)), 0);
}

TEST(Rehearsal, RanksAreStagesWhereThereAreLayersForThemAndDivideExpertsWhereTheProfileDoes) {
  RehearsalOptions options;
  options.file = SomeProfile();
  const auto mesh = [&](uint32_t workers, uint32_t expert) {
    options.workers = workers;
    options.expert = expert;
    return MeshOfRehearsal(options).SerializeAsString();
  };
  options.file.mutable_model()->set_layers(2);
  EXPECT_EQ(mesh(1, 1), MakeMesh(1, 1, 1, 1).SerializeAsString());
  EXPECT_EQ(mesh(2, 1), MakeMesh(2, 1, 1, 1).SerializeAsString());
  EXPECT_EQ(mesh(3, 1), MakeMesh(1, 3, 1, 1).SerializeAsString());
  EXPECT_EQ(mesh(4, 2), MakeMesh(1, 2, 1, 2, 2).SerializeAsString());
  EXPECT_EQ(mesh(3, 2), MakeMesh(1, 3, 1, 1).SerializeAsString()) << "no ranks to divide experts";
}

}  // namespace
}  // namespace penstock::cli
