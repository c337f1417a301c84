// How long a plan takes, and how many instructions a second the simulator runs.
//
// A GPT of 6.7 billion parameters (closed form of an 80 GB accelerator at 200 TFLOP/s), 4 stages, and lengths
// with a long tail. Counters: `makespan_ms` of the plan, `gap` to the lower bound.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "planner/core/comm/build_programs.h"
#include "planner/core/planner.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "planner/core/simulate/simulator.h"
#include "tests/support/pass_lists.h"

namespace penstock::core {
namespace {

void SetTime(double fixed_ns, double token_ns, double square_ns, v1::LayerCost* layer) {
  v1::LayerTime* time = layer->mutable_forward();
  time->set_fixed_ns(fixed_ns);
  time->set_target_token_ns(token_ns);
  time->set_target_square_ns(square_ns);
  time->set_half_efficiency_tokens(512);
  layer->set_backward_ratio_none(2);
  layer->set_backward_ratio_full(3);
}

v1::CostProfile Profile() {
  constexpr double kHidden = 4096;
  v1::CostProfile profile;
  profile.set_bytes_per_element(2);
  profile.set_embedding_parameter_bytes(412e6);
  profile.set_state_bytes_per_parameter_byte(8);
  v1::LayerCost* layer = profile.add_layers();
  layer->set_name("layer");
  layer->set_parameter_bytes(402.653184e6);
  SetTime(0.15e6, 24 * kHidden * kHidden / 200e12 * 1e9, 2 * kHidden / 200e12 * 1e9, layer);
  layer->mutable_stored_none()->set_target_token_bytes(34 * kHidden);
  layer->mutable_stored_full()->set_target_token_bytes(2 * kHidden);
  layer->mutable_peak()->set_target_token_bytes(34 * kHidden);
  v1::LayerCost* head = profile.add_layers();
  head->set_name("head");
  head->set_parameter_bytes(412e6);
  SetTime(0.1e6, 2 * kHidden * 50304 / 200e12 * 1e9, 0, head);
  v1::Cluster* cluster = profile.mutable_cluster();
  cluster->set_memory_bytes(80'000'000'000);
  cluster->set_intra_node_bytes_per_second(600e9);
  cluster->set_inter_node_bytes_per_second(100e9);
  cluster->set_intra_node_latency_ns(10'000);
  cluster->set_inter_node_latency_ns(20'000);
  cluster->set_gpus_per_node(8);
  return profile;
}

v1::JobSpec Job(uint32_t replicas, v1::Policy policy) {
  v1::JobSpec job;
  job.set_job_id("bench");
  v1::ModelSpec* model = job.mutable_model();
  model->set_architecture(v1::ARCHITECTURE_GPT);
  model->set_layers(32);
  model->set_hidden(4096);
  model->set_heads(32);
  model->set_ffn(16384);
  model->set_vocab(50304);
  model->set_max_sequence_length(8192);
  model->set_dtype(v1::DATA_TYPE_BFLOAT16);
  job.mutable_mesh()->set_pipeline(4);
  job.mutable_mesh()->set_data(replicas);
  job.mutable_planning()->set_policy(policy);
  *job.mutable_profile() = Profile();
  return job;
}

// Most samples have 16 to 512 tokens, one in 25 has up to 8192.
v1::Batch Lengths(int64_t samples) {
  std::mt19937_64 random(1);
  v1::Batch batch;
  for (int64_t i = 0; i < samples; ++i) {
    const bool is_long = random() % 25 == 0;
    const uint64_t target = is_long ? 1024 + random() % 7169 : 16 << (random() % 6);
    batch.add_samples()->set_target_tokens(static_cast<uint32_t>(target));
  }
  return batch;
}

void PlanBatch(benchmark::State& state, v1::Policy policy) {
  const auto planner = Planner::Create(Job(static_cast<uint32_t>(state.range(1)), policy));
  if (!planner.ok()) return state.SkipWithError(std::string(planner.status().message()).c_str());
  const v1::Batch batch = Lengths(state.range(0));
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
  pipeline.costs.ranks = 8;
  pipeline.costs.rank_of_stage = {0, 1, 2, 3, 4, 5, 6, 7};
  pipeline.passes = ListOneForwardOneBackward(pipeline.costs).passes;
  return pipeline;
}

CostModel EightStages() {
  core::Job job;
  job.stages.resize(8);
  job.stages.front().first = true;
  job.stages.back().last = true;
  job.pipeline = 8;
  job.rank_of_stage = {0, 1, 2, 3, 4, 5, 6, 7};
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
