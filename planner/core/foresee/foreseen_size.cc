#include "planner/core/foresee/foreseen_size.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "planner/core/foresee/work_of_size.h"
#include "planner/core/search/candidate.h"
#include "planner/core/search/policies.h"

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

  double TimeOf(WorkOfSize* work) {
    Candidate few = Some(work->size(), /*more=*/false);
    Candidate more = Some(work->size(), /*more=*/true);
    if (more.table.slots() == 0) return work->LeastNs(replicas_);
    const std::vector<int32_t> most(more.table.levels(0).begin(), more.table.levels(0).end());
    double best = kNever;
    for (int quarters = 0; quarters <= kQuarters; ++quarters) {
      const std::vector<int32_t> levels = Recompute(most, quarters);
      const double busy = work->BusiestAt(levels) / replicas_;
      // No schedule is shorter.
      if (busy < best)
        best = std::min(best, busy + Beyond(levels, work->micro_batches() / replicas_, &few, &more));
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
  double Beyond(const std::vector<int32_t>& levels, double micro_batches, Candidate* few, Candidate* more) {
    const double beyond_few = BeyondWork(levels, few);
    const double beyond_more = BeyondWork(levels, more);
    const int step = more->table.slots() - few->table.slots();
    if (step <= 0 || beyond_more >= kNever || beyond_few >= kNever) return beyond_more;
    const double of_each = std::max(0.0, beyond_more - beyond_few) / step;
    return beyond_more + of_each * std::max(0.0, micro_batches - more->table.slots());
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

// A size, and what no schedule of a replica is shorter than.
struct Size {
  WorkOfSize work;
  double bound;
};

// Those that may be the best, the least bound first.
std::vector<Size> WorthATry(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                            Layout layout) {
  std::vector<Size> sizes;
  double best = kNever;
  for (const int size : SizesOf(job, static_cast<int>(tokens.size()))) {
    if (size > kLargest) break;
    WorkOfSize work(space, tokens, size, layout);
    const double bound = work.LeastNs(job.topology.replicas());
    best = std::min(best, bound);
    if (best < kNever && bound > kHopelessSize * best) break;
    sizes.push_back({std::move(work), bound});
  }
  std::ranges::stable_sort(sizes, {}, &Size::bound);
  return sizes;
}

}  // namespace

int ForeseeSize(const ScheduleSpace& space, const Job& job, absl::Span<const SampleTokens> tokens,
                Lengths lengths) {
  Job of_one = job;
  of_one.topology = job.topology.WithReplicas(1);
  const ScheduleSpace space_of_one(space.costs(), of_one, space.room().LeastByPosition());
  const Layout layout = job.policy == Policy::kPadding ? Layout::kPadded : Layout::kPacked;
  SizeForeseer foreseer(space_of_one, job.topology.replicas(), layout, tokens, lengths);
  double best = kNever;
  int foreseen = 1;
  for (Size& size : WorthATry(space_of_one, job, tokens, layout)) {
    if (size.bound >= best) break;
    const double time = foreseer.TimeOf(&size.work);
    if (time >= best) continue;
    best = time;
    foreseen = size.work.size();
  }
  return foreseen;
}

}  // namespace penstock::core
