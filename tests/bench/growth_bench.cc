// How planning time and memory grow with the batch, the replicas and the stages.
//
//   build/release/bin/growth_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only
//
// Policy dynamic, normal effort, two threads. The job and the lengths are those of bench_job.h; its stages
// are equal, so that no time goes into choosing them. Time: of one plan, that of the service but for the
// check. CPU: of all threads. Counters: `samples_per_second`; `heap_mb`, the most that one plan has from the
// heap at a time (measured on a plan of its own, not on those that are timed); `instructions` of the plan,
// and `gap` to the lower bound.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "common/parallel/task_pool.h"
#include "planner/core/planner.h"
#include "tests/bench/bench_job.h"

namespace {

// Bytes from the heap, while they are counted.
std::atomic<bool> counts_bytes = false;
std::atomic<int64_t> live_bytes = 0;
std::atomic<int64_t> most_bytes = 0;

void CountBytes(int64_t bytes) {
  const int64_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = most_bytes.load(std::memory_order_relaxed);
  while (live > most && !most_bytes.compare_exchange_weak(most, live, std::memory_order_relaxed)) {
  }
}

}  // namespace

void* operator new(size_t size) {
  void* bytes = std::malloc(size);
  if (bytes == nullptr) std::abort();
  if (counts_bytes.load(std::memory_order_relaxed)) {
    CountBytes(static_cast<int64_t>(malloc_usable_size(bytes)));
  }
  return bytes;
}

void operator delete(void* bytes) noexcept {
  if (counts_bytes.load(std::memory_order_relaxed)) {
    CountBytes(-static_cast<int64_t>(malloc_usable_size(bytes)));
  }
  std::free(bytes);
}

void operator delete(void* bytes, size_t /*size*/) noexcept { operator delete(bytes); }

namespace penstock::core {
namespace {

constexpr int kThreads = 2;

// The most that `work` has from the heap at a time, in megabytes.
template <typename Work>
double HeapMegabytes(Work work) {
  live_bytes = 0;
  most_bytes = 0;
  counts_bytes = true;
  work();
  counts_bytes = false;
  return static_cast<double>(most_bytes) / 1e6;
}

void Plan(benchmark::State& state) {
  const auto samples = static_cast<int64_t>(state.range(0));
  v1::JobSpec job = BenchJob(static_cast<uint32_t>(state.range(2)), static_cast<uint32_t>(state.range(1)),
                             v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  const auto planner = Planner::Create(job);
  if (!planner.ok()) return state.SkipWithError(std::string(planner.status().message()).c_str());
  const v1::Batch batch = BenchLengths(samples);
  TaskPool pool(kThreads);
  const RunTasks run_tasks = pool.AsFunction();
  absl::StatusOr<v1::Plan> plan = v1::Plan();
  state.counters["heap_mb"] = HeapMegabytes([&] { plan = (*planner)->MakePlan(batch, run_tasks); });
  if (!plan.ok()) return state.SkipWithError(std::string(plan.status().message()).c_str());
  int64_t instructions = 0;
  for (const v1::Program& program : plan->programs()) instructions += program.instructions_size();
  state.counters["instructions"] = static_cast<double>(instructions);
  state.counters["gap"] =
      static_cast<double>(plan->predicted().makespan_ns()) / static_cast<double>(plan->lower_bound_ns()) - 1;
  for (auto _ : state) benchmark::DoNotOptimize((*planner)->MakePlan(batch, run_tasks).ok());
  state.counters["samples_per_second"] =
      benchmark::Counter(static_cast<double>(samples), benchmark::Counter::kIsIterationInvariantRate);
}

void Samples(benchmark::internal::Benchmark* benchmark) {
  for (int64_t samples = 256; samples <= 16384; samples *= 4) benchmark->Args({samples, 1, 4});
}
// 64 samples a replica.
void Replicas(benchmark::internal::Benchmark* benchmark) {
  for (int64_t replicas = 1; replicas <= 256; replicas *= 4) benchmark->Args({64 * replicas, replicas, 4});
}
void Stages(benchmark::internal::Benchmark* benchmark) {
  for (int64_t stages = 2; stages <= 16; stages *= 2) benchmark->Args({1024, 4, stages});
}
// Few samples a replica: must stay below a second.
void ManyReplicas(benchmark::internal::Benchmark* benchmark) { benchmark->Args({1500, 244, 4}); }

void Prepare(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"samples", "replicas", "stages"})
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime()
      ->MeasureProcessCPUTime();
}
BENCHMARK(Plan)->Name("Samples")->Apply(Samples)->Apply(Prepare);
BENCHMARK(Plan)->Name("Replicas")->Apply(Replicas)->Apply(Prepare);
BENCHMARK(Plan)->Name("Stages")->Apply(Stages)->Apply(Prepare);
BENCHMARK(Plan)->Name("ManyReplicas")->Apply(ManyReplicas)->Apply(Prepare);

}  // namespace
}  // namespace penstock::core
