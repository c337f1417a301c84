// Orders and partitions over the number of samples: all of it should be close to linear.
//
// Lengths have a long tail. Times are those of a pipeline of 4 ranks, in closed form: a GPT of 6.7 billion
// and a T5 of 11 billion parameters on accelerators of 200 TFLOP/s. Counters: of the best partition
// its `objective` in ms and `micro_batches`; `partitions` that were found; time `per_sample`; `ratio` of the
// path's length to that of the Hilbert curve.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "planner/core/cost/bottleneck_time.h"
#include "planner/core/partition/contiguous_groups.h"
#include "planner/core/partition/sample_order.h"

namespace penstock::core {
namespace {

constexpr double kNsPerFlop = 1e9 / 200e12;
constexpr int kStages = 4;
constexpr int kMaxRows = 256;

LayerProfile Layer(double tokens, double squares, bool source) {
  LayerProfile layer;
  layer.present = true;
  layer.has_closed_form = true;
  layer.forward.fixed_ns = 0.15e6;
  layer.forward.half_efficiency_tokens = 512;
  (source ? layer.forward.source_token_ns : layer.forward.target_token_ns) = tokens * kNsPerFlop;
  (source ? layer.forward.source_square_ns : layer.forward.target_square_ns) = squares * kNsPerFlop;
  layer.backward_ratio = {2, 2.5, 3};
  return layer;
}

Job Pipeline(int encoders, int decoders) {
  core::PipelineShape shape;
  shape.stages.resize(kStages);
  shape.positions = kStages;
  for (int stage = 0; stage < kStages; ++stage) {
    shape.stages[stage].encoder_layers = encoders > 0 && stage < kStages / 2 ? encoders / (kStages / 2) : 0;
    shape.stages[stage].decoder_layers =
        encoders == 0 ? decoders / kStages : (stage < kStages / 2 ? 0 : decoders / (kStages / 2));
    shape.position_of_stage.push_back(stage);
  }
  shape.stages.front().first = true;
  shape.stages.back().last = true;
  Job job;
  job.topology = core::Topology(shape, 1);
  return job;
}

CostModel Gpt() {
  constexpr double kHidden = 4096;
  core::Profile profile;
  profile.layers[kDecoder] = Layer(24 * kHidden * kHidden, 2 * kHidden, false);
  profile.layers[kHead] = Layer(2 * kHidden * 50304, 0, false);
  return CostModel(profile, Pipeline(0, 32));
}

CostModel T5() {
  constexpr double kHidden = 1024;
  constexpr double kInner = 16384;
  constexpr double kFeedForward = 65536;
  core::Profile profile;
  const double tokens = 8 * kHidden * kInner + 4 * kHidden * kFeedForward;
  profile.layers[kEncoder] = Layer(tokens, 4 * kInner, true);
  profile.layers[kDecoder] = Layer(tokens + 4 * kHidden * kInner, 2 * kInner, false);
  profile.layers[kDecoder].forward.source_token_ns = 4 * kHidden * kInner * kNsPerFlop;
  profile.layers[kDecoder].forward.cross_ns = 4 * kInner * kNsPerFlop;
  profile.layers[kHead] = Layer(2 * kHidden * 32128, 0, false);
  return CostModel(profile, Pipeline(24, 24));
}

// Most samples are short; one in 20 is long.
std::vector<SampleTokens> Samples(int64_t count, bool t5) {
  std::mt19937_64 random(1);
  std::vector<SampleTokens> samples(count);
  for (SampleTokens& sample : samples) {
    const auto length = [&](uint64_t longest) {
      return static_cast<uint32_t>(1 + (random() % 20 == 0 ? random() % longest : random() % (longest / 16)));
    };
    sample.source = t5 ? length(2048) : 0;
    sample.target = t5 ? length(512) : length(8192);
    sample.loss = sample.target;
  }
  return samples;
}

void Partition(benchmark::State& state, bool t5, Layout layout) {
  const CostModel costs = t5 ? T5() : Gpt();
  const BottleneckTime time(costs, RecomputeMode::kAuto);
  const std::vector<SampleTokens> samples = Samples(state.range(0), t5);
  const std::vector<uint32_t> order = AlikeOrder(SampleCosts(time, samples));
  const PartitionSearch search = {.replicas = 4, .stages = kStages};
  const auto fits = [](const TokenSums& sums) { return sums.rows <= kMaxRows; };
  std::vector<Groups> found;
  for (auto _ : state) found = ContiguousGroups(order, samples, layout, search, time, fits);
  double sum = 0;
  double largest = 0;
  for (const std::vector<uint32_t>& group : found.front()) {
    const double one = time(SumsOf(group, samples, layout));
    sum += one;
    largest = std::max(largest, one);
  }
  const auto count = static_cast<double>(samples.size());
  state.counters["objective"] = search.Objective(sum, largest) / 1e6;
  state.counters["micro_batches"] = static_cast<double>(found.front().size());
  state.counters["partitions"] = static_cast<double>(found.size());
  state.counters["per_sample"] =
      benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void GptPadded(benchmark::State& state) { Partition(state, false, Layout::kPadded); }
void GptPacked(benchmark::State& state) { Partition(state, false, Layout::kPacked); }
void T5Padded(benchmark::State& state) { Partition(state, true, Layout::kPadded); }
void T5Packed(benchmark::State& state) { Partition(state, true, Layout::kPacked); }
BENCHMARK(GptPadded)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMillisecond);
BENCHMARK(GptPacked)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMillisecond);
BENCHMARK(T5Padded)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMillisecond);
BENCHMARK(T5Packed)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMillisecond);

