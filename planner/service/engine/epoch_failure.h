// Why an epoch failed: every cause that was seen, the one that explains the others first.
//
// A rank that dies makes its peers report broken connections, often before its own silence is noticed. So
// causes are ranked: a lost rank, then one that left, then what ranks reported, each in order of arrival.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

// In the order in which they explain each other.
enum class FailureKind { kLost, kLeft, kDisagreed, kReported };

class EpochFailure {
 public:
  // The first cause of each rank is kept, later ones are its consequences. `text` names the rank.
  void Add(FailureKind kind, uint32_t rank, absl::string_view text);

  bool empty() const { return causes_.empty(); }
  bool Knows(uint32_t rank) const;

  // "rank 2 (10.0.0.3, incarnation 1234) was lost: no heartbeat for 5.0 s; then: rank 1 (...) reported: ...".
  // Empty when nothing failed. At most kShown causes.
  std::string Describe() const;

 private:
  static constexpr size_t kShown = 4;

  struct Cause {
    FailureKind kind;
    uint32_t rank;
    std::string text;
  };
  // Sorted by kind, then by arrival.
  std::vector<Cause> causes_;
};

}  // namespace penstock
