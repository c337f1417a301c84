// What Hydraulis' method (Li et al. 2024) makes of batches, by Penstock's costs: a policy of comparisons, in
// no program.
//
//   hydraulis_bench --profile PROFILE.json --lengths LENGTHS.csv --rows A:B --max-length 32768 --gpus 64
//                   --global-batch 72 [--batches 16] [--rank-step 1] [--propose-only]
//
// Batches are those of `penstock advise`, and mixes are proposed for them. Each batch goes to the mix that
// the method's own objective takes; what that takes is a plan's makespan: 1F1B, micro-batches in the order
// that the method gives, gradients and parameters as for a pool with shares, proven by the checker.
//
// Three answers for each batch: "published", mixes of its dynamic programme alone; "extended", also those of
// the same programme that does not divide samples over replicas, and each scheme alone, and our schedule
// where that is faster than 1F1B; and "hindsight", of all these the mix that is fastest by our costs. Prints
// one JSON object; times are milliseconds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/units.h"
#include "tests/bench/strategies/hydraulis/assignment.h"
#include "tests/bench/strategies/hydraulis/mix_planner.h"
#include "tests/bench/strategies/hydraulis/proposal.h"
#include "tests/bench/strategies/hydraulis/scheme_space.h"

namespace penstock::hydraulis {
namespace {

constexpr double kBatchesOfDataSet = 1000;

struct Flags {
  cli::SourceFlags source;
  std::string rows;
  int gpus = 64;
  uint32_t global_batch = 0;
  uint32_t batches = 16;
  int rank_step = 1;
  bool propose_only = false;
};

double Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// As `penstock advise` takes them: from the whole of the rows, evenly spaced.
absl::StatusOr<std::vector<v1::Batch>> ReadBatches(const Flags& flags, const v1::JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const cli::RowRange range, cli::ParseRows(flags.rows));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<SampleLength> rows,
                            cli::ReadLengths(flags.source.lengths, range));
  const uint64_t size = flags.global_batch, all = rows.size() / size;
  if (all < flags.batches) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batches: ", flags.batches, ", but --rows has ", all, " of --global-batch ", size));
  }
  std::vector<v1::Batch> batches;
  for (uint64_t i = 0; i < flags.batches; ++i) {
    const uint64_t batch = (2 * i + 1) * all / (2 * flags.batches);
    batches.push_back(flags.source.MakeBatch(absl::MakeConstSpan(rows).subspan(batch * size, size),
                                             range.first + batch * size, job.model().architecture()));
  }
  return batches;
}

std::vector<int64_t> LengthsOf(const v1::Batch& batch) {
  std::vector<int64_t> lengths;
  for (const v1::Sample& sample : batch.samples())
    lengths.push_back(int64_t{sample.input_tokens()} + sample.target_tokens());
  return lengths;
}

std::vector<LengthCount> CountsOf(const std::vector<v1::Batch>& batches) {
  std::map<int64_t, int> counts;
  for (const v1::Batch& batch : batches)
    for (const int64_t length : LengthsOf(batch)) ++counts[length];
  std::vector<LengthCount> result;
  for (const auto& [length, count] : counts)
    result.push_back({length, static_cast<double>(count) / static_cast<double>(batches.size())});
  return result;
}

// A way to train that is proposed; no planners where it does not fit in memory.
struct Way {
  Mix mix;
  // By the programme as it is published.
  bool published = false;
  std::string name;
  std::optional<MixPlanner> one_forward_one_backward;
  std::optional<MixPlanner> our_schedule;
};

using Assigned = std::vector<std::optional<AssignedBatch>>;

// What each way, or each published one, makes of a batch.
Assigned AssignTo(const std::vector<Scheme>& schemes, const std::vector<Way>& ways, bool published,
                  const std::vector<int64_t>& lengths) {
  Assigned assigned(ways.size());
  for (size_t way = 0; way < ways.size(); ++way)
    if (ways[way].one_forward_one_backward.has_value() && (ways[way].published || !published))
      assigned[way] = Assign(schemes, ways[way].mix, lengths);
  return assigned;
}

