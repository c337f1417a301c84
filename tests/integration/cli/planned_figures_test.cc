// Figures of single ranks, links and noise as `penstock plan`, `profile` and `verify` take them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/files/files.h"
#include "tests/integration/cli/planning_commands.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(PlanningCommands, ProfilesAreShownAndCompared) {
  const std::string profile = penstock_.WriteProfile();
  const Ended shown = penstock_.Run({"profile", "show", profile});
  EXPECT_EQ(shown.code, 0) << shown.errors;
  EXPECT_THAT(shown.output, AllOf(HasSubstr("layer, forward, ms"), HasSubstr("head, backward, ms")));
  const Ended compared = penstock_.Run({"profile", "compare", profile, profile, "--json"});
  EXPECT_EQ(compared.code, 0) << compared.errors;
  const Json ratios = Parse(compared.output)["figures"]["layer, forward"];
  EXPECT_FALSE(ratios.empty());
  for (const Json& ratio : ratios) EXPECT_EQ(ratio, 1);
  ExpectWrongRequest(penstock_.Run({"profile", "show", penstock_.WriteLengths(3)}), "lengths.csv");
}

TEST_F(PlanningCommands, SpeedsOfCollectivesAreShownByTheirRanks) {
  Json profile = Parse(ReadFile(penstock_.WriteProfile()).value_or(""));
  profile["profile"]["cluster"]["collective_speeds"] = {
      {{"ranks", 4}, {"bytes_per_second", 5e8}, {"latency_ns", "7000"}}};
  const std::string file = penstock_.folder().Write("speeds.json", profile.dump());
  EXPECT_THAT(penstock_.Run({"profile", "show", file}).output,
              HasSubstr("collectives   4 ranks 0.50 GB/s after 7.0 us"));
}

// A profile that names slow ranks: they are shown, planned for, and proven.
TEST_F(PlanningCommands, AProfileMayNameSlowRanks) {
  Json profile = Parse(ReadFile(penstock_.WriteProfile()).value_or(""));
  profile["profile"]["slow_ranks"] = {{{"rank", 1}, {"factor", 1.5}}};
  const std::string file = penstock_.folder().Write("slow.json", profile.dump());
  EXPECT_THAT(penstock_.Run({"profile", "show", file}).output,
              HasSubstr("slow ranks    1 (1.5 times as long)"));
  const auto plan_with = [&](const std::string& with, const std::string& out) {
    return penstock_.Run({"plan", "--profile", with, "--lengths", penstock_.WriteLengths(100), "--rows",
                          "0:24", "--dp", "2", "--out", out});
  };
  const std::string plan = Path("slow-plan.json");
  const Ended planned = plan_with(file, plan);
  EXPECT_EQ(planned.code, 0) << planned.errors;
  EXPECT_EQ(penstock_.Run({"verify", plan, "--profile", file}).code, 0);
  profile["profile"]["slow_ranks"][0]["rank"] = 9;
  ExpectWrongRequest(plan_with(penstock_.folder().Write("nobody.json", profile.dump()), plan),
                     "slow_ranks: rank 9");
}

// A rank with less memory than the others: its program keeps to it, and so does what is proven.
TEST_F(PlanningCommands, SingleRanksMayHaveLessMemory) {
  const std::string file = Path("rank-memory.json");
  const auto plan_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--dp", "2", "--out", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Plan(arguments);
  };
  ASSERT_EQ(plan_with({}).code, 0);
  const Json roomy = Parse(ReadFile(file).value_or(""))["plan"];
  const auto bytes_of = [](const Json& value) { return std::stod(value.get<std::string>()); };
  const double parameters = bytes_of(roomy["programs"][1]["static_memory_bytes"]);
  const double peak = bytes_of(roomy["predicted"]["ranks"][1]["peak_memory_bytes"]);
  const int64_t limit = std::llround(parameters + 0.6 * (peak - parameters));
  const Ended planned =
      plan_with({"--rank-memory-mb", absl::StrFormat("1:%.6f", static_cast<double>(limit) / 1e6)});
  ASSERT_EQ(planned.code, 0) << planned.errors;
  const Json plan = Parse(ReadFile(file).value_or(""))["plan"];
  EXPECT_EQ(bytes_of(plan["programs"][1]["memory_limit_bytes"]), limit);
  EXPECT_EQ(plan["programs"][0]["memory_limit_bytes"], roomy["programs"][0]["memory_limit_bytes"]);
  EXPECT_LE(bytes_of(plan["predicted"]["ranks"][1]["peak_memory_bytes"]), limit);
  EXPECT_EQ(penstock_.Run({"verify", file, "--profile", penstock_.WriteProfile()}).code, 0);
  ExpectWrongRequest(plan_with({"--rank-memory-mb", "2:100"}), "--rank-memory-mb: rank 2;");
  ExpectWrongRequest(plan_with({"--rank-memory-mb", "1:0.001"}), "limit 1000 of rank 1");
}

// A profile that names slow links: they are shown, planned for, and proven.
TEST_F(PlanningCommands, AProfileMayNameSlowLinks) {
  Json profile = Parse(ReadFile(penstock_.WriteProfile()).value_or(""));
  profile["profile"]["slow_links"] = {{{"from", 0}, {"to", 1}, {"factor", 20}}};
  const std::string file = penstock_.folder().Write("slow-link.json", profile.dump());
  EXPECT_THAT(penstock_.Run({"profile", "show", file}).output,
              HasSubstr("slow links    0 to 1 (20 times as long)"));
  const std::string plan = Path("slow-link-plan.json");
  const Ended planned = penstock_.Run({"plan", "--profile", file, "--lengths", penstock_.WriteLengths(100),
                                       "--rows", "0:24", "--pp", "2", "--dp", "2", "--out", plan});
  EXPECT_EQ(planned.code, 0) << planned.errors;
  EXPECT_EQ(penstock_.Run({"verify", plan, "--profile", file}).code, 0);
}

// A profile that says of noise: it is shown, compared, planned for, explained and proven.
TEST_F(PlanningCommands, AProfileMaySayOfNoise) {
  const std::string exact = penstock_.WriteProfile();
  Json profile = Parse(ReadFile(exact).value_or(""));
  profile["profile"]["pass_noise"] = 0.2;
  const std::string file = penstock_.folder().Write("noisy.json", profile.dump());
  EXPECT_THAT(penstock_.Run({"profile", "show", file}).output,
              HasSubstr("noise         passes differ by 20 % from what is foretold"));
  EXPECT_THAT(penstock_.Run({"profile", "compare", exact, file}).output,
              HasSubstr("noise         20 % by 0 %"));
  const std::string plan = Path("noisy-plan.json");
  const Ended planned =
      penstock_.Run({"plan", "--profile", file, "--lengths", penstock_.WriteLengths(100), "--rows", "0:24",
                     "--pp", "2", "--dp", "2", "--out", plan, "--explain"});
  EXPECT_EQ(planned.code, 0) << planned.errors;
  EXPECT_THAT(planned.output, HasSubstr("the plan that is fastest without noise takes"));
  EXPECT_EQ(penstock_.Run({"verify", plan, "--profile", file}).code, 0);
}

}  // namespace
}  // namespace penstock
