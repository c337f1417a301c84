// Which submitted batches are new, which were seen, and which must wait.
//
// Batches are accepted without gaps, once, and at most a window ahead of the slowest rank. The content of the
// last 4096 iterations is remembered as hashes, so that a client may safely submit again. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"

namespace penstock {

// SHA-256 of what makes a batch, its iteration and samples. `serialized`: the batch; it holds no maps and no
// unknown fields that matter, so its serialisation is canonical.
std::string ContentHash(const std::string& serialized);

class Admission {
 public:
  static constexpr size_t kRememberedIterations = 4096;

  explicit Admission(uint64_t first_iteration) : first_(first_iteration), next_(first_iteration) {}
  // `hashes`: of the last iterations before `next`.
  Admission(uint64_t first_iteration, uint64_t next, std::deque<std::string> hashes)
      : first_(first_iteration), next_(next), hashes_(std::move(hashes)) {}

  // The iteration that is expected next.
  uint64_t next_iteration() const { return next_; }
  // Of the last iterations before it.
  const std::deque<std::string>& hashes() const { return hashes_; }

  // How many batches of a request, from its first, are accepted already. `hashes` are the content hashes of
  // the consecutive iterations from `first`; iterations from `limit` on are beyond the window. Possible
  // errors: INVALID_ARGUMENT (before the job's first iteration), FAILED_PRECONDITION (a gap, or too old to
  // compare), ALREADY_EXISTS (other content), RESOURCE_EXHAUSTED (beyond the window, with RetryIteration).
  absl::StatusOr<size_t> CountKnown(uint64_t first, const std::vector<std::string>& hashes,
                                    uint64_t limit) const;

  // Of batches up to iteration `last`. Possible errors: RESOURCE_EXHAUSTED (beyond the window, with
  // RetryIteration).
  absl::Status CheckWindow(uint64_t last, uint64_t limit) const;

  // Takes the next iteration.
  void Accept(std::string hash);

 private:
  absl::Status CheckKnown(uint64_t iteration, const std::string& hash) const;
  absl::Status Gap(uint64_t first) const;

  const uint64_t first_;
  uint64_t next_;
  // Of the iterations next_ - hashes_.size() .. next_ - 1.
  std::deque<std::string> hashes_;
};

}  // namespace penstock
