// Which replicas side by side a strategy may have for lengths such as these, by estimates: a dynamic
// programme over ranks and lengths (Li et al. 2024, "Hydraulis", section 5.1: its strategy proposal).
//
//   std::vector<ProposedStrategy> proposed = ProposeStrategies(replicas, counts, {.ranks = 60, .meshes = 4});
//
// Samples of a batch are counted by length, the shortest first; each mesh of a strategy takes those of some
// lengths that follow each other, and the longest mesh of all should end early. What a plan would take is
// reckoned, not planned: as Hydraulis has it, work divided over the replicas of the mesh and a ramp for its
// stages; but a sample is never divided over replicas, work and what each micro-batch takes once are apart,
// and there are as many micro-batches as make the least of both. All ranks are taken.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/sample_estimate.h"

namespace penstock::core {

// One replica, of which a strategy may have any number.
struct ReplicaKind {
  int ranks = 1;
  // Of its pipeline.
  int positions = 1;
  // What it does for the iteration as a whole, nanoseconds (CostModel::WholeIterationNs).
  double whole_ns = 0;
  // Of a sample of each length.
  std::vector<SampleEstimate> of_length = {};
};

struct ProposedMesh {
  // Index of the kind.
  int kind = 0;
  int replicas = 0;
  friend bool operator==(const ProposedMesh&, const ProposedMesh&) = default;
};

struct ProposedStrategy {
  // Those for the longest samples first; each kind once.
  std::vector<ProposedMesh> meshes = {};
  // When its longest mesh ends, nanoseconds.
  double end_ns = 0;
};

struct ProposalLimits {
  int ranks = 1;
  // At most so many side by side.
  int meshes = 4;
};

// When replicas of a kind end that have `counts` samples of each length, from `first` up to `last`, which is
// left out. Infinite where one of these does not fit.
double EndOfReplicas(const ReplicaKind& kind, absl::Span<const double> counts, int first, int last,
                     int replicas);

// When the longest of these meshes ends, each of which takes lengths that follow each other, as is best; the
// last of them the shortest. Infinite where they cannot hold the samples.
double EndOfStrategy(absl::Span<const ReplicaKind> kinds, absl::Span<const double> counts,
                     absl::Span<const ProposedMesh> meshes);

// By number of meshes, the fewest first: of each number the strategy that ends first, where it ends before
// all with fewer. `counts`: samples of each length, which may be fractions of one in the mean of several
// batches; those beyond are not there. Empty where no replicas of all ranks can hold them.
std::vector<ProposedStrategy> ProposeStrategies(absl::Span<const ReplicaKind> kinds,
                                                absl::Span<const double> counts,
                                                const ProposalLimits& limits);

// Indexes of those that no other kind can always stand in for: as many of its replicas as have the same ranks
// hold the same lengths, and take no longer for any of them.
std::vector<int> KindsOfUse(absl::Span<const ReplicaKind> kinds);

}  // namespace penstock::core
