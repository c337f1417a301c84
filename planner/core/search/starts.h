// Where the dynamic policy's search begins: many divisions of a batch, cheap to make and unlike each other.
//
// Packed: for a range of numbers of micro-batches, samples balanced over them by time; ramps, whose first
// micro-batches are small, so that the pipeline fills early, and whose last ones are smaller, so that it
// drains early; first-fit decreasing and order of arrival to a cap on time. Padded: the dynamic programme
// over samples in an order in which neighbours are alike (partition/).
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/partition/groups.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

// A start of the search: groups to divide over replicas, or those of each replica in their order.
struct Start {
  Groups groups;
  std::vector<Groups> replicas;
  Layout layout = Layout::kPacked;
};

// By the layouts that the job allows. Padded ones are left out of LayoutChoice::kAuto where the profile makes
// padding pointless.
std::vector<Start> MakeStarts(const ScheduleSpace& space, const Job& job,
                              absl::Span<const SampleTokens> tokens);

// The balanced ones alone, where the job allows packed ones; else as MakeStarts: enough to know what a plan
// will take, but for some per cent.
std::vector<Start> MakeFewStarts(const ScheduleSpace& space, const Job& job,
                                 absl::Span<const SampleTokens> tokens);

// Packed ones with a little more and a little less than that many micro-batches a replica.
std::vector<Start> MakeStartsNear(const ScheduleSpace& space, const Job& job,
                                  absl::Span<const SampleTokens> tokens, int micro_batches);

// Micro-batches that a replica needs at least so that as many as a schedule has in flight fit with the least
// recompute that the job allows. `of_replica`: sums over the samples of a replica.
double RoomyMicroBatches(const ScheduleSpace& space, const TokenSums& of_replica);

}  // namespace penstock::core
