#include "planner/cli/up/auto_tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/cli/advise/present_way.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using testing::HasSubstr;

constexpr AutoTuneOptions kOptions = {.ways = 2, .iterations = 6};

MeasuredRun PaddedRunOf(uint32_t pipeline, uint32_t data) {
  MeasuredRun run = {.job = core::GptJob(pipeline, data, v1::POLICY_PADDING)};
  run.batches = {
      core::MakeBatch({{10, 20}, {500, 3}, {0, 40}, {7, 7}, {900, 100}, {30, 1}, {2, 60}, {64, 64}})};
  return run;
}

// Each took `ratio` times what was planned; the first two, of processes that were just started, ten times.
std::vector<v1::IterationSummary> Iterations(size_t count, double ratio) {
  std::vector<v1::IterationSummary> iterations(count);
  for (size_t i = 0; i < count; ++i) {
    iterations[i].set_iteration(i);
    iterations[i].set_predicted_ns(static_cast<int64_t>(1'000'000 * (i + 1)));
    iterations[i].set_measured_ns(
        static_cast<int64_t>((i < 2 ? 10 : ratio) * static_cast<double>(iterations[i].predicted_ns())));
  }
  return iterations;
}

class AutoTuneTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status searched = tune_.Search(PaddedRunOf(2, 2), 1, [](int, size_t, size_t) {});
    ASSERT_TRUE(searched.ok()) << searched;
    ASSERT_EQ(tune_.tried().size(), 3U);
  }

  AutoTune tune_{kOptions};
};

TEST_F(AutoTuneTest, TriesItsOwnWayAndThoseThatArePlannedToBeTheFastest) {
  EXPECT_EQ(tune_.current().way.policy, v1::POLICY_PADDING);
  EXPECT_LE(tune_.tried()[1].planned_ms, tune_.tried()[0].planned_ms);
  // Those that do the same under two names are tried last.
  EXPECT_TRUE(DescribeMesh(tune_.tried()[1].way) != DescribeMesh(tune_.tried()[2].way) ||
              tune_.tried()[2].planned_ms > 1.01 * tune_.tried()[1].planned_ms);
  tune_.Take(Iterations(6, 1));
  EXPECT_TRUE(tune_.NextTrial());
  EXPECT_TRUE(tune_.NextTrial());
  EXPECT_FALSE(tune_.NextTrial());
}

TEST_F(AutoTuneTest, GoesOnWithTheWayThatIsExpectedToBeTheFastestOnTheSameBatches) {
  tune_.Take(Iterations(6, 1));
  ASSERT_TRUE(tune_.NextTrial());
  // Planned to be the fastest, and not.
  tune_.Take(Iterations(6, 5));
  EXPECT_NEAR(tune_.current().measured_by_planned, 5, 1e-6) << "without the first two";
  EXPECT_EQ(tune_.current().iterations, 4U);
  ASSERT_TRUE(tune_.NextTrial());
  tune_.Take(Iterations(6, 0.9));
  EXPECT_FALSE(tune_.NextTrial());
  EXPECT_EQ(&tune_.winner(), &tune_.tried()[2]);
  const nlohmann::ordered_json json = tune_.ToJson();
  EXPECT_EQ(json["winner"], 2);
  EXPECT_EQ(json["ways"].size(), 3U);
  EXPECT_NEAR(json["ways"][2]["expected_ms"].get<double>(), 0.9 * tune_.tried()[2].planned_ms, 1e-6);
}

TEST_F(AutoTuneTest, StaysWhereNothingIsFaster) {
  tune_.Take(Iterations(6, 0.1));
  while (tune_.NextTrial()) tune_.Take(Iterations(6, 3));
  EXPECT_EQ(&tune_.winner(), &tune_.tried()[0]);
}

TEST_F(AutoTuneTest, AWayThatCannotBeRunDoesNotWin) {
  tune_.Take(Iterations(6, 1));
  while (tune_.NextTrial()) tune_.TakeFailure("rank 1 ran out of memory");
  EXPECT_EQ(&tune_.winner(), &tune_.tried()[0]);
  EXPECT_THAT(DescribeTrial(tune_.tried()[1]), HasSubstr("cannot be run: rank 1 ran out of memory"));
}

TEST_F(AutoTuneTest, OfItsOwnWayTheLastIterationsCount) {
  std::vector<v1::IterationSummary> iterations = Iterations(8, 100);
  const std::vector<v1::IterationSummary> last = Iterations(6, 2);
  iterations.insert(iterations.end(), last.begin(), last.end());
  tune_.Take(iterations);
  EXPECT_NEAR(tune_.current().measured_by_planned, 2, 1e-6);
}

TEST(AutoTuneLengthTest, OneIterationIsLeftForTheWinner) {
  // 6 + 8 until costs are fitted, and twice 6.
  EXPECT_TRUE(AutoTune::CheckLength(kOptions, /*fixed_costs=*/false, 10, 37).ok());
  const absl::Status refused = AutoTune::CheckLength(kOptions, /*fixed_costs=*/false, 10, 36);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--iterations 36: --auto-tune 2 takes 26"));
  EXPECT_TRUE(AutoTune::CheckLength(kOptions, /*fixed_costs=*/true, 0, 19).ok());
}

TEST(AutoTuneFlagsTest, AreThoseOfTheWinnerWithoutASearch) {
  const FlagValues flags = FlagsOnWay(
      {{"--auto-tune", {"3"}}, {"--auto-tune-iterations", {"6"}}, {"--lr", {"0.1"}}, {"--pp", {"4"}}},
      {.pipeline = 1, .data = 4, .policy = v1::POLICY_PACKED});
  EXPECT_FALSE(flags.contains("--auto-tune"));
  EXPECT_FALSE(flags.contains("--auto-tune-iterations"));
  EXPECT_EQ(flags.at("--pp"), std::vector<std::string>{"1"});
  EXPECT_EQ(flags.at("--policy"), std::vector<std::string>{"packed"});
  EXPECT_EQ(flags.at("--lr"), std::vector<std::string>{"0.1"});
}

TEST(AutoTuneFlagsTest, OptionsOnAnotherWayKeepTheRest) {
  UpOptions full;
  full.global_batch = 77;
  const UpOptions options = OnWay(full, {.pipeline = 2, .data = 3, .schedule = v1::SCHEDULE_READY_FIRST});
  EXPECT_EQ(WorkerCount(options), 6U);
  EXPECT_EQ(options.planning.schedule, v1::SCHEDULE_READY_FIRST);
  EXPECT_EQ(options.global_batch, 77U);
}

}  // namespace
}  // namespace penstock::cli
