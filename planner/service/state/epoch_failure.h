// Why an epoch failed: every cause that was seen, the one that explains the others first.
//
// A rank that dies makes its peers report broken connections, often before its own silence is noticed. So
// causes are ranked: a lost rank, then one that left, then what ranks reported, each in order of arrival.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/store/v1/job_log.pb.h"

namespace penstock {

class EpochFailure {
 public:
  // The first cause of each rank is kept, later ones are its consequences.
  void Add(const store::v1::WorkerFailed& cause);

  bool empty() const { return causes_.empty(); }
  bool Knows(uint32_t rank) const;

  // "rank 2 (10.0.0.3) was lost: no heartbeat for 5.0 s; then: rank 1 (...) reported: ...".
  // Empty when nothing failed. At most kShown causes.
  std::string Describe() const;

  // Sorted by kind, then by arrival.
  const std::vector<store::v1::WorkerFailed>& causes() const { return causes_; }

 private:
  static constexpr size_t kShown = 4;

  std::vector<store::v1::WorkerFailed> causes_;
};

}  // namespace penstock
