#include "planner/cli/up/auto_tune.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/median/median.h"
#include "common/ratio/ratio.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/bucket_sizes.h"
#include "planner/cli/advise/present_way.h"
#include "planner/cli/advise/run_advice.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/text_table.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

// Of a trial: processes that were just started are slower.
constexpr size_t kWarmUp = 2;
// Iterations until the first ones are planned with costs that were fitted: four are compared, and as many
// have been planned meanwhile.
constexpr uint64_t kUntilCostsAreFelt = 8;
// Less is within what a few iterations can tell.
constexpr double kWorthSwitching = 0.99;

// Of ways that are planned, for each that is tried.
constexpr int kLookedAtPerWay = 3;
// Two ways on one mesh whose plans differ by less do the same under two names, and one trial tells of both.
constexpr double kSamePlans = 0.01;

bool AreAlike(const TriedWay& a, const TriedWay& b) {
  return DescribeMesh(a.way) == DescribeMesh(b.way) &&
         std::abs(a.planned_ms - b.planned_ms) < kSamePlans * a.planned_ms;
}

// The fastest `count` of the others; those that are like `present` or like one before them come last.
// `present`: planned as the others are.
std::vector<TriedWay> Distinct(const TriedWay& present, const std::vector<OtherWay>& others, size_t count) {
  std::vector<TriedWay> distinct, alike;
  for (const OtherWay& other : others) {
    const TriedWay way = {.way = other.way, .planned_ms = other.planned_ms};
    const bool is_alike = AreAlike(way, present) || std::ranges::any_of(distinct, [&](const TriedWay& there) {
                            return AreAlike(way, there);
                          });
    (is_alike ? alike : distinct).push_back(way);
  }
  distinct.insert(distinct.end(), alike.begin(), alike.end());
  distinct.resize(std::min(distinct.size(), count));
  return distinct;
}

// The present way with other buckets is another one; it comes before those that take as long.
std::vector<OtherWay> OtherWays(const RunAdvice& advice) {
  std::vector<OtherWay> others = advice.others;
  if (advice.resized.has_value()) others.insert(others.begin(), *advice.resized);
  std::ranges::stable_sort(others, {}, &OtherWay::planned_ms);
  return others;
}

std::string DescribeBuckets(const Candidate& way) {
  if (!way.gradient_bucket_bytes.has_value()) return "";
  return absl::StrCat(", gradient buckets ", BucketName(*way.gradient_bucket_bytes));
}

std::string BucketFlag(const Candidate& way) {
  if (!way.gradient_bucket_bytes.has_value()) return "";
  return absl::StrCat(" --gradient-bucket-mib ", GradientBucketMib(*way.gradient_bucket_bytes));
}

nlohmann::ordered_json TrialJson(const TriedWay& tried) {
  nlohmann::ordered_json json = {
      {"way", absl::StrCat(
                  MeshFlags(tried.way), " --policy ", PolicyName(tried.way.policy), " --stage-split ",
                  StageSplitName(tried.way.stage_split), " --schedule ", ScheduleName(tried.way.schedule),
                  tried.way.shard_optimizer_state ? " --shard-optimizer-state" : "", BucketFlag(tried.way))},
      {"planned_ms", tried.planned_ms}};
  if (!tried.failure.empty()) json["failure"] = tried.failure;
  if (tried.iterations == 0) return json;
  json["iterations"] = tried.iterations;
  json["planned_then_ms"] = tried.planned_then_ms;
  json["measured_ms"] = tried.measured_ms;
  json["expected_ms"] = tried.expected_ms();
  return json;
}

}  // namespace

uint64_t AutoTune::FirstIterations(const AutoTuneOptions& options, bool fixed_costs) {
  return options.iterations + (fixed_costs ? 0 : kUntilCostsAreFelt);
}

absl::Status AutoTune::CheckLength(const AutoTuneOptions& options, bool fixed_costs, uint64_t first,
                                   uint64_t iterations) {
  const uint64_t needed = FirstIterations(options, fixed_costs) + options.ways * options.iterations;
  if (iterations > first + needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--iterations ", iterations, ": --auto-tune ", options.ways, " takes ", needed,
      " of them from iteration ", first,
      " on, and leaves none for the winner; ask for more, or less of --auto-tune (0: no search) or "
      "--auto-tune-iterations"));
}

absl::Status AutoTune::Search(const MeasuredRun& run, int threads,
                              const std::function<void(int round, size_t done, size_t all)>& progress) {
  const int ways = kLookedAtPerWay * static_cast<int>(options_.ways);
  PENSTOCK_ASSIGN_OR_RETURN(const RunAdvice advice, AdviseRun(run, {.ways = ways,
                                                                    .threads = threads,
                                                                    .levers = false,
                                                                    .own_typical_samples = true,
                                                                    .buckets = true,
                                                                    .progress = progress}));
  tried_.push_back({.way = advice.present, .planned_ms = advice.planned_ms});
  const TriedWay alike = {.way = advice.present, .planned_ms = advice.planned_alike_ms};
  for (TriedWay& way : Distinct(alike, OtherWays(advice), options_.ways)) tried_.push_back(std::move(way));
  return absl::OkStatus();
}