// One run of the dynamic programme, over windows that are costed already.
void OneBound(benchmark::State& state) {
  const CostModel costs = T5();
  const BottleneckTime time(costs, RecomputeMode::kAuto);
  const std::vector<SampleTokens> samples = Samples(state.range(0), true);
  PaddedWindows padded(ShortPath(SampleCosts(time, samples)), samples);
  double alone = 0;
  for (const SampleTokens& sample : samples) {
    alone = std::max(alone,
                     time(PaddedSums(1, static_cast<int>(sample.source), static_cast<int>(sample.target))));
  }
  const WindowTable windows(static_cast<int>(samples.size()), 1.5 * alone,
                            [&](int first, int last) { return time(padded(first, last)); });
  std::vector<double> scratch;
  for (auto _ : state) benchmark::DoNotOptimize(PartitionWithinBound(windows, 1.4 * alone, &scratch));
  state.counters["windows_per_sample"] =
      static_cast<double>(windows.windows()) / static_cast<double>(samples.size());
  state.SetItemsProcessed(state.iterations() * windows.windows());
}
BENCHMARK(OneBound)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMicrosecond);

void Path(benchmark::State& state) {
  const CostModel costs = T5();
  const BottleneckTime time(costs, RecomputeMode::kAuto);
  const std::vector<PathPoint> points = SampleCosts(time, Samples(state.range(0), true));
  std::vector<uint32_t> order;
  for (auto _ : state) order = ShortPath(points);
  state.counters["ratio"] = PathLength(points, order) / PathLength(points, HilbertOrder(points));
}
BENCHMARK(Path)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMillisecond);

void PackFirstFit(benchmark::State& state) {
  const std::vector<SampleTokens> samples = Samples(state.range(0), false);
  std::vector<double> sizes;
  sizes.reserve(samples.size());
  for (const SampleTokens& sample : samples) sizes.push_back(sample.target);
  for (auto _ : state) benchmark::DoNotOptimize(FirstFitDecreasing(sizes, 8192));
}
BENCHMARK(PackFirstFit)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMillisecond);

// Two dimensions.
void RowsFirstFit(benchmark::State& state) {
  const std::vector<SampleTokens> samples = Samples(state.range(0), true);
  for (auto _ : state) benchmark::DoNotOptimize(FirstFitRows(samples, {2048, 512}));
}
BENCHMARK(RowsFirstFit)->RangeMultiplier(4)->Range(256, 16384)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock::core
