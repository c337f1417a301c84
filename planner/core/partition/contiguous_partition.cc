#include "planner/core/partition/contiguous_partition.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace penstock::core {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The smallest a[i] + b[i]. Four at a time, because a minimum does not depend on the order.
double SmallestSum(const double* a, const double* b, int count) {
  double smallest[4] = {kInfinite, kInfinite, kInfinite, kInfinite};
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      const double sum = a[i + lane] + b[i + lane];
      smallest[lane] = sum < smallest[lane] ? sum : smallest[lane];
    }
  }
  for (; i < count; ++i) smallest[0] = std::min(smallest[0], a[i] + b[i]);
  return std::min(std::min(smallest[0], smallest[1]), std::min(smallest[2], smallest[3]));
}

// Bounds below the cost of the largest sample, as shares of it.
constexpr double kSmallBounds[] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2};

// Of the windows that end with `last`: the first one within the bound, or of one sample, as a position in the
// column.
int FirstWithin(const WindowTable& windows, int last, double bound) {
  const double* column = windows.column(last);
  const int size = last + 1 - windows.begin(last);
  if (size == 0) return 0;
  const double* first =
      std::partition_point(column, column + size - 1, [bound](double cost) { return cost > bound; });
  return static_cast<int>(first - column);
}

// Bounds between two that were tried.
struct BoundInterval {
  // Nothing between the two has a smaller objective.
  double objective = 0;
  double low = 0;
  double high = 0;
  double high_sum = 0;
};

struct LaterFirst {
  bool operator()(const BoundInterval& a, const BoundInterval& b) const {
    if (a.objective != b.objective) return a.objective > b.objective;
    return a.low > b.low;
  }
};

// Best-first search over intervals of bounds. The sum never rises with the bound; so between two bounds it is
// at least that of the upper one, while the largest micro-batch is above the lower one.
class BoundSearch {
 public:
  BoundSearch(const WindowTable& windows, const PartitionSearch& search)
      : windows_(windows), search_(search) {}

  std::vector<ContiguousPartition> Run(double smallest, double largest);

 private:
  // Returns the position of what was found.
  size_t Try(double bound);
  // The bounds above `low` and below what the partition at position `high` keeps.
  void Add(double low, size_t high);
  std::vector<ContiguousPartition> Ranked();
  // Appends the partitions of bounds below the one given.
  void AddSmall(double bound, std::vector<ContiguousPartition>* partitions);

  const WindowTable& windows_;
  const PartitionSearch& search_;
  std::vector<double> scratch_;
  std::vector<ContiguousPartition> found_;
  std::priority_queue<BoundInterval, std::vector<BoundInterval>, LaterFirst> open_;
  double best_ = kInfinite;
};

size_t BoundSearch::Try(double bound) {
  found_.push_back(PartitionWithinBound(windows_, bound, &scratch_));
  best_ = std::min(best_, search_.Objective(found_.back()));
  return found_.size() - 1;
}

void BoundSearch::Add(double low, size_t high) {
  const ContiguousPartition& upper = found_[high];
  if (upper.largest <= low * (1 + search_.resolution)) return;
  open_.push({search_.Objective(upper.sum, low), low, upper.largest, upper.sum});
}

std::vector<ContiguousPartition> BoundSearch::Run(double smallest, double largest) {
  if (found_.reserve(search_.runs + 2); windows_.samples() == 0) return {};
  Try(smallest);
  if (found_.front().ends.empty()) return {};
  if (largest > smallest) Add(smallest, Try(largest));
  while (!open_.empty() && static_cast<int>(found_.size()) < search_.runs && !search_.stop.stopped()) {
    const BoundInterval interval = open_.top();
    open_.pop();
    if (interval.objective > best_ * (1 + search_.slack)) break;
    const double middle = (interval.low + interval.high) / 2;
    const size_t found = Try(middle);
    Add(interval.low, found);
    // Above the middle nothing has changed but the lower end.
    if (interval.high > middle * (1 + search_.resolution)) {
      open_.push({search_.Objective(interval.high_sum, middle), middle, interval.high, interval.high_sum});
    }
  }
  std::vector<ContiguousPartition> partitions = Ranked();
  if (search_.stages > 1 || search_.replicas > 1) AddSmall(smallest, &partitions);
  return partitions;
}

void BoundSearch::AddSmall(double bound, std::vector<ContiguousPartition>* partitions) {
  for (const double share : kSmallBounds) {
    if (search_.stop.stopped()) return;
    ContiguousPartition partition = PartitionWithinBound(windows_, share * bound, &scratch_);
    const auto same = [&](const ContiguousPartition& other) { return other.ends == partition.ends; };
    if (std::any_of(partitions->begin(), partitions->end(), same)) continue;
    partitions->push_back(std::move(partition));
  }
}

std::vector<ContiguousPartition> BoundSearch::Ranked() {
  const auto objective = [this](const ContiguousPartition& partition) {
    return search_.Objective(partition);
  };
  std::stable_sort(found_.begin(), found_.end(), [&](const auto& a, const auto& b) {
    if (objective(a) != objective(b)) return objective(a) < objective(b);
    return a.ends < b.ends;
  });
  const auto same = [](const auto& a, const auto& b) { return a.ends == b.ends; };
  found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
  const auto bad = [&](const auto& partition) { return objective(partition) > best_ * (1 + search_.slack); };
  found_.erase(std::find_if(found_.begin(), found_.end(), bad), found_.end());
  return std::move(found_);
}

}  // namespace

ContiguousPartition PartitionWithinBound(const WindowTable& windows, double bound,
                                         std::vector<double>* scratch) {
  const int samples = windows.samples();
  // best[i]: smallest sum for samples 0..i-1.
  std::vector<double>& best = *scratch;
  best.resize(samples + 1);
  best[0] = 0;
  for (int last = 0; last < samples; ++last) {
    const int skipped = FirstWithin(windows, last, bound);
    const int begin = windows.begin(last) + skipped;
    best[last + 1] = SmallestSum(best.data() + begin, windows.column(last) + skipped, last + 1 - begin);
  }
  ContiguousPartition partition;
  if (best[samples] == kInfinite) return partition;
  partition.sum = best[samples];
  for (int end = samples; end > 0;) {
    const int last = end - 1;
    const double* column = windows.column(last);
    int position = FirstWithin(windows, last, bound);
    while (best[windows.begin(last) + position] + column[position] != best[end]) ++position;
    partition.ends.push_back(end);
    partition.largest = std::max(partition.largest, column[position]);
    end = windows.begin(last) + position;
  }
  std::reverse(partition.ends.begin(), partition.ends.end());
  return partition;
}

double LargestUsefulBound(const PartitionSearch& search, double objective) {
  if (search.stages == 1) return kInfinite;
  return (objective * (1 + search.slack) - search.least_sum / search.replicas) / (search.stages - 1);
}

std::vector<ContiguousPartition> SearchBounds(const WindowTable& windows, double smallest, double largest,
                                              const PartitionSearch& search) {
  return BoundSearch(windows, search).Run(smallest, largest);
}

}  // namespace penstock::core
