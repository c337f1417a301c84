#include "planner/core/search/foreseen_size.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "planner/core/search/candidate.h"
#include "planner/core/search/policies.h"
#include "planner/core/search/work_of_size.h"

namespace penstock::core {
namespace {

// Micro-batches of even lengths that are scheduled, for each stage: until the pipeline is full, and until it
// goes evenly.
constexpr int kFew = 3;
constexpr int kMore = 6;
// Of uneven ones those of blocks of so many samples, which most sizes divide: every size gets the same
// samples, so that chance is the same for all. One block is that of the longest sample, for which all may
// have to recompute; the others are spread over the batch.
constexpr int kBlock = 24;
constexpr int kFewBlocks = 4;
constexpr int kMoreBlocks = 12;
// Of the least time that was foreseen: the policy may find any of these to be the best. More of them where
// there are several replicas, the slowest of which is not the one that was foreseen.
constexpr double kAsGoodOfOne = 1.001;
constexpr double kAsGoodOfSeveral = 1.002;
// Larger micro-batches are not looked at beyond it.
constexpr double kHopelessSize = 1.5;
constexpr int kLargest = 64;
// As TuneRules: recompute that is tried, in quarters of what lets the largest be in flight together.
constexpr int kQuarters = 4;
constexpr double kNever = static_cast<double>(kInfeasibleNs);

// Of samples from `first` on, as far as there are `end` of them.
void AddGroups(int first, int end, int size, Groups* groups) {
  for (int begin = first; begin + size <= end; begin += size) {
    std::vector<uint32_t>& group = groups->emplace_back(size);
    std::iota(group.begin(), group.end(), static_cast<uint32_t>(begin));
  }
}

int LongestOf(absl::Span<const SampleTokens> tokens) {
  const auto longest = std::max_element(
      tokens.begin(), tokens.end(),
      [](const SampleTokens& a, const SampleTokens& b) { return a.source + a.target < b.source + b.target; });
  return static_cast<int>(longest - tokens.begin());
}

// Of a replica: as long as is likely, and if those of its micro-batches that were not scheduled never wait.
struct Foretold {
  double time = kNever;
  double least = kNever;
};

// Foretells how long one of several replicas takes that share a batch.
class SizeForeseer {
 public:
  SizeForeseer(const ScheduleSpace& space, int replicas, Layout layout, absl::Span<const SampleTokens> tokens,
               Lengths lengths)
      : space_(space),
        evaluator_(space),
        replicas_(replicas),
        layout_(layout),
        tokens_(tokens),
        lengths_(lengths),
        longest_(LongestOf(tokens)) {}

  Foretold TimeOf(WorkOfSize* work) {
    Candidate few = Some(work->size(), /*more=*/false);
    Candidate more = Some(work->size(), /*more=*/true);
    if (more.table.slots() == 0) return {work->LeastNs(replicas_), work->LeastNs(replicas_)};
    const std::vector<int32_t> most(more.table.levels(0).begin(), more.table.levels(0).end());
    Foretold best;
    for (int quarters = 0; quarters <= kQuarters; ++quarters) {
      const std::vector<int32_t> levels = Recompute(most, quarters);
      const double busy = work->BusiestAt(levels) / replicas_;
      // No schedule is shorter.
      if (busy < best.time) {
        const Foretold beyond = Beyond(levels, work->micro_batches() / replicas_, &few, &more);
        best.time = std::min(best.time, busy + beyond.time);
        best.least = std::min(best.least, busy + beyond.least);
      }
      if (levels == most) break;
    }
    return best;
  }

 private:
  // Some of the replica's micro-batches.
  Candidate Some(int size, bool more) const {
    const int samples = static_cast<int>(tokens_.size());
    Groups groups;
    if (lengths_ == Lengths::kEven) {
      AddGroups(0, std::min(samples, (more ? kMore : kFew) * space_.costs().stages() * size), size, &groups);
    } else {
      const int length = std::max(kBlock, size);
      for (const int block : Blocks(length, more ? kMoreBlocks : kFewBlocks))
        AddGroups(block * length, std::min(samples, (block + 1) * length), size, &groups);
    }
    return MakeCandidate(space_, tokens_, std::move(groups), layout_);
  }

  // That of the longest sample and so many others, ascending.
  std::vector<int> Blocks(int length, int others) const {
    const int samples = static_cast<int>(tokens_.size());
    std::vector<int> blocks = {longest_ / length};
    for (int block = 0; block < others; ++block)
      blocks.push_back((2 * block + 1) * (samples / (2 * others)) / length);
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    return blocks;
  }

