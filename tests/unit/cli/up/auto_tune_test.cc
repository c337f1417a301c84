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

// Two replicas, whose sums of gradients over a slow link take longer than half of their passes.
MeasuredRun RunWithSums(bool simulated, uint64_t bucket_bytes) {
  MeasuredRun run = PaddedRunOf(1, 2);
  run.job.set_simulated(simulated);
  run.job.mutable_planning()->set_policy(v1::POLICY_DYNAMIC);
  run.job.mutable_planning()->set_gradient_bucket_bytes(bucket_bytes);
  run.job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(8e6);
  run.job.mutable_profile()->clear_optimizer_ns_per_parameter_byte();
  v1::Cluster& cluster = *run.job.mutable_profile()->mutable_cluster();
  cluster.set_exchange_overlap(1);
  cluster.set_intra_node_bytes_per_second(1e12);
  return run;
}

std::vector<TriedWay> Tried(const MeasuredRun& run, uint32_t ways) {
  AutoTune tune({.ways = ways, .iterations = 6});
  const absl::Status searched = tune.Search(run, 1, [](int, size_t, size_t) {});
  EXPECT_TRUE(searched.ok()) << searched;
  return tune.tried();
}

// Of the run's own way, with another size.
const TriedWay* Resized(const std::vector<TriedWay>& tried) {
  for (size_t i = 1; i < tried.size(); ++i) {
    Candidate way = tried[i].way;
    way.gradient_bucket_bytes.reset();
    if (IsSameWay(way, tried.front().way)) return &tried[i];
  }
  return nullptr;
}

TEST(AutoTuneBucketsTest, WaysThatSumGradientsHaveTheSizeThatIsPlannedToBeTheFastest) {
  const std::vector<TriedWay> tried = Tried(RunWithSums(/*simulated=*/false, 0), 9);
  for (size_t i = 1; i < tried.size(); ++i) {
    EXPECT_EQ(tried[i].way.gradient_bucket_bytes.has_value(), tried[i].way.data * tried[i].way.context > 1)
        << DescribeTrial(tried[i]);
  }
  EXPECT_FALSE(tried.front().way.gradient_bucket_bytes.has_value()) << "as it was given";
}

TEST(AutoTuneBucketsTest, ItsOwnWayIsTriedWithOtherBucketsWhetherItNamesASizeOrNot) {
  for (const uint64_t named : {uint64_t{0}, uint64_t{1} << 40}) {
    const std::vector<TriedWay> tried = Tried(RunWithSums(/*simulated=*/true, named), 3);
    const TriedWay* const resized = Resized(tried);
    ASSERT_NE(resized, nullptr) << named;
    EXPECT_LT(resized->planned_ms, 0.95 * tried.front().planned_ms);
    EXPECT_THAT(DescribeTrial(*resized), HasSubstr(", gradient buckets "));
  }
}

// Workers that compute sum in buckets of 4 MiB anyway.
TEST(AutoTuneBucketsTest, TheSizeThatARunHasAlreadyIsNotTriedAgain) {
  MeasuredRun run = RunWithSums(/*simulated=*/false, 0);
  const TriedWay* const other = Resized(Tried(run, 9));
  EXPECT_TRUE(other == nullptr || other->way.gradient_bucket_bytes != uint64_t{4} << 20);
  for (const TriedWay& named : Tried(RunWithSums(/*simulated=*/true, uint64_t{4} << 20), 9))
    EXPECT_FALSE(IsSameWay(named.way, {.data = 2, .gradient_bucket_bytes = uint64_t{4} << 20}));
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

TEST(AutoTuneFlagsTest, NameTheBucketsOfTheWinner) {
  const Candidate way = {.data = 2, .gradient_bucket_bytes = uint64_t{16} << 20};
  EXPECT_EQ(FlagsOnWay({}, way).at("--gradient-bucket-mib"), std::vector<std::string>{"16"});
  UpOptions full;
  full.planning.gradient_bucket_mib = 2;
  EXPECT_EQ(OnWay(full, way).planning.gradient_bucket_mib, 16);
  EXPECT_EQ(OnWay(full, {.data = 2}).planning.gradient_bucket_mib, 2) << "as the run has it";
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
