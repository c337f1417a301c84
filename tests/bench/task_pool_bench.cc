// What lending threads costs, and what it gains: a loop of tasks that do nothing, and one of tasks that
// compute for about as long as those of a plan. Compare rows of one run.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "common/parallel/task_pool.h"

namespace penstock {
namespace {

void EmptyTasks(benchmark::State& state) {
  TaskPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.Run(static_cast<int>(state.range(1)), [](int i) { benchmark::DoNotOptimize(i); });
  state.SetItemsProcessed(state.iterations() * state.range(1));
}
BENCHMARK(EmptyTasks)->ArgNames({"threads", "tasks"})->ArgsProduct({{1, 2, 4}, {4, 64}})->UseRealTime();

void Compute(int64_t steps) {
  uint64_t state = 1;
  for (int64_t i = 0; i < steps; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    benchmark::DoNotOptimize(state);
  }
}

// Steps of a task; some 3 ns each.
constexpr int64_t kSteps = 100'000;

void LongTasks(benchmark::State& state) {
  TaskPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.Run(static_cast<int>(state.range(1)), [](int) { Compute(kSteps); });
  state.SetItemsProcessed(state.iterations() * state.range(1));
}
BENCHMARK(LongTasks)->ArgNames({"threads", "tasks"})->ArgsProduct({{1, 2, 4}, {4, 64}})->UseRealTime();

}  // namespace
}  // namespace penstock