// The best by the method's own objective; nothing where none can hold the batch.
std::optional<size_t> BestOf(const Assigned& assigned) {
  std::optional<size_t> best;
  for (size_t way = 0; way < assigned.size(); ++way)
    if (assigned[way].has_value() && (!best.has_value() || assigned[way]->ns < assigned[*best]->ns))
      best = way;
  return best;
}

struct TimeOfWay {
  double one_forward_one_backward_ms = 0;
  // Of both schedules.
  double best_ms = 0;
};

absl::StatusOr<TimeOfWay> TimeOf(const Way& way, const v1::Batch& batch,
                                 absl::Span<const PackedReplica> replicas) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, way.one_forward_one_backward->Plan(batch, replicas));
  const double ms = cli::Milliseconds(plan.predicted().makespan_ns());
  const absl::StatusOr<v1::Plan> other = way.our_schedule->Plan(batch, replicas);
  if (absl::IsResourceExhausted(other.status())) return TimeOfWay{ms, ms};
  PENSTOCK_RETURN_IF_ERROR(other.status());
  return TimeOfWay{ms, std::min(ms, cli::Milliseconds(other->predicted().makespan_ns()))};
}

absl::StatusOr<nlohmann::ordered_json> RunBatch(const std::vector<Scheme>& schemes,
                                                const std::vector<Way>& ways, const v1::Batch& batch) {
  const std::vector<int64_t> lengths = LengthsOf(batch);
  nlohmann::ordered_json result = {{"first_row", batch.samples(0).sample_id()}};
  std::map<std::string, size_t> chosen;
  Assigned assigned;
  for (const bool published : {true, false}) {
    const auto start = std::chrono::steady_clock::now();
    assigned = AssignTo(schemes, ways, published, lengths);
    const std::optional<size_t> best = BestOf(assigned);
    if (!best.has_value()) return absl::ResourceExhaustedError("no mix can hold a batch");
    const char* const name = published ? "published" : "extended";
    chosen[name] = *best;
    result[name] = {{"mix", ways[*best].name},
                    {"planning_ms", Since(start)},
                    {"objective_ms", assigned[*best]->ns / cli::kNanosecondsPerMillisecond}};
  }
  std::optional<double> least;
  for (size_t way = 0; way < ways.size(); ++way) {
    if (!assigned[way].has_value()) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const TimeOfWay time, TimeOf(ways[way], batch, assigned[way]->replicas));
    if (chosen["published"] == way) result["published"]["makespan_ms"] = time.one_forward_one_backward_ms;
    if (chosen["extended"] == way) result["extended"]["makespan_ms"] = time.best_ms;
    if (least.has_value() && time.best_ms >= *least) continue;
    least = time.best_ms;
    result["hindsight"] = {{"mix", ways[way].name}, {"makespan_ms", time.best_ms}};
  }
  return result;
}

nlohmann::ordered_json SchemeJson(const FittedScheme& fitted) {
  const Scheme& scheme = fitted.scheme;
  return {{"tensor", scheme.tensor},         {"pipeline", scheme.pipeline},
          {"recomputes", scheme.recomputes}, {"most_tokens", scheme.most_tokens},
          {"a_ns", scheme.square_ns},        {"b_ns", scheme.token_ns},
          {"c_ns", scheme.once_ns},          {"worst_relative_error", fitted.worst_relative_error}};
}

std::vector<LengthCount> Times(double factor, std::vector<LengthCount> counts) {
  for (LengthCount& length : counts) length.count *= factor;
  return counts;
}

