// How long a plan takes, and how many instructions a second the simulator runs.
//
// The job and the lengths are those of bench_job.h, on 4 stages. Counters: `makespan_ms` of the plan, `gap`
// to the lower bound.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "planner/core/comm/build_programs.h"
#include "planner/core/planner.h"
#include "planner/core/schedule/pass_replay.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "planner/core/simulate/simulator.h"
#include "tests/bench/bench_job.h"
#include "tests/support/pass_lists.h"
#include "tests/support/small_replica.h"

namespace penstock::core {
namespace {

void PlanBatch(benchmark::State& state, v1::Policy policy) {
  const auto planner = Planner::Create(BenchJob(4, static_cast<uint32_t>(state.range(1)), policy));
  if (!planner.ok()) return state.SkipWithError(std::string(planner.status().message()).c_str());
  const v1::Batch batch = BenchLengths(state.range(0));
  v1::Plan plan;
  for (auto _ : state) plan = *(*planner)->MakePlan(batch);
  const auto makespan = static_cast<double>(plan.predicted().makespan_ns());
  state.counters["makespan_ms"] = makespan / 1e6;
  state.counters["gap"] = makespan / static_cast<double>(plan.lower_bound_ns()) - 1;
}

void Dynamic(benchmark::State& state) { PlanBatch(state, v1::POLICY_DYNAMIC); }
BENCHMARK(Dynamic)
    ->ArgNames({"samples", "replicas"})
    ->Args({256, 1})
    ->Args({1024, 1})
    ->Args({4096, 1})
    ->Args({1024, 4})
    ->Args({4096, 16})
    ->Unit(benchmark::kMillisecond);

void Packed(benchmark::State& state) { PlanBatch(state, v1::POLICY_PACKED); }
BENCHMARK(Packed)
    ->ArgNames({"samples", "replicas"})
    ->Args({256, 1})
    ->Args({1024, 1})
    ->Args({4096, 1})
    ->Unit(benchmark::kMillisecond);

// A pipeline of `micro_batches` on 8 stages.
ReplicaPipeline Pipeline(int micro_batches) {
  ReplicaPipeline pipeline;
  pipeline.costs.Resize(8, micro_batches);
  std::mt19937_64 random(2);
  for (size_t i = 0; i < pipeline.costs.forward_ns.size(); ++i) {
    pipeline.costs.forward_ns[i] = static_cast<int64_t>(1'000'000 + random() % 1'000'000);
    pipeline.costs.backward_ns[i] = 2 * pipeline.costs.forward_ns[i];
    pipeline.costs.weight_ns[i] = pipeline.costs.forward_ns[i];
    pipeline.costs.transfer_ns[i] = 50'000;
  }
  pipeline.memory.resize(pipeline.costs.forward_ns.size());
  pipeline.recompute.resize(pipeline.costs.forward_ns.size());
  pipeline.costs.positions = 8;
  pipeline.costs.position_of_stage = {0, 1, 2, 3, 4, 5, 6, 7};
  pipeline.passes = ListOneForwardOneBackward(pipeline.costs).passes;
  return pipeline;
}

CostModel EightStages() {
  core::PipelineShape shape;
  shape.stages.resize(8);
  shape.stages.front().first = true;
  shape.stages.front().embeds_target = true;
  shape.stages.back().last = true;
  shape.positions = 8;
  shape.position_of_stage = {0, 1, 2, 3, 4, 5, 6, 7};
  core::Job job;
  job.topology = core::Topology(shape, 1);
  core::Profile profile;
  profile.cluster.intra_node_bytes_per_second = 1e9;
  profile.cluster.gpus_per_node = 8;
  return CostModel(profile, job);
}

void SimulateProgram(benchmark::State& state) {
  const ReplicaPipeline pipeline = Pipeline(static_cast<int>(state.range(0)));
  const CostModel costs = EightStages();
  const ProgramSet programs = *BuildPrograms(costs, {&pipeline, 1});
  Simulator simulator;
  for (auto _ : state) {
    if (!simulator.Run(programs).ok()) return state.SkipWithError("blocked");
    benchmark::DoNotOptimize(simulator.makespan_ns());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(programs.instructions.size()));
}
BENCHMARK(SimulateProgram)->ArgName("micro_batches")->Arg(32)->Arg(512);

// The list schedule that searches use, with the copies of a run of its own; items are passes.
void ListPipeline(benchmark::State& state) {
  const ReplicaPipeline pipeline = Pipeline(static_cast<int>(state.range(0)));
  ScheduleRules rules;
  rules.split.assign(8, 1);
  for (auto _ : state) benchmark::DoNotOptimize(ListPasses(pipeline.costs, rules).makespan_ns);
  state.SetItemsProcessed(state.iterations() * 3 * static_cast<int64_t>(pipeline.costs.forward_ns.size()));
}
BENCHMARK(ListPipeline)->ArgName("micro_batches")->Arg(32)->Arg(512);

// The replay of such an order.
void ReplayPipeline(benchmark::State& state) {
  const PipelineCosts costs = Pipeline(static_cast<int>(state.range(0))).costs;
  SmallReplica replica(costs.position_of_stage, costs.positions, costs.micro_batches);
  replica.forward = costs.forward_ns;
  replica.backward = costs.backward_ns;
  replica.weight = costs.weight_ns;
  replica.transfer = costs.transfer_ns;
  replica.rules.split.assign(costs.stages, 1);
  replica.Schedule();
  PassReplay replay(costs.position_of_stage, costs.positions);
  const PassTable table = replica.Table();
  for (auto _ : state) benchmark::DoNotOptimize(replay.Run(table, replica.order, kInfeasibleNs));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(replica.order.size()));
}
BENCHMARK(ReplayPipeline)->ArgName("micro_batches")->Arg(32)->Arg(512);

// The exact timeline; items are passes and transfers.
void RunTimeline(benchmark::State& state) {
  const ReplicaPipeline pipeline = Pipeline(static_cast<int>(state.range(0)));
  PipelineTimeline timeline;
  for (auto _ : state) benchmark::DoNotOptimize(timeline.Run(pipeline.costs, pipeline.passes));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(timeline.events().size() / 2));
}
BENCHMARK(RunTimeline)->ArgName("micro_batches")->Arg(32)->Arg(512);

// Timeline and programs of many replicas; items are instructions.
void MakePrograms(benchmark::State& state) {
  const std::vector<ReplicaPipeline> replicas(state.range(0), Pipeline(8));
  const CostModel costs = EightStages();
  size_t instructions = 0;
  for (auto _ : state) instructions = BuildPrograms(costs, replicas)->instructions.size();
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(instructions));
}
BENCHMARK(MakePrograms)->ArgName("replicas")->Arg(1)->Arg(64)->Arg(256);

}  // namespace
}  // namespace penstock::core
