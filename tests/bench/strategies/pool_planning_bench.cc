// What planning with a pool of strategies takes beside planning with the one that is taken, and how far the
// pool's plan is from the best of all.
//
//   pool_planning_bench --profile PROFILE.json --lengths LENGTHS.csv --rows 30000:30072 --max-length 32768
//                       --strategies 'pp 2 x cp 8 x tp 4; cp 16 x tp 4' [--batches 16] [--rounds 3] [--all]
//
// Batches follow each other in the file, and stages are chosen for all of them. Of each batch one JSON object
// on a line: the strategy that is taken; milliseconds of the processor, on one thread and with the checker,
// of the pool and of that strategy alone (medians of rounds that take turns), and their ratio. --all: also
// what each strategy's bound, glance, closer look and plan are and take, and the strategy that is fastest of
// all.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/units.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/bench/median.h"

namespace penstock::bench {
namespace {

using nlohmann::ordered_json;

struct Flags {
  cli::PlanRequestFlags request;
  uint32_t batches = 16;
  int rounds = 3;
  bool all = false;
};

// Of the processor: others may use the machine.
double ProcessorMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

template <typename Work>
double MillisecondsOf(const Work& work) {
  const double begin = ProcessorMilliseconds();
  work();
  return ProcessorMilliseconds() - begin;
}

// The plan's own milliseconds; null where there is none.
ordered_json Seen(const absl::StatusOr<int64_t>& ns) {
  return ns.ok() ? ordered_json(cli::Milliseconds(*ns)) : ordered_json();
}

absl::StatusOr<int64_t> MakespanOf(const absl::StatusOr<v1::Plan>& plan) {
  if (!plan.ok()) return plan.status();
  return static_cast<int64_t>(plan->predicted().makespan_ns());
}

ordered_json LooksAt(const core::MeshPlanners& planner, const v1::Batch& batch) {
  ordered_json looks;
  const auto look = [&](const char* name, const auto& work) {
    absl::StatusOr<int64_t> seen = absl::UnknownError("");
    const double took = MillisecondsOf([&] { seen = work(); });
    looks[name] = {{"ms", Seen(seen)}, {"took_ms", took}};
  };
  look("bound", [&] { return planner.LowerBoundNs(batch); });
  const auto look_with = [&](const char* name, core::Sight sight) {
    look(name, [&] { return planner.LookNs(batch, sight, core::RunSerially, core::StopToken()); });
  };
  look_with("glance", core::Sight::kGlance);
  look_with("closer", core::Sight::kCloser);
  look("plan", [&] { return MakespanOf(planner.MakePlan(batch, core::RunSerially, core::StopToken())); });
  return looks;
}

absl::StatusOr<ordered_json> RunBatch(const Flags& flags, const core::StrategyPlanner& planner,
                                      const std::vector<std::unique_ptr<core::StrategyPlanner>>& singles,
                                      const v1::Batch& batch) {
  absl::StatusOr<v1::Plan> plan, alone;
  absl::Status checked;
  std::vector<double> pool_ms, alone_ms;
  for (int round = 0; round < flags.rounds; ++round) {
    pool_ms.push_back(MillisecondsOf([&] {
      plan = planner.MakePlan(batch);
      if (plan.ok()) checked = core::ViolationsToStatus(core::CheckPlan(batch, *plan));
    }));
    PENSTOCK_RETURN_IF_ERROR(plan.status());
    PENSTOCK_RETURN_IF_ERROR(checked);
    alone_ms.push_back(MillisecondsOf([&] {
      alone = singles[plan->strategy()]->MakePlan(batch);
      if (alone.ok()) checked = core::ViolationsToStatus(core::CheckPlan(batch, *alone));
    }));
    PENSTOCK_RETURN_IF_ERROR(alone.status());
    PENSTOCK_RETURN_IF_ERROR(checked);
  }
  ordered_json row = {{"first_row", batch.samples(0).sample_id()},
                      {"strategy", plan->strategy()},
                      {"makespan_ms", cli::Milliseconds(plan->predicted().makespan_ns())},
                      {"pool_ms", Median(pool_ms)},
                      {"alone_ms", Median(alone_ms)},
                      {"ratio", Median(pool_ms) / Median(alone_ms)}};
  if (!flags.all) return row;
  double best = 0;
  for (int place = 0; place < planner.strategies(); ++place) {
    ordered_json looks = LooksAt(singles[place]->planner(0), batch);
    const ordered_json& ms = looks["plan"]["ms"];
    if (!ms.is_null() && (best == 0 || ms.get<double>() < best)) {
      best = ms.get<double>();
      row["fastest"] = planner.numbers()[place];
      row["fastest_ms"] = best;
    }
    row["looks"].push_back(std::move(looks));
  }
  return row;
}

absl::Status Run(const Flags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, flags.request.ReadJob());
  flags.request.SetPlanning(v1::POLICY_DYNAMIC, &job);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Batch> batches,
                            flags.request.ReadBatches(flags.batches, job.model().architecture()));
  cli::SetTypicalSamples(batches, &job);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::StrategyPlanner> planner,
                            core::StrategyPlanner::Create(job));
  const std::vector<v1::Topology> stages = planner->topologies();
  std::vector<std::unique_ptr<core::StrategyPlanner>> singles;
  for (const uint32_t number : planner->numbers()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        singles.emplace_back(),
        core::StrategyPlanner::Create(job, core::Planner::Explain::kChanges, core::RunSerially,
                                      core::StopToken(), stages, std::vector<uint32_t>{number}));
  }
  for (const v1::Batch& batch : batches) {
    PENSTOCK_ASSIGN_OR_RETURN(const ordered_json row, RunBatch(flags, *planner, singles, batch));
    std::cout << row.dump() << std::endl;
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What planning with a pool of strategies takes beside planning with the one that is taken");
  flags.request.AddTo(app);
  app.get_option("--strategies")->required();
  app.add_option("--batches", flags.batches, "Batches, one behind the other")
      ->check(CLI::Range(1U, 1U << 10));
  app.add_option("--rounds", flags.rounds, "How often each is planned")->check(CLI::Range(1, 1000));
  app.add_flag("--all", flags.all, "Look at all strategies, and plan on them");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::cerr << "pool_planning_bench: " << status << "\n";
  return 1;
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::Main(argc, argv); }
