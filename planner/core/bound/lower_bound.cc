#include "planner/core/bound/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "planner/core/bound/infinity.h"
#include "planner/core/cost/rounding.h"

namespace penstock::core {
namespace {

// Weights of memory against work that SteadyStateNs tries: 1, 1/2, 1/4, ...
constexpr int kWeights = 14;

// Passes and transfers are rounded to nanoseconds, the bytes of a layer to bytes: by this much at most for
// each stage.
constexpr double kRounding = 4;

void AddTo(LayerVector* sum, const LayerVector& value) {
  for (size_t i = 0; i < value.size(); ++i) (*sum)[i] += value[i];
}

void LowerTo(LayerVector* least, const LayerVector& value) {
  for (size_t i = 0; i < value.size(); ++i) (*least)[i] = std::min((*least)[i], value[i]);
}

TokenSums SumsOfOne(const SampleTokens& sample) {
  TokenSums sums;
  AddPacked(sample, &sums);
  return sums;
}

double TransferNs(const TransferBound& transfer, const TokenSums& sums) {
  return transfer.latency_ns + transfer.ns(sums);
}

double LargestPeak(const RankBound& rank, const TokenSums& sums) {
  double peak = 0;
  for (const PerToken& bytes : rank.peak) peak = std::max(peak, bytes(sums));
  return peak;
}

}  // namespace

LowerBound::LowerBound(const CostModel& costs, const Job& job)
    : replicas_(job.topology.replicas()),
      may_be_empty_(!job.memory_limits.alike()),
      slow_groups_(costs.slow_groups()),
      pipeline_(costs, job) {}

std::vector<double> LowerBound::CapacityOf(int replicas) const {
  if (!slow_groups_.any()) return std::vector<double>(pipeline_.ranks.size(), replicas);
  std::vector<double> capacity;
  for (size_t position = 0; position < pipeline_.ranks.size(); ++position) {
    std::vector<double> speeds;
    for (int replica = 0; replica < replicas_; ++replica)
      speeds.push_back(slow_groups_.SpeedOf(replica, static_cast<int>(position)));
    std::sort(speeds.begin(), speeds.end(), std::greater<>());
    capacity.push_back(std::accumulate(speeds.begin(), speeds.begin() + replicas, 0.0));
  }
  return capacity;
}

LowerBound::BatchSums LowerBound::Sum(absl::Span<const SampleTokens> samples) const {
  BatchSums batch;
  batch.samples = static_cast<double>(samples.size());
  SampleTokens least = samples[0];
  batch.least.fill(kInfinity);
  for (const SampleTokens& sample : samples) {
    least.source = std::min(least.source, sample.source);
    if (sample.target < least.target) {
      least.target = sample.target;
      least.less_square = sample.less_square;
    }
    least.loss = std::min(least.loss, sample.loss);
    AddPacked(sample, &batch.all);
    const TokenSums one = SumsOfOne(sample);
    LayerVector alone = pipeline_.Linear(one);
    AddTo(&alone, pipeline_.Overhead(one));
    LowerTo(&batch.least, alone);
  }
  batch.least_tokens = SumsOfOne(least);
  batch.linear = pipeline_.Linear(batch.all);
  batch.overhead = pipeline_.Overhead(batch.least_tokens);
  return batch;
}

double LowerBound::ChainNs(int first, int last, BoundPass pass, const BatchSums& batch) const {
  double time = 0;
  for (int stage = first; stage < last; ++stage) {
    const StageBound& bound = pipeline_.stages[stage];
    time += Dot(bound.pass(pass), batch.least) + TransferNs(bound.transfer, batch.least_tokens);
  }
  return time;
}

double LowerBound::RecomputeNs(const TokenSums& sums) const {
  double time = 0;
  for (const RankBound& rank : pipeline_.ranks) {
    const double above = rank.kept(sums) + LargestPeak(rank, sums) - rank.available_bytes;
    if (above > 0 && std::isfinite(rank.price_ns_per_byte)) time += rank.price_ns_per_byte * above;
  }
  return time;
}

double LowerBound::PathNs(const SampleTokens& sample) const {
  const TokenSums sums = SumsOfOne(sample);
  LayerVector alone = pipeline_.Linear(sums);
  AddTo(&alone, pipeline_.Overhead(sums));
  const BoundPass backward = pipeline_.split ? BoundPass::kInput : BoundPass::kWhole;
  double forward = 0;
  for (const StageBound& stage : pipeline_.stages) {
    forward += Dot(stage.pass(BoundPass::kForward), alone) + TransferNs(stage.transfer, sums);
  }
  // Ends on any stage, with the weight gradient that is left there and the reduction of its gradients.
  double back = 0;
  double longest = 0;
  for (size_t stage = pipeline_.stages.size(); stage-- > 0;) {
    const StageBound& bound = pipeline_.stages[stage];
    back += TransferNs(bound.transfer, sums) + Dot(bound.pass(backward), alone);
    const double weight = pipeline_.split ? Dot(bound.pass(BoundPass::kWeight), alone) : 0;
    const double recompute = stage == 0 ? RecomputeNs(sums) : 0;
    longest = std::max(longest, back + weight + recompute + bound.reduce_ns);
  }
  return forward + longest;
}

double LowerBound::TailNs(const RankBound& rank, bool inputs, const BatchSums& batch) const {
  if (pipeline_.split && !inputs) {
    double reduce = kInfinity;
    for (const int stage : rank.stages) reduce = std::min(reduce, pipeline_.stages[stage].reduce_ns);
    return reduce;
  }
  const int first = rank.stages.front();
  double tail = 0;
  for (int stage = 0; stage <= first; ++stage) {
    const StageBound& bound = pipeline_.stages[stage];
    double time = ChainNs(stage, first, inputs ? BoundPass::kInput : BoundPass::kWhole, batch);
    if (inputs) time += Dot(bound.pass(BoundPass::kWeight), batch.least);
    tail = std::max(tail, time + bound.reduce_ns);
  }
  return tail;
}

// Fewer replicas do the same work in less time than all only where the others are slower: else the overhead
// of those that are empty is less than what the others have more.
double LowerBound::FewestMicroBatches(const BatchSums& batch) const {
  return may_be_empty_ && slow_groups_.any() ? 1 : batch.replicas;
}

double LowerBound::MicroBatchesNs(const RankBound& rank, const LayerVector& work,
                                  const BatchSums& batch) const {
  const double overhead = Dot(work, batch.overhead);
  const double peak = LargestPeak(rank, batch.all);
  // Rounding may only make the sums smaller.
  const double rounding = batch.samples * kRounding * static_cast<double>(rank.stages.size());
  const double kept = std::max(0.0, rank.kept(batch.all) + peak - rounding);
  const double least_kept = std::max(0.0, rank.least_kept(batch.all) + peak - rounding);
  const double available = rank.available_bytes;
  if (available <= 0) return FewestMicroBatches(batch) * overhead;
  const double fewest = std::max(FewestMicroBatches(batch), std::ceil(least_kept / available));
  const auto time = [&](double count) {
    const double above = kept - count * available;
    if (above <= 0 || !std::isfinite(rank.price_ns_per_byte)) return count * overhead;
    return count * overhead + rank.price_ns_per_byte * above;
  };
  // Convex in the count: least at the ends of its two pieces.
  double least = time(fewest);
  for (const double count : {std::floor(kept / available), std::ceil(kept / available)}) {
    if (count > fewest) least = std::min(least, time(count));
  }
  return least;
}

double LowerBound::SteadyStateNs(const RankBound& rank, const LayerVector& work, const BatchSums& batch,
                                 absl::Span<const SampleTokens> samples) const {
  const double linear = Dot(work, batch.linear);
  if (rank.available_bytes <= 0) return linear / batch.replicas;
  const double overhead = Dot(work, batch.overhead);
  std::vector<HeldStage> stages;
  double total = 0;
  for (const int stage : rank.stages) {
    stages.push_back(HeldOn(stage, batch, samples));
    total += stages.back().total_root * stages.back().total_root;
  }
  double longest = 0;
  double memory_weight = 1;
  for (int step = 0; step < kWeights; ++step, memory_weight /= 2) {
    const double weight = 1 - memory_weight;
    const double held_weight = memory_weight / rank.available_bytes;
    double time = weight * linear;
    for (const HeldStage& stage : stages) {
      // The direction in which the stages' roots add up.
      const double part = total > 0 ? stage.total_root / std::sqrt(total) : 0;
      const double byte_ns = held_weight * stage.once_ns;
      const double root_ns = 2 * std::sqrt(weight * overhead * held_weight) * part;
      const size_t count = samples.size();
      for (size_t i = 0; i < count; ++i) {
        double least = kInfinity;
        for (size_t at = i; at < stage.options * count; at += count) {
          least =
              std::min(least, byte_ns * stage.kept[at] + root_ns * stage.root[at] + weight * stage.extra[at]);
        }
        time += least;
      }
    }
    longest = std::max(longest, time);
  }
  return longest / batch.replicas;
}

LowerBound::HeldStage LowerBound::HeldOn(int index, const BatchSums& batch,
                                         absl::Span<const SampleTokens> samples) const {
  const StageBound& stage = pipeline_.stages[index];
  const HeldTime held = HeldTimeOf(index);
  HeldStage result;
  result.once_ns = Dot(held.passes, batch.overhead) + held.transfers.latency_ns;
  result.options = stage.options.size();
  for (const StageBound::Option& option : stage.options) {
    for (const SampleTokens& sample : samples) {
      const TokenSums sums = SumsOfOne(sample);
      const LayerVector linear = pipeline_.Linear(sums);
      const double kept = std::max(0.0, option.kept(sums) - kRounding);
      result.kept.push_back(kept);
      result.root.push_back(std::sqrt(kept * (Dot(held.passes, linear) + held.transfers.ns(sums))));
      result.extra.push_back(Dot(option.extra, linear));
    }
  }
  for (size_t i = 0; i < samples.size(); ++i) result.total_root += result.root[i];
  return result;
}

LowerBound::HeldTime LowerBound::HeldTimeOf(int stage) const {
  HeldTime held;
  held.passes = pipeline_.stages[stage].pass(BoundPass::kForward);
  AddTo(&held.passes, pipeline_.stages[stage].pass(BoundPass::kWhole));
  for (size_t above = stage; above < pipeline_.stages.size(); ++above) {
    const StageBound& bound = pipeline_.stages[above];
    held.transfers.latency_ns += 2 * bound.transfer.latency_ns;
    held.transfers.ns.source += 2 * bound.transfer.ns.source;
    held.transfers.ns.target += 2 * bound.transfer.ns.target;
    if (static_cast<int>(above) == stage) continue;
    AddTo(&held.passes, bound.pass(BoundPass::kForward));
    AddTo(&held.passes, bound.pass(pipeline_.split ? BoundPass::kInput : BoundPass::kWhole));
  }
  return held;
}

double LowerBound::FillTransfersNs(int stages, const BatchSums& batch) const {
  double time = 0;
  for (int stage = 0; stage < stages; ++stage) {
    time += TransferNs(pipeline_.stages[stage].transfer, batch.least_tokens);
  }
  return time;
}

double LowerBound::RankNs(size_t index, const BatchSums& batch, absl::Span<const SampleTokens> samples,
                          const RampBound& ramp) const {
  const RankBound& rank = pipeline_.ranks[index];
  LayerVector all = {};
  LayerVector until_inputs = {};
  for (const int stage : rank.stages) {
    const StageBound& bound = pipeline_.stages[stage];
    AddTo(&all, bound.pass(BoundPass::kForward));
    AddTo(&all, bound.pass(BoundPass::kWhole));
    AddTo(&until_inputs, bound.pass(BoundPass::kForward));
    AddTo(&until_inputs, bound.pass(BoundPass::kInput));
  }
  const auto share = [&](const LayerVector& work) {
    return (Dot(work, batch.linear) + MicroBatchesNs(rank, work, batch)) / batch.capacity[index];
  };
  LayerVector linear_share = batch.linear;
  for (double& value : linear_share) value /= batch.replicas;
  const int first = rank.stages.front();
  const double fill = ChainNs(0, first, BoundPass::kForward, batch);
  const double ramped = ramp.RankNs(index, linear_share, batch.samples) + FillTransfersNs(first, batch);
  double time = std::max(fill + std::max(share(all), SteadyStateNs(rank, all, batch, samples)), ramped) +
                TailNs(rank, /*inputs=*/false, batch);
  if (pipeline_.split) {
    time = std::max(time, fill + share(until_inputs) + TailNs(rank, /*inputs=*/true, batch));
  }
  return time - kRounding * static_cast<double>(rank.stages.size()) * batch.samples / batch.replicas;
}

double LowerBound::WorkNs(const SampleTokens& sample) const {
  const LayerVector linear = pipeline_.Linear(SumsOfOne(sample));
  double time = 0;
  for (const StageBound& stage : pipeline_.stages) {
    time +=
        Dot(stage.pass(BoundPass::kForward), linear) + Dot(stage.pass(BoundPass::kWhole), linear) - kRounding;
  }
  return std::max(0.0, time) / static_cast<double>(pipeline_.ranks.size());
}

int64_t LowerBound::operator()(absl::Span<const SampleTokens> samples, StopToken stop) const {
  if (samples.empty()) return 0;
  BatchSums batch = Sum(samples);
  batch.replicas = std::min(static_cast<double>(replicas_), batch.samples);
  batch.capacity = CapacityOf(static_cast<int>(batch.replicas));
  RampBound ramp(pipeline_, batch.overhead);
  double bound = 0;
  for (const SampleTokens& sample : samples) {
    if (stop.stopped()) return 0;
    bound = std::max(bound, PathNs(sample));
    ramp.Add(pipeline_.Linear(SumsOfOne(sample)));
  }
  for (size_t rank = 0; rank < pipeline_.ranks.size(); ++rank) {
    if (stop.stopped()) return 0;
    bound = std::max(bound, RankNs(rank, batch, samples, ramp));
  }
  bound -= kRounding * static_cast<double>(pipeline_.stages.size());
  return static_cast<int64_t>(std::min(std::max(0.0, bound) + pipeline_.optimizer_ns, kMostRounded));
}

}  // namespace penstock::core
