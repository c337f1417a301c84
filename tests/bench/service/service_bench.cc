// What the planner's service bears: one JSON object for each scenario, on loopback, in bounded time.
//
//   build/release/bin/service_bench starvation
//   build/release/bin/service_bench load --minutes 10
//   build/release/bin/service_bench submissions --store sqlite
//   build/release/bin/service_bench recovery --iterations 10000
//   build/release/bin/service_bench scale --pp 16 --dp 1024 --samples 65536
//   build/release/bin/service_bench plans --planner HOST:PORT --requests plan_batch_request.bin --clients 4
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/bench/service/scenarios.h"

namespace penstock::bench {
namespace {

int Print(const absl::StatusOr<Json>& figures) {
  if (!figures.ok()) {
    std::fprintf(stderr, "service_bench: %s\n", figures.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", figures->dump(2).c_str());
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures the planner's service.", "service_bench");
  app.require_subcommand(1);

  StarvationOptions starvation;
  double seconds = absl::ToDoubleSeconds(starvation.time);
  CLI::App* starve = app.add_subcommand("starvation", "a job that trains, beside as much as others may ask");
  starve->add_option("--registrations", starvation.registrations)->capture_default_str();
  starve->add_option("--typical-samples", starvation.typical_samples)->capture_default_str();
  starve->add_option("--what-ifs", starvation.what_ifs)->capture_default_str();
  starve->add_option("--samples", starvation.samples, "of each what-if")->capture_default_str();
  starve->add_option("--seconds", seconds)->capture_default_str();

  LoadOptions load;
  double minutes = absl::ToDoubleMinutes(load.time);
  double iteration = absl::ToDoubleSeconds(load.iteration);
  CLI::App* loaded = app.add_subcommand("load", "workers of several jobs for a while");
  loaded->add_option("--store", load.store, "memory, sqlite or postgres")->capture_default_str();
  loaded->add_option("--jobs", load.jobs)->capture_default_str();
  loaded->add_option("--pp", load.pipeline)->capture_default_str();
  loaded->add_option("--dp", load.data)->capture_default_str();
  loaded->add_option("--look-ahead", load.look_ahead)->capture_default_str();
  loaded->add_option("--samples", load.samples, "of a batch")->capture_default_str();
  loaded->add_option("--iteration-seconds", iteration)->capture_default_str();
  loaded->add_option("--lazy-readers", load.lazy_readers)->capture_default_str();
  loaded->add_option("--minutes", minutes)->capture_default_str();

  SubmissionOptions submissions;
  CLI::App* submit = app.add_subcommand("submissions", "what SubmitBatches takes");
  submit->add_option("--store", submissions.store, "memory, sqlite or postgres")->capture_default_str();
  submit->add_option("--samples", submissions.samples, "of a batch")->capture_default_str();
  submit->add_option("--batches", submissions.batches, "of each client")->capture_default_str();
  submit->add_option("--clients", submissions.clients)->capture_default_str();

  RecoveryOptions recovery;
  CLI::App* recover = app.add_subcommand("recovery", "from a kill to having a long job again");
  recover->add_option("--store", recovery.store, "sqlite or postgres")->capture_default_str();
  recover->add_option("--iterations", recovery.iterations)->capture_default_str();

  ScaleOptions scale;
  CLI::App* large = app.add_subcommand("scale", "one batch of a job of very many ranks");
  large->add_option("--pp", scale.pipeline)->capture_default_str();
  large->add_option("--dp", scale.data)->capture_default_str();
  large->add_option("--samples", scale.samples)->capture_default_str();

  PlanOptions plans;
  CLI::App* plan = app.add_subcommand("plans", "PlanBatch of a planner that runs");
  plan->add_option("--planner", plans.planner, "host:port")->required();
  plan->add_option("--requests", plans.requests, "files, each a serialized PlanBatchRequest")->required();
  plan->add_option("--calls", plans.calls)->capture_default_str();
  plan->add_option("--clients", plans.clients)->check(CLI::PositiveNumber)->capture_default_str();

  CLI11_PARSE(app, argc, argv);
  starvation.time = absl::Seconds(seconds);
  load.time = absl::Minutes(minutes);
  load.iteration = absl::Seconds(iteration);
  if (*starve) return Print(RunStarvation(starvation));
  if (*loaded) return Print(RunLoad(load));
  if (*plan) return Print(RunPlans(plans));
  if (*large) return Print(RunScale(scale));
  if (*submit) return Print(RunSubmissions(submissions));
  return Print(RunRecovery(recovery));
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::Main(argc, argv); }
