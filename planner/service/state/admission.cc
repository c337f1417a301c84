#include "planner/service/state/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/sha256.h"
#include "common/status/status_macros.h"
#include "penstock/client/retry_iteration.h"

namespace penstock {

std::string ContentHash(const std::string& serialized) { return Sha256(serialized); }

absl::Status Admission::CheckKnown(uint64_t iteration, const std::string& hash) const {
  const uint64_t oldest = next_ - hashes_.size();
  if (iteration < oldest) {
    return absl::FailedPreconditionError(
        absl::StrCat("iteration ", iteration, " is too old to compare: the last ", kRememberedIterations,
                     " are remembered, from ", oldest));
  }
  if (hashes_[iteration - oldest] != hash) {
    return absl::AlreadyExistsError(
        absl::StrCat("iteration ", iteration, " was submitted with other content"));
  }
  return absl::OkStatus();
}

absl::Status Admission::Gap(uint64_t first) const {
  return absl::FailedPreconditionError(
      absl::StrCat("batches[0].iteration is ", first, ", but iteration ", next_, " is expected next: a gap"));
}

absl::Status Admission::CheckWindow(uint64_t last, uint64_t limit) const {
  if (last < limit) return absl::OkStatus();
  return WithRetryIteration(
      absl::ResourceExhaustedError(
          absl::StrCat("iteration ", last, " is beyond the look-ahead window, which ends before ", limit,
                       ": retry from iteration ", next_, " when the slowest rank has reported more")),
      next_);
}

absl::StatusOr<size_t> Admission::CountKnown(uint64_t first, const std::vector<std::string>& hashes,
                                             uint64_t limit) const {
  if (first < first_) {
    return absl::InvalidArgumentError(
        absl::StrCat("batches[0].iteration is ", first, ", before the job's first_iteration ", first_));
  }
  const uint64_t last = first + hashes.size() - 1;
  if (first > next_) {
    PENSTOCK_RETURN_IF_ERROR(CheckWindow(last, limit));
    return Gap(first);
  }
  const size_t known = std::min<uint64_t>(hashes.size(), next_ - first);
  for (size_t i = 0; i < known; ++i) PENSTOCK_RETURN_IF_ERROR(CheckKnown(first + i, hashes[i]));
  if (known < hashes.size()) PENSTOCK_RETURN_IF_ERROR(CheckWindow(last, limit));
  return known;
}

void Admission::Accept(std::string hash) {
  hashes_.push_back(std::move(hash));
  if (hashes_.size() > kRememberedIterations) hashes_.pop_front();
  ++next_;
}

}  // namespace penstock