// Each mix once; the first `published` of them are.
std::vector<Way> WaysOf(const v1::JobSpec& job, const std::vector<Scheme>& schemes,
                        const std::vector<Mix>& mixes, size_t published) {
  v1::JobSpec our_schedule = job;
  our_schedule.mutable_planning()->set_schedule(v1::SCHEDULE_AUTO);
  std::vector<Way> ways;
  for (size_t i = 0; i < mixes.size(); ++i) {
    if (std::ranges::find(ways, mixes[i], &Way::mix) != ways.end()) continue;
    Way& way = ways.emplace_back();
    way.mix = mixes[i];
    way.published = i < published;
    way.name = cli::StrategyName(StrategyOf(schemes, mixes[i]));
    absl::StatusOr<MixPlanner> planner = MixPlanner::Create(job, schemes, mixes[i]);
    absl::StatusOr<MixPlanner> other = MixPlanner::Create(our_schedule, schemes, mixes[i]);
    if (!planner.ok() || !other.ok()) continue;
    way.one_forward_one_backward = *std::move(planner);
    way.our_schedule = *std::move(other);
  }
  return ways;
}

absl::Status Run(const Flags& flags) {
  if (flags.rank_step < 1 || flags.gpus % flags.rank_step != 0)
    return absl::InvalidArgumentError("--rank-step: must divide --gpus");
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, flags.source.ReadModel());
  v1::PlanningOptions& planning = *job.mutable_planning();
  planning = cli::PlanningFlags().ToOptions(v1::POLICY_DYNAMIC);
  planning.set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  planning.set_stage_split(v1::STAGE_SPLIT_EVEN);
  planning.set_layout(v1::LAYOUT_CHOICE_PACKED);
  planning.set_parameter_shares(true);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Batch> batches, ReadBatches(flags, job));
  const int64_t longest = flags.source.limits.max_length;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<FittedScheme> fitted, SchemesOf(job, flags.gpus, longest));
  std::vector<Scheme> schemes;
  nlohmann::ordered_json result;
  for (const FittedScheme& scheme : fitted) {
    schemes.push_back(scheme.scheme);
    result["schemes"].push_back(SchemeJson(scheme));
  }
  Grid grid = {.ranks = flags.gpus, .rank_step = flags.rank_step, .longest = longest};
  const std::vector<LengthCount> counts = CountsOf(batches);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Mix> mixes = Propose(schemes, counts, grid);
  result["proposal_ms"] = Since(start);
  // As for the lengths of a whole data set, beside which the way through a pipeline is nothing.
  for (Mix& mix : Propose(schemes, Times(kBatchesOfDataSet, counts), grid)) mixes.push_back(std::move(mix));
  const size_t published = mixes.size();
  grid.whole_samples = true;
  for (Mix& mix : Propose(schemes, counts, grid)) mixes.push_back(std::move(mix));
  for (Mix& mix : OneSchemeEach(schemes, flags.gpus)) mixes.push_back(std::move(mix));
  const std::vector<Way> ways = WaysOf(job, schemes, mixes, published);
  for (const Way& way : ways) result[way.published ? "published_mixes" : "more_mixes"].push_back(way.name);
  for (const v1::Batch& batch : batches) {
    if (flags.propose_only) break;
    PENSTOCK_ASSIGN_OR_RETURN(const nlohmann::ordered_json of_batch, RunBatch(schemes, ways, batch));
    result["batches"].push_back(of_batch);
  }
  std::cout << result.dump() << "\n";
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What Hydraulis' method makes of batches, by Penstock's costs");
  flags.source.AddTo(app);
  app.add_option("--rows", flags.rows, "Data rows A:B to take batches from")->required();
  app.add_option("--gpus", flags.gpus, "Accelerators")->check(CLI::Range(1, 1 << 16));
  app.add_option("--global-batch", flags.global_batch, "Samples of a batch")
      ->required()
      ->check(CLI::Range(1U, 1U << 20));
  app.add_option("--batches", flags.batches, "Batches, evenly spaced")->check(CLI::Range(1U, 1U << 10));
  app.add_option("--rank-step", flags.rank_step, "Ranks are counted in so many by the proposal");
  app.add_flag("--propose-only", flags.propose_only, "Plan no batch");
  app.get_option("--max-length")->required()->check(CLI::Range(256U, 1U << 30));
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::cerr << "hydraulis_bench: " << status << "\n";
  return 1;
}

}  // namespace
}  // namespace penstock::hydraulis

int main(int argc, char** argv) { return penstock::hydraulis::Main(argc, argv); }
