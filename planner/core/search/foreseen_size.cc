#include "planner/core/search/foreseen_size.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/core/search/candidate.h"
#include "planner/core/search/policies.h"
#include "planner/core/search/tune_rules.h"

namespace penstock::core {
namespace {

// Micro-batches of even lengths that are scheduled, for each stage: until the pipeline is full, and until it
// goes evenly.
constexpr int kFew = 3;
constexpr int kMore = 6;
// Where lengths are uneven every size gets the same samples, so that chance is the same for all: blocks that
// are spread over the batch, which most sizes divide.
constexpr int kBlock = 96;
constexpr int kFewBlocks = 2;
constexpr int kMoreBlocks = 4;
// Of the least time that was foreseen: the policy may find any of these to be the best.
constexpr double kAsGoodEven = 1.002;
constexpr double kAsGoodUneven = 1.01;
// Larger micro-batches are not looked at beyond it.
constexpr double kHopelessSize = 1.5;
constexpr int kLargest = 64;

// Of so many samples of a block that begins at `first`.
void AddGroups(int first, int samples, int size, Groups* groups) {
  for (int begin = 0; begin + size <= samples; begin += size) {
    std::vector<uint32_t>& group = groups->emplace_back();
    for (int sample = begin; sample < begin + size; ++sample)
      group.push_back(static_cast<uint32_t>(first + sample));
  }
}

class SizeForeseer {
 public:
  SizeForeseer(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
               Lengths lengths)
      : space_(space),
        evaluator_(space),
        layout_(job.policy == Policy::kPadding ? Layout::kPadded : Layout::kPacked),
        tokens_(tokens),
        lengths_(lengths) {}

  // Of a replica that has so many micro-batches of a size.
  double TimeOf(int size, int micro_batches) {
    const auto [few, few_time] = Schedule(Some(size, micro_batches, /*more=*/false));
    const auto [more, more_time] = Schedule(Some(size, micro_batches, /*more=*/true));
    if (more <= few || more_time >= static_cast<double>(kInfeasibleNs)) return more_time;
    return more_time + (more_time - few_time) / (more - few) * std::max(0, micro_batches - more);
  }

 private:
  // Some of the replica's micro-batches.
  Groups Some(int size, int micro_batches, bool more) const {
    const int samples = static_cast<int>(tokens_.size());
    Groups groups;
    if (lengths_ == Lengths::kEven || samples < kMoreBlocks * kBlock) {
      const int count = std::min(micro_batches, (more ? kMore : kFew) * space_.costs().stages());
      AddGroups(0, std::min(samples, count * size), size, &groups);
    } else {
      for (int block = 0; block < (more ? kMoreBlocks : kFewBlocks); ++block)
        AddGroups(block * (samples / kMoreBlocks), kBlock, size, &groups);
    }
    return groups;
  }

  // Their number, and the time.
  std::pair<int, double> Schedule(Groups groups) {
    const int count = static_cast<int>(groups.size());
    if (count == 0) return {0, static_cast<double>(kInfeasibleNs)};
    Candidate candidate = MakeCandidate(space_, tokens_, std::move(groups), layout_);
    Evaluate(&evaluator_, &candidate);
    TuneRules(&evaluator_, &candidate);
    return {count, static_cast<double>(candidate.makespan)};
  }

  const ScheduleSpace& space_;
  ReplicaEvaluator evaluator_;
  const Layout layout_;
  absl::Span<const SampleTokens> tokens_;
  const Lengths lengths_;
};

// Caps are multiples of the longest sample; rows and padded samples come in a few numbers.
std::vector<int> SizesOf(const Job& job, int samples) {
  if (job.policy == Policy::kPadding || job.policy == Policy::kConcatenated)
    return MicroBatchSizes(job, samples);
  std::vector<int> sizes;
  for (int size = 1; size <= samples; size += std::max(1, size / 8)) sizes.push_back(size);
  return sizes;
}

}  // namespace

int ForeseeSize(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                Lengths lengths) {
  const int samples = static_cast<int>(tokens.size());
  const int replicas = job.topology.replicas();
  Job of_one = job;
  of_one.topology = job.topology.WithReplicas(1);
  const ScheduleSpace space_of_one(space.costs(), of_one, space.available_bytes());
  SizeForeseer foreseer(space_of_one, of_one, tokens, lengths);
  std::vector<std::pair<int, double>> times;
  double best = static_cast<double>(kInfeasibleNs);
  for (const int size : SizesOf(job, samples)) {
    if (size > kLargest) break;
    const int micro_batches = std::max(1, (samples + size * replicas - 1) / (size * replicas));
    times.emplace_back(size, foreseer.TimeOf(size, micro_batches));
    best = std::min(best, times.back().second);
    if (best < static_cast<double>(kInfeasibleNs) && times.back().second > kHopelessSize * best) break;
  }
  const double as_good = best * (lengths == Lengths::kEven ? kAsGoodEven : kAsGoodUneven);
  for (const auto& [size, time] : times)
    if (time <= as_good) return size;
  return 1;
}

}  // namespace penstock::core