void AutoTune::Take(const std::vector<v1::IterationSummary>& iterations) {
  std::vector<double> planned, measured, ratios;
  // Of the first way, only as many as the others have.
  const size_t behind = iterations.size() - std::min<size_t>(iterations.size(), options_.iterations);
  for (size_t i = behind + kWarmUp; i < iterations.size(); ++i) {
    planned.push_back(Milliseconds(iterations[i].predicted_ns()));
    measured.push_back(Milliseconds(iterations[i].measured_ns()));
    ratios.push_back(Ratio(measured.back(), planned.back()));
  }
  TriedWay& tried = tried_[current_];
  tried.iterations = ratios.size();
  if (ratios.empty()) return TakeFailure("too few of its iterations were done");
  tried.planned_then_ms = UpperMedian(planned);
  tried.measured_ms = UpperMedian(measured);
  tried.measured_by_planned = UpperMedian(ratios);
}

void AutoTune::TakeFailure(const std::string& why) { tried_[current_].failure = why; }

bool AutoTune::NextTrial() {
  done_ = current_ + 1 >= tried_.size();
  if (!done_) ++current_;
  return !done_;
}

const TriedWay& AutoTune::winner() const {
  const TriedWay* best = &tried_.front();
  for (const TriedWay& tried : tried_) {
    const double worth = best == &tried_.front() ? kWorthSwitching : 1;
    if (tried.failure.empty() && tried.expected_ms() < worth * best->expected_ms()) best = &tried;
  }
  return *best;
}

nlohmann::ordered_json AutoTune::ToJson() const {
  nlohmann::ordered_json json = {{"ways", nlohmann::ordered_json::array()}};
  for (const TriedWay& tried : tried_) json["ways"].push_back(TrialJson(tried));
  if (done_) json["winner"] = &winner() - tried_.data();
  return json;
}

std::string DescribeTrial(const TriedWay& tried) {
  const std::string way = absl::StrCat(
      DescribeMesh(tried.way), ", policy ", PolicyName(tried.way.policy),
      tried.way.pipeline > 1 ? absl::StrCat(", schedule ", ScheduleName(tried.way.schedule), ", stage split ",
                                            StageSplitName(tried.way.stage_split))
                             : "",
      tried.way.shard_optimizer_state ? ", divided optimizer state" : "", DescribeBuckets(tried.way),
      ": planned ", Fixed(tried.planned_ms, 1), " ms");
  if (!tried.failure.empty()) return absl::StrCat(way, ", cannot be run: ", tried.failure);
  if (tried.iterations == 0) return way;
  return absl::StrCat(way, ", expected ", Fixed(tried.expected_ms(), 1), " ms (its ", tried.iterations,
                      " iterations took ", Fixed(tried.measured_ms, 1), " ms, planned ",
                      Fixed(tried.planned_then_ms, 1), ")");
}

UpOptions OnWay(const UpOptions& full, const Candidate& way) {
  UpOptions options = full;
  UseMesh(MeshOf(way), &options);
  options.policy = way.policy;
  options.planning.stage_split = way.stage_split;
  options.planning.schedule = way.schedule;
  options.planning.shard_optimizer_state = way.shard_optimizer_state;
  if (way.gradient_bucket_bytes.has_value())
    options.planning.gradient_bucket_mib = MibOfBucket(*way.gradient_bucket_bytes);
  options.planning.recompute = v1::RECOMPUTE_AUTO;
  options.planning.layout = v1::LAYOUT_CHOICE_AUTO;
  return options;
}

FlagValues FlagsWithoutSearch(FlagValues flags) {
  flags.erase("--auto-tune");
  flags.erase("--auto-tune-iterations");
  return flags;
}

FlagValues FlagsOnWay(FlagValues flags, const Candidate& way) {
  flags = FlagsWithoutSearch(std::move(flags));
  flags["--recompute"] = {"auto"};
  flags["--layout"] = {"auto"};
  flags["--pp"] = {absl::StrCat(way.pipeline)};
  flags["--dp"] = {absl::StrCat(way.data)};
  flags["--tp"] = {absl::StrCat(way.tensor)};
  flags["--cp"] = {absl::StrCat(way.context)};
  flags["--ep"] = {absl::StrCat(way.expert)};
  flags["--policy"] = {PolicyName(way.policy)};
  flags["--stage-split"] = {StageSplitName(way.stage_split)};
  flags["--schedule"] = {ScheduleName(way.schedule)};
  flags["--shard-optimizer-state"] = {way.shard_optimizer_state ? "true" : "false"};
  if (way.gradient_bucket_bytes.has_value())
    flags["--gradient-bucket-mib"] = {GradientBucketMib(*way.gradient_bucket_bytes)};
  return flags;
}

}  // namespace penstock::cli