  std::vector<int32_t> Recompute(const std::vector<int32_t>& most, int quarters) const {
    std::vector<int32_t> levels = space_.LowestLevels();
    for (size_t stage = 0; stage < levels.size(); ++stage)
      levels[stage] += (most[stage] - levels[stage]) * quarters / kQuarters;
    return levels;
  }

  // What a replica of so many micro-batches takes beyond the work of its busiest rank: until its pipeline has
  // filled and drained, and for each micro-batch where its ranks wait for each other.
  Foretold Beyond(const std::vector<int32_t>& levels, double micro_batches, Candidate* few, Candidate* more) {
    const double beyond_few = BeyondWork(levels, few);
    const double beyond_more = BeyondWork(levels, more);
    const int step = more->table.slots() - few->table.slots();
    if (step <= 0 || beyond_more >= kNever || beyond_few >= kNever) return {beyond_more, beyond_more};
    const double of_each = std::max(0.0, beyond_more - beyond_few) / step;
    return {beyond_more + of_each * std::max(0.0, micro_batches - more->table.slots()), beyond_more};
  }

  double BeyondWork(const std::vector<int32_t>& levels, Candidate* candidate) {
    SetAllLevels(levels, &candidate->table);
    Evaluate(&evaluator_, candidate);
    if (candidate->makespan >= kInfeasibleNs) return kNever;
    return static_cast<double>(candidate->makespan) - BusiestNs(candidate->table);
  }

  const ScheduleSpace& space_;
  ReplicaEvaluator evaluator_;
  const int replicas_;
  const Layout layout_;
  absl::Span<const SampleTokens> tokens_;
  const Lengths lengths_;
  const int longest_;
};

// Caps are multiples of the longest sample; rows and padded samples come in a few numbers.
std::vector<int> SizesOf(const Job& job, int samples) {
  if (job.policy == Policy::kPadding || job.policy == Policy::kConcatenated)
    return MicroBatchSizes(job, samples);
  std::vector<int> sizes;
  for (int size = 1; size <= samples; size += std::max(1, size / 8)) sizes.push_back(size);
  return sizes;
}

// A size, what no schedule of a replica is shorter than, and what one was foreseen to take.
struct Tried {
  WorkOfSize work;
  double bound;
  Foretold foretold;
};

std::vector<Tried> WorthATry(const ScheduleSpace& space, const Job& job,
                             absl::Span<const SampleTokens> tokens, Layout layout) {
  std::vector<Tried> tried;
  double best = kNever;
  for (const int size : SizesOf(job, static_cast<int>(tokens.size()))) {
    if (size > kLargest) break;
    WorkOfSize work(space, tokens, size, layout);
    const double bound = work.LeastNs(job.topology.replicas());
    best = std::min(best, bound);
    if (best < kNever && bound > kHopelessSize * best) break;
    tried.push_back({std::move(work), bound, {}});
  }
  return tried;
}

}  // namespace

int ForeseeSize(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                Lengths lengths) {
  Job of_one = job;
  of_one.topology = job.topology.WithReplicas(1);
  const ScheduleSpace space_of_one(space.costs(), of_one, space.available_bytes());
  const Layout layout = job.policy == Policy::kPadding ? Layout::kPadded : Layout::kPacked;
  SizeForeseer foreseer(space_of_one, job.topology.replicas(), layout, tokens, lengths);
  std::vector<Tried> all = WorthATry(space_of_one, job, tokens, layout);
  std::vector<Tried*> least_first;
  for (Tried& tried : all) least_first.push_back(&tried);
  std::stable_sort(least_first.begin(), least_first.end(),
                   [](const Tried* a, const Tried* b) { return a->bound < b->bound; });
  const double as_good = job.topology.replicas() > 1 ? kAsGoodOfSeveral : kAsGoodOfOne;
  double best = kNever;
  for (Tried* const tried : least_first) {
    if (tried->bound > as_good * best) break;
    tried->foretold = foreseer.TimeOf(&tried->work);
    best = std::min(best, tried->foretold.time);
  }
  if (best >= kNever) return 1;
  int smallest = kLargest;
  for (const Tried& tried : all) {
    if (tried.foretold.least <= as_good * best) smallest = std::min(smallest, tried.work.size());
  }
  return smallest;
}

}  // namespace penstock::core
