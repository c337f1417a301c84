// Simple ways to cut a batch into micro-batches. All take the size of each sample (tokens or time) and return
// groups of sample indices; no group is empty.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "planner/core/model/types.h"

namespace penstock::core {

using Groups = std::vector<std::vector<uint32_t>>;

// Consecutive samples, `size` of them in each group but perhaps the last.
Groups FixedSizeGroups(int samples, int size);

// Consecutive samples until `cap` is reached; a sample larger than `cap` is alone.
Groups BudgetGroups(absl::Span<const double> sizes, double cap);

// First-fit decreasing: largest sample first, each into the first group that has room (Johnson 1973); a
// sample larger than `cap` is alone.
Groups FirstFitDecreasing(absl::Span<const double> sizes, double cap);

// Rows of one length each, filled first-fit in order of arrival: a sample goes to the first row that has room
// for its source and its target. The rows in order: laid out again one after another, the next one begun when
// a sample does not fit, they come out the same.
Groups FirstFitRows(absl::Span<const SampleTokens> samples, RowLengths row);

// The consecutive parts of an order that end before each of `ends`, the last of which is its size.
Groups CutOrder(absl::Span<const uint32_t> order, absl::Span<const int> ends);

// Consecutive groups joined, `size` of them in each but perhaps the last.
Groups Join(const Groups& groups, int size);

// Largest first, each into the group that is smallest so far (LPT, Graham 1969). At most `count` groups.
// `small_ends`: the first and the last group get about a quarter of what the others get, because the pipeline
// fills with the first micro-batch and drains with the last; needs at least four groups to have an effect.
Groups BalancedGroups(absl::Span<const double> sizes, int count, bool small_ends = false);
// The same where DescendingOrder(sizes) is there already.
Groups BalancedGroups(absl::Span<const double> sizes, absl::Span<const uint32_t> descending, int count,
                      bool small_ends = false);

// Largest first, each into the group that would be done with it first; group g does speeds[g] in a unit of
// time (LPT on machines of unequal speed, Gonzalez, Ibarra and Sahni 1977). None stays empty unless there are
// fewer samples than groups; places are kept. Linear in sizes times groups.
Groups BalancedGroups(absl::Span<const double> sizes, absl::Span<const double> speeds);
// The same where some samples may not go into some groups: each into one that takes it. A group that takes
// none of those that are left when all others have one stays empty; a sample that no group takes goes into
// any.
using MayTake = absl::FunctionRef<bool(uint32_t sample, size_t group)>;
Groups BalancedGroups(absl::Span<const double> sizes, absl::Span<const double> speeds, MayTake may_take);

// Largest first, each into the group that lacks most of its target; group g is to have a share of all in
// proportion to weights[g] (LPT, Graham 1969, with unequal targets). Groups may stay empty; their places are
// kept.
// `descending`: DescendingOrder(sizes).
Groups WeightedGroups(absl::Span<const double> sizes, absl::Span<const uint32_t> descending,
                      absl::Span<const double> weights);
// The same where some samples may not go into some groups; one that no group takes goes into any.
Groups WeightedGroups(absl::Span<const double> sizes, absl::Span<const uint32_t> descending,
                      absl::Span<const double> weights, MayTake may_take);

// Indices of `sizes`, largest first; equal ones in order of index.
std::vector<uint32_t> DescendingOrder(absl::Span<const double> sizes);

}  // namespace penstock::core
